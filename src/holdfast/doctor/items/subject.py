"""A store of plain items in the doctor's hands: of Claude Code, Codex or the Agents SDK. It is
healed into a Holdfast store.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.doctor.finding import Rule
from holdfast.doctor.items.detect import ItemCase, item_findings, looked_at
from holdfast.doctor.items.heal import ItemHealing
from holdfast.doctor.items.rules import AGENTS, CLAUDE, CODEX
from holdfast.doctor.subject import Accepts, Examined, HealedSessions, Subject
from holdfast.errors import StoreUnavailable
from holdfast.importers.agents_sdk.reader import AgentsReader
from holdfast.importers.claude.reader import ClaudeReader
from holdfast.importers.codex.reader import CodexReader
from holdfast.importers.foreign_session import ForeignLine, ForeignLines, ForeignSession
from holdfast.importers.item_store import ItemSession, lines_of
from holdfast.importers.reader import UnreadableRecord


class ItemSessions(Protocol):
    """A reader of item sessions. `troubles` is what could not be read of the store itself."""

    path: str
    live: bool

    def item_sessions(self, session: str | None = None) -> Iterator[ItemSession]: ...

    def troubles(self) -> list[UnreadableRecord]: ...

    def not_examined(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class ItemSubject(Subject):
    """A store of one kind, examined session by session. `waits`: a session of it may end on a call
    that nobody runs, because a person is asked first. `holds_many`: there are other sessions beside
    one of which nothing can be read.
    """

    kind: str
    rules: tuple[Rule, ...]
    reader_type: Callable[[Path], ItemSessions]
    waits = False
    holds_many = False

    def __init__(self, path: Path) -> None:
        self.reader = type(self).reader_type(path)
        self.path = self.reader.path

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        messages = 0
        unread: list[UnreadableRecord] = []
        for item_session in self.reader.item_sessions(session):
            case, id = self.case(item_session), item_session.session.id
            messages += case.messages
            # One is enough to say why nothing can be read.
            unread += case.unread[:1]
            found = item_findings(
                self.rules, id, self.path, case, is_all=not self.holds_many
            )
            yield Examined(id, case.messages, found)
        troubles = self.reader.troubles()
        # One session that can't be read says nothing of the store, unless it holds that one alone.
        is_lost = self.holds_many and bool(unread) and not messages
        if session is None and (troubles or is_lost):
            case = ItemCase(messages=messages, unread=troubles or unread)
            yield Examined("", 0, item_findings(self.rules, "", self.path, case))

    def healed(self, accepts: Accepts) -> "HealedItems":
        return HealedItems(
            self, frozenset(rule.name for rule in self.rules if accepts(rule))
        )

    def case(self, item_session: ItemSession) -> ItemCase:
        """What is wrong with a session."""
        # A call at the end of a store in use may be running.
        return looked_at(item_session.items(), may_run=self.waits or self.reader.live)

    def not_examined(self) -> dict[str, int]:
        return self.reader.not_examined()

    def close(self) -> None:
        self.reader.close()


class ClaudeSubject(ItemSubject):
    """Session files of Claude Code."""

    kind = "claude"
    rules = CLAUDE
    reader_type = ClaudeReader


class CodexSubject(ItemSubject):
    """Rollouts of Codex."""

    kind = "codex"
    rules = CODEX
    reader_type = CodexReader


class AgentsSubject(ItemSubject):
    """A database of sessions of the OpenAI Agents SDK."""

    kind = "agents"
    rules = AGENTS
    reader_type = AgentsReader
    waits = True
    holds_many = True


class HealedItems(HealedSessions):
    """The sessions with remedies applied, each when it is asked for."""

    def __init__(self, subject: ItemSubject, accepted: frozenset[str]) -> None:
        super().__init__()
        self._subject = subject
        self._accepted = accepted

    def sessions(self) -> Iterator[ForeignSession]:
        for item_session in self._subject.reader.item_sessions():
            id = item_session.session.id
            case = self._subject.case(item_session)
            healing = ItemHealing(self._subject.kind, id, case, self._accepted)
            # The same list: it fills while the lines are gone through.
            self.changed[id] = healing.changes
            lines = ForeignLines(partial(_healed, item_session, healing))
            yield replace(item_session.session, lines=lines)

    def write(self, out: str) -> None:
        problem = f"a healed copy is not written as files of {self._subject.kind}"
        remedy = "Heal into a Holdfast store: leave out `--as`"
        raise StoreUnavailable(where=out, problem=problem, remedy=remedy)


def _healed(item_session: ItemSession, healing: ItemHealing) -> Iterator[ForeignLine]:
    """The lines of a session, healed; what can't be read is no line."""
    return lines_of(healing.heal(item_session.items()), lambda _: None)
