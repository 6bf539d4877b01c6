"""Hypothesis strategies: messages, streams and views as bad as they come.

`views()` draws what a log may hold after crashes, retries, trims and provider switches: every
format, reused and blank call ids, late, doubled and stray results, cut streams. Contexts made from
any of them must be valid (I-9, I-10).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from holdfast.domain.message import freeze
from holdfast.domain.repair import StoredMessage
from holdfast.formats import registry
from holdfast.testing.completions import Payload, call_deltas, completions_chunks

Payloads = st.SearchStrategy[Payload]
StreamedCall = tuple[str, str, list[str]]
"""The id of a call, its name, and its arguments piece by piece."""

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
# The eight bytes that a PNG begins with, and nothing else.
PNG = "data:image/png;base64,iVBORw0KGgo="

words = st.sampled_from(
    ["Hello.", "Well?", "Ends in space. ", "é 漢 🙂", "a\n\nb", "", " ", "\n\t"]
)
# Mostly a few ids again and again: results must find calls, and the right ones.
# Chat Completions takes 40 characters, the Responses API 64.
call_ids = st.sampled_from(
    ["call_0"] * 5
    + ["call_1"] * 3
    + ["", " ", "toolu.x/1", "c" * 40, "c" * 41, "d" * 90]
)
# One character more than OpenAI takes in a name, and than Anthropic does.
names = st.sampled_from(
    ["look", "", "a b", "mcp.files/read", "n" * 65, "n" * 129, "été"]
)
# Cut off, no object, or JSON to Python alone: a model may say anything.
arguments = st.sampled_from(
    ["{}", '{"a": 1}', "", "[1]", '{"a": ', "NaN", "null", '"x"']
)
images = st.sampled_from(
    [PNG, "https://example.org/a.png", "data:image/svg+xml;base64,AAAA", "file-id"]
)


def _dicts(**fields: Any) -> Payloads:
    """Dicts of these keys. A value that is a strategy is drawn; any other stands as it is."""
    drawn = {}
    for name, value in fields.items():
        is_strategy = isinstance(value, st.SearchStrategy)
        drawn[name] = value if is_strategy else st.just(value)
    return st.fixed_dictionaries(drawn)


def _blocks(*blocks: Payloads) -> st.SearchStrategy[list[Payload]]:
    return st.lists(st.one_of(*blocks), max_size=4)


def _text_block(kind: str) -> Payloads:
    return _dicts(type=kind, text=words)


def _private(payload: Payload) -> Payloads:
    """Now and then with a key that is its owner's own and no provider's."""
    return st.sampled_from([payload, payload, {**payload, "_stamp": "x"}])


_words_or_blocks = st.one_of(words, _blocks(_text_block("text")))

_completions_user = st.one_of(
    words,
    _blocks(
        _text_block("text"),
        _dicts(type="image_url", image_url=_dicts(url=images)),
        _dicts(type="input_audio", input_audio={"data": "AAAA", "format": "wav"}),
    ),
)
_completions_call = _dicts(
    id=call_ids, type="function", function=_dicts(name=names, arguments=arguments)
)
_completions_extras: Payloads = st.sampled_from(
    [{}, {}, {"refusal": "No."}, {"refusal": None}, {"reasoning_content": "Hm."}]
)


@st.composite
def _completions_assistant(draw: st.DrawFn) -> Payload:
    content = draw(st.one_of(st.none(), _words_or_blocks))
    calls = draw(st.lists(_completions_call, max_size=3))
    payload: Payload = {"role": "assistant", "content": content}
    if calls:
        payload["tool_calls"] = calls
    return payload | draw(_completions_extras)


_completions_tool = _dicts(role="tool", tool_call_id=call_ids, content=_words_or_blocks)
# Assistants and tools twice, as in real conversations: calls must meet their results.
_completions = st.one_of(
    _dicts(role="user", content=_completions_user),
    _completions_assistant(),
    _completions_assistant(),
    _completions_tool,
    _completions_tool,
    _dicts(role="system", content=words),
    _dicts(role="developer", content=words),
).flatmap(_private)


_anthropic_user = _blocks(
    _text_block("text"),
    _dicts(
        type="image",
        source={"type": "base64", "media_type": "image/png", "data": "AAAA"},
    ),
    _dicts(
        type="tool_result",
        tool_use_id=call_ids,
        content=_words_or_blocks,
        is_error=st.booleans(),
    ),
)
_thinking = st.one_of(
    # Without a signature now and then: a stream may have been cut before it came.
    _dicts(
        type="thinking",
        thinking="Hm.",
        signature=st.sampled_from(["sig", "sig", ""]),
    ),
    _dicts(type="redacted_thinking", data="xyz"),
)
_said_block = st.one_of(
    _text_block("text"),
    _dicts(type="tool_use", id=call_ids, name=names, input={}),
    _dicts(type="tool_use", id="cut", name="f", input={}, partial_json=arguments),
    _dicts(type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
)
_anthropic_assistant = st.one_of(
    _blocks(_thinking, _said_block),
    st.builds(
        lambda thought, said: thought + said,
        st.lists(_thinking, max_size=2),
        st.lists(_said_block, min_size=1),
    ),
)
_anthropic = st.one_of(
    _dicts(role="user", content=st.one_of(words, _anthropic_user)),
    _dicts(role="assistant", content=st.one_of(words, _anthropic_assistant)),
    _dicts(role="system", content=words),
).flatmap(_private)

_reasoning = st.one_of(
    _dicts(type="reasoning", id="rs_1", summary=[]),
    _dicts(
        type="reasoning",
        id="rs_2",
        summary=[{"type": "summary_text", "text": "Hm."}],
        encrypted_content="x",
    ),
    _dicts(type="reasoning", id="rs_3"),
)
_said = _dicts(
    type="message",
    id="msg_1",
    role="assistant",
    status="completed",
    content=st.lists(_text_block("output_text"), max_size=2),
)
_function_call = _dicts(
    type="function_call", id="fc_1", call_id=call_ids, name=names, arguments=arguments
)
_function_output = _dicts(type="function_call_output", call_id=call_ids, output=words)
_responses_user = st.one_of(
    words,
    _blocks(
        _text_block("input_text"),
        _dicts(type="input_image", image_url=images, detail="auto"),
    ),
)
_responses = st.one_of(
    _dicts(
        role=st.sampled_from(["user", "user", "system", "developer"]),
        content=_responses_user,
    ).flatmap(_private),
    st.one_of(
        _reasoning, _said, _function_call, _function_output, _function_output
    ).flatmap(_private),
    # What a model answers is several items, stored as one message.
    st.lists(st.one_of(_reasoning, _said, _function_call), max_size=4),
)

_neutral_result = _dicts(type="result", call_id=call_ids, content=words)
_neutral_talk = st.one_of(
    _text_block("text"),
    _dicts(type="image", url=images),
    _dicts(type="thinking", text="Hm.", signed=True),
    _dicts(type="other", kind="audio"),
    _dicts(type="refusal", text="No."),
)
_neutral_part = st.one_of(
    _neutral_talk,
    _dicts(type="call", id=call_ids, name=names, arguments=arguments),
    _neutral_result,
)
_neutral = st.one_of(
    _dicts(role="user", parts=st.lists(_neutral_talk, max_size=3)),
    _dicts(role="assistant", parts=st.lists(_neutral_part, max_size=4)),
    # Exactly one: a tool's message answers one call.
    _dicts(role="tool", parts=st.tuples(_neutral_result).map(list)),
)

_PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "openai.chat": _completions,
    "openai.responses": _responses,
    "anthropic": _anthropic,
    "holdfast": _neutral,
}


def payloads(format_name: str) -> st.SearchStrategy[Any]:
    """Messages of a format that can be stored, whether or not a provider would take them."""
    return _PAYLOADS[format_name]


_streamed_calls = st.tuples(
    call_ids, names, st.sampled_from([["{", '"a": 1', "}"], ["{}"], []])
)


@st.composite
def streams(draw: st.DrawFn, format_name: str) -> list[Any]:
    """The chunks of one streamed reply, to its end."""
    pieces = st.sampled_from(["Hel", "lo", " ", "🙂", "."])
    texts = draw(st.lists(pieces, max_size=4))
    calls = draw(st.lists(_streamed_calls, max_size=2))
    thinks = draw(st.booleans())
    return list(_STREAMS[format_name](texts, calls, thinks))


Stream = Callable[[list[str], list[StreamedCall], bool], Iterable[Any]]
"""From texts, calls, and whether the model thinks first, to the chunks of a reply."""


def _completions_stream(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[Payload]:
    deltas: list[Payload] = [{"role": "assistant", "content": ""}]
    if thinking:
        deltas.append({"reasoning_content": "Hm."})
    deltas += [{"content": text} for text in texts]
    for index, call in enumerate(calls):
        deltas += call_deltas(index, *call)
    return completions_chunks(deltas, "tool_calls" if calls else "stop", model="m")


def _anthropic_blocks(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[tuple[Payload, list[Payload]]]:
    """Each block as it begins, and its deltas."""
    if thinking:
        thought = {"type": "thinking_delta", "thinking": "Hm."}
        signed = {"type": "signature_delta", "signature": "sig"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
    if texts:
        deltas = [{"type": "text_delta", "text": text} for text in texts]
        yield {"type": "text", "text": ""}, deltas
    for id, name, pieces in calls:
        kind = "input_json_delta"
        deltas = [{"type": kind, "partial_json": piece} for piece in pieces]
        yield {"type": "tool_use", "id": id, "name": name, "input": {}}, deltas


def _anthropic_stream(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[Payload]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg", "model": "m", "usage": usage}
    yield {"type": "message_start", "message": message}
    blocks = _anthropic_blocks(texts, calls, thinking)
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 9},
    }
    yield {"type": "message_stop"}


_THINKING_ITEM = {"type": "reasoning", "id": "rs", "summary": []}
_MESSAGE_ITEM = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "in_progress",
    "content": [],
}
_CALL_ITEM = {
    "type": "function_call",
    "id": "fc",
    "arguments": "",
    "status": "in_progress",
}


def _responses_items(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[tuple[Payload, Payload, Payload, list[str]]]:
    """Each item as it begins; what is different about it in the end; a delta of it, without
    its words; and the words of each delta.
    """
    if thinking:
        delta = {"type": "response.reasoning_summary_text.delta", "summary_index": 0}
        summary = [{"type": "summary_text", "text": "Hm."}]
        yield _THINKING_ITEM, {"summary": summary}, delta, ["Hm."]
    if texts:
        delta = {"type": "response.output_text.delta", "content_index": 0}
        block = {"type": "output_text", "text": "".join(texts), "annotations": []}
        yield _MESSAGE_ITEM, {"status": "completed", "content": [block]}, delta, texts
    for id, name, pieces in calls:
        delta = {"type": "response.function_call_arguments.delta"}
        whole = {"arguments": "".join(pieces), "status": "completed"}
        yield {**_CALL_ITEM, "call_id": id, "name": name}, whole, delta, pieces


def _responses_stream(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[Payload]:
    yield {"type": "response.created", "response": {"id": "resp", "model": "m"}}
    output: list[Payload] = []
    items = _responses_items(texts, calls, thinking)
    for place, (opened, end, delta, pieces) in enumerate(items):
        done = {**opened, **end}
        at = {"output_index": place}
        yield {"type": "response.output_item.added", **at, "item": opened}
        for piece in pieces:
            yield {**delta, **at, "delta": piece}
        yield {"type": "response.output_item.done", **at, "item": done}
        output.append(done)
    response = {"status": "completed", "model": "m", "output": output}
    yield {"type": "response.completed", "response": response}


def _neutral_stream(
    texts: list[str], calls: list[StreamedCall], thinking: bool
) -> Iterator[tuple[str, int, Any]]:
    if thinking:
        yield "thinking", 0, "Hm."
    for text in texts:
        yield "text", 1, text
    for place, (id, name, pieces) in enumerate(calls, 2):
        yield "call", place, {"id": id, "name": name}
        for piece in pieces:
            yield "arguments", place, piece
    yield "done", 0, None


_STREAMS: dict[str, Stream] = {
    "openai.chat": _completions_stream,
    "openai.responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "holdfast": _neutral_stream,
}


@st.composite
def spoken(draw: st.DrawFn, format_name: str) -> Any:
    """A streamed message, cut anywhere; None when nothing had been said."""
    chunks = draw(streams(format_name))
    assembly = registry.get(format_name).assembly()
    # To its end, or to anywhere before it: streams are cut.
    for chunk in chunks[: draw(st.integers(0, len(chunks)))]:
        assembly.fold(assembly.take(chunk))
    return assembly.message()


@st.composite
def views(
    draw: st.DrawFn, formats: tuple[str, ...] = FORMATS, size_max: int = 12
) -> list[StoredMessage]:
    """Messages in the order a model should see them."""
    seen: list[StoredMessage] = []
    turn = 1
    for seq in range(1, draw(st.integers(0, size_max)) + 1):
        # Mostly the same turn: results and calls must meet in it.
        turn += draw(st.sampled_from([0, 0, 0, 1]))
        name = draw(st.sampled_from(formats))
        if draw(st.integers(0, 4)) == 0:
            said = draw(spoken(name))
            if said is None:
                continue
            note = said.note
            body = said.body
        else:
            payload = draw(payloads(name))
            note = registry.get(name).note(payload)
            body = freeze(payload)
        # Now and then outside any turn, as an append is.
        where = draw(st.sampled_from([turn, turn, turn, None]))
        waiting = draw(st.sampled_from([(), (), ("call_0",)]))
        running = draw(st.booleans())
        seen.append(
            StoredMessage(
                f"m{seq}", seq, where, note, body, running=running, waiting=waiting
            )
        )
    return seen
