"""Whether a story that would become a new session has come over before, from another path.

A store is known again by its path. One that was moved, or copied, looks like a store that nobody
has met: its sessions come in once more, beside those that are here. That can be right, for two
programs may call their sessions alike and be greeted alike. So it is told, never decided.
"""

from holdfast.domain.origin import is_drawn
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.runtime.store import Store
from holdfast.runtime.transfer.import_session import said_in

# So many stories of a store are looked at; one that resembles a session is enough to
# tell.
PROBES = 5
WORDS_MAX = 200
HINT = (
    "session `{id}` begins like session `{twin}`, which came from another path under the same id. "
    "If this store has "
    "moved, or is a copy, import it with --same-as and the path that it had then"
)


class Resemblance:
    """Looks at the first stories of a store that are new here, until one of them resembles a
    session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left = PROBES if store.sessions(limit=1).items else 0

    def hint(
        self, story: ForeignSession, first: ForeignMessage | Summary
    ) -> str | None:
        """What to tell of a story that is about to become a new session."""
        if (
            not self._left
            or isinstance(first, Summary)
            or is_drawn(story.kind, story.id)
        ):
            return None
        self._left -= 1
        twin = self._twin(story, first)
        if twin is None:
            return None
        self._left = 0
        return HINT.format(id=story.id, twin=twin)

    def _twin(self, story: ForeignSession, first: ForeignMessage) -> str | None:
        words = (
            said_in(first)[1][:WORDS_MAX].rpartition(" ")[0]
            or said_in(first)[1][:WORDS_MAX]
        )
        if not words.strip():
            return None
        until = None if first.at is None else first.at + 1
        for hit in self._store.search(
            words.replace('"', " "), since=first.at, until=until
        ):
            for message in self._store.get(hit.session_id).transcript(
                after=hit.seq - 1, limit=1
            ):
                about = message.labels.get("story", {})
                is_alike = (about.get("kind"), about.get("id")) == (
                    story.kind,
                    story.id,
                )
                if is_alike and message.text == said_in(first)[1]:
                    return hit.session_id
        return None
