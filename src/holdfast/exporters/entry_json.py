"""An entry of the log as a JSON object: how `export --as holdfast` and `tail --json` write it.

    {"seq": 5, "kind": "message", "turn": 1, "id": "0199…", "at": 1763186281000, "note": {…}, "body": {…}}

`note` and `body` are the stored JSON itself, byte for byte; without one, null. So nothing is lost.
"""

from typing import Any

import msgspec

from holdfast.domain.entry import Entry


class EntryRecord(msgspec.Struct):
    """An entry, ready to be encoded."""

    seq: int
    kind: str
    turn: int | None
    id: str
    at: int
    note: msgspec.Raw | None
    body: msgspec.Raw | None


def record(entry: Entry) -> EntryRecord:
    """The entry for programs."""
    return EntryRecord(
        entry.seq,
        entry.kind,
        entry.turn,
        entry.id.hex(),
        entry.at,
        _raw(entry.note),
        _raw(entry.body),
    )


def _raw(stored: bytes) -> msgspec.Raw | None:
    """Stored JSON as it is, as long as it stays on its line."""
    if not stored:
        return None
    # What came from another store may have line breaks between its tokens, and here a line is an
    # entry.
    if b"\n" in stored:
        stored = encoded(msgspec.json.decode(stored))
    return msgspec.Raw(stored)


def encoded(value: Any) -> bytes:
    """A value as JSON; halves of characters become escapes (FAULTS H7)."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # The standard library's encoder is slow, and hardly ever needed.
        import json

        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What the standard library's encoder does not know: our values, and JSON that is encoded
    already.
    """
    import json

    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    return msgspec.structs.asdict(value)
