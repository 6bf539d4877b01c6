"""`HoldfastDb`: the sessions and runs of Agno's agents, teams and workflows."""

from typing import Any

from agno.db.base import SessionType
from agno.db.in_memory.utils import apply_sorting
from agno.db.utils import deserialize_session, filter_context_runs
from agno.session import AgentSession, TeamSession, WorkflowSession

from holdfast.adapters.agno.kept_session import SHOWN
from holdfast.adapters.agno.runs import COUNT, names_in, paged, run_of
from holdfast.adapters.agno.shown import settle
from holdfast.adapters.agno.streams import StreamedRuns
from holdfast.domain.arguments import kind_of, number, optional, shown, text
from holdfast.errors import BadArgument

Block = dict[str, Any]

_TYPES = {
    AgentSession: SessionType.AGENT,
    TeamSession: SessionType.TEAM,
    WorkflowSession: SessionType.WORKFLOW,
}
ACTIVE = {"PENDING", "RUNNING", "PAUSED"}
_MOMENT = optional(number("seconds since 1970", most=1 << 53))
_COMPONENTS = ("agent_id", "team_id", "workflow_id")


class HoldfastDb(StreamedRuns):
    """A database of Agno's on a Holdfast store: one that is open, a path or an address. It may be
    used from several threads. `beside`, another database of Agno's, keeps what is no session and
    no run.
    """

    def get_session(
        self,
        session_id: str,
        session_type: Any = None,
        user_id: str | None = None,
        deserialize: bool | None = True,
        runs_limit: int | None = None,
    ) -> Any:
        """A session with its runs. What runs that were cut off had shown is stored first."""
        session_type = _known_type(session_type)
        runs_limit = COUNT("runs_limit", runs_limit)
        kept = self._kept(session_id)
        settle(self.store, kept)
        found = kept.load()
        self._remember(kept)
        if found is None or (user_id is not None and found.get("user_id") != user_id):
            return None
        if runs_limit is not None:
            found["runs"] = filter_context_runs(found["runs"] or [])[-runs_limit:]
        return deserialize_session(session_type, found) if deserialize else found

    def upsert_session(self, session: Any, deserialize: bool | None = True) -> Any:
        """Stores the row of a session; runs come by `upsert_run`. Those that a new session brings
        along are stored with it. None when it is somebody else's.
        """
        row, kept = _row(session), self._own(session.session_id)
        before = kept.row()
        now = self.store._work.world.now() // 1000
        row["created_at"] = row.get("created_at") or now
        if before is None:
            row["updated_at"] = row["created_at"]
            kept.put_row(row)
            for run in session.runs or ():
                kept.put_run(run_of(run))
        else:
            owner = before.get("user_id")
            if owner is not None and owner != row.get("user_id"):
                return None
            # A session was made once, whatever is said of it later.
            row["created_at"] = before.get("created_at") or row["created_at"]
            row["updated_at"] = now
            kept.put_row(row)
        self._remember(kept)
        if not deserialize:
            return {**row, "runs": [run_of(each) for each in session.runs or ()]}
        stored = deserialize_session(None, dict(row))
        stored.runs = session.runs
        return stored

    def upsert_sessions(
        self,
        sessions: list[Any],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[Any]:
        """Stores the rows of several sessions."""
        if not isinstance(sessions, list | tuple):
            given = kind_of(sessions)
            raise BadArgument(parameter="sessions", takes="a list", given=given)
        for each in sessions:
            _row(each)
        stored = [self.upsert_session(each, deserialize) for each in sessions]
        return [each for each in stored if each is not None]

    def rename_session(
        self,
        session_id: str,
        session_type: Any,
        session_name: str,
        user_id: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """Gives a session a name."""
        session_type = _known_type(session_type)
        session_name = text("session_name", session_name)
        kept = self._kept(session_id)
        row = kept.row()
        if row is None or not _fits(row, session_type, user_id):
            return None
        named = {**(row.get("session_data") or {}), "session_name": session_name}
        kept.put_row({**row, "session_data": named})
        found = kept.load()
        assert found is not None
        return deserialize_session(session_type, found) if deserialize else found

    def delete_session(self, session_id: str, user_id: str | None = None) -> bool:
        """Takes a session and its runs out of the store. A run that goes on in it is refused."""
        kept = self._kept(session_id)
        row = kept.row()
        if row is None or not _fits(row, None, user_id):
            return False
        kept.erase()
        self._meant.pop(session_id, None)
        return True

    def delete_sessions(
        self, session_ids: list[str], user_id: str | None = None
    ) -> None:
        """Takes several sessions out of the store."""
        for session_id in names_in("session_ids", session_ids):
            self.delete_session(session_id, user_id)

    def reassign_session_owner(
        self, session_id: str, *, previous_user_id: str, user_id: str | None
    ) -> bool:
        """Gives a session to another user, if it is still that of the previous one, and nothing
        runs or waits in it.
        """
        kept = self._kept(session_id)
        settle(self.store, kept)
        row = kept.row()
        if row is None or row.get("user_id") != previous_user_id:
            return False
        # What was shown and could not be settled is of a run that is streamed now.
        if kept.find(SHOWN) is not None or ACTIVE & set(kept.run_ids().values()):
            return False
        kept.put_row({**row, "user_id": user_id})
        return True

    def get_sessions(
        self,
        session_type: Any = None,
        user_id: str | None = None,
        component_id: str | None = None,
        session_name: str | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
        include_runs: bool = True,
    ) -> Any:
        """The sessions that fit, and without `deserialize` how many there are in all."""
        session_type = _known_type(session_type)
        session_name = optional(text)("session_name", session_name)
        since = _MOMENT("start_timestamp", start_timestamp)
        until = _MOMENT("end_timestamp", end_timestamp)
        limit, page = COUNT("limit", limit), COUNT("page", page)
        found = []
        for kept in self._all():
            row = kept.row()
            if row is None or not _fits(row, session_type, user_id, component_id):
                continue
            made_at = row.get("created_at") or 0
            if _is_called(row, session_name) and _is_within(made_at, since, until):
                found.append(row)
        total = len(found)
        found = paged(apply_sorting(found, sort_by, sort_order), limit, page)
        if include_runs:
            found = [self._kept(row["session_id"]).load() or row for row in found]
        else:
            found = [{**row, "runs": None} for row in found]
        if not deserialize:
            return found, total
        return [deserialize_session(session_type, row) for row in found]


def _known_type(given: Any) -> Any:
    named = getattr(given, "value", given)
    if named is not None and named not in [each.value for each in SessionType]:
        takes = "a SessionType, or its value"
        raise BadArgument(parameter="session_type", takes=takes, given=shown(named))
    return given


def _row(session: Any) -> Block:
    for kind, session_type in _TYPES.items():
        if isinstance(session, kind):
            row: Block = session.to_dict(include_runs=False)
            return {**row, "session_type": session_type.value}
    takes = "a session of Agno's"
    raise BadArgument(parameter="session", takes=takes, given=kind_of(session))


def _fits(
    row: Block,
    session_type: Any,
    user_id: str | None,
    component_id: str | None = None,
) -> bool:
    wanted = getattr(session_type, "value", session_type)
    if wanted is not None and row.get("session_type") != wanted:
        return False
    if user_id is not None and row.get("user_id") != user_id:
        return False
    if component_id is None:
        return True
    return component_id in [row.get(name) for name in _COMPONENTS]


def _is_called(row: dict[str, Any], part: str | None) -> bool:
    """Whether the session's name has these words in it, however they are written."""
    if part is None:
        return True
    name = (row.get("session_data") or {}).get("session_name")
    # Agno's callers may put anything there.
    return isinstance(name, str) and part.lower() in name.lower()


def _is_within(at: int, start: float | None, end: float | None) -> bool:
    return (start is None or at >= start) and (end is None or at <= end)
