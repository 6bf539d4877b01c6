"""A stream of the Durable Streams protocol: what its records make it, and what a request may do to it.

A stream is an append-only sequence of bytes, or of JSON values, at an address. Each change of it is one
record; its state is the fold of its records, and every decision is a function of that state. Offsets
are counted in bytes, so they grow with every append and sort as text.
"""

import json
from bisect import bisect_right
from functools import partial
from typing import Any, NamedTuple

import msgspec

JSON = "application/json"
BYTES = "application/octet-stream"
ProducerTuple = tuple[str, int, int]
"""Who wrote, in which epoch, and the number of what it wrote."""


class StreamRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op"):
    """One change of a stream."""


class StreamCreated(StreamRecord, frozen=True, tag="created"):
    """It begins. A fork has what its source had up to `fork_offset`, and `fork_sub` of what follows."""

    content_type: str
    ttl_s: int | None = None
    expires_at: str | None = None
    source: str | None = None
    fork_offset: int = 0
    fork_sub: int = 0


class StreamAppended(StreamRecord, frozen=True, tag="appended"):
    """Something was added, or it was closed, or both at once."""

    data: bytes = b""
    producer: ProducerTuple | None = None
    seq: str | None = None
    close: bool = False


class StreamForked(StreamRecord, frozen=True, tag="forked"):
    """The stream at `path` was forked off."""

    path: str


class StreamUnforked(StreamRecord, frozen=True, tag="unforked"):
    """That fork is gone."""

    path: str


class StreamDeleted(StreamRecord, frozen=True, tag="deleted"):
    """It is gone; its address is taken as long as it has forks."""


AnyRecord = (
    StreamCreated | StreamAppended | StreamForked | StreamUnforked | StreamDeleted
)


class StreamRefusal(Exception):
    """What can't be done, as it is answered."""

    def __init__(self, status: int, detail: str, **headers: Any) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {_name(name): str(value) for name, value in headers.items()}


def _name(name: str) -> str:
    return name.replace("_", "-")


class StreamLog:
    """A stream as its records have made it."""

    def __init__(self) -> None:
        self.created: StreamCreated | None = None
        # Of each piece, the offset behind it and the place at which it is kept.
        self.ends: list[int] = []
        self.places: list[int] = []
        self.closed = False
        self.closed_by: ProducerTuple | None = None
        self.producers: dict[str, tuple[int, int]] = {}
        self.seq: str | None = None
        self.forks: set[str] = set()
        self.deleted = False

    def fold(self, record: AnyRecord, place: int) -> None:
        """One more record, which is kept at this place: its bytes are not held here."""
        if isinstance(record, StreamCreated):
            self.created = record
        elif isinstance(record, StreamAppended):
            self._append(record, place)
        elif isinstance(record, StreamForked):
            self.forks.add(record.path)
        elif isinstance(record, StreamUnforked):
            self.forks.discard(record.path)
        else:
            self.deleted = True

    def end(self) -> None:
        """Its session was ended or erased, and takes no more records."""
        self.deleted = True
        # None of them could be taken off the list any more, and each has a copy of what
        # it shares: its address would be taken for ever.
        self.forks.clear()

    def _append(self, record: StreamAppended, place: int) -> None:
        if record.data:
            self.ends.append(self.tail + len(record.data))
            self.places.append(place)
        if record.producer is not None:
            id, epoch, seq = record.producer
            self.producers[id] = (epoch, seq)
        if record.seq is not None:
            self.seq = record.seq
        # The producer is kept with the close: when it sends the same close again
        # because the answer was lost, `_when_closed` confirms it instead of refusing.
        if record.close:
            self.closed, self.closed_by = True, record.producer

    @property
    def tail(self) -> int:
        """The offset at its end."""
        return self.ends[-1] if self.ends else 0

    @property
    def content_type(self) -> str:
        return BYTES if self.created is None else self.created.content_type

    @property
    def is_json(self) -> bool:
        return media_of(self.content_type) == JSON

    def first_after(self, offset: int) -> int:
        """Which piece comes first after this offset."""
        # An offset inside a piece gives that piece, whole. Readers are only
        # ever told offsets at the end of one.
        return bisect_right(self.ends, offset)


def media_of(content_type: str | None) -> str:
    """A content type without its parameters, in lower case."""
    return (content_type or BYTES).partition(";")[0].strip().lower()


def written(offset: int) -> str:
    """An offset as clients have it: it sorts as text."""
    return f"{0:016d}_{offset:016d}"


def read_offset(text: str) -> int:
    """The offset in a text that `written` has made."""
    return int(text.partition("_")[2])


def packed(body: bytes, *, is_json: bool, is_first: bool = False) -> bytes:
    """A body as it is kept: JSON on one line, an array as its values."""
    if not is_json:
        return body
    try:
        value = json.loads(body)
        values = value if isinstance(value, list) else [value]
        # A comma after every value: pieces can be joined as they are, and `shown` makes an
        # array of any number of them without parsing them again.
        data = b"".join(_json(each) + b"," for each in values)
    except (ValueError, RecursionError):
        raise StreamRefusal(400, "Invalid JSON") from None
    if not values and not is_first:
        raise StreamRefusal(400, "Empty arrays are not allowed")
    return data


def _json(value: Any) -> bytes:
    # What Python reads and JSON does not have, NaN and numbers without an end, is refused: one such
    # value, and nobody could read the array that it is told in.
    told = partial(json.dumps, value, separators=(",", ":"), allow_nan=False)
    try:
        return told(ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half of a character is no UTF-8; its escape is JSON.
        return told().encode()


def shown(pieces: list[bytes], *, is_json: bool) -> bytes:
    """Pieces as a client reads them: values in an array, or bytes."""
    joined = b"".join(pieces)
    return b"[" + joined.removesuffix(b",") + b"]" if is_json else joined


class Append(NamedTuple):
    """A request to append, to close, or both."""

    data: bytes
    content_type: str | None
    producer: ProducerTuple | None
    seq: str | None
    close: bool


class AppendVerdict(NamedTuple):
    """What a request comes to: what is stored, and what is answered."""

    record: StreamAppended | None
    status: int
    headers: dict[str, str]


def judge(log: StreamLog, asked: Append) -> AppendVerdict:
    """Whether something may be appended; `StreamRefusal` if not."""
    if log.deleted:
        raise StreamRefusal(410, "Stream is gone")
    # Before the content type and the sequence number: whoever writes to a closed stream
    # is told that it is closed, whatever else would be wrong.
    if log.closed:
        return _when_closed(log, asked)
    if asked.data and media_of(asked.content_type) != media_of(log.content_type):
        raise StreamRefusal(409, "Content-type mismatch")
    if asked.producer is not None:
        again = _judge_producer(log, asked.producer)
        if again is not None:
            # A repeated append is confirmed and stores nothing: its sender lost the
            # first answer.
            return AppendVerdict(None, 204, _of_producer(asked.producer, again))
    if asked.seq is not None and log.seq is not None and asked.seq <= log.seq:
        raise StreamRefusal(409, "Sequence conflict")
    data = packed(asked.data, is_json=log.is_json) if asked.data else b""
    record = StreamAppended(data, asked.producer, asked.seq, asked.close)
    headers = {"Stream-Next-Offset": written(log.tail + len(data))}
    if asked.close:
        headers["Stream-Closed"] = "true"
    if asked.producer is not None:
        headers.update(_of_producer(asked.producer, asked.producer[2]))
    # A producer can tell by the status whether its data was stored (200) or was a
    # repetition (204). Everybody else is always answered 204.
    status = 200 if asked.producer is not None and data else 204
    return AppendVerdict(record, status, headers)


def _when_closed(log: StreamLog, asked: Append) -> AppendVerdict:
    headers = {"Stream-Next-Offset": written(log.tail), "Stream-Closed": "true"}
    if asked.producer is not None:
        if asked.producer == log.closed_by:
            again = _of_producer(asked.producer, asked.producer[2])
            return AppendVerdict(None, 204, {**headers, **again})
        # A producer that was fenced off is told so first: it has to stop, whether the
        # stream is closed or not.
        epoch, _ = log.producers.get(asked.producer[0], (asked.producer[1], 0))
        if asked.producer[1] < epoch:
            raise StreamRefusal(403, "Stale producer epoch", Producer_Epoch=epoch)
    elif asked.close and not asked.data:
        return AppendVerdict(None, 204, headers)
    raise StreamRefusal(
        409,
        "Stream is closed",
        Stream_Closed="true",
        Stream_Next_Offset=written(log.tail),
    )


def _judge_producer(log: StreamLog, producer: ProducerTuple) -> int | None:
    """None if it is the next one of this producer; its last number if it came before."""
    id, epoch, seq = producer
    known = log.producers.get(id)
    if known is None or epoch > known[0]:
        if seq != 0 and known is not None:
            raise StreamRefusal(400, "New epoch must start with sequence 0")
        if seq != 0:
            raise _gap(0, seq)
        return None
    if epoch < known[0]:
        raise StreamRefusal(403, "Stale producer epoch", Producer_Epoch=known[0])
    if seq <= known[1]:
        return known[1]
    if seq > known[1] + 1:
        raise _gap(known[1] + 1, seq)
    return None


def _gap(expected: int, received: int) -> StreamRefusal:
    headers = {"Producer_Expected_Seq": expected, "Producer_Received_Seq": received}
    return StreamRefusal(409, "Producer sequence gap", **headers)


def _of_producer(producer: ProducerTuple, seq: int) -> dict[str, str]:
    return {"Producer-Epoch": str(producer[1]), "Producer-Seq": str(seq)}


def inherited(source: StreamLog, offset: int | None, sub: int) -> tuple[int, int]:
    """What a fork has of its source: so many pieces, and so many bytes or values of the next one."""
    upto = source.tail if offset is None else offset
    if upto > source.tail:
        raise StreamRefusal(400, "Fork offset beyond source stream length")
    count = source.first_after(upto)
    # A sub-offset counts into the piece after the offset, so it needs both: an offset,
    # and a piece behind it.
    if sub and (offset is None or count == len(source.ends)):
        raise StreamRefusal(400, "Invalid fork sub-offset")
    return count, sub


def beginning(piece: bytes, sub: int, *, is_json: bool) -> bytes:
    """So many bytes or values of a piece."""
    whole = json.loads(b"[" + piece.removesuffix(b",") + b"]") if is_json else piece
    if sub > len(whole):
        raise StreamRefusal(400, "Invalid fork sub-offset")
    if not is_json:
        return piece[:sub]
    return b"".join(_json(each) + b"," for each in whole[:sub])


def is_same(
    log: StreamLog, wanted: StreamCreated, *, closed: bool, has_offset: bool
) -> bool:
    """Whether a stream is what somebody wants to create."""
    known = log.created
    assert known is not None
    # Without an offset the fork was made at what was the source's end then. The source
    # may have grown since; the request, sent again, is still the same one.
    return (
        media_of(known.content_type) == media_of(wanted.content_type)
        and known.source == wanted.source
        and (known.fork_offset == wanted.fork_offset or not has_offset)
        and known.fork_sub == wanted.fork_sub
        and (known.ttl_s, known.expires_at) == (wanted.ttl_s, wanted.expires_at)
        and log.closed == closed
    )
