"""Hypothesis strategies: messages, streams and views as bad as they come.

`views()` draws what a log may hold after crashes, retries, trims and provider switches: every
format, reused and blank call ids, late, doubled and stray results, cut streams. Contexts made from
any of them must be valid (I-9, I-10).
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from holdfast.domain.message import freeze
from holdfast.domain.repair import StoredMessage
from holdfast.formats import registry

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
PNG = "data:image/png;base64,iVBORw0KGgo="

words = st.sampled_from(
    ["Hello.", "Well?", "Ends in space. ", "é 漢 🙂", "a\n\nb", "", " ", "\n\t"]
)
# Mostly a few ids again and again: results must find calls, and the right ones.
call_ids = st.sampled_from(
    ["call_0"] * 5
    + ["call_1"] * 3
    + ["", " ", "toolu.x/1", "c" * 40, "c" * 41, "d" * 90]
)
names = st.sampled_from(
    ["look", "", "a b", "mcp.files/read", "n" * 65, "n" * 129, "été"]
)
arguments = st.sampled_from(
    ["{}", '{"a": 1}', "", "[1]", '{"a": ', "NaN", "null", '"x"']
)
images = st.sampled_from(
    [PNG, "https://example.org/a.png", "data:image/svg+xml;base64,AAAA", "file-id"]
)


def _blocks(
    *blocks: st.SearchStrategy[dict[str, Any]],
) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.one_of(*blocks), max_size=4)


def _text_block(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return words.map(lambda text: {"type": kind, "text": text})


def _private(payload: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([payload, payload, {**payload, "_stamp": "x"}])


_completions_user = st.one_of(
    words,
    _blocks(
        _text_block("text"),
        images.map(lambda url: {"type": "image_url", "image_url": {"url": url}}),
        st.just(
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
        ),
    ),
)
_completions_call = st.builds(
    lambda one, name, said: {
        "id": one,
        "type": "function",
        "function": {"name": name, "arguments": said},
    },
    call_ids,
    names,
    arguments,
)


@st.composite
def _completions(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(
        st.sampled_from(
            ["user", "assistant", "assistant", "tool", "tool", "system", "developer"]
        )
    )
    if role == "tool":
        content = draw(st.one_of(words, _blocks(_text_block("text"))))
        return draw(
            _private(
                {"role": "tool", "tool_call_id": draw(call_ids), "content": content}
            )
        )
    if role != "assistant":
        return draw(
            _private(
                {
                    "role": role,
                    "content": draw(_completions_user if role == "user" else words),
                }
            )
        )
    content = draw(st.one_of(st.none(), words, _blocks(_text_block("text"))))
    payload: dict[str, Any] = {"role": "assistant", "content": content}
    calls = draw(st.lists(_completions_call, max_size=3))
    if calls:
        payload["tool_calls"] = calls
    payload.update(
        draw(
            st.sampled_from(
                [
                    {},
                    {},
                    {"refusal": "No."},
                    {"refusal": None},
                    {"reasoning_content": "Hm."},
                ]
            )
        )
    )
    return draw(_private(payload))


_anthropic_user = _blocks(
    _text_block("text"),
    st.just(
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        }
    ),
    st.builds(
        lambda one, content, error: {
            "type": "tool_result",
            "tool_use_id": one,
            "content": content,
            "is_error": error,
        },
        call_ids,
        st.one_of(words, _blocks(_text_block("text"))),
        st.booleans(),
    ),
)
_thinking = st.one_of(
    st.sampled_from(["sig", "sig", ""]).map(
        lambda sign: {"type": "thinking", "thinking": "Hm.", "signature": sign}
    ),
    st.just({"type": "redacted_thinking", "data": "xyz"}),
)
_said_block = st.one_of(
    _text_block("text"),
    st.builds(
        lambda one, name: {"type": "tool_use", "id": one, "name": name, "input": {}},
        call_ids,
        names,
    ),
    st.builds(
        lambda said: {
            "type": "tool_use",
            "id": "cut",
            "name": "f",
            "input": {},
            "partial_json": said,
        },
        arguments,
    ),
    st.just(
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {},
        }
    ),
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
    st.builds(
        lambda content: {"role": "user", "content": content},
        st.one_of(words, _anthropic_user),
    ),
    st.builds(
        lambda content: {"role": "assistant", "content": content},
        st.one_of(words, _anthropic_assistant),
    ),
    words.map(lambda text: {"role": "system", "content": text}),
).flatmap(_private)

_reasoning = st.sampled_from(
    [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "x",
        },
        {"type": "reasoning", "id": "rs_3"},
    ]
)
_said = st.lists(_text_block("output_text"), max_size=2).map(
    lambda content: {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
)
_function_call = st.builds(
    lambda one, name, said: {
        "type": "function_call",
        "id": "fc_1",
        "call_id": one,
        "name": name,
        "arguments": said,
    },
    call_ids,
    names,
    arguments,
)
_function_output = st.builds(
    lambda one, output: {
        "type": "function_call_output",
        "call_id": one,
        "output": output,
    },
    call_ids,
    words,
)
_responses = st.one_of(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "user", "system", "developer"]),
        st.one_of(
            words,
            _blocks(
                _text_block("input_text"),
                images.map(
                    lambda url: {
                        "type": "input_image",
                        "image_url": url,
                        "detail": "auto",
                    }
                ),
            ),
        ),
    ).flatmap(_private),
    st.one_of(
        _reasoning, _said, _function_call, _function_output, _function_output
    ).flatmap(_private),
    st.lists(st.one_of(_reasoning, _said, _function_call), max_size=4),
)

_neutral_part = st.one_of(
    _text_block("text"),
    images.map(lambda url: {"type": "image", "url": url}),
    st.builds(
        lambda one, name, said: {
            "type": "call",
            "id": one,
            "name": name,
            "arguments": said,
        },
        call_ids,
        names,
        arguments,
    ),
    st.builds(
        lambda one, said: {"type": "result", "call_id": one, "content": said},
        call_ids,
        words,
    ),
    st.just({"type": "thinking", "text": "Hm.", "signed": True}),
    st.just({"type": "other", "kind": "audio"}),
    st.just({"type": "refusal", "text": "No."}),
)
_neutral_talk = _neutral_part.filter(
    lambda part: part["type"] not in ("call", "result")
)
_neutral = st.one_of(
    st.builds(
        lambda parts: {"role": "user", "parts": parts},
        st.lists(_neutral_talk, max_size=3),
    ),
    st.builds(
        lambda parts: {"role": "assistant", "parts": parts},
        st.lists(_neutral_part, max_size=4),
    ),
    st.builds(
        lambda one, said: {
            "role": "tool",
            "parts": [{"type": "result", "call_id": one, "content": said}],
        },
        call_ids,
        words,
    ),
)

_PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "openai.chat": _completions(),
    "openai.responses": _responses,
    "anthropic": _anthropic,
    "holdfast": _neutral,
}


def payloads(format_name: str) -> st.SearchStrategy[Any]:
    """Messages of a format that can be stored, whether or not a provider would take them."""
    return _PAYLOADS[format_name]


@st.composite
def streams(draw: st.DrawFn, format_name: str) -> list[dict[str, Any]]:
    """The chunks of one streamed reply, to its end."""
    texts = draw(st.lists(st.sampled_from(["Hel", "lo", " ", "🙂", "."]), max_size=4))
    calls = draw(
        st.lists(
            st.tuples(
                call_ids, names, st.sampled_from([["{", '"a": 1', "}"], ["{}"], []])
            ),
            max_size=2,
        )
    )
    thinking = draw(st.booleans())
    return _STREAMS[format_name](texts, calls, thinking)


def _completions_stream(
    texts: list[str], calls: list[Any], thinking: bool
) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": "Hm."}] * thinking
    deltas += [{"content": text} for text in texts]
    for index, (one, name, said) in enumerate(calls):
        opened = {
            "index": index,
            "id": one,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [opened]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in said
        ]
    chunks = [
        {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    finish = "tool_calls" if calls else "stop"
    chunks.append(
        {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    )
    return chunks


def _anthropic_stream(
    texts: list[str], calls: list[Any], thinking: bool
) -> list[dict[str, Any]]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "sig"},
        ]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if texts:
        blocks.append(
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": text} for text in texts],
            )
        )
    for one, name, said in calls:
        opened = {"type": "tool_use", "id": one, "name": name, "input": {}}
        blocks.append(
            (
                opened,
                [{"type": "input_json_delta", "partial_json": piece} for piece in said],
            )
        )
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg",
                "model": "m",
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        }
    ]
    for index, (block, grown) in enumerate(blocks):
        events.append(
            {"type": "content_block_start", "index": index, "content_block": block}
        )
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for delta in grown
        ]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9},
        }
    )
    events.append({"type": "message_stop"})
    return events


def _opened_call(call_id: str, name: str) -> dict[str, Any]:
    """The item of a call whose arguments are still to come."""
    return {
        "type": "function_call",
        "id": "fc",
        "call_id": call_id,
        "name": name,
        "arguments": "",
        "status": "in_progress",
    }


def _responses_stream(
    texts: list[str], calls: list[Any], thinking: bool
) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp", "model": "m"}}
    ]
    output: list[dict[str, Any]] = []

    def item(
        opened: dict[str, Any], done: dict[str, Any], deltas: list[dict[str, Any]]
    ) -> None:
        place = len(output)
        added = "response.output_item.added"
        events.append({"type": added, "output_index": place, "item": opened})
        events.extend({**delta, "output_index": place} for delta in deltas)
        events.append(
            {"type": "response.output_item.done", "output_index": place, "item": done}
        )
        output.append(done)

    if thinking:
        opened = {"type": "reasoning", "id": "rs", "summary": []}
        kind = "response.reasoning_summary_text.delta"
        delta = {"type": kind, "summary_index": 0, "delta": "Hm."}
        summary = [{"type": "summary_text", "text": "Hm."}]
        item(opened, {**opened, "summary": summary}, [delta])
    if texts:
        opened = {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        block = {"type": "output_text", "text": "".join(texts), "annotations": []}
        deltas = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": text}
            for text in texts
        ]
        item(opened, {**opened, "status": "completed", "content": [block]}, deltas)
    for one, name, said in calls:
        opened = _opened_call(one, name)
        deltas = [
            {"type": "response.function_call_arguments.delta", "delta": piece}
            for piece in said
        ]
        arguments = "".join(said)
        done = {**opened, "arguments": arguments, "status": "completed"}
        item(opened, done, deltas)
    events.append(
        {
            "type": "response.completed",
            "response": {"status": "completed", "model": "m", "output": output},
        }
    )
    return events


def _neutral_stream(texts: list[str], calls: list[Any], thinking: bool) -> list[Any]:
    deltas: list[Any] = [("thinking", 0, "Hm.")] * thinking
    deltas += [("text", 1, text) for text in texts]
    for index, (one, name, said) in enumerate(calls):
        deltas.append(("call", 2 + index, {"id": one, "name": name}))
        deltas += [("arguments", 2 + index, piece) for piece in said]
    return [*deltas, ("done", 0, None)]


_STREAMS: dict[str, Callable[[list[str], list[Any], bool], list[dict[str, Any]]]] = {
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
        turn += draw(st.sampled_from([0, 0, 0, 1]))
        name = draw(st.sampled_from(formats))
        if draw(st.integers(0, 4)) == 0:
            said = draw(spoken(name))
            if said is None:
                continue
            note, body = said.note, said.body
        else:
            payload = draw(payloads(name))
            note, body = registry.get(name).note(payload), freeze(payload)
        where = draw(st.sampled_from([turn, turn, turn, None]))
        waiting = draw(st.sampled_from([(), (), ("call_0",)]))
        seen.append(
            StoredMessage(
                f"m{seq}",
                seq,
                where,
                note,
                body,
                running=draw(st.booleans()),
                waiting=waiting,
            )
        )
    return seen
