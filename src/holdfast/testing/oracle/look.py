"""One session as the oracle sees it: everything is read once, and every law is asked of the same
reading.
"""

from collections import Counter
from collections.abc import Sequence

from holdfast.domain.entry import Entry
from holdfast.domain.log.fold import Log
from holdfast.engine.protocol import Engine, SessionState
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.session import Session

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
# All of them: the oracle leaves nothing out.
SESSIONS_MAX = 1_000_000


class Look:
    """One session, read once: its state, its log with what it shares, its messages, and the log
    folded from its first entry.
    """

    def __init__(self, session: Session, formats: Sequence[str]) -> None:
        self.formats = formats
        # First of all: it settles a dead turn, as any reader does.
        self.info = session.info()
        self.session = session
        self.session_log: SessionLog = session._log
        self.engine: Engine = self.session_log.engine
        self.entries: list[Entry] = list(session.entries())
        origin = self.session_log.origin
        # Its own, without those that it shares with the session it was forked from.
        self.own = [entry for entry in self.entries if entry.seq > origin]
        self.messages: list[Message] = list(session.transcript())
        self.state: SessionState = self.session_log.state()
        self.log = Log()
        self.log.add(self.entries)
        self.by_id = {message.id: message for message in self.messages}
        self.by_text = {message.text: message for message in self.messages}
        self.texts = Counter(message.text for message in self.messages)

    def of_kind(self, kind: str) -> list[Entry]:
        """Its own entries of this kind."""
        return [entry for entry in self.own if entry.kind == kind]

    def ends(self) -> dict[int, list[Entry]]:
        """The ends of each turn that began or ended here: a fork may part from a turn before its
        end.
        """
        ends: dict[int, list[Entry]] = {}
        for entry in self.own:
            if entry.kind == "opened":
                # What ran when it was forked off is over here, without an end.
                ends = {turn: found for turn, found in ends.items() if found}
            elif entry.kind in ("turn", "end"):
                of_turn = ends.setdefault(entry.turn or 0, [])
                if entry.kind == "end":
                    of_turn.append(entry)
        return ends

    @property
    def erased(self) -> bool:
        """Whether words of it are gone, its own or those that it shares."""
        kinds = [entry.kind for entry in self.entries]
        states = [message.state for message in self.messages]
        return "erased" in [*kinds, *states]
