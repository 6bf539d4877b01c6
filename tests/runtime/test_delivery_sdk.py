"""Delivery of what the real SDKs read: their own objects, from their own clients, over a real
connection (I-5, I-14).

The provider is `sse_server` on loopback; the clients are `openai` and `anthropic`, sync and async.
"""

import asyncio
import json

import anthropic
import openai
import pytest

import holdfast
from holdfast.testing.providers import check
from looking import ends, journaled, other_handle
from sse_server import anthropic_script, chat_script, responses_script, serve
from thorough import few_cases

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
TEXTS = ["Hel", "lo, ", "wor", "ld."]
CALLS = [("call_1", "look", ['{"at":', ' "sky"}']), ("call_2", "wait", ["{}"])]
OPTIONS = {"api_key": "none", "max_retries": 0}

PATHS = {"openai.chat": "completions", "openai.responses": "responses", "anthropic": "messages"}
SCRIPTS = {
    "openai.chat": chat_script,
    "openai.responses": responses_script,
    "anthropic": anthropic_script,
}
LAST_WORD = {"openai.chat": 3, "openai.responses": 2, "anthropic": 2}
"""How many events at the end of a script stand between the last word and a complete stream."""


@pytest.fixture(scope="module")
def provider():
    with serve() as running:
        yield running


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def ask(provider, format, context):
    """The real client's stream for this context."""
    if format == "anthropic":
        client = anthropic.Anthropic(base_url=provider.url, **OPTIONS)
        return client.messages.create(model="m", messages=list(context), stream=True, max_tokens=99)
    client = openai.OpenAI(base_url=provider.url, **OPTIONS)
    if format == "openai.chat":
        return client.chat.completions.create(model="m", messages=list(context), stream=True)
    return client.responses.create(model="m", input=list(context), stream=True)


async def ask_async(provider, format, context):
    if format == "anthropic":
        client = anthropic.AsyncAnthropic(base_url=provider.url, **OPTIONS)
        return await client.messages.create(
            model="m", messages=list(context), stream=True, max_tokens=99
        )
    client = openai.AsyncOpenAI(base_url=provider.url, **OPTIONS)
    if format == "openai.chat":
        return await client.chat.completions.create(model="m", messages=list(context), stream=True)
    return await client.responses.create(model="m", input=list(context), stream=True)


def script_of(format, *, rich=False, **options):
    if not rich:
        return SCRIPTS[format](TEXTS, **options)
    thinking = {"thinking" if format == "anthropic" else "reasoning": ["Hm", "m."]}
    return SCRIPTS[format](TEXTS, calls=CALLS, **thinking, **options)


def valid_everywhere(session):
    for format in FORMATS:
        assert check(format, session.context(format)) == [], format


@pytest.mark.slow
@pytest.mark.parametrize("format", PATHS)
def test_the_stream_of_a_real_client_is_durable_before_each_text(provider, store, where, format):
    """I-5: the ten lines of the README, with each provider's own client and objects."""
    provider.script(PATHS[format], script_of(format))
    session = store.session("k")
    shown = ""
    with other_handle(where) as eye, session.turn("Hi", format=format) as turn:
        for text in turn.deliver(ask(provider, format, turn.context(format)), format=format):
            shown += text
            assert journaled(eye, session.id).startswith(shown)
    assert shown == "Hello, world."
    [_, answer] = session.transcript()
    assert (answer.text, answer.state, answer.format) == (shown, "complete", format)
    assert ends(store, session.id) == {1: ["completed"]}
    valid_everywhere(session)


@pytest.mark.parametrize("format", PATHS)
def test_a_tool_loop_with_a_real_client_sends_valid_requests(provider, store, format):
    """I-10, I-14: two parallel calls with split arguments, answered out of order; the provider sees
    what it said.
    """
    session = store.session("k")
    provider.requests.clear()
    with session.turn("Hi", format=format) as turn:
        provider.script(PATHS[format], script_of(format, rich=True))
        list(turn.deliver(ask(provider, format, turn.context(format)), format=format))
        for call_id, name, pieces in reversed(CALLS):
            assert turn.call(name, "".join(pieces), call_id=call_id) == call_id
            turn.result(call_id, f"result of {name}")
        provider.script(PATHS[format], script_of(format))
        list(turn.deliver(ask(provider, format, turn.context(format)), format=format))
    sent = provider.requests[-1]["input" if format == "openai.responses" else "messages"]
    assert check(format, sent) == []
    told = json.dumps(sent)
    assert told.index("result of look") < told.index("result of wait"), (
        "results stand in the order of their calls"
    )
    assert [(call.call_id, call.state) for call in session.calls()] == [
        ("call_1", "done"),
        ("call_2", "done"),
    ]
    assert [message.state for message in session.transcript()] == ["complete"] * 5
    assert session.info().usage.output == 14
    valid_everywhere(session)


@few_cases(every=2)
@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("broken", [False, True], ids=["quiet", "broken"])
def test_a_connection_that_ends_before_the_mark_leaves_a_partial_message(
    provider, store, format, broken
):
    """I-5, FAULTS A1: the server stops after the last word, quietly or in the middle of
    the body.
    """
    events = script_of(format)
    provider.script(PATHS[format], events[: -LAST_WORD[format]], broken=broken)
    session = store.session("k")
    shown, raised = [], None
    try:
        with session.turn("Hi", format=format) as turn:
            for text in turn.deliver(ask(provider, format, turn.context(format)), format=format):
                shown.append(text)
    except Exception as error:  # what the SDK raises for a torn body is its own affair
        raised = error
    [_, answer] = session.transcript()
    assert (answer.text, answer.state) == ("".join(shown), "partial") and shown
    assert ends(store, session.id) == {1: ["interrupted" if raised is None else "failed"]}
    valid_everywhere(session)


@pytest.mark.parametrize("format", PATHS)
def test_a_stream_that_is_left_closes_the_client_s_connection(provider, store, format):
    """The consumer breaks off after the first word."""
    provider.script(PATHS[format], script_of(format))
    session = store.session("k")
    with session.turn("Hi", format=format) as turn:
        reply = ask(provider, format, turn.context(format))
        for text in turn.deliver(reply, format=format):
            assert text == "Hel"
            break
    assert reply.response.is_closed
    [_, answer] = session.transcript()
    assert (answer.text, answer.state) == ("Hel", "partial")
    assert ends(store, session.id) == {1: ["interrupted"]}


def test_the_anthropic_stream_helper_is_taken_as_it_is(provider, store):
    """`messages.stream(…)` gives the raw events and its own on top; each word is counted once."""
    provider.script("messages", script_of("anthropic", rich=True))
    client = anthropic.Anthropic(base_url=provider.url, **OPTIONS)
    session = store.session("k")
    with session.turn("Hi", format="anthropic") as turn:
        with client.messages.stream(
            model="m", messages=turn.context("anthropic"), max_tokens=99
        ) as reply:
            assert "".join(turn.deliver(reply, format="anthropic")) == "Hello, world."
        for call_id, name, _ in CALLS:
            turn.result(call_id, name)
    [answer] = [message for message in session.transcript() if message.role == "assistant"]
    assert answer.state == "complete" and len(session.calls()) == 2
    valid_everywhere(session)


def test_a_signed_thinking_block_goes_back_byte_for_byte(provider, store):
    """I-14, FAULTS E8: signature and text as they came, in the next request."""
    provider.script("messages", script_of("anthropic", rich=True, signature="c2lnbmVkIQ=="))
    session = store.session("k")
    with session.turn("Hi", format="anthropic") as turn:
        list(
            turn.deliver(ask(provider, "anthropic", turn.context("anthropic")), format="anthropic")
        )
        for call_id, name, _ in CALLS:
            turn.result(call_id, name)
        blocks = turn.context("anthropic")[1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "Hmm.", "signature": "c2lnbmVkIQ=="}


def test_a_finished_sdk_message_can_be_added_as_it_is(provider, store):
    """An agent that does not stream: the object that the client returned is the message."""
    message = openai.types.chat.ChatCompletionMessage(role="assistant", content="Hello.")
    block = anthropic.types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [{"type": "text", "text": "Hello."}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    for format, given in (("openai.chat", message), ("anthropic", block)):
        session = store.session(format)
        with session.turn("Hi", format=format) as turn:
            turn.add(given, format=format)
        assert [said.text for said in session.transcript()] == ["Hi", "Hello."]
        valid_everywhere(session)


@pytest.mark.parametrize("format", PATHS)
def test_the_async_clients_are_delivered_the_same_way(provider, where, format):
    """I-5: `async for`, with the async clients' own objects, tools included."""

    async def scene():
        provider.script(PATHS[format], script_of(format, rich=True))
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            with holdfast.open(where) as eye:
                shown = ""
                async with session.turn("Hi", format=format) as turn:
                    reply = await ask_async(provider, format, await turn.context(format))
                    async for text in turn.deliver(reply, format=format):
                        shown += text
                        assert journaled(eye, session.id).startswith(shown)
                    for call_id, name, _ in CALLS:
                        await turn.result(call_id, f"result of {name}")
                assert shown == "Hello, world."
                assert ends(eye, session.id) == {1: ["completed"]}
                valid_everywhere(eye.session("k"))
                assert [call.state for call in await session.calls()] == ["done", "done"]

    asyncio.run(scene())


@pytest.mark.parametrize("format", PATHS)
def test_an_async_stream_that_is_left_is_partial_and_its_connection_closed(provider, where, format):
    """I-5: `break`, and a cancelled task; the client's connection is let go of either way."""

    async def scene():
        provider.script(PATHS[format], script_of(format))
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Hi", format=format) as turn:
                reply = await ask_async(provider, format, await turn.context(format))
                stream = turn.deliver(reply, format=format)
                async for text in stream:
                    assert text == "Hel"
                    break
                await stream.aclose()
            assert reply.response.is_closed
            [_, answer] = [message async for message in session.transcript()]
            assert (answer.text, answer.state) == ("Hel", "partial")
            with holdfast.open(where) as eye:
                assert ends(eye, session.id) == {1: ["interrupted"]}

    asyncio.run(scene())


@pytest.mark.slow
def test_the_same_session_goes_on_with_another_provider(provider, store):
    """FAULTS E12: one turn with each client, tools in all of them; every request is valid for its
    provider.
    """
    session = store.session("k")
    for format in [*PATHS, *reversed(PATHS)]:
        provider.requests.clear()
        with session.turn(f"Now with {format}.", format=format) as turn:
            provider.script(PATHS[format], script_of(format, rich=True))
            list(turn.deliver(ask(provider, format, turn.context(format)), format=format))
            for call_id, name, _ in CALLS:
                turn.result(call_id, name)
            provider.script(PATHS[format], script_of(format))
            list(turn.deliver(ask(provider, format, turn.context(format)), format=format))
        for request in provider.requests:
            assert (
                check(format, request["input" if format == "openai.responses" else "messages"])
                == []
            )
    assert [call.state for call in session.calls()] == ["done"] * 12
    valid_everywhere(session)
