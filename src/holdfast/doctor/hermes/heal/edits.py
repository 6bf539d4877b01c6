"""Changes to the rows of one Hermes session, gathered and then made at once.

Hermes itself has a way to keep a row and not show it: neither active nor compacted, as if it were
taken back. That is how a healer hides. A row that has copies, made by a compaction, is changed
together with them, so that they still are copies afterwards.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import HermesCase, View
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
        self._next = min([0, *(row.id for row in view.case.rows)])
        self._twins: dict[str, list[HermesRow]] = {}
        for row in view.folded.kept:
            if row.id in view.folded.copy_of:
                self._twins.setdefault(view.folded.copy_of[row.id], []).append(row)

    def touches(self, rows: Iterable[HermesRow]) -> bool:
        """Whether one of these rows is changed already: what else is wrong with it is seen the next
        time.
        """
        return any(row.id in self._replaced or row.id in self._after for row in rows)

    def note_change(self, rule: str, place: str, before: str, after: str) -> None:
        self.changes.append(Change(rule, self.session.id, place, before, after))

    def replace(
        self,
        row: HermesRow,
        *,
        labels: dict[str, Any] | None = None,
        alone: bool = False,
        **fields: Any,
    ) -> None:
        """Changes fields of a row, and of its copies unless it is meant alone."""
        for twin in [row] if alone else self._all(row):
            now = self._replaced.get(twin.id, twin)
            if "content" in fields and "api_content" in now.rest:  # it would be sent instead
                rest = {name: value for name, value in now.rest.items() if name != "api_content"}
                now = msgspec.structs.replace(now, rest=rest)
            self._replaced[twin.id] = msgspec.structs.replace(
                now, labels=now.labels | (labels or {}), **fields
            )

    def hide(self, row: HermesRow, rule: str, *, alone: bool = False, **labels: Any) -> None:
        """Keeps a row for readers alone."""
        self.replace(row, labels={"healed": rule, **labels}, alone=alone, active=0, compacted=0)

    def fold(self, row: HermesRow, into: str, rule: str) -> None:
        """Hides a row that says nothing which another does not."""
        self.replace(row, labels={"healed": rule, FOLDED: into}, active=0, compacted=0)

    def put_after(
        self, row: HermesRow, what: str, rule: str, *, labels: dict[str, Any], **fields: Any
    ) -> None:
        """A new row behind this one, and behind each of its copies."""
        for twin in self._all(row):
            made = self._make(
                f"{twin.name}+{what}", rule, labels, {"timestamp": twin.timestamp} | fields
            )
            made = msgspec.structs.replace(made, active=twin.active, compacted=twin.compacted)
            self._after.setdefault(twin.id, []).append(made)

    def append(self, what: str, rule: str, *, labels: dict[str, Any], **fields: Any) -> None:
        """A new row at the end of a session that has none."""
        self._appended.append(self._make(f"{self.session.id}+{what}", rule, labels, fields))

    def reorder(self, rows: list[HermesRow]) -> None:
        """Puts rows into this order, at the places that they have."""
        self._order.append(rows)
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
            more = _live(rows) - _live(self.view.case.rows)
            session = msgspec.structs.replace(
                session, message_count=max(0, session.message_count + more)
            )
        locks = self.view.case.locks if self.has_locks else ()
        return msgspec.structs.replace(
            self.view.case, rows=rows, session=session, known=self.known, locks=locks
        )

    def _make(
        self, origin: str, rule: str, labels: dict[str, Any], fields: dict[str, Any]
    ) -> HermesRow:
        self._next -= 1
        return HermesRow(
            id=self._next,
            session=self.session.id,
            origin=origin,
            labels={"healed": rule, **labels},
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

    def _all(self, row: HermesRow) -> list[HermesRow]:
        return [row, *self._twins.get(row.name, ())]


def _live(rows: Iterable[HermesRow]) -> int:
    return sum(1 for row in rows if row.active)
