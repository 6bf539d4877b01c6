"""The load that other tests make trouble for: it tells what is so, and its judge sees
what is not.
"""

import pytest

import holdfast
from loading import loading


@pytest.fixture
def loaded(tmp_path):
    """A store that a small load has worked in, and what the load was told."""
    path = tmp_path / "agent.db"
    with loading(path, sessions=4) as loads:
        loads.go_on(turns=2)
    with holdfast.open(path) as store:
        yield store, loads


@pytest.mark.slow
def test_a_load_is_told_what_is_so(loaded):
    """I-3, I-5, I-6: both faces, threads and tasks, each with sessions of its own."""
    store, loads = loaded
    assert loads.wrong(store) == []
    assert loads.troubles == []
    assert {act[0] for act in loads.told} == {"said", "shown", "ended"}
    assert {listed.key for listed in store.sessions()} == {"thread0", "thread1", "task0", "task1"}


@pytest.mark.slow
def test_its_judge_sees_what_is_not_so(loaded):
    """A judge that can't fail proves nothing."""
    store, loads = loaded
    load = loads.each[0]
    turn = next(act[1] for act in load.told if act[0] == "ended")
    for lie in (
        ("said", None, None, "never"),
        ("shown", turn, None, "never"),
        ("ended", turn, "failed"),
    ):
        load.told.append(lie)
        [sentence] = loads.wrong(store)
        assert "(I-3)" in sentence or "(I-5)" in sentence or "(I-6)" in sentence
        load.told.remove(lie)
    store.session("task0").append(load.tried[0])
    assert any("2 times" in sentence for sentence in loads.wrong(store))
