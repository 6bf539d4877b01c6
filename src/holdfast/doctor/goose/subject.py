"""A store of goose as a subject: examined session by session, healed into a copy."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.goose.case import GooseCase, last_that, model_of, output_tokens
from holdfast.doctor.goose.detect.all import findings_of
from holdfast.doctor.goose.heal.session import heal
from holdfast.doctor.goose.rules import RULE, RULES
from holdfast.doctor.goose.write import write
from holdfast.doctor.subject import Accepts, Examined, HealedSessions, Subject
from holdfast.importers.foreign_session import ForeignLines, ForeignSession
from holdfast.importers.goose.convert import foreign_session, lines_of
from holdfast.importers.goose.reader import GooseReader
from holdfast.importers.goose.records import GooseRow, GooseSession

# Sessions that goose does not show, and the rules whose remedies bring them back.
_BROUGHT_BACK = {
    "stranded": "goose/stranded-messages",
    "thread": "goose/thread-tables-present",
}


class GooseSubject(Subject):
    """A store of goose in the doctor's hands; one session is held at a time."""

    kind = "goose"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self._reader = GooseReader(path)
        self.path = self._reader.path
        self._store = self._reader.store
        self.sessions = self._store.sessions
        self._models: frozenset[str] | None = None

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        for found in self.sessions():
            if session is None or found.id == session:
                case = self.case_of(found)
                yield Examined(found.id, len(case.rows), findings_of(case))
        rule = RULE["goose/unreadable-record"]
        broken = []
        # Complete only now: what can't be read is met while sessions are.
        for one in self._store.problems:
            measured = f"The store: {one.problem}."
            broken.append(Finding(rule, one.session or "", one.place, measured))
        if broken:
            yield Examined("", 0, tuple(broken))

    def healed(self, accepts: Accepts) -> "GooseHealed":
        return GooseHealed(self, accepts)

    def close(self) -> None:
        self._reader.close()

    def case_of(self, session: GooseSession) -> GooseCase:
        """All that is known of a session."""
        store = self._store
        rows = tuple(store.rows(session))
        case = GooseCase(
            session,
            rows,
            store.usage_rows(session),
            self._reader.live,
            store.rewritten(session),
        )
        # All other sessions are looked at only for an answer that may be cut.
        last = last_that(rows, lambda row: row.role == "assistant")
        if last is None or not model_of(rows[last]) or _counts(rows[last]):
            return case
        return replace(case, counted=self._counted())

    def _counted(self) -> frozenset[str]:
        """The models whose answers tell their tokens somewhere in the store; looked for once, and
        only when asked.
        """
        if self._models is None:
            models = set()
            for session in self.sessions():
                for row in self._store.rows(session):
                    if row.role == "assistant" and _counts(row):
                        models.add(model_of(row))
            self._models = frozenset(models)
        return self._models


def _counts(row: GooseRow) -> bool:
    return output_tokens(row) is not None


class GooseHealed(HealedSessions):
    """A store of goose after healing."""

    def __init__(self, subject: GooseSubject, accepts: Accepts) -> None:
        super().__init__()
        self._subject = subject
        self._accepts = accepts

    def sessions(self) -> Iterator[ForeignSession]:
        for session in self._sessions():
            case = self._healed_case(session)
            lines = ForeignLines(partial(lines_of, case.rows, case.session.id))
            yield foreign_session(case.session, lines, {})

    def write(self, out: str) -> None:
        """goose's own JSON; `goose session import` takes each file."""
        sessions = list(self._sessions())
        # Lazily: one session is held in memory at a time.
        cases = map(self._healed_case, sessions)
        write(cases, out, several=len(sessions) != 1)

    def _sessions(self) -> Iterator[GooseSession]:
        for session in self._subject.sessions():
            rule = _BROUGHT_BACK.get(session.source)
            if rule is None or self._accepts(RULE[rule]):
                yield session

    def _healed_case(self, session: GooseSession) -> GooseCase:
        case, changes = heal(self._subject.case_of(session), self._accepts)
        rule = _BROUGHT_BACK.get(session.source)
        if rule is not None:
            before = f"{len(case.rows)} messages"
            after = f"the session {session.id}"
            changes.insert(0, Change(rule, session.id, session.place, before, after))
            # A name of its own comes first; those without a row have none.
            named = {"name": "Recovered session", **session.columns}
            case = replace(case, session=replace(case.session, columns=named))
        self.changed[session.id] = changes
        return case
