"""A Holdfast store in the doctor's hands."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.holdfast.laws import LAWS, REFERENCES
from holdfast.doctor.holdfast.records import HoldfastRecords, SessionRecord, recognises
from holdfast.doctor.holdfast.rules import RULE, RULES
from holdfast.doctor.holdfast.write import write_store
from holdfast.doctor.subject import Accepts, Examined, Subject
from holdfast.engine.store_info import Problem
from holdfast.importers.foreign_session import ForeignSession

__all__ = ["HoldfastSubject", "recognises"]


class HoldfastSubject(Subject):
    """One of our own stores."""

    kind = "holdfast"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        # Of the original: a private copy is its owner's alone, whatever it was copied from.
        self._mode = os.stat(path).st_mode & 0o777
        self._records = HoldfastRecords(path)

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        of_session: dict[str | None, list[Problem]] = {}
        for problem in self._records.problems():
            of_session.setdefault(problem.session, []).append(problem)
        for state in self._records.states():
            # Taken out, asked for or not: what is left is of no session that is there.
            found = tuple(map(_finding, of_session.pop(state.id, [])))
            if session is None or state.id.startswith(session):
                record = self._records.record(state)
                messages = sum(entry.kind == "message" for entry in record.entries)
                yield Examined(
                    state.id, messages, (*found, *_broken_laws(record, found))
                )
        if session is None:
            rest = map(_finding, chain.from_iterable(of_session.values()))
            damaged = RULE["holdfast/damaged-page"]
            lost = []
            for one in self._records.left_out:
                lost.append(Finding(damaged, "", one.place, f"{one.problem}."))
            yield Examined("", 0, (*self._rights(), *lost, *rest))

    def _rights(self) -> Iterator[Finding]:
        if self._mode & 0o077:
            rule = RULE["holdfast/open-to-others"]
            yield Finding(rule, "", self.path, f"Its mode is {self._mode:o}.")

    def healed(self, accepts: Accepts) -> "HoldfastHealed":
        return HoldfastHealed(self._records, list(self._rights()))

    def close(self) -> None:
        self._records.close()


class HoldfastHealed:
    """The store, healed; all remedies are applied, for none discards anything that can be read."""

    def __init__(self, records: HoldfastRecords, rights: list[Finding]) -> None:
        self._records = records
        self._changes = [
            Change(one.rule.name, "", one.place, one.measured, "mode 600")
            for one in rights
        ]

    def sessions(self) -> Iterator[ForeignSession]:
        """None: it is written as what it is."""
        return iter(())

    def changes(self) -> list[Change]:
        return self._changes

    def write(self, out: str) -> None:
        self._changes += write_store(self._records, out)


def _finding(problem: Problem) -> Finding:
    rule = RULE[f"holdfast/{problem.rule}"]
    sentence = f"{problem.problem[:1].upper()}{problem.problem[1:]}."
    return Finding(rule, problem.session or "", problem.place, sentence)


def _broken_laws(
    record: SessionRecord, found: tuple[Finding, ...]
) -> Iterator[Finding]:
    """What the entries tell; only where all of them can be read, for the law may be kept by one
    that can't.
    """
    if record.lost or found or not record.past_is_whole:
        return
    entries = [*record.past, *record.entries]
    session = record.state.id
    for name, _, law in (*LAWS, REFERENCES):
        rule = RULE[f"holdfast/{name}"]
        for seq, sentence in law(entries):
            # What its past breaks is told of the session that the past is of.
            if seq > record.state.origin:
                place = f"session {session}, entry {seq}"
                yield Finding(rule, session, place, f"Here {sentence}.")
