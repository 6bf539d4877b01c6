"""Prompts that stand next to each other, since runs of the Microsoft Agent Framework were cut off before
their models said anything.
"""

import asyncio
from typing import Any

import pytest
from agent_framework import Agent, Content, Message
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from test_agent_framework import gardener, history, provider, shown, texts

from holdfast.adapters.agent_framework import HoldfastHistoryProvider
from holdfast.adapters.agent_framework.prompts import as_one, prompts_in_a_row
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider
from holdfast.testing.adapters.provider import texts_in
from holdfast.testing.oracle import judge
from procs import child

__all__ = ["history", "provider"]
"""Fixtures."""

SILENT = ScriptedAnswer(("One.",), stalls_after=0)
KINDS = [OpenAIChatCompletionClient, OpenAIChatClient]

ASKS = """
    import asyncio
    sys.path.insert(0, "tests/frameworks")
    import test_agent_framework as here

    async def main():
        agent = here.gardener_at(sys.argv[1], here.HoldfastHistoryProvider(sys.argv[2]))
        await agent.run("ask-01", session=agent.create_session(session_id="k"))

    asyncio.run(main())
"""


async def run_cut_off(
    agent: Agent[Any], provider: ScriptedProvider, *, prompt: str, is_streamed: bool
) -> None:
    """A run that is cancelled before the first word of its answer."""
    session = agent.create_session(session_id="k")
    asking = shown(agent, prompt, session) if is_streamed else agent.run(prompt, session=session)
    task: asyncio.Future[Any] = asyncio.ensure_future(asking)
    assert await asyncio.to_thread(provider.stalled.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    provider.stalled.clear()


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_whose_runs_were_cut_off_before_a_word_are_sent_with_the_next_as_one(
    kind: Any, is_streamed: bool, history: HoldfastHistoryProvider, provider: ScriptedProvider
) -> None:
    for prompt in ("ask-01", "ask-02"):
        provider.answer(prompt, SILENT)
    agent = gardener(provider, history, kind=kind)

    async def run() -> None:
        for prompt in ("ask-01", "ask-02"):
            await run_cut_off(agent, provider, prompt=prompt, is_streamed=is_streamed)
        for prompt in ("ask-03", "ask-04"):
            await agent.run(prompt, session=agent.create_session(session_id="k"))

    asyncio.run(run())
    assert [asked.problems for asked in provider.asked] == [()] * 4
    users = [each for each in provider.asked[-1].messages if each["role"] == "user"]
    assert [texts_in(each) for each in users] == [["ask-01\n\nask-02\n\nask-03"], ["ask-04"]]
    # What was said stays as it was said.
    said = [words for role, words in texts(history) if role == "user"]
    assert said == ["ask-01", "ask-02", "ask-03", "ask-04"]
    assert judge(history.store) == []


def test_a_prompt_whose_process_was_killed_is_sent_with_the_next(
    history: HoldfastHistoryProvider, provider: ScriptedProvider, where: str
) -> None:
    provider.answer("ask-01", SILENT)
    with child(ASKS, provider.url, where) as asking:
        assert provider.stalled.wait(60)
        asking.kill()
    agent = gardener(provider, history)
    asyncio.run(agent.run("ask-02", session=agent.create_session(session_id="k")))
    assert provider.asked[-1].problems == ()
    assert [words for role, words in texts(history) if role == "user"] == ["ask-01", "ask-02"]
    assert "ask-01\n\nask-02" in provider.asked[-1].words


def brought(words: str, source: str | None, **facts: Any) -> Message:
    attribution = {} if source is None else {"_attribution": {"source_id": source}}
    return Message(facts.pop("role", "user"), [words], additional_properties=attribution, **facts)


def test_only_prompts_that_a_run_has_left_are_joined() -> None:
    messages = [
        brought("a", "holdfast"),
        brought("b", "holdfast", author_name="Ann"),
        brought("c", "holdfast"),
        brought("d", "other"),
        brought("e", "holdfast", role="assistant"),
        brought("f", "holdfast", role="assistant"),
        Message("user", [Content.from_function_result("c1", result="wet")]),
        brought("g", "holdfast"),
        brought("h", "holdfast"),
        brought("i", None),
        brought("j", None),
    ]
    rows = prompts_in_a_row(messages, "holdfast")
    assert [len(row) for row in rows] == [1, 1, 1, 1, 1, 1, 1, 3, 1]
    joined = as_one(rows[7])
    assert (joined.text, joined.additional_properties) == ("g\n\nh\n\ni", {})
    picture = Content.from_uri("https://x.test/a.png", media_type="image/png")
    kinds = [each.type for each in as_one([messages[0], Message("user", [picture])]).contents]
    assert kinds == ["text", "uri"]
    assert [message.text for message in messages[7:]] == ["g", "h", "i", "j"]
