"""`holdfast proxy` that is traced: each request to the provider is a `chat` span, with what was counted and
without what was said or whose key it was.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from clients import SCRIPTS
from holdfast.server.proxy.dialects import ANTHROPIC, CHAT, read_request
from holdfast.server.proxy.traced_exchange import asked_attributes, provider_at
from holdfast.server.proxy.upstream import origin_of
from proxy_world import KEY, LIMIT_S, ProxyClients, cut_off, provider, proxied, told
from spans_seen import SeenSpans, is_child, is_error, said

SECRET = "the code is 7F3K"
HI = [{"role": "user", "content": SECRET}]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ROUTES = {
    "openai.chat": "/chat/completions",
    "openai.responses": "/responses",
    "anthropic": "/messages",
}


@pytest.fixture
def seen() -> SeenSpans:
    return SeenSpans()


def tracing(seen: SeenSpans, **how: Any) -> holdfast.Tracing:
    return holdfast.Tracing(seen.provider, **how)


@pytest.mark.parametrize("format", list(ROUTES))
def test_a_request_to_the_provider_is_a_span_below_that_of_its_client(
    tmp_path: Path, seen: SeenSpans, format: str
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream, tracing=tracing(seen)) as port:
        upstream.answer(SCRIPTS[format](["Hel", "lo 7F3K."]))
        clients = ProxyClients(port, "mine", traceparent=TRACEPARENT)
        assert list(clients.stream(format, HI))
        [request] = seen.awaited(f"POST {ROUTES[format]}")
        [chat] = seen.awaited("chat m")
        [turn] = seen.awaited("invoke_agent")
        # It is the client's own: passed on as it came.
        assert upstream.seen.get(timeout=LIMIT_S).headers["traceparent"] == TRACEPARENT
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert is_child(chat, request) and is_child(turn, request)
    assert [link.context.span_id for link in chat.links] == [turn.context.span_id]
    told_of = dict(chat.attributes)
    assert told_of["gen_ai.operation.name"] == "chat"
    assert told_of["gen_ai.provider.name"] == format.partition(".")[0]
    assert told_of["gen_ai.request.model"] == "m"
    assert told_of["gen_ai.request.stream"] is True
    assert told_of["gen_ai.response.time_to_first_chunk"] > 0
    assert (told_of["server.address"], told_of["server.port"]) == ("127.0.0.1", upstream.port)
    with holdfast.open(store) as opened:
        session = opened.session("mine")
        assert told_of["gen_ai.conversation.id"] == session.id
        [info] = session.turns()
        assert told_of["holdfast.turn.id"] == info.id
        [answer] = [each for each in session.transcript() if each.role == "assistant"]
        assert told_of["holdfast.message.id"] == answer.id
        if answer.usage is not None:
            assert told_of["gen_ai.usage.output_tokens"] == answer.usage.output
    assert not is_error(chat)
    # Commits of the answer are below it.
    assert any(is_child(each, chat) for each in seen.named("holdfast.commit"))
    for words in (SECRET, "7F3K", KEY, "mine"):
        assert words not in seen.text


def test_counts_are_those_of_the_provider(tmp_path: Path, seen: SeenSpans) -> None:
    usage = {
        "input_tokens": 5,
        "output_tokens": 7,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 0,
    }
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-9",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": usage,
    }
    with (
        provider() as upstream,
        proxied(tmp_path / "a.db", upstream, tracing=tracing(seen)) as port,
    ):
        upstream.answer_whole(body)
        ProxyClients(port, "mine").whole("anthropic", HI)
        [chat] = seen.awaited("chat m")
    wanted = {
        "gen_ai.response.id": "msg_1",
        "gen_ai.response.model": "claude-9",
        "gen_ai.response.finish_reasons": ("end_turn",),
        # Anthropic counts what was in the cache apart; the conventions do not.
        "gen_ai.usage.input_tokens": 95,
        "gen_ai.usage.cache_read.input_tokens": 90,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.request.max_tokens": 9,
    }
    assert {name: chat.attributes.get(name) for name in wanted} == wanted
    assert "gen_ai.response.time_to_first_chunk" not in chat.attributes


def test_a_provider_that_refuses_is_an_error_by_its_status(tmp_path: Path, seen: SeenSpans) -> None:
    with (
        provider() as upstream,
        proxied(tmp_path / "a.db", upstream, tracing=tracing(seen)) as port,
    ):
        upstream.answer_whole({"error": {"message": SECRET, "type": "x"}}, status=429)
        with pytest.raises(Exception, match="429"):
            ProxyClients(port, "mine").whole("openai.chat", HI)
        [chat] = seen.awaited("chat m")
    assert is_error(chat) and chat.attributes["error.type"] == "429"
    assert SECRET not in seen.text


def test_an_answer_that_breaks_off_is_an_error(tmp_path: Path, seen: SeenSpans) -> None:
    with (
        provider() as upstream,
        proxied(tmp_path / "a.db", upstream, tracing=tracing(seen)) as port,
    ):
        upstream.answer(SCRIPTS["openai.chat"](["Hel", "lo."])[:2], ending="cut")
        with cut_off():
            list(ProxyClients(port, "mine").stream("openai.chat", HI))
        [chat] = seen.awaited("chat m")
    assert is_error(chat) and chat.attributes["error.type"] == "failed"


def test_a_span_lasts_as_long_as_the_answer_though_its_client_is_gone(
    tmp_path: Path, seen: SeenSpans
) -> None:
    store = tmp_path / "a.db"
    script = SCRIPTS["openai.chat"](["one ", "two ", "three"])
    with provider() as upstream, proxied(store, upstream, tracing=tracing(seen)) as port:
        upstream.answer(script, hold_after=len(script) - 3)
        stream = ProxyClients(port, "mine").stream("openai.chat", HI)
        next(iter(stream))
        stream.close()
        seen.awaited("POST /chat/completions")
        assert not seen.named("chat m")
        upstream.go_on()
        [chat] = seen.awaited("chat m")
    assert not is_error(chat)
    assert told(store, "mine")[-1] == ("assistant", "one two three", "complete")


def test_content_is_told_when_it_is_asked_for_and_a_key_not_even_then(
    tmp_path: Path, seen: SeenSpans
) -> None:
    traced = tracing(seen, content=True)
    with provider() as upstream, proxied(tmp_path / "a.db", upstream, tracing=traced) as port:
        upstream.answer(SCRIPTS["anthropic"](["Hello ", "7F3K."]))
        said_with_key = [{"role": "user", "content": f"{SECRET} {KEY}"}]
        list(ProxyClients(port, "mine").stream("anthropic", said_with_key))
        [chat] = seen.awaited("chat m")
        seen.awaited("invoke_agent")
    [asked] = said(chat, "gen_ai.input.messages")
    assert asked["role"] == "user" and asked["parts"][0]["content"].startswith(SECRET)
    [answer] = said(chat, "gen_ai.output.messages")
    assert answer["parts"] == [{"type": "text", "content": "Hello 7F3K."}]
    assert KEY not in seen.text


def test_what_is_only_passed_on_is_a_request_without_an_address(
    tmp_path: Path, seen: SeenSpans
) -> None:
    with (
        provider() as upstream,
        proxied(tmp_path / "a.db", upstream, tracing=tracing(seen)) as port,
    ):
        upstream.answer_whole({"data": [], "object": "list"})
        ProxyClients(port).openai.models.list()
        [request] = seen.awaited("GET")
    assert "http.route" not in request.attributes
    assert "models" not in json.dumps(dict(request.attributes))


def test_providers_are_known_by_their_hosts_and_else_by_what_they_speak() -> None:
    assert provider_at("api.openai.com", "openai.chat") == "openai"
    assert provider_at("my.openai.azure.com", "openai.chat") == "azure.ai.openai"
    assert provider_at("api.mistral.ai", "openai.chat") == "mistral_ai"
    assert provider_at("localhost", "anthropic") == "anthropic"
    assert provider_at("notopenai.com.example", "openai.responses") == "openai"


def test_numbers_and_names_are_told_of_a_request_and_nothing_else_of_it() -> None:
    body = {
        "model": f"a  b\n{'x' * 500}",
        "messages": HI,
        "temperature": 1,
        "top_p": True,
        "max_tokens": "9",
        "user": SECRET,
        "metadata": {"session_id": SECRET},
    }
    request = read_request(CHAT, json.dumps(body).encode())
    assert request is not None
    told_of = asked_attributes(request, origin_of(f"https://someone:{KEY}@api.groq.com/v1"))
    assert told_of.pop("gen_ai.request.model") == ("a b " + "x" * 500)[:200]
    assert told_of == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "groq",
        "gen_ai.request.stream": False,
        "gen_ai.request.temperature": 1.0,
        "server.address": "api.groq.com",
        "server.port": 443,
    }
    assert read_request(ANTHROPIC, b"{}") is None
