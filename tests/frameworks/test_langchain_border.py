"""`HoldfastChatMessageHistory` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from wrong_values import raw_errors

from holdfast.adapters.langchain import HoldfastChatMessageHistory


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    number = 0

    def add(messages: Any) -> None:
        nonlocal number
        number += 1
        history = HoldfastChatMessageHistory(f"k{number}", place)
        history.add_messages(messages)
        assert len(history.messages) == len(messages)

    prompt = HumanMessage("Water?")
    wrong = raw_errors(add, messages=[prompt])
    wrong += raw_errors(lambda message: add([message]), message=prompt)
    wrong += raw_errors(
        lambda fact: add([HumanMessage("a", additional_kwargs={"a": fact})]), fact=1
    )
    wrong += raw_errors(lambda id: add([AIMessage.model_construct(content="a", id=id)]), id="x")
    wrong += raw_errors(
        lambda content: add([AIMessage.model_construct(content=content)]), content="x"
    )
    history = HoldfastChatMessageHistory("k", place)
    wrong += raw_errors(history.aadd_messages, messages=[prompt])
    wrong += raw_errors(
        lambda **given: HoldfastChatMessageHistory(store=place, **given), key="k", request_id="r"
    )
    wrong += raw_errors(lambda store: HoldfastChatMessageHistory("k", store), store=place)
    wrong += raw_errors(history.stream, chain=None, input="x")
    wrong += raw_errors(history.astream, chain=None, input="x")
    assert wrong == [], "\n".join(wrong)
