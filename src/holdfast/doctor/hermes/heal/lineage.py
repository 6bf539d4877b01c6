"""Healing what lies between the sessions of a Hermes store: lineage that was lost, turns in the
wrong session.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import HermesCase, look, shown
from holdfast.doctor.hermes.detect.session import without_child, written_after_end
from holdfast.importers.hermes.records import HermesRow, HermesSession, words

AFTER_END, NO_CHILD = "hermes/written-after-end", "hermes/compression-without-child"


class LineageChanges(msgspec.Struct):
    """What changed between sessions: links and ends, and rows that came to a session from
    another.
    """

    sessions: dict[str, HermesSession]
    changes: dict[str, list[Change]]
    gone: dict[str, set[int]]
    come: dict[str, list[tuple[HermesRow, ...]]]

    def rows(self, session: str, stored: Sequence[HermesRow]) -> Sequence[HermesRow]:
        """A session's rows, without those that left it and with those that came to it."""
        rows = [row for row in stored if row.id not in self.gone.get(session, ())]
        for turn in self.come.get(session, ()):
            place = _place(rows, turn[0])
            rows[place:place] = turn
        return rows


def heal_lineage(kin: LineageChanges, case: HermesCase) -> None:
    """A session that a compaction ended is continued by its chat's next one, or goes on."""
    for finding in without_child(look(case)):
        session, following = kin.sessions[case.session.id], case.following
        place = f"sessions.id={session.id}"
        before = "ended by a compaction, and not continued"
        # One that has a parent, or began before the end, is not what came of the compaction.
        if (
            following is not None
            and following.parent is None
            and following.started_at >= (session.ended_at or 0)
        ):
            child = replace(kin.sessions[following.id], parent=session.id)
            kin.sessions[child.id] = child
            after = f"continued by {child.id}"
        else:
            kin.sessions[session.id] = replace(session, ended_at=None, end_reason=None)
            after = "opened again"
        _note_change(kin, Change(finding.rule.name, session.id, place, before, after))


def heal_places(kin: LineageChanges, case: HermesCase) -> None:
    """Turns that were written to a session after its end go to the one that the chat was in."""
    for finding in written_after_end(look(case)):
        source, target = case.session.id, str(finding.data)
        kin.gone.setdefault(source, set()).update(row.id for row in finding.rows)
        moved = tuple(replace(row, session=target) for row in finding.rows)
        kin.come.setdefault(target, []).append(moved)
        # Counters follow the rows, so that no drift is found that healing has made.
        for session, more in ((source, -len(moved)), (target, len(moved))):
            known = kin.sessions[session]
            if known.message_count is not None:
                count = max(0, known.message_count + more)
                kin.sessions[session] = replace(known, message_count=count)
        row = finding.rows[0]
        before, after = (
            f"{shown(words(row))} in {source}",
            f"{shown(words(row))} in {target}",
        )
        _note_change(kin, Change(finding.rule.name, source, row.place, before, after))


def _note_change(kin: LineageChanges, change: Change) -> None:
    kin.changes.setdefault(change.session, []).append(change)


def _place(rows: Sequence[HermesRow], question: HermesRow) -> int:
    """Where a turn belongs: before the first one that began later."""
    for place, row in enumerate(rows):
        # Before a question only: anywhere else it would stand in the middle of a turn.
        if row.role == "user" and row.timestamp > question.timestamp:
            return place
    return len(rows)


Lookup = Callable[[HermesSession], HermesCase]


def between(
    sessions: Mapping[str, HermesSession],
    case_of: Lookup,
    *,
    lineage: bool,
    places: bool,
) -> LineageChanges:
    """All healing between sessions; a case is asked for only where something may be wrong."""
    # A copy: these are the store's own sessions, which an examination reads.
    kin = LineageChanges(dict(sessions), {}, {}, {})
    for session in sessions.values():
        if session.ended_at is None:
            continue
        if lineage and session.end_reason == "compression":
            heal_lineage(kin, case_of(session))
        # Without a key there is no chat that could have gone on in another session.
        if places and session.key:
            heal_places(kin, case_of(session))
    return kin
