"""The runs of Agno's sessions."""

from typing import Any

from agno.db.in_memory.utils import apply_sorting
from agno.db.utils import deserialize_run, get_run_type

from holdfast.adapters.agno.kept_tables import KeptTables
from holdfast.domain.arguments import kind_of, optional, text, whole
from holdfast.errors import BadArgument

Block = dict[str, Any]

COUNT = optional(whole())


class RunTable(KeptTables):
    """Runs, each with a record of its own; its messages are the session's."""

    def get_run(self, run_id: str, deserialize: bool | None = True) -> Any:
        """A run, of whichever session: all are looked through."""
        run_id = text("run_id", run_id)
        for kept in self._all():
            if run_id in kept.run_ids():
                for run in (kept.load() or {}).get("runs") or ():
                    if run["run_id"] == run_id:
                        return (
                            deserialize_run(get_run_type(run), run)
                            if deserialize
                            else run
                        )
        return None

    def get_runs(
        self,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        status: Any = None,
        limit: int | None = None,
        page: int | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        deserialize: bool | None = True,
    ) -> Any:
        """The runs that fit, and without `deserialize` how many there are in all."""
        limit, page = COUNT("limit", limit), COUNT("page", page)
        wanted = {"agent_id": agent_id, "team_id": team_id, "workflow_id": workflow_id}
        wanted["status"] = getattr(status, "value", status)
        found: list[Block] = []
        for kept in self._all() if session_id is None else [self._kept(session_id)]:
            row = kept.load()
            if row is None or (user_id is not None and row.get("user_id") != user_id):
                continue
            for run in row["runs"] or ():
                if all(want in (None, run.get(name)) for name, want in wanted.items()):
                    found.append(run)
        total = len(found)
        found = paged(apply_sorting(found, sort_by, sort_order), limit, page)
        if not deserialize:
            return found, total
        return [deserialize_run(get_run_type(run), run) for run in found]

    def upsert_run(
        self,
        run: Any,
        session_id: str,
        user_id: str | None = None,
        run_index: int | None = None,
    ) -> None:
        """Stores a run: what is new of its messages, and its record, in one commit. Nothing where
        there is no such session.
        """
        said, kept = run_of(run), self._own(session_id)
        if kept.row() is None:
            return
        if run_index is not None:
            said.setdefault("run_index", run_index)
        kept.put_run(said)

    def cancel_pending_run(
        self,
        run_id: str,
        *,
        session_id: str,
        reason: str,
        user_id: str | None = None,
        expected_status: str = "PENDING",
    ) -> bool:
        """Marks a run as cancelled whose status is still the expected one."""
        row = self._kept(session_id).load()
        if row is None or (user_id is not None and row.get("user_id") != user_id):
            return False
        for run in row["runs"] or ():
            if run["run_id"] == run_id and run.get("status") == expected_status:
                changed = {**run, "status": "CANCELLED", "content": reason}
                self._kept(session_id).put_run(changed)
                return True
        return False

    def delete_run(self, run_id: str) -> bool:
        """Takes a run out of its session; the transcript keeps its words."""
        run_id = text("run_id", run_id)
        return any(kept.delete_run(run_id) for kept in self._all())

    def delete_runs(self, run_ids: list[str]) -> None:
        """Takes several runs out of their sessions."""
        for run_id in names_in("run_ids", run_ids):
            self.delete_run(run_id)


def run_of(run: Any) -> Block:
    """A run as it is stored."""
    said = dict(run) if isinstance(run, dict) else None
    if said is None and callable(getattr(run, "to_dict", None)):
        said = run.to_dict()
    if said is None or not isinstance(said.get("run_id"), str):
        takes = "a run of Agno's, with a run_id"
        raise BadArgument(parameter="run", takes=takes, given=kind_of(run))
    return said


def names_in(parameter: str, given: Any) -> list[str]:
    """The names in a list, all of them looked at before anything is done."""
    if not isinstance(given, list | tuple):
        raise BadArgument(parameter=parameter, takes="a list", given=kind_of(given))
    return [text(parameter, each) for each in given]


def paged(rows: list[Any], limit: int | None, page: int | None) -> list[Any]:
    """The rows of one page."""
    if limit is None:
        return rows
    start = ((page or 1) - 1) * limit
    return rows[start : start + limit]
