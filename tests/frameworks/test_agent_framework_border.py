"""`HoldfastHistoryProvider` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from agent_framework import Message
from wrong_values import raw_errors

from holdfast.adapters.agent_framework import HoldfastHistoryProvider


def given_contents(contents: Any) -> Message:
    message = Message("user", [])
    message.contents = contents
    return message


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    provider = HoldfastHistoryProvider(tmp_path / "agents.db")
    number = 0

    async def save(messages: Any) -> None:
        nonlocal number
        number += 1
        await provider.save_messages(f"k{number}", messages)
        found = await provider.get_messages(f"k{number}")
        # One that says nothing is in the transcript alone.
        assert len(found) == sum(1 for message in messages if message.contents)

    prompt = Message("user", ["Water?"])
    wrong = raw_errors(save, messages=[prompt])
    wrong += raw_errors(lambda message: save([message]), message=prompt)
    wrong += raw_errors(lambda role: save([Message(role, ["Water?"])]), role="user")
    contents = prompt.contents
    wrong += raw_errors(lambda content: save([given_contents(content)]), content=contents)
    wrong += raw_errors(
        lambda fact: save([Message("user", ["a"], additional_properties={"a": fact})]), fact=1
    )
    wrong += raw_errors(provider.save_messages, session_id="k", messages=[prompt], event_id="e")
    wrong += raw_errors(provider.get_messages, session_id="k", state=None)
    wrong += raw_errors(provider.clear, session_id="q")
    wrong += raw_errors(provider.session, session_id="q")
    wrong += raw_errors(HoldfastHistoryProvider, store=tmp_path / "agents.db", source_id="x")
    assert wrong == [], "\n".join(wrong)
