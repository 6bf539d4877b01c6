"""The tool calls of a session, each with its state and with what it was called with."""

from collections.abc import Iterator

from holdfast.domain.message import Call
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall, tool_calls
from holdfast.runtime.live.message import parts_of
from holdfast.runtime.live.session_log import SessionLog


def calls(session: SessionLog) -> list[ToolCall]:
    """Every call, in order. Arguments are read from the payloads, a page of the log at a time
    (I-24).
    """
    log = session.history()
    with session.lock:
        standing = log.natural
        callers = [seen for seen in standing if seen.note.calls]
        # By seq, as the pages of the log are: each page is read once.
        callers.sort(key=lambda seen: seen.seq)
        said = dict(_arguments(session, callers))
        return tool_calls(
            standing, running=log.running, asks=log.asks, said=said, gone=log.gone
        )


def _arguments(
    session: SessionLog, callers: list[StoredMessage]
) -> Iterator[tuple[str, list[str]]]:
    """What each of these messages calls with, by id."""
    bodies: dict[int, bytes] = {}
    for seen in callers:
        if not seen.body and seen.seq not in bodies:
            bodies = {entry.seq: entry.body for entry in session.page(seen.seq - 1)}
        try:
            parts = parts_of(seen.note, seen.body or bodies[seen.seq])
            yield seen.id, [part.arguments for part in parts if isinstance(part, Call)]
        except Exception:
            # A payload that can't be read: what was called is noted, with what is not (I-25).
            yield seen.id, ["" for _ in seen.note.calls]
