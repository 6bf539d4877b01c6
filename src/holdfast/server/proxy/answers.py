"""What an answer says, read from a copy of its bytes: server-sent events, or one JSON object, as the
chunks of a format.

What is passed on is never made here: the bytes go as they came. What of them may go is told, though.
An event that has not come to its end is not stored, so its beginning is held back.
"""

import json
import re
import zlib
from typing import Any

from holdfast.server.proxy.dialects import ANTHROPIC, CHAT, RESPONSES, Dialect

ENCODINGS = ("identity", "gzip", "deflate")
"""What can be read. Others are not asked for."""
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_MARK_MAX = 3
"""So much of a blank line may stand before where a piece was cut."""
# Not `splitlines`, which also divides at characters that JSON may have in a string.
_LINE = re.compile(r"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""What a line of server-sent events begins with."""
_DONE = "[DONE]"
_FIRST = "0"
"""The choice that is stored."""
_STOPPED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
_CODE = re.compile(r"[a-z0-9_.-]{1,60}")
_WORD = re.compile(r"[a-z]{0,20}[0-9]{0,4}")
_KEYS = ("sk-", "sk_", "pk-", "gsk_", "xai-", "key-", "aiza")
"""What keys begin with."""
_ENDS = {
    "message_stop",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
}


EVENT_MAX = 64 << 20


class EventTooLarge(Exception):
    """An event that has come to no end."""


class InflatedTooLarge(Exception):
    """A compressed body that says more than it may."""


class EventReader:
    """Server-sent events, in pieces as they come over a connection."""

    def __init__(self, encoding: str) -> None:
        self._decoder = None if encoding in ("", "identity") else Inflater()
        # Both grow in place: a large event comes in thousands of pieces.
        self._held = bytearray()
        self._rest = bytearray()
        """What came behind the last whole event."""

    def feed(self, data: bytes) -> tuple[list[str], bytes]:
        """The data of the events that are whole now, and the bytes that may be passed on once those
        are stored.
        """
        plain = data if self._decoder is None else self._decoder.feed(data)
        # Its end may be cut in two; what was looked through before is not looked through again.
        start = max(0, len(self._rest) - _MARK_MAX)
        self._rest += plain
        events, end = whole_events(self._rest, start)
        del self._rest[:end]
        if len(self._rest) > EVENT_MAX:
            raise EventTooLarge("an event of the answer is too large")
        self._held += data
        if self._decoder is None:
            cut = len(self._held) - len(self._rest)
        else:
            # Where an event ends in compressed bytes can't be told: they wait for its end.
            cut = 0 if self._rest else len(self._held)
        passed = bytes(self._held[:cut])
        del self._held[:cut]
        return events, passed

    def rest(self) -> bytes:
        """What was held back when the source ended."""
        held = bytes(self._held)
        self._held.clear()
        return held


class Inflater:
    """Plain bytes of compressed ones, gzip or deflate, in pieces as they come."""

    def __init__(self) -> None:
        self._member: Any = None

    def feed(self, data: bytes, most: int | None = None) -> bytes:
        """What these bytes say. `zlib.error` when they are not compressed; `InflatedTooLarge` when they
        say more than `most` bytes, of which no more are made than that.
        """
        plain = b""
        while data:
            if self._member is None:
                # gzip or zlib, as the bytes themselves say
                self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            # For zlib, 0 is no limit at all.
            room = 0 if most is None else most + 1 - len(plain)
            plain += self._member.decompress(data, room)
            if most is not None and len(plain) > most:
                raise InflatedTooLarge
            # Several may stand one after the other.
            data = self._member.unused_data
            if self._member.eof:
                self._member = None
        return plain


def plain_body(encoding: str, body: bytes, most: int | None = None) -> bytes:
    """A whole body without its `Content-Encoding`; `InflatedTooLarge` when it is larger than `most`."""
    return body if encoding in ("", "identity") else Inflater().feed(body, most)


def whole_events(raw: bytes | bytearray, start: int = 0) -> tuple[list[str], int]:
    """The data of all events that are whole, and where the last of them ends. Up to `start`, none
    does.
    """
    found, begin = [], 0
    for end in _BLANK_LINE.finditer(raw, start):
        data = []
        # Only the copy that is read: the client gets the bytes as they are.
        for line in _LINE.split(raw[begin : end.end()].decode(errors="replace")):
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        if data:
            found.append("\n".join(data))
        begin = end.end()
    return found, begin


def looks_like_events(begun: bytes) -> bool | None:
    """Whether a body that begins so is one of server-sent events; None when it can't be told yet."""
    line = begun.removeprefix(_BOM).lstrip(b"\r\n")
    if line.startswith(_FIELDS):
        return True
    return None if any(field.startswith(line) for field in _FIELDS) else False


class AnswerReader:
    """What the events of one answer say. `is_over` when nothing can follow; `error` is the kind of an
    error that stood among them.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._is_marked = self.is_over = False
        self._choices: dict[str, bool] = {}
        """Those that have begun, and whether each has its finish reason."""
        self.error: str | None = None
        self.response_id: str | None = None

    @property
    def is_ended(self) -> bool:
        """Whether its API's own mark of the end was there: of all choices that have begun, since not all
        servers say `[DONE]`, too.
        """
        return self._is_marked or (bool(self._choices) and all(self._choices.values()))

    def read(self, events: list[str]) -> list[Any]:
        """The chunks in these events."""
        chunks = []
        for data in events:
            if data.strip() == _DONE:
                self._is_marked = self.is_over = True
                # Clients take that for the end, whether a reason was given or not.
                if self._choices.get(_FIRST) is False:
                    chunks.append(_STOPPED)
                continue
            try:
                chunk = json.loads(data)
            # JSON that is nested too deeply raises RecursionError, which is no
            # ValueError.
            except (ValueError, RecursionError):
                continue
            if isinstance(chunk, dict):
                self._look_at(chunk)
                chunks.append(chunk)
        return chunks

    def _look_at(self, chunk: dict[str, Any]) -> None:
        kind = chunk.get("type")
        # Chat completions have other marks of their end: `[DONE]`, and the finish
        # reasons below.
        if kind in _ENDS and self._dialect is not CHAT:
            self._is_marked = self.is_over = True
        # An error is an end, too. The answer has not broken off: the provider has said
        # all that it will say.
        if kind == "response.failed" or kind == "error" or chunk.get("error"):
            self._is_marked = True
            self.error = _kind_of_error(chunk)
        response = chunk.get("response")
        if isinstance(response, dict) and isinstance(response.get("id"), str):
            self.response_id = response["id"]
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict):
                index = str(choice.get("index") or _FIRST)
                is_finished = bool(choice.get("finish_reason"))
                self._choices[index] = self._choices.get(index, False) or is_finished


def _kind_of_error(chunk: dict[str, Any]) -> str:
    error = chunk.get("error")
    if error is None and isinstance(chunk.get("response"), dict):
        error = chunk["response"].get("error")
    if isinstance(error, dict):
        chunk = error
    for name in ("type", "code"):
        if is_code(str(chunk.get(name, ""))):
            return str(chunk[name])
    return "error"


def is_code(told: str) -> bool:
    """Whether this is a name that an API has for an error. Anything else may say what the request said,
    its key for example, and is stored nowhere.
    """
    if not _CODE.fullmatch(told) or told.startswith(_KEYS):
        return False
    # Words, and numbers; what has both, or is longer, may be a secret.
    return all(map(_WORD.fullmatch, re.split("[_.-]", told)))


def whole_chunks(dialect: Dialect, body: dict[str, Any]) -> list[Any]:
    """An answer that was not streamed, as chunks of its format; none when it is no message."""
    if dialect is CHAT:
        return [body] if body.get("choices") else []
    if dialect is RESPONSES:
        status = body.get("status") or "completed"
        if not isinstance(body.get("output"), list) or status == "failed":
            return []
        kind = "response.incomplete" if status == "incomplete" else "response.completed"
        return [
            {"type": "response.created", "response": body},
            {"type": kind, "response": body},
        ]
    assert dialect is ANTHROPIC
    if not isinstance(body.get("content"), list):
        return []
    # As a stream begins: with a message that is empty, which the blocks then fill.
    begun = {**body, "content": []}
    chunks: list[Any] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(body["content"]):
        chunks += _block_chunks(index, block)
    delta = {"stop_reason": body.get("stop_reason")}
    usage = body.get("usage") or {}
    chunks.append({"type": "message_delta", "delta": delta, "usage": usage})
    return [*chunks, {"type": "message_stop"}]


def prefill_chunks(words: str) -> list[Any]:
    """What an answer has to begin with, as chunks before its own: the text that it begins with goes on
    from there.
    """
    if not words:
        return []
    start: dict[str, Any] = {"type": "content_block_start", "index": 0}
    return [{**start, "content_block": {"type": "text", "text": words}}]


def _block_chunks(index: int, block: Any) -> list[Any]:
    stop = {"type": "content_block_stop", "index": index}
    start: dict[str, Any] = {"type": "content_block_start", "index": index}
    return [{**start, "content_block": block}, stop]
