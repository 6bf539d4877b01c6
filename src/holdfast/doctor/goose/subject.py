"""A store of goose as a subject: examined session by session, healed into a copy."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.goose import write as writing
from holdfast.doctor.goose.case import GooseCase, model_of, output_tokens
from holdfast.doctor.goose.detect.all import findings_of
from holdfast.doctor.goose.heal.session import heal
from holdfast.doctor.goose.rules import RULE, RULES
from holdfast.doctor.subject import Accepts, Examined, Healed
from holdfast.importers.foreign_session import ForeignLines, ForeignSession
from holdfast.importers.goose.convert import foreign_session, lines_of
from holdfast.importers.goose.reader import GooseReader
from holdfast.importers.goose.records import GooseSession

# Sessions that goose does not show, and the rules whose remedies bring them back.
_BROUGHT_BACK = {
    "stranded": "goose/stranded-messages",
    "thread": "goose/thread-tables-present",
}


class GooseSubject:
    """A store of goose in the doctor's hands; one session is held at a time."""

    kind = "goose"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self._reader = GooseReader(path)
        self.path = self._reader.path
        self._models: frozenset[str] | None = None

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        for found in self._reader.store.sessions():
            if session is None or found.id == session:
                case = self.case_of(found)
                yield Examined(found.id, len(case.rows), findings_of(case))
        broken = tuple(
            Finding(
                RULE["goose/unreadable-record"],
                one.session or "",
                one.place,
                f"The store: {one.problem}.",
            )
            for one in self._reader.store.problems
        )
        if broken:
            yield Examined("", 0, broken)

    def healed(self, accepts: Accepts) -> Healed:
        return GooseHealed(self, accepts)

    def not_examined(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._reader.close()

    def sessions(self) -> Iterator[GooseSession]:
        return self._reader.store.sessions()

    def case_of(self, session: GooseSession) -> GooseCase:
        """All that is known of a session."""
        book, live = self._reader.store, self._reader.live
        rows = tuple(book.rows(session))
        case = GooseCase(
            session, rows, book.usage_rows(session), live, book.rewritten(session)
        )
        answers = [row for row in rows if row.role == "assistant"]
        if answers and model_of(answers[-1]) and output_tokens(answers[-1]) is None:
            return msgspec.structs.replace(case, counted=self._counted())
        return case

    def _counted(self) -> frozenset[str]:
        """The models whose answers tell their tokens somewhere in the store; looked for once, and
        only when asked.
        """
        if self._models is None:
            book = self._reader.store
            rows = (
                row
                for session in book.sessions()
                for row in book.rows(session)
                if row.role == "assistant"
            )
            self._models = frozenset(
                model_of(row) for row in rows if output_tokens(row) is not None
            )
        return self._models


class GooseHealed:
    """A store of goose after healing."""

    def __init__(self, subject: GooseSubject, accepts: Accepts) -> None:
        self._subject = subject
        self._accepts = accepts
        self._accepted = {rule.name for rule in RULES if accepts(rule)}
        self._changes: dict[str, list[Change]] = {}

    def sessions(self) -> Iterator[ForeignSession]:
        for session in self._sessions():
            case = self._healed_case(session)
            lines = ForeignLines(partial(lines_of, case.rows, case.session.id))
            yield foreign_session(case.session, lines, {})

    def changes(self) -> list[Change]:
        return [change for changes in self._changes.values() for change in changes]

    def write(self, out: str) -> None:
        """goose's own JSON; `goose session import` takes each file."""
        sessions = list(self._sessions())
        writing.write(
            (self._healed_case(session) for session in sessions),
            out,
            several=len(sessions) != 1,
        )

    def _sessions(self) -> Iterator[GooseSession]:
        for session in self._subject.sessions():
            rule = _BROUGHT_BACK.get(session.source)
            if rule is None or rule in self._accepted:
                yield session

    def _healed_case(self, session: GooseSession) -> GooseCase:
        case, changes = heal(self._subject.case_of(session), self._accepts)
        rule = _BROUGHT_BACK.get(session.source)
        if rule is not None:
            after = f"the session {session.id}"
            changes.insert(
                0,
                Change(
                    rule, session.id, session.place, f"{len(case.rows)} messages", after
                ),
            )
            named = {"name": "Recovered session", **session.columns}
            case = msgspec.structs.replace(
                case, session=msgspec.structs.replace(case.session, columns=named)
            )
        self._changes[session.id] = changes
        return case
