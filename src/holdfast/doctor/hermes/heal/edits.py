"""Changes to the rows of one Hermes session, gathered and then made at once.

Hermes itself has a way to keep a row and not show it: neither active nor compacted, as if it were
taken back. That is how a healer hides. A row that has copies, made by a compaction, is changed
together with them, so that they still are copies afterwards.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.hermes.case import HermesCase, View, copies_in
from holdfast.importers.hermes.convert import FOLDED
from holdfast.importers.hermes.records import HermesRow, HermesSession


class Edits:
    """What is to be done to a session."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.changes: list[Change] = []
        self.session: HermesSession = view.case.session
        self.known = view.case.known
        self.has_locks = True
        self._replaced: dict[int, HermesRow] = {}
        self._after: dict[int, list[HermesRow]] = {}
        self._appended: list[HermesRow] = []
        self._order: list[list[HermesRow]] = []
        # Below the ids of the rows that an earlier pass made.
        self._next = min([0, *(row.id for row in view.case.rows)])
        self._twins = copies_in(view)

    def touches(self, rows: Iterable[HermesRow]) -> bool:
        """Whether one of these rows is changed already: what else is wrong with it is seen the next
        time.
        """
        touched = self._replaced.keys() | self._after.keys()
        return any(row.id in touched for row in rows)

    def note_change(
        self, finding: Finding, before: str, after: str, *, at: HermesRow | None = None
    ) -> None:
        """Reports what was done about a finding: at its own place, or at another of its rows."""
        place = finding.place if at is None else at.place
        self.changes.append(
            Change(finding.rule.name, self.session.id, place, before, after)
        )

    def replace(
        self,
        row: HermesRow,
        *,
        labels: dict[str, Any] | None = None,
        alone: bool = False,
        **fields: Any,
    ) -> None:
        """Changes fields of a row, and of its copies unless it is meant alone."""
        twins = [row] if alone else self._with_copies(row)
        for twin in twins:
            now = self._replaced.get(twin.id, twin)
            if "content" in fields and "api_content" in now.rest:
                # Hermes sends api_content to the model instead of content where a row has both.
                rest = dict(now.rest)
                del rest["api_content"]
                now = replace(now, rest=rest)
            self._replaced[twin.id] = replace(
                now, labels=now.labels | (labels or {}), **fields
            )

    def heal(self, finding: Finding, row: HermesRow, **fields: Any) -> None:
        """Changes fields of a row and its copies, and labels them with the rule."""
        self.replace(row, labels={"healed": finding.rule.name}, **fields)

    def hide(
        self, finding: Finding, row: HermesRow, *, alone: bool = False, **labels: Any
    ) -> None:
        """Keeps a row for readers alone."""
        labels = {"healed": finding.rule.name, **labels}
        self.replace(row, labels=labels, alone=alone, active=0, compacted=0)

    def fold(self, finding: Finding, row: HermesRow, into: HermesRow) -> None:
        """Hides a row that says nothing which another does not."""
        labels: dict[str, Any] = {FOLDED: into.name}
        self.hide(finding, row, **labels)

    def put_after(
        self, finding: Finding, row: HermesRow, what: str, *, label: str, **fields: Any
    ) -> None:
        """A new row behind this one, and behind each of its copies."""
        for twin in self._with_copies(row):
            made = self._make(
                finding,
                f"{twin.name}+{what}",
                label,
                {"timestamp": twin.timestamp} | fields,
            )
            made = replace(made, active=twin.active, compacted=twin.compacted)
            self._after.setdefault(twin.id, []).append(made)

    def append(self, finding: Finding, what: str, *, label: str, **fields: Any) -> None:
        """A new row at the end of a session that has none."""
        self._appended.append(
            self._make(finding, f"{self.session.id}+{what}", label, fields)
        )

    def reorder(self, rows: list[HermesRow]) -> None:
        """Puts rows into this order, at the places that they have."""
        self._order.append(rows)
        # As if they were changed: no other remedy of this pass may touch them.
        for row in rows:
            self._replaced.setdefault(row.id, row)

    def case(self) -> HermesCase:
        """The case after all this."""
        rows: list[HermesRow] = []
        for row in self._reordered():
            rows.append(self._replaced.get(row.id, row))
            rows.extend(self._after.get(row.id, ()))
        rows.extend(self._appended)
        session = self.session
        if session.message_count is not None:
            # The counter may have been wrong before; it stays wrong by as much.
            more = _live(rows) - _live(self.view.case.rows)
            count = max(0, session.message_count + more)
            session = replace(session, message_count=count)
        locks = self.view.case.locks if self.has_locks else ()
        return replace(
            self.view.case, rows=rows, session=session, known=self.known, locks=locks
        )

    def _make(
        self, finding: Finding, origin: str, label: str, fields: dict[str, Any]
    ) -> HermesRow:
        # Ids of made rows are negative until the copy is written: no stored row can have them.
        self._next -= 1
        return HermesRow(
            id=self._next,
            session=self.session.id,
            origin=origin,
            labels={"healed": finding.rule.name, label: True},
            **fields,
        )

    def _reordered(self) -> list[HermesRow]:
        rows = list(self.view.case.rows)
        for wanted in self._order:
            names = {row.id for row in wanted}
            places = [place for place, row in enumerate(rows) if row.id in names]
            for place, row in zip(places, wanted, strict=True):
                rows[place] = row
        return rows

    def _with_copies(self, row: HermesRow) -> list[HermesRow]:
        return [row, *self._twins.get(row.name, ())]


def _live(rows: Iterable[HermesRow]) -> int:
    return sum(1 for row in rows if row.active)
