"""`HoldfastSaver` with wrong values: refused, or taken and read back, and nobody else's loss."""

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from wrong_values import raw_errors

from holdfast.adapters.langgraph import HoldfastSaver


def config(name: str, **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


@pytest.fixture
def saver(tmp_path: Path) -> HoldfastSaver:
    made = HoldfastSaver(tmp_path / "agents.db")
    made.put(config("t"), empty_checkpoint(), {"source": "input", "step": -1}, {})
    return made


@pytest.mark.parametrize("twin", ["", "a"])
def test_wrong_values_are_refused(saver: HoldfastSaver, twin: str) -> None:
    def wrong_in(method: str, **good: Any) -> list[str]:
        return raw_errors(getattr(saver, twin + method), **good)

    at = saver.get_tuple(config("t")).config
    wrong = wrong_in("get_tuple", config=at)
    wrong += wrong_in("list", config=at, filter={"source": "input"}, before=at, limit=1)
    step = {"checkpoint": empty_checkpoint(), "metadata": {"step": 1}, "new_versions": {}}
    wrong += wrong_in("put", config=at, **step)
    wrong += wrong_in("put_writes", config=at, writes=[("a", 1)], task_id="x", task_path="")
    wrong += wrong_in("prune", thread_ids=["q"], strategy="delete")
    wrong += wrong_in("delete_for_runs", run_ids=["q"])
    wrong += wrong_in("delete_thread", thread_id="q")
    wrong += wrong_in("copy_thread", source_thread_id="t", target_thread_id=f"{twin}copy")
    wrong += wrong_in("get_delta_channel_history", config=at, channels=["a"])
    assert wrong == []
    assert saver.get_tuple(config("t")) is not None
    assert list(saver.list(None))


def test_what_is_in_a_step_is_read_back_or_refused(saver: HoldfastSaver) -> None:
    number = 0

    def put(**fields: Any) -> None:
        nonlocal number
        number += 1
        place, name = config(f"t{number}"), fields.pop("channel", "a")
        facts = {"fact": fields.pop("fact", 1)}
        at = saver.put(place, {**empty_checkpoint(), **fields}, facts, {"a": 1})
        saver.put_writes(at, [(name, fields.get("channel_values"))], "task")
        assert saver.get_tuple(place) is not None
        assert len(list(saver.list(place))) == 1

    wrong = raw_errors(put, **empty_checkpoint(), channel="a", fact=1)
    assert wrong == []
    wrong = raw_errors(lambda value: put(channel_values={"a": value}), value=1)
    wrong += raw_errors(lambda value: put(versions_seen={"a": value}), value={})
    wrong += raw_errors(lambda value: put(channel_versions={"a": value}), value=1)
    assert wrong == []
    # One thread with a strange step takes no other out of the lists.
    assert len(list(saver.list(None))) > number / 2


def test_a_step_that_was_stored_with_a_strange_id_hides_no_other_thread(
    saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions took any id."""
    with monkeypatch.context() as unchecked:
        unchecked.setattr("holdfast.adapters.langgraph.saver._check", lambda checkpoint: None)
        saver.put(config("strange"), {**empty_checkpoint(), "id": 1.5}, {}, {})
    assert "t" in [each.config["configurable"]["thread_id"] for each in saver.list(None)]
