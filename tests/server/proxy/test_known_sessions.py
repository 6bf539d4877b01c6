"""Which sessions the proxy remembers: what is in use, however many there are, and none by a call aside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients import SCRIPTS
from holdfast.server.proxy import proxied_sessions
from proxy_world import LIMIT_S, HeldProvider, ProxyClients, keys, provider, proxied, told, turns

SCRIPT = SCRIPTS["openai.chat"]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied_sessions, "KNOWN_MAX", 2)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def held(upstream: HeldProvider, port: int, key: str) -> Iterator[Any]:
    """A request that is being answered."""
    upstream.answer(SCRIPT(["one ", "two"]), hold_after=2)
    stream = iter(ProxyClients(port, key).stream("openai.chat", [user("Hi")]))
    next(stream)
    upstream.held.get(timeout=LIMIT_S)
    return stream


def asked(upstream: HeldProvider, port: int, key: str | None, *said: Any, **more: Any) -> None:
    upstream.answer(SCRIPT(["Well."]))
    list(ProxyClients(port, key).stream("openai.chat", list(said), **more))


@pytest.mark.usefixtures("few")
def test_more_may_be_answered_at_once_than_are_remembered(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        running = [held(upstream, port, f"s{number}") for number in range(4)]
        # The first is known still: a second request while it is being answered is aside.
        asked(upstream, port, "s0", user("And?"))
        for _ in running:
            upstream.go_on()
        for stream in running:
            list(stream)
    assert keys(store) == ["s0", "s0/side", "s1", "s2", "s3"]
    for number in range(4):
        assert told(store, f"s{number}")[-1] == ("assistant", "one two", "complete")
        assert turns(store, f"s{number}") == ["completed"]


@pytest.mark.usefixtures("few")
def test_a_turn_that_waits_for_results_goes_on_after_many_others(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    said = {"name": "look", "arguments": "{}"}
    call = {"id": "call_1", "type": "function", "function": said}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "There."}
    with provider() as upstream, proxied(store, upstream) as port:
        upstream.answer(SCRIPT([], calls=[("call_1", "look", ["{}"])]))
        list(ProxyClients(port, "mine").stream("openai.chat", [user("Hi")], tools=[TOOL]))
        for number in range(4):
            asked(upstream, port, f"s{number}", user("Hi"))
        made = {"role": "assistant", "content": None, "tool_calls": [call]}
        asked(upstream, port, "mine", user("Hi"), made, result, tools=[TOOL])
    assert turns(store, "mine") == ["completed"]
    assert [text for _, text, _ in told(store, "mine")] == ["Hi", "", "There.", "Well."]


@pytest.mark.parametrize(
    "sign", ["Generate a short title.", "You are a summarization agent."], ids=["title", "summary"]
)
def test_a_user_goes_on_in_its_session_though_a_call_aside_comes_first(
    tmp_path: Path, sign: str
) -> None:
    store = tmp_path / "a.db"
    said = [user("Hi")]
    for question in ("And?", "So?"):
        # Each time in another process, as it were.
        with provider() as upstream, proxied(store, upstream) as port:
            if len(said) > 1:
                aside = {"role": "system", "content": sign}
                asked(upstream, port, None, aside, user("Hi"), user="ada")
            asked(upstream, port, None, *said, user="ada")
            said += [{"role": "assistant", "content": "Well."}, user(question)]
            asked(upstream, port, None, *said, user="ada")
            said += [{"role": "assistant", "content": "Well."}, user(f"{question} Go on.")]
    assert "ada/2" not in keys(store)
    assert [text for _, text, _ in told(store, "ada")] == [each["content"] for each in said[:-1]]
