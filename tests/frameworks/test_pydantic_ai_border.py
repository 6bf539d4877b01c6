"""`HoldfastHistory` and `HoldfastStepStore` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from wrong_values import raw_errors

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastHistory, HoldfastStepStore


def asked(words: Any) -> ModelRequest:
    part = UserPromptPart("")
    part.content = words
    return ModelRequest(parts=[part])


def test_wrong_values_in_a_history_are_refused_or_read_back(tmp_path: Path) -> None:
    store = holdfast.open(tmp_path / "agents.db")
    number = 0

    def append(messages: Any) -> None:
        nonlocal number
        number += 1
        history = HoldfastHistory(store.session(f"k{number}"))
        history.append(messages)
        assert len(history.messages()) == len(messages)

    prompt = ModelRequest(parts=[UserPromptPart("Water?")])
    history = HoldfastHistory(store.session("k"))
    wrong = raw_errors(append, messages=[prompt])
    wrong += raw_errors(lambda message: append([message]), message=prompt)
    wrong += raw_errors(lambda part: append([ModelRequest(parts=[part])]), part=prompt.parts[0])
    wrong += raw_errors(lambda words: append([asked(words)]), words="a")
    wrong += raw_errors(lambda words: append([ModelResponse(parts=[TextPart(words)])]), words="a")
    wrong += raw_errors(
        lambda fact: append([ModelRequest(parts=prompt.parts, metadata={"a": fact})]), fact=1
    )
    wrong += raw_errors(history.aappend, messages=[prompt])
    wrong += raw_errors(history.request, event_id="e")
    wrong += raw_errors(HoldfastHistory, session=None)
    assert wrong == [], "\n".join(wrong)


def test_wrong_values_in_a_step_store_are_refused(tmp_path: Path) -> None:
    steps = HoldfastStepStore(tmp_path / "agents.db")
    wrong = raw_errors(steps.register_run, record=None)
    wrong += raw_errors(steps.append_event, event=None)
    wrong += raw_errors(steps.save_snapshot, snapshot=None)
    wrong += raw_errors(steps.record_tool_effect, record=None)
    wrong += raw_errors(steps.get_run, run_id="r")
    wrong += raw_errors(steps.list_runs, parent_run_id="r", conversation_id="c")
    wrong += raw_errors(steps.list_events, run_id="r")
    wrong += raw_errors(steps.latest_snapshot, run_id="r", include_interrupted=True)
    wrong += raw_errors(steps.list_snapshots, run_id="r", include_interrupted=True)
    wrong += raw_errors(steps.get_tool_effect, run_id="r", tool_call_id="c")
    wrong += raw_errors(steps.list_unresolved_tool_effects, run_id="r")
    wrong += raw_errors(HoldfastStepStore, store=tmp_path / "agents.db")
    assert wrong == [], "\n".join(wrong)
