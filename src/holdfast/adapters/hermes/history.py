"""What Hermes has stored before Holdfast was there: brought over, so that its sessions go on.

Done by the command line, in a process without Hermes: reading `state.db` beside Hermes' own
connections would release their locks. A session that Holdfast has is left as it is. From the first
turn on it has all of it, and what Hermes did by itself since is recorded with its next turn.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import holdfast
from holdfast import Store
from holdfast.adapters.hermes.serving import CONVERSATION, FILE
from holdfast.errors import NotFound
from holdfast.importers import detect
from holdfast.importers.foreign_session import ForeignSession
from holdfast.runtime.transfer.import_store import ImportedStore, bring

KIND = "hermes"


def bring_history(
    home: Path, tell: Callable[[ImportedStore], Any] = lambda so_far: None
) -> ImportedStore | None:
    """Imports the sessions of this home that Holdfast does not have; None where Hermes has stored
    nothing yet.
    """
    # Closing a file releases all locks that the process has on it, Hermes' own included.
    assert "hermes_state" not in sys.modules, "not in a process of Hermes"
    state = home / "state.db"
    # Empty it is before Hermes has made its tables.
    if not state.exists() or not state.stat().st_size:
        return None
    reader = detect.open_reader(KIND, str(state))
    try:
        with holdfast.open(home / FILE) as store:
            source = detect.source_of(str(state))
            sessions = _unknown(store, reader.sessions())
            return bring(store, sessions, source=source, tell=tell)
    finally:
        reader.close()


def _unknown(
    store: Store, sessions: Iterator[ForeignSession]
) -> Iterator[ForeignSession]:
    for foreign in sessions:
        key = CONVERSATION + foreign.id
        try:
            store.session(key, create=False)
        except NotFound:
            # Under the key that its turns will ask for. It is open whatever Hermes says: an ended
            # session of Hermes goes on when somebody resumes it.
            yield replace(foreign, key=key, current=True, ended=None)
