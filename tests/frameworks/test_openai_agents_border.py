"""`HoldfastSession` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from agents.items import TResponseInputItem
from wrong_values import raw_errors

from holdfast.adapters.openai_agents import HoldfastSession

PROMPT = {"role": "user", "content": "Water?"}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "dry"}
TEXT = {"type": "output_text", "text": "Row 1.", "annotations": []}
ANSWER = {"type": "message", "id": "m", "role": "assistant", "content": [TEXT]}


def test_items_are_read_back_or_refused(tmp_path: Path) -> None:
    number = 0

    async def add(items: list[TResponseInputItem]) -> None:
        nonlocal number
        number += 1
        session = HoldfastSession(f"s{number}", tmp_path / "agents.db")
        await session.add_items(items)
        assert len(await session.get_items()) == len(items)

    wrong = raw_errors(add, items=[PROMPT])
    wrong += raw_errors(lambda item: add([item]), item=PROMPT)
    for item in (PROMPT, CALL, OUTPUT, ANSWER):

        async def with_fields(_item: dict[str, Any] = item, **fields: Any) -> None:
            await add([PROMPT, {**_item, **fields}])

        wrong += raw_errors(with_fields, **item)
    assert wrong == []


def test_wrong_values_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    session = HoldfastSession("k", place)
    wrong = raw_errors(lambda **given: HoldfastSession(store=place, **given), session_id="s")
    wrong += raw_errors(lambda store: HoldfastSession("s", store), store=place)
    wrong += raw_errors(session.get_items, limit=1)
    wrong += raw_errors(session.run_compaction, args=None)
    wrong += raw_errors(session.load_state, agent=None)
    wrong += raw_errors(session.save_state, state=None)
    wrong += raw_errors(session.apply_decisions, state=None)
    wrong += raw_errors(session.stream, result=None, event_id="x")
    assert wrong == []
