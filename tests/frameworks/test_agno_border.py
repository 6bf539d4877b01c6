"""`HoldfastDb` with wrong values: refused, or taken and read back, and nobody else's loss."""

from pathlib import Path
from typing import Any

import pytest
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session import AgentSession
from wrong_values import raw_errors

from holdfast.adapters.agno import HoldfastDb
from holdfast.errors import BadArgument

FILTERS = {"user_id": "ann", "limit": 1, "page": 1, "sort_by": "created_at", "sort_order": "asc"}


def seeded(folder: Path) -> HoldfastDb:
    db = HoldfastDb(folder / "agents.db")
    db.upsert_session(AgentSession("k", "a", user_id="ann", session_data={"n": 1}))
    said = [Message(role="user", content="Water?"), Message(role="assistant", content="Row 1.")]
    db.upsert_run(RunOutput("r", "a", content="Row 1.", messages=said), "k")
    return db


def test_wrong_values_in_questions_are_refused(tmp_path: Path) -> None:
    db = seeded(tmp_path)
    of_runs = {"session_id": "k", "agent_id": "a", "team_id": "t", "workflow_id": "w"}
    wrong = raw_errors(db.get_runs, **of_runs, status="COMPLETED", deserialize=True, **FILTERS)
    wrong += raw_errors(db.get_run, run_id="r", deserialize=True)
    of_one = {"session_id": "k", "session_type": "agent", "user_id": "ann"}
    wrong += raw_errors(db.get_session, **of_one, deserialize=True, runs_limit=1)
    of_many = {"session_type": "agent", "component_id": "a", "session_name": "n"}
    times = {"start_timestamp": 1, "end_timestamp": 2}
    wrong += raw_errors(db.get_sessions, **of_many, **times, include_runs=True, **FILTERS)
    wrong += raw_errors(db.session, session_id="k")
    assert wrong == []


def test_wrong_values_that_would_be_written_are_refused(tmp_path: Path) -> None:
    db = seeded(tmp_path)
    user = {"user_id": "ann"}
    name = {"session_type": "agent", "session_name": "n"}
    wrong = raw_errors(db.rename_session, session_id="k", **name, **user)
    wrong += raw_errors(db.reassign_session_owner, session_id="k", previous_user_id="ann", **user)
    why = {"reason": "late", "expected_status": "PENDING"}
    wrong += raw_errors(db.cancel_pending_run, run_id="r", session_id="k", **why, **user)
    row = AgentSession("k", "a", user_id="ann")
    wrong += raw_errors(db.upsert_session, session=row, deserialize=True)
    wrong += raw_errors(db.upsert_sessions, sessions=[row], deserialize=True)
    wrong += raw_errors(
        db.upsert_run, run=RunOutput("r2", "a"), session_id="k", run_index=2, **user
    )
    wrong += raw_errors(db.delete_run, run_id="q")
    wrong += raw_errors(db.delete_runs, run_ids=["q"])
    wrong += raw_errors(db.delete_session, session_id="q", **user)
    wrong += raw_errors(db.delete_sessions, session_ids=["q"], **user)
    assert wrong == []
    # Whatever was taken can be read, by its name and with all others.
    assert db.get_session("k") is not None
    assert db.get_sessions(session_name="n", include_runs=True) is not None
    assert db.get_runs("k") is not None


def test_a_name_that_is_no_text_hides_no_other_session(tmp_path: Path) -> None:
    db = seeded(tmp_path)
    for number, name in enumerate((None, 5, 1.5, True, ["a"], {"a": 1}, "")):
        db.upsert_session(AgentSession(f"s{number}", "a", session_data={"session_name": name}))
    db.rename_session("k", "agent", "Garden")
    assert [each.session_id for each in db.get_sessions(session_name="garden")] == ["k"]


@pytest.mark.parametrize("other", [None, "k", 5, {"session_id": "y"}])
def test_of_several_sessions_none_is_stored_if_one_is_no_session(
    tmp_path: Path, other: Any
) -> None:
    db = seeded(tmp_path)
    with pytest.raises(BadArgument):
        db.upsert_sessions([AgentSession("z", "a"), other])
    assert db.get_session("z") is None
