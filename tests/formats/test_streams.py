"""Real clients read real streams; what their objects say becomes the message, whole or cut."""

import asyncio

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.chunk import pack, shown, unpack
from holdfast.domain.message import Call, Refusal, Text, Thinking, Usage, thaw
from holdfast.formats import registry
from holdfast.formats.text import END, TextAssembly
from holdfast.testing.strategies import FORMATS, streams
from sse_server import anthropic_script, chat_script, responses_script, serve
from thorough import examples, few_cases

ASK = [{"role": "user", "content": "Hi"}]
CALLS = [("call_1", "look", ['{"pla', 'ce": "h', 'ere"}']), ("call_2", "wait", ["{}"])]


@pytest.fixture(scope="module")
def provider():
    with serve() as running:
        yield running


def _openai(provider):
    return openai.OpenAI(base_url=provider.url, api_key="none", max_retries=0)


def _anthropic(provider):
    return anthropic.Anthropic(base_url=provider.url, api_key="none", max_retries=0)


def read_chat(provider):
    return _openai(provider).chat.completions.create(model="m", messages=ASK, stream=True)


def read_responses(provider):
    return _openai(provider).responses.create(model="m", input="Hi", stream=True)


def read_anthropic(provider):
    return _anthropic(provider).messages.create(model="m", messages=ASK, max_tokens=9, stream=True)


def read_anthropic_helper(provider):
    with _anthropic(provider).messages.stream(model="m", messages=ASK, max_tokens=9) as stream:
        yield from stream


async def aread_chat(provider):
    client = openai.AsyncOpenAI(base_url=provider.url, api_key="none", max_retries=0)
    async for chunk in await client.chat.completions.create(model="m", messages=ASK, stream=True):
        yield chunk


async def aread_responses(provider):
    client = openai.AsyncOpenAI(base_url=provider.url, api_key="none", max_retries=0)
    async for event in await client.responses.create(model="m", input="Hi", stream=True):
        yield event


async def aread_anthropic(provider):
    client = anthropic.AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0)
    async for event in await client.messages.create(
        model="m", messages=ASK, max_tokens=9, stream=True
    ):
        yield event


async def aread_anthropic_helper(provider):
    client = anthropic.AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0)
    async with client.messages.stream(model="m", messages=ASK, max_tokens=9) as stream:
        async for event in stream:
            yield event


def _gathered(aread):
    async def gather(provider):
        return [chunk async for chunk in aread(provider)]

    return lambda provider: asyncio.run(gather(provider))


CLIENTS = [
    pytest.param("openai.chat", "completions", chat_script, read_chat, id="chat"),
    pytest.param("openai.chat", "completions", chat_script, _gathered(aread_chat), id="chat-async"),
    pytest.param("openai.responses", "responses", responses_script, read_responses, id="responses"),
    pytest.param(
        "openai.responses",
        "responses",
        responses_script,
        _gathered(aread_responses),
        id="responses-async",
    ),
    pytest.param("anthropic", "messages", anthropic_script, read_anthropic, id="anthropic"),
    pytest.param(
        "anthropic", "messages", anthropic_script, _gathered(aread_anthropic), id="anthropic-async"
    ),
    pytest.param(
        "anthropic", "messages", anthropic_script, read_anthropic_helper, id="anthropic-helper"
    ),
    pytest.param(
        "anthropic",
        "messages",
        anthropic_script,
        _gathered(aread_anthropic_helper),
        id="anthropic-helper-async",
    ),
]
SYNC = [CLIENTS[0], CLIENTS[2], CLIENTS[4], CLIENTS[6]]


def assemble(format_name, chunks):
    """The message of a stream, and the text that was shown on the way; a broken connection ends it
    like a cut.
    """
    assembly = registry.get(format_name).assembly()
    text = ""
    try:
        for chunk in chunks:
            deltas = assembly.take(chunk)
            assembly.fold(deltas)
            text += shown(deltas)
    except Exception as error:
        assert (
            "peer closed" in str(error) or "incomplete" in str(error) or "onnection" in str(error)
        ), repr(error)
    return assembly, text


def parts(format_name, spoken):
    return [piece.part for piece in registry.read(format_name, spoken.body)]


@pytest.mark.slow
@pytest.mark.parametrize(("format_name", "path", "script", "read"), CLIENTS)
def test_text_and_calls_with_split_arguments_come_out_whole(
    provider, format_name, path, script, read
):
    provider.script(path, script(["I'll ", "look."], calls=CALLS))
    assembly, text = assemble(format_name, read(provider))
    spoken = assembly.message()
    assert text == "I'll look."
    assert [part.text for part in parts(format_name, spoken) if isinstance(part, Text)] == [
        "I'll look."
    ]
    calls = [part for part in parts(format_name, spoken) if isinstance(part, Call)]
    assert [(call.id, call.name) for call in calls] == [("call_1", "look"), ("call_2", "wait")]
    assert calls[0].arguments.replace(" ", "") == '{"place":"here"}'
    assert [(call.id, call.whole) for call in spoken.note.calls] == [
        ("call_1", True),
        ("call_2", True),
    ]
    assert assembly.complete and not spoken.note.partial


@pytest.mark.slow
@pytest.mark.parametrize(("format_name", "path", "script", "read"), CLIENTS)
def test_usage_finish_and_model_are_noted(provider, format_name, path, script, read):
    provider.script(path, script(["Hello."]))
    spoken = assemble(format_name, read(provider))[0].message()
    expected = Usage(input=11, output=7, cached=4, reasoning=0 if format_name == "anthropic" else 2)
    assert spoken.note.usage == expected
    finishes = {"openai.chat": "stop", "openai.responses": "completed", "anthropic": "end_turn"}
    assert spoken.note.finish == finishes[format_name]
    assert spoken.note.model in ("gpt-test", "claude-test")
    assert spoken.note.plain


@pytest.mark.slow
@pytest.mark.parametrize(("format_name", "path", "script", "read"), CLIENTS)
def test_reasoning_is_kept_and_not_shown(provider, format_name, path, script, read):
    thoughts = {"thinking" if format_name == "anthropic" else "reasoning": ["Let me ", "think."]}
    provider.script(path, script(["Done."], **thoughts))
    assembly, text = assemble(format_name, read(provider))
    assert text == "Done."
    thinking = [
        part for part in parts(format_name, assembly.message()) if isinstance(part, Thinking)
    ]
    assert [part.text for part in thinking] == ["Let me think."]
    assert thinking[0].signed == (format_name != "openai.chat")


@pytest.mark.parametrize(("format_name", "path", "script", "read"), CLIENTS[:4])
def test_a_refusal_is_shown_and_kept(provider, format_name, path, script, read):
    provider.script(path, script([], refusal=["I can't ", "do that."]))
    assembly, text = assemble(format_name, read(provider))
    assert text == "I can't do that."
    assert Refusal("I can't do that.") in parts(format_name, assembly.message())


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("broken", [False, True], ids=["quiet", "broken"])
@pytest.mark.parametrize(("format_name", "path", "script", "read"), SYNC)
def test_a_stream_cut_at_any_event_is_partial(provider, format_name, path, script, read, broken):
    events = script(["Hel", "lo."], calls=CALLS[:1])
    ends = {"openai.chat": 3, "openai.responses": 1, "anthropic": 1}[format_name]
    for count in range(1, len(events) - ends + 1):
        provider.script(path, events[:count], broken=broken)
        assembly, text = assemble(format_name, read(provider))
        spoken = assembly.message()
        assert not assembly.complete
        if spoken is not None:
            assert spoken.note.partial and not spoken.note.plain
            assert (
                "".join(part.text for part in parts(format_name, spoken) if isinstance(part, Text))
                == text
            )
        else:
            assert text == ""


def test_a_failed_response_is_not_complete(provider):
    provider.script("responses", responses_script(["Hel"], end="response.failed"))
    assembly, text = assemble("openai.responses", read_responses(provider))
    assert text == "Hel"
    assert not assembly.complete
    assert assembly.message().note.finish == "failed: server_error"


def test_an_incomplete_response_is_whole_and_says_why(provider):
    provider.script("responses", responses_script(["Hel"], end="response.incomplete"))
    spoken = assemble("openai.responses", read_responses(provider))[0].message()
    assert not spoken.note.partial
    assert spoken.note.finish == "incomplete: max_output_tokens"


def test_a_response_is_kept_verbatim(provider):
    script = responses_script(["Hi."], reasoning=["Hm."], calls=CALLS)
    provider.script("responses", script)
    spoken = assemble("openai.responses", read_responses(provider))[0].message()
    assert thaw(spoken.body) == script[-1][1]["response"]["output"]


def test_signed_thinking_is_kept_verbatim(provider):
    provider.script(
        "messages", anthropic_script(["Hi."], thinking=["Let ", "me."], signature="abc==")
    )
    spoken = assemble("anthropic", read_anthropic(provider))[0].message()
    thinking, text = thaw(spoken.body)["content"]
    assert thinking == {"type": "thinking", "thinking": "Let me.", "signature": "abc=="}
    assert text["text"] == "Hi."


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_what_was_shown_is_what_the_message_says_at_every_chunk(format_name, data):
    chunks = data.draw(streams(format_name))
    assembly = registry.get(format_name).assembly()
    text = ""
    for count, chunk in enumerate(chunks, 1):
        deltas = assembly.take(chunk)
        assembly.fold(deltas)
        text += shown(deltas)
        spoken = assembly.message()
        said = parts(format_name, spoken) if spoken else []
        assert "".join(part.text for part in said if isinstance(part, Text | Refusal)) == text
        assert assembly.complete == (count == len(chunks))
        assert spoken is None or spoken.note.partial == (not assembly.complete)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_deltas_read_back_from_the_journal_fold_to_the_same_message(format_name, data):
    chunks = data.draw(streams(format_name))
    chunks = chunks[: data.draw(st.integers(0, len(chunks)))]
    live, taken = registry.get(format_name).assembly(), []
    for chunk in chunks:
        deltas = live.take(chunk)
        live.fold(deltas)
        taken.append(deltas)
    revived = registry.get(format_name).assembly()
    rows = data.draw(st.integers(1, 4))
    for begin in range(0, len(taken), rows):
        revived.fold(
            unpack(pack([delta for deltas in taken[begin : begin + rows] for delta in deltas]))
        )
    assert revived.message() == live.message()
    assert revived.complete == live.complete


def test_calls_that_a_server_sends_all_at_index_0_stay_apart():
    assembly = registry.get("openai.chat").assembly()
    for call_id in ("a", "b"):
        call = {"index": 0, "id": call_id, "function": {"name": "look", "arguments": "{}"}}
        assembly.fold(assembly.take({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    assert [call.id for call in assembly.message().note.calls] == ["a", "b"]


def test_other_choices_are_passed_over():
    assembly = registry.get("openai.chat").assembly()
    choices = [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]
    assert assembly.take({"choices": choices}) == [("text", 0, "yes")]


def test_words_of_a_server_that_sends_only_finished_items_are_shown():
    item = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello."}],
    }
    assembly = registry.get("openai.responses").assembly()
    deltas = assembly.take({"type": "response.output_item.done", "output_index": 0, "item": item})
    deltas += assembly.take(
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}}
    )
    assert shown(deltas) == "Hello."


def test_citations_and_server_tools_are_kept_verbatim():
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    cited = {"type": "char_location", "cited_text": "x"}
    assembly = registry.get("anthropic").assembly()
    for event in (
        {"type": "content_block_start", "index": 0, "content_block": search},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"q":1}'},
        },
        {"type": "content_block_start", "index": 1, "content_block": found},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "citations_delta", "citation": cited},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "X."}},
        {"type": "message_stop"},
    ):
        assembly.fold(assembly.take(event))
    blocks = thaw(assembly.message().body)["content"]
    assert blocks == [
        {**search, "input": {"q": 1}},
        found,
        {"type": "text", "text": "X.", "citations": [cited]},
    ]


@pytest.mark.parametrize("format_name", FORMATS)
def test_plain_text_is_complete_when_its_iterator_has_ended(format_name):
    assembly = TextAssembly(registry.get(format_name))
    assert assembly.message() is None
    for chunk in ("Hel", "", "lo."):
        assembly.fold(assembly.take(chunk))
    assert assembly.message().note.partial
    assembly.fold([END])
    spoken = assembly.message()
    assert spoken.note.plain and not spoken.note.partial
    assert parts(format_name, spoken) == [Text("Hello.")]
