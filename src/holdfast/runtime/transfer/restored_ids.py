"""Under which ids sessions that were written out stand here.

Each under its own. Where another tenant has that, under one that is derived from it: the same each
time, whether the session has come, comes later or never does. So whatever names it in another
session's log finds it, in whatever order they come, and nothing tells its importer that somebody
else has it too (I-19).
"""

from itertools import count

from holdfast.domain.entry import Entry
from holdfast.domain.log.relatives import renamed
from holdfast.domain.origin import session_name
from holdfast.engine.protocol import Engine


class RestoredIds:
    """The ids that written sessions have for one tenant of a store. What was asked once is
    known.
    """

    def __init__(self, engine: Engine, tenant: str) -> None:
        self._engine = engine
        self._tenant = tenant
        self._known: dict[str, str] = {}

    def here(self, written: str) -> str:
        """The id under which the session that is called `written` in a file stands here, or would
        stand.
        """
        known = self._known.get(written)
        if known is None:
            known = self._known[written] = self._found(written)
        return known

    def named_here(self, entry: Entry) -> Entry:
        """An entry of a file as it stands here: each session that it names is called as it is
        here.
        """
        return renamed(entry, self.here)

    def _found(self, written: str) -> str:
        id = written
        for number in count():
            state = self._engine.state(id)
            # A session of this tenant's, or an id that nobody has.
            if state is None or state.tenant == self._tenant:
                return id
            id = session_name(self._tenant, "holdfast", written, (), number=number)
        raise AssertionError("there is always a next number")
