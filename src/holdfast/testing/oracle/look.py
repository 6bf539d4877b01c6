"""One session as the oracle sees it: everything is read once, and every law is asked of the same
reading.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.log.fold import Log
from holdfast.engine.protocol import Engine, SessionState
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.session import Session

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
SESSIONS_MAX = 1_000_000


class Look:
    """One session, read once: its state, its log with what it shares, its messages, and the log
    folded from its first entry.
    """

    def __init__(self, session: Session, formats: Sequence[str]) -> None:
        self.formats = formats
        self.info = (
            session.info()
        )  # first of all: it settles a dead turn, as any reader does
        self.session = session
        self.session_log: SessionLog = session._log
        self.engine: Engine = self.session_log.engine
        self.entries: list[Entry] = list(session.entries())
        self.messages: list[Message] = list(session.transcript())
        self.state: SessionState = self.session_log.state()
        self.log = Log()
        self.log.add(self.entries)

    @property
    def own(self) -> list[Entry]:
        """Its own entries, without those that it shares."""
        return [entry for entry in self.entries if entry.seq > self.session_log.origin]

    @property
    def erased(self) -> bool:
        """Whether words of it are gone, its own or those that it shares."""
        kinds = {entry.kind for entry in self.entries}
        return "erased" in kinds or any(
            message.state == "erased" for message in self.messages
        )

    def notes(self, kind: str) -> Iterator[tuple[Entry, Any]]:
        return (
            (entry, note_of(kind, entry.note))
            for entry in self.entries
            if entry.kind == kind
        )
