"""Server-sent events, as bytes: the frames of our own stream, and those of others.

    event: chunk
    id: WyI0ZjA…
    data: {"message_id":"0199…","text":"Hel"}

A frame ends with an empty line, and counts when that has come: a reader that is cut off inside one
has not had it, and its `id` is not the one that the reader comes back with.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.exporters.entry_json import EntryRecord, encoded, record
from holdfast.server.streams.occurrence import Occurrence

RETRY_MS = 1000
"""How long a browser waits before it comes back."""
HEARTBEAT = b":\n\n"
"""A comment: it says that somebody is there."""


class StreamedEvent(msgspec.Struct, frozen=True):
    """An event of a stream, as its reader has it: `data` is JSON, `id` a cursor to come back with."""

    data: str
    event: str = "message"
    id: str = ""


class StreamedEntry(EntryRecord):
    """An entry of the log. `text` are those words of message `message_id` that no chunk has
    brought.
    """

    message_id: str | None = None
    text: str = ""


def frame(event: str, cursor: str, data: Any) -> bytes:
    """One event of our own stream."""
    head = f"event: {event}\nid: {cursor}\ndata: ".encode()
    return head + _line(data) + b"\n\n"


def plain_frames(events: Iterable[Any], cursor: str | None = None) -> bytes:
    """Events without names, for readers that take every `data` line for theirs. The last one has
    the cursor: all that it stands for is told then.
    """
    made = [b"data: " + _line(event) + b"\n\n" for event in events]
    if made and cursor is not None:
        made[-1] = f"id: {cursor}\n".encode() + made[-1]
    return b"".join(made)


def _line(data: Any) -> bytes:
    """A value as JSON on one line."""
    line = encoded(data)
    # Between the tokens of a payload that came from another store: here it would end the line.
    return line if b"\r" not in line else encoded(msgspec.json.decode(line))


def opening(cursor: str) -> bytes:
    """What a stream begins with: nothing is told by it, and a reader that is cut off right after
    it knows where it was.
    """
    return f"retry: {RETRY_MS}\nid: {cursor}\n\n".encode()


def own_frame(occurrence: Occurrence) -> bytes:
    """An occurrence on our own stream. Written once, however many readers there are."""
    if occurrence.frame is None:
        occurrence.frame = _written(occurrence)
    return occurrence.frame


def _written(occurrence: Occurrence) -> bytes:
    if occurrence.kind == "entry":
        assert occurrence.entry is not None
        told = msgspec.structs.asdict(record(occurrence.entry))
        data: Any = StreamedEntry(
            **told, message_id=occurrence.message_id, text=occurrence.text
        )
    elif occurrence.kind == "open":
        data = {"message_id": occurrence.message_id, "turn": occurrence.turn}
    elif occurrence.kind == "gap":
        data = {"from": occurrence.first, "to": occurrence.last}
    elif occurrence.text:
        data = {"message_id": occurrence.message_id, "text": occurrence.text}
    else:
        # Words alone are counted by a cursor: all else is told with the message.
        return b""
    return frame(occurrence.kind, occurrence.cursor, data)
