"""Whether a foreign session that would become a new session has come over before, from another path.

A store is known again by its path. One that was moved, or copied, looks like a store that nobody
has met: its sessions come in once more, beside those that are here. That can be right, for two
programs may call their sessions alike and be greeted alike. So it is told, never decided.
"""

from holdfast.domain.origin import is_drawn
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.runtime.store import Store
from holdfast.runtime.transfer.import_session import said_in

# So many sessions of a store are looked at; one that resembles a session is enough to
# tell.
PROBES = 5
WORDS_MAX = 200
HINT = (
    "session `{id}` begins like session `{twin}`, which came from another path under the same id. "
    "If this store has "
    "moved, or is a copy, import it with --same-as and the path that it had then"
)


class Resemblance:
    """Looks at the first sessions of a store that are new here, until one of them resembles a
    session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left = PROBES if store.sessions(limit=1).items else 0

    def hint(
        self, foreign: ForeignSession, first: ForeignMessage | Summary
    ) -> str | None:
        """What to tell of a session that is about to become a new session."""
        if not self._left or isinstance(first, Summary):
            return None
        # An id that was drawn by chance means the same session wherever its store lies.
        if is_drawn(foreign.kind, foreign.id):
            return None
        self._left -= 1
        twin = self._twin(foreign, first)
        if twin is None:
            return None
        self._left = 0
        return HINT.format(id=foreign.id, twin=twin)

    def _twin(self, foreign: ForeignSession, first: ForeignMessage) -> str | None:
        text = said_in(first)[1]
        beginning = text[:WORDS_MAX]
        # The last word may be cut, and a search would not find half of it.
        words = beginning.rpartition(" ")[0] or beginning
        if not words.strip():
            return None
        until = None if first.at is None else first.at + 1
        query = words.replace('"', " ")
        for hit in self._store.search(query, since=first.at, until=until):
            session = self._store.get(hit.session_id)
            for message in session.transcript(after=hit.seq - 1, limit=1):
                about = message.labels.get("story", {})
                if about.get("kind") != foreign.kind or about.get("id") != foreign.id:
                    continue
                if message.text == text:
                    return hit.session_id
        return None
