"""A Hermes session as the doctor looks at it: its rows, and all around it that matters to them.

Before any defect is looked for, rows that the user took back are left out, copies that a compaction
made are folded, and so are rows that repeat a history stored twice. What is left in `spoken` is
what somebody said, in order; a summary among it closes the turn before it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from holdfast.doctor.finding import Finding, Findings
from holdfast.doctor.hermes.rules import RULE
from holdfast.importers.hermes.compaction_copies import Folded, fold, key
from holdfast.importers.hermes.convert import Context
from holdfast.importers.hermes.records import (
    CompactionLock,
    HermesDelivery,
    HermesRow,
    HermesSession,
    calls,
    is_summary,
    is_unsaid,
    words,
)

# How the prompts begin with which Hermes reviews a session by itself.
HARNESS_STARTS = (
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
)


Rows = Sequence[HermesRow]
# Rows that repeat others, each with the one that it repeats.
Repeats = list[tuple[HermesRow, HermesRow]]


class HermesCase(msgspec.Struct, frozen=True):
    """A session and what is around it.

    `before` is the context of the session that this one continues. `is_continued` tells whether
    another one continues it, `route` which session its chat is in now, `following` which came after
    it in its chat. `deliveries` are the answers that went out to the chat, `unstored` those of them
    that no row has. Where rows could not be read it is `torn`: nothing can be said of what lies on
    both sides of a gap. `live`: some program has the store open.
    """

    session: HermesSession
    rows: Rows
    before: Context = ()
    has_parent: bool = False
    is_continued: bool = False
    route: HermesSession | None = None
    following: HermesSession | None = None
    deliveries: tuple[HermesDelivery, ...] = ()
    unstored: frozenset[HermesDelivery] = frozenset()
    locks: tuple[CompactionLock, ...] = ()
    known: frozenset[int] = frozenset()
    torn: tuple[tuple[int, int], ...] = ()
    has_stops: bool = False
    newest: float = 0.0
    live: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow its last row any more; a compaction ends a session, and not
        its last turn.
        """
        session = self.session
        return session.ended_at is not None and session.end_reason != "compression"

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody is at work in it: it is over, or no program has the store open."""
        return self.is_over or (self.session.ended_at is None and not self.live)

    def is_torn(self, row: HermesRow, following: HermesRow | None) -> bool:
        """Whether something that could not be read may lie between two rows, or behind the last."""
        for first, last in self.torn:
            if row.id <= last and (following is None or first <= following.id):
                return True
        return False


class View(msgspec.Struct, frozen=True):
    """A case without what only looks like a defect.

    `originals` has every row that is not a copy or taken back, `spoken` those of them that somebody
    said. `harness` and `repeats` are the rows of review turns and of a history stored twice, the
    latter with what they repeat.
    """

    case: HermesCase
    folded: Folded
    originals: list[HermesRow]
    spoken: list[HermesRow]
    harness: list[tuple[HermesRow, ...]]
    repeats: Repeats
    repeated_users: int

    def finding(
        self, rule: str, rows: tuple[HermesRow, ...], measured: str, data: Any = None
    ) -> Finding:
        """A rule that these rows break, or the session if there are none; `data` is what the remedy
        needs besides.
        """
        session = self.case.session.id
        place = rows[0].place if rows else f"sessions.id={session}"
        return Finding(RULE[f"hermes/{rule}"], session, place, measured, rows, data)


Detector = Callable[[View], Findings]


def look(case: HermesCase) -> View:
    """The case, ready to be looked at."""
    folded = fold(case.rows, case.before)
    originals = [row for row in folded.kept if row.id not in folded.copy_of]
    repeats, repeated_users = _repeats(originals)
    harness = list(_harness(originals))
    out = {row.id for row, _ in repeats}
    for turn in harness:
        out.update(row.id for row in turn)
    spoken = []
    for row in originals:
        # A summary is nobody's word, and yet it closes the turn before it.
        if row.id not in out and (is_summary(row) or not is_unsaid(row)):
            spoken.append(row)
    return View(case, folded, originals, spoken, harness, repeats, repeated_users)


def _repeats(rows: Rows) -> tuple[Repeats, int]:
    """Live rows that repeat earlier ones, from user rows with the same words and the very same time
    on; and the number of those user rows. One alone, or two in a row, is nothing of the kind.
    """
    live = [row for row in rows if row.active]
    first: dict[tuple[float, str], int] = {}
    again = []
    for index, row in enumerate(live):
        if is_question(row):
            earlier = first.setdefault((row.timestamp, words(row)), index)
            if earlier < index - 1:
                again.append((earlier, index))
    if len(again) < 2:
        return [], 0
    found: dict[int, HermesRow] = {}
    for earlier, index in again:
        found[index] = live[earlier]
        # What follows the two user rows is repeated as far as it is the same.
        for place in range(index + 1, len(live)):
            original = live[earlier + place - index]
            if live[place].role == "user" or place in found:
                break
            if key(live[place]) != key(original):
                break
            found[place] = original
    return [(live[index], found[index]) for index in sorted(found)], len(again)


def _harness(rows: Rows) -> Iterator[tuple[HermesRow, ...]]:
    """Turns of a review by the program itself: its prompt, and all up to the next user row."""
    turn: list[HermesRow] = []
    for row in rows:
        if row.role == "user" or is_summary(row):
            if turn:
                yield tuple(turn)
            # A summary ends a review as a question does.
            turn = [row] if words(row).startswith(HARNESS_STARTS) else []
        elif turn and row.role in ("assistant", "tool"):
            turn.append(row)
    if turn:
        yield tuple(turn)


def is_question(row: HermesRow) -> bool:
    """Whether a user row is no summary; Hermes stores its summaries as the user's."""
    return row.role == "user" and not is_summary(row)


def copies_in(view: View) -> dict[str, list[HermesRow]]:
    """The copies that compactions made, by the name of the row that they are copies of."""
    copies: dict[str, list[HermesRow]] = {}
    for row in view.folded.kept:
        if row.id in view.folded.copy_of:
            copies.setdefault(view.folded.copy_of[row.id], []).append(row)
    return copies


def has_calls(row: HermesRow) -> bool:
    # None: there are some, and nobody can read them.
    return calls(row) != []


def results_behind(rows: list[HermesRow], row: HermesRow) -> list[HermesRow]:
    """The tool rows just behind a row."""
    following = rows[rows.index(row) + 1 :]
    return list(takewhile(lambda later: later.role == "tool", following))


def shown(text: str) -> str:
    """A few words of a text, for people."""
    line = " ".join(text.split())
    return f"'{line}'" if len(line) <= 60 else f"'{line[:57]}…'"
