"""The lists of a session that its client has left, as its log has them: for a process that has not seen
them, or has forgotten them for other sessions.

    turn  q2 a2  end     what the view shows here was the list of its client
    turn  q3  view       and is left here: the view does not have q2 and a2 any more
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.domain.entry import Entry
from holdfast.domain.log.fold import Log
from holdfast.domain.record.grouping import gather_shown
from holdfast.domain.record.memory import LastList, Memory, held_of
from holdfast.formats import registry
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.session_log import SessionLog
from holdfast.server.proxy.marks import Marks, marks_of

_BETWEEN = ("turn", "end")
"""At these entries a list is as its client knows it: with its last answer, without the next question."""


class LeftBranch(NamedTuple):
    """A list with its answer, as it was left, and what its client knew of it."""

    marks: Marks
    format: str
    memory: Memory


def stored_branches(session: SessionLog, format: str, most: int) -> list[LeftBranch]:
    """The last lists that were left, so many at most, the newest last."""
    return session.reading(_stored_branches, session, format, most)


def _stored_branches(session: SessionLog, format: str, most: int) -> list[LeftBranch]:
    left = _left_at(_entries(session, bodies=False))[-most:]
    if not left:
        return []
    log, branches = Log(), []
    for entry in _entries(session, bodies=True):
        log.add([entry])
        if entry.seq in left:
            branches.append(branch_of(log, Contexts(), format))
        if entry.seq == left[-1]:
            break
    return branches


def _left_at(entries: Iterator[Entry]) -> list[int]:
    """Up to which entries the log shows a list that was left after that."""
    log = Log()
    at = 0
    left: list[int] = []
    for entry in entries:
        if entry.kind != "view":
            log.add([entry])
            if entry.kind in _BETWEEN:
                at = entry.seq
            continue
        # Looked at here alone: a long session has many more turns than views.
        shown = {seen.id for seen in log.visible if seen.seq <= at}
        log.add([entry])
        if not shown.issubset(seen.id for seen in log.visible):
            left.append(at)
    return left


def branch_of(
    log: Log, contexts: Contexts, format: str, *, leading: int = 0
) -> LeftBranch:
    """What a log shows as a client knows it that was shown it: its own list, and what was answered."""
    shown = gather_shown(contexts.shown(log, registry.get(format)))
    # What stands for results that have not come is no message.
    shown = [each for each in shown if each[1]]
    memory = Memory()
    memory.keep(format, LastList(held_of(shown), leading, log.head))
    marks: list[tuple[str, str]] = []
    for payload, _ in shown:
        # An answer of the Responses API is the list of its items.
        marks += marks_of(payload if isinstance(payload, list) else [payload])
    return LeftBranch(tuple(marks), format, memory)


def _entries(session: SessionLog, *, bodies: bool) -> Iterator[Entry]:
    after = 0
    while page := session.page(after, bodies=bodies):
        yield from page
        after = page[-1].seq
