"""One Holdfast store for each process and `state.db`; whoever needs one asks here.

`state.db` itself is never opened here: two SQLite libraries in one process, and closing the one
releases the locks of the other. What has to be read of it is read through `SessionDB._conn`.
"""

import threading
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Session, Store, Turn
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.rows.backlog import Backlog
from holdfast.adapters.hermes.unusable import ADVICE
from holdfast.errors import HoldfastError, NotFound
from holdfast.runtime.clock import RealWorld, World

FILE = "holdfast.db"
"""The store's name, beside `state.db`."""

CONVERSATION = "hermes:"
"""Before a Hermes session's id: the key of its session here."""

_TURN = "_holdfast_turn"


class Serving:
    """What one `state.db` is served with."""

    def __init__(self, db_path: Path) -> None:
        self.db_path = db_path
        self.store = _opened(db_path.with_name(FILE))
        self.world: World = RealWorld()
        self.backlog = Backlog(self.store, self.world)
        self.inbox = GatewayInbox(self.store)
        self._loaded: dict[str, int] = {}

    def conversation(self, session_id: str) -> Session:
        """The session of a Hermes session, made if there is none."""
        return self.store.session(CONVERSATION + session_id)

    def known_conversation(self, session_id: str) -> Session | None:
        """The session of a Hermes session, if there is one."""
        try:
            return self.store.session(CONVERSATION + session_id, create=False)
        except NotFound:
            return None

    def note_load(self, session_id: str, session: Session | None) -> None:
        """Hermes is about to load this session; what is said from now on it may not get."""
        head = 0
        if session is not None:
            head = session.head()
        self._loaded[session_id] = head

    def loaded_at(self, session_id: str) -> int | None:
        """Where the log of this session ended when Hermes loaded it last; None if it never has."""
        return self._loaded.get(session_id)


def _opened(path: Path) -> Store:
    try:
        return holdfast.open(path)
    except HoldfastError as error:
        error.add_note(ADVICE)
        raise


_serving: dict[Path, Serving] = {}
_lock = threading.Lock()


def serving_at(db_path: Path) -> Serving:
    """What this `state.db` is served with; opened by the first who asks."""
    # By path, not by `HERMES_HOME`: one process may serve several profiles.
    place = Path(db_path).absolute()
    # Threads of several agents may be the first to ask, at the same time.
    with _lock:
        if place not in _serving:
            _serving[place] = Serving(place)
        return _serving[place]


def serving_of(agent: Any) -> Serving | None:
    """What the database of this agent is served with. None where there is nothing to store: it has
    no database, one that is only read, or it is a fork that shares the session of another agent.
    """
    db = getattr(agent, "_session_db", None)
    # Such a fork reviews the conversation, in words that nobody said.
    if db is None or getattr(agent, "_persist_disabled", False):
        return None
    if getattr(db, "read_only", False):
        return None
    return serving_at(db.db_path)


def running_turn(agent: Any) -> Turn | None:
    """The turn that this agent runs now."""
    turn: Turn | None = agent.__dict__.get(_TURN)
    return turn


def set_running_turn(agent: Any, turn: Turn | None) -> None:
    """From now on the agent runs this turn, or none."""
    agent.__dict__[_TURN] = turn
