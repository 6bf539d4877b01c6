"""Lineage: whose past a log is read from (I-19)."""

from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import Damaged
from holdfast.runtime.live.lineage import Lineages, Link
from holdfast.runtime.transfer.vet import vet_state


def test_what_is_known_of_a_session_is_known_of_its_own_tenant_alone(tmp_path: Path) -> None:
    """All tenants of an engine may share what is remembered."""
    with holdfast.open(tmp_path / "agent.db", tenant="alice") as store:
        session = store.session("k")
        session.append("Hi.")
        fork = session.fork()
        state = store._work.engine.state(fork.id)
        lineages = Lineages(store._work.engine)
        asked = {"tenant": "alice", "origin": state.origin}
        assert [each.session for each in lineages.of(fork.id, **asked)] == [session.id, fork.id]
        with pytest.raises(Damaged):
            lineages.of(fork.id, **asked | {"tenant": "mallory"})


def test_sessions_that_name_each_other_as_parents_are_refused(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as store:
        lineages = Lineages(store._work.engine)
        lineages._links = {"one": Link("t", 5, "other"), "other": Link("t", 5, "one")}
        with pytest.raises(Damaged):
            lineages.of("one", tenant="t", origin=5)


def test_a_fork_whose_row_names_another_parent_than_its_log_is_told_of(tmp_path: Path) -> None:
    """The row is what children are found by, the log what happened."""
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        session, other = store.session("k"), store.session("another")
        for each in (session, other):
            each.append("Hi.")
        fork = session.fork()
        assert store.check() == []
        database = apsw.Connection(str(path))
        database.execute("UPDATE session SET parent = ? WHERE id = ?", (other.id, fork.id))
        database.close()
        assert [(problem.rule, problem.session) for problem in store.check()] == [
            ("wrong-parent", fork.id)
        ]


def test_a_fence_beyond_all_turns_is_refused(tmp_path: Path) -> None:
    """A store that is copied may say it, and no turn could ever follow."""
    with holdfast.open(tmp_path / "agent.db") as store:
        with store.turn("k", "Hi") as turn:
            turn.say("Hello.")
        state = store._work.engine.state(store.session("k").id)
        vet_state(state)
        with pytest.raises(Damaged):
            vet_state(replace(state, fence=2**40))
