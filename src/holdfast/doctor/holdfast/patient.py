"""A Holdfast store in the doctor's hands."""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.finding import Change, Sign
from holdfast.doctor.holdfast.laws import LAWS
from holdfast.doctor.holdfast.records import HoldfastRecords, Record, recognises
from holdfast.doctor.holdfast.rules import RULES
from holdfast.doctor.holdfast.writing import write_store
from holdfast.doctor.patient import Accepts, Examined
from holdfast.engine.upkeep import Problem
from holdfast.foreign.story import Story

__all__ = ["HoldfastPatient", "recognises"]


class HoldfastPatient:
    """One of our own stores."""

    kind = "holdfast"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._mode = os.stat(path).st_mode & 0o777
        self._records = HoldfastRecords(path)

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        of_session: dict[str | None, list[Problem]] = {}
        for problem in self._records.problems():
            of_session.setdefault(problem.session, []).append(problem)
        for state in self._records.states():
            told = tuple(map(_sign, of_session.pop(state.id, [])))
            if session is None or state.id.startswith(session):
                record = self._records.record(state)
                messages = sum(entry.kind == "message" for entry in record.entries)
                yield Examined(state.id, messages, (*told, *_broken_laws(record, told)))
        if session is None:
            rest = [_sign(problem) for problems in of_session.values() for problem in problems]
            lost = [Sign("holdfast/damaged-page", "", one.place, f"{one.problem}.") for one in self._records.left_out]
            yield Examined("", 0, (*self._rights(), *lost, *rest))

    def _rights(self) -> Iterator[Sign]:
        if self._mode & 0o077:
            yield Sign("holdfast/open-to-others", "", self.path, f"Its mode is {self._mode:o}.")

    def healed(self, accepts: Accepts) -> "HoldfastHealed":
        return HoldfastHealed(self._records, list(self._rights()))

    def not_examined(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._records.close()


class HoldfastHealed:
    """The store, healed; all remedies are applied, for none discards anything that can be read."""

    def __init__(self, records: HoldfastRecords, rights: list[Sign]) -> None:
        self._records = records
        self._changes = [Change(sign.rule, "", sign.place, sign.measured, "mode 600") for sign in rights]

    def stories(self) -> Iterator[Story]:
        """None: it is written as what it is."""
        return iter(())

    def changes(self) -> list[Change]:
        return self._changes

    def write(self, out: str) -> None:
        self._changes += write_store(self._records, out)


def _sign(problem: Problem) -> Sign:
    sentence = problem.problem[:1].upper() + problem.problem[1:]
    return Sign(f"holdfast/{problem.rule}", problem.session or "", problem.place, f"{sentence}.")


def _broken_laws(record: Record, told: tuple[Sign, ...]) -> Iterator[Sign]:
    """What the entries tell; only where all of them can be read, for the law may be kept by one that can't."""
    if record.lost or told:
        return
    entries = [*record.past, *record.entries]
    for rule, _, law in LAWS:
        for seq, sentence in law(entries):
            if seq > record.state.origin:
                place = f"session {record.state.id}, entry {seq}"
                yield Sign(f"holdfast/{rule}", record.state.id, place, f"Here {sentence}.")
