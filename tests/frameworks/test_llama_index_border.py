"""`HoldfastChatStore` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from llama_index.core.llms import ChatMessage
from wrong_values import raw_errors

from holdfast.adapters.llama_index import HoldfastChatStore


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    store = HoldfastChatStore(tmp_path / "agents.db")
    prompt = ChatMessage(role="user", content="Water?")
    store.add_message("k", prompt)
    wrong = raw_errors(lambda store: HoldfastChatStore(store), store=tmp_path / "agents.db")
    wrong += raw_errors(store.add_message, key="k", message=prompt)
    wrong += raw_errors(store.async_add_message, key="k", message=prompt)
    wrong += raw_errors(store.set_messages, key="k", messages=[prompt])
    wrong += raw_errors(store.get_messages, key="k")
    wrong += raw_errors(store.aget_messages, key="k")
    wrong += raw_errors(store.delete_message, key="k", idx=0)
    wrong += raw_errors(store.delete_last_message, key="q")
    wrong += raw_errors(store.delete_messages, key="q")
    wrong += raw_errors(store.session, key="q")
    wrong += raw_errors(store.stream, key="q", pieces=["a"])
    wrong += raw_errors(store.astream, key="q", pieces=["a"])
    wrong += raw_errors(store.run, key="q", agent=None, user_msg="x", request_id="x")
    assert wrong == []
    for key in store.get_keys():
        assert store.get_messages(key) is not None


def test_fields_that_nobody_knows_are_read_back_or_refused(tmp_path: Path) -> None:
    store = HoldfastChatStore(tmp_path / "agents.db")
    number = 0

    def add(value: Any) -> None:
        nonlocal number
        number += 1
        message = ChatMessage(role="user", content="Water?", additional_kwargs={"a": value})
        store.add_message(f"k{number}", message)
        assert len(store.get_messages(f"k{number}")) == 1

    assert raw_errors(add, value=1) == []
