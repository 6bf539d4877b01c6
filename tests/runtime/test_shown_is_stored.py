"""What is handed on of a stream is what is stored of it, word for word and in that order, whatever a
server sends (I-5, FAULTS I10).

Servers that speak like a provider leave out an index, repeat a chunk, or say other words in the end
than they did on the way. Words that were shown stay.
"""

import copy
import random
from typing import Any

import pytest

from holdfast import Session
from holdfast.domain.chunk import joined
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import JournalRow
from holdfast.runtime.live.message import parts_of, shown_text_of
from holdfast.runtime.turns.message_stream import Stream, as_shown, rebuilt
from thorough import examples

ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
CALLED = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


def block_delta(text: str, **index: Any) -> dict[str, Any]:
    return {**index, "type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"index": index}
    return [
        {"type": "content_block_start", **at, "content_block": content},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
    ]


def message(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {}}},
        *events,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]


def said(*texts: str) -> dict[str, Any]:
    blocks = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {**ITEM, "content": blocks}


def words(text: str, place: int = 0, content: int = 0) -> dict[str, Any]:
    at = {"item_id": "msg_1", "output_index": place, "content_index": content}
    return {"type": "response.output_text.delta", **at, "delta": text}


def item(place: int, done: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    begun = {**done, "status": "in_progress"}
    if "content" in done:
        begun["content"] = []
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        *deltas,
        {"type": "response.output_item.done", "output_index": place, "item": done},
    ]


def response(output: list[dict[str, Any]], *events: dict[str, Any]) -> list[dict[str, Any]]:
    ended = {"id": "r", "status": "completed", "model": "m", "output": output}
    return [
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        *events,
        {"type": "response.completed", "response": ended},
    ]


def chat(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": text}


def spoken_text(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


TEXT = {"type": "text", "text": ""}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
ANTHROPIC = message(
    *block(0, THINKING, thought("hm"), {"type": "signature_delta", "signature": "s"}),
    *block(1, TEXT, spoken_text("Hello "), spoken_text("wor"), spoken_text("ld.")),
    *block(2, USE, {"type": "input_json_delta", "partial_json": "{}"}),
    *block(3, {"type": "text", "text": "So"}, spoken_text(" be it.")),
)
FINAL = {
    "langchain": {"type": "ai", "data": {"content": "Hello world.", "id": "1"}},
    "strands": {"role": "assistant", "content": [{"text": "Hello world."}]},
    "agent_framework": {
        "type": "message",
        "role": "assistant",
        "contents": [{"type": "text", "text": "Hello world."}],
    },
    "pydantic_ai": {
        "kind": "response",
        "parts": [{"part_kind": "text", "content": "Hello world."}],
    },
}
STREAMS: dict[str, list[Any]] = {
    "openai.chat": [
        chat({"role": "assistant", "content": ""}),
        chat({"reasoning_content": "hm"}),
        chat({"content": "Hello "}),
        chat({"content": "world."}),
        chat({"content": [{"type": "text", "text": " And"}, {"type": "image_url", "index": 0}]}),
        chat({"content": " more"}),
        chat({"refusal": "No."}),
        chat({"tool_calls": [{"index": 0, "id": "c0", "function": {"name": "f"}}]}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        chat({}, "tool_calls"),
    ],
    "anthropic": ANTHROPIC,
    "claude.code": ANTHROPIC,
    "openai.responses": response(
        [THOUGHT, said("Hello world.", " And more."), CALLED, said("So be it.")],
        *item(0, THOUGHT),
        *item(1, said("Hello world.", " And more."), words("Hello ", 1), words("world.", 1))[:-1],
        words(" And more.", 1, 1),
        *item(1, said("Hello world.", " And more."))[1:],
        *item(2, CALLED),
        *item(3, {**said("So be it."), "id": "msg_2"}, {**words("So ", 3), "item_id": "msg_2"}),
    ),
    "holdfast": [
        ("thinking", 0, "hm"),
        ("text", 1, "Hello "),
        ("text", 1, "world."),
        ("call", 2, {"id": "c", "name": "f"}),
        ("text", 3, "More."),
        ("done", 0, None),
    ],
    "goose": [
        {"type": "Message", "message": {"content": [{"type": "text", "text": "Hello "}]}},
        {"type": "Message", "message": {"content": [{"type": "text", "text": "world."}]}},
        {"type": "Message", "message": {"content": [{"type": "thinking", "thinking": "hm"}]}},
        {"type": "Message", "message": {"content": [{"type": "text", "text": " More."}]}},
        {"type": "Finish", "reason": "stop"},
    ],
    "acp": [
        {
            "as": "message",
            "updates": [
                {
                    "sessionUpdate": kind,
                    "messageId": "m",
                    "content": {"type": "text", "text": text},
                }
            ],
        }
        for kind, text in (
            ("agent_message_chunk", "Hello "),
            ("agent_thought_chunk", "hm"),
            ("agent_message_chunk", "world."),
        )
    ],
    "langchain": [
        {"type": "AIMessageChunk", "data": {"id": "1", "content": "Hello "}},
        {"type": "AIMessageChunk", "data": {"content": [{"type": "text", "text": "wor"}]}},
        {"type": "AIMessageChunk", "data": {"content": "ld."}},
        {"final": FINAL["langchain"]},
    ],
    "strands": [
        {"contentBlockDelta": {"delta": {"text": "Hello "}}},
        {"contentBlockDelta": {"delta": {"text": "world."}}},
        {"contentBlockStop": {}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"final": FINAL["strands"]},
    ],
    "agent_framework": [
        {"role": "assistant", "contents": [{"type": "text", "text": "Hello "}]},
        {"contents": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
        {"contents": [{"type": "text", "text": "world."}]},
        {"final": FINAL["agent_framework"]},
    ],
    "pydantic_ai": [
        {"begin": {}, "start": {"part_kind": "text", "content": "Hel"}, "index": 0},
        {"delta": {"part_delta_kind": "text", "content_delta": "lo "}, "index": 0},
        {"start": {"part_kind": "text", "content": "world"}, "index": 1},
        {"delta": {"part_delta_kind": "text", "content_delta": "."}, "index": 1},
        {"end": {"part_kind": "text", "content": "world."}, "index": 1},
        {"final": FINAL["pydantic_ai"]},
    ],
    "adk": [
        {"author": "a", "content": {"parts": [{"text": "hm", "thought": True}]}},
        {"author": "a", "content": {"parts": [{"text": "Hello "}]}},
        {"author": "a", "content": {"parts": [{"text": "world."}]}},
    ],
}
ODD = (
    None,
    0,
    1,
    3,
    -1,
    99_999_999,
    1 << 70,
    1.5,
    True,
    "x",
    "",
    "text",
    "Hello",
    [],
    {},
    "\ud83d",
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value in here."""
    found = [path] if path else []
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for key, each in inside:
        found += paths(each, (*path, key))
    return found


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """A copy with another value there; without any if it is `Ellipsis`."""
    key, *rest = path
    if isinstance(value, tuple):
        return tuple(changed(list(value), path, to))
    out = copy.copy(value)
    if rest:
        out[key] = changed(value[key], tuple(rest), to)
    elif to is ...:
        del out[key]
    else:
        out[key] = to
    return out


def spoil(chunks: list[Any], chance: random.Random) -> list[Any]:
    """The stream with some of it lost, said twice, out of order or changed."""
    out = list(chunks)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, other = chance.randrange(len(out)), chance.randrange(len(out))
        match chance.choice(("lose", "repeat", "swap", "change", "change", "change")):
            case "lose" if len(out) > 1:
                del out[at]
            case "repeat":
                out.insert(other, out[at])
            case "swap":
                out[at], out[other] = out[other], out[at]
            case "change":
                path = chance.choice(paths(out[at]))
                out[at] = changed(out[at], path, chance.choice((..., *ODD)))
    return out


def text_of(spoken: Spoken | None) -> str:
    return "" if spoken is None else shown_text_of(parts_of(spoken.note, spoken.body))


def handed_on(format: str, chunks: list[Any]) -> tuple[str, Spoken | None, list[JournalRow]]:
    """What is shown of a stream, what is stored of it in the end, and its journal."""
    stream = Stream(b"m" * 16, format=format, into="openai.chat")
    shown, rows = "", []
    for chunk in chunks:
        row, text = stream.take([chunk])
        shown += text
        if row is not None:
            rows.append(JournalRow(len(rows), 1, row.message, row.index, row.body))
    stream.finish()
    try:
        return shown, stream.message(), rows
    except Exception:
        return shown, as_shown(rows), rows


@pytest.mark.parametrize("format", STREAMS)
def test_a_stream_as_it_should_be_is_stored_whole(format: str) -> None:
    shown, spoken, _ = handed_on(format, STREAMS[format])
    assert shown.startswith("Hello world.")
    assert spoken is not None and spoken.note.format == format
    assert text_of(spoken) == shown
    # An event of Google's kit is handed over whole after its pieces: they have no end.
    assert spoken.note.partial == (format == "adk")


@pytest.mark.parametrize("format", STREAMS)
def test_whatever_becomes_of_a_stream_what_was_shown_is_what_is_stored(format: str) -> None:
    for seed in range(examples(400)):
        chunks = spoil(STREAMS[format], random.Random(seed))
        shown, spoken, rows = handed_on(format, chunks)
        assert text_of(spoken) == joined(shown), (seed, chunks)
        # … and what another process finds, if this one is killed at its end
        assert text_of(rebuilt(rows) if rows else None) == joined(shown), (seed, chunks)


def without_index(chunks: list[Any], *names: str) -> list[Any]:
    """The stream of a server that numbers nothing."""
    return [{key: chunk[key] for key in chunk if key not in names} for chunk in chunks]


def told(session: Session, format: str, chunks: list[Any]) -> Any:
    """The message of a stream that is delivered; it is the same when it is pushed."""
    with session.turn("Hi") as turn:
        delivered = "".join(turn.deliver(iter(chunks), format))
    *_, found = session.transcript()
    with session.turn("Again") as turn, turn.stream(format) as stream:
        pushed = "".join([stream.push(chunk) for chunk in chunks])
    *_, other = session.transcript()
    assert found.text == delivered == pushed == other.text
    assert (found.state, found.payload) == (other.state, other.payload)
    return found


@pytest.mark.parametrize("index", [{}, *({"index": odd} for odd in (None, "x", 1.5, []))])
def test_words_without_an_index_belong_to_the_block_that_is_open(
    session: Session, index: dict[str, Any]
) -> None:
    start, first, stop = block(1, TEXT, spoken_text("Hello "))
    found = told(session, "anthropic", message(start, first, block_delta("world.", **index), stop))
    assert found.state == "complete"
    assert found.payload["content"] == [{"type": "text", "text": "Hello world."}]


def test_words_at_the_index_of_no_block_stand_where_they_were_said(session: Session) -> None:
    start, first, stop = block(1, TEXT, spoken_text("Hello "))
    after = block_delta("And more.", index=1)
    chunks = message(start, first, block_delta("world. ", index=0), after, stop)
    found = told(session, "anthropic", chunks)
    assert (found.state, found.text) == ("complete", "Hello world. And more.")


@pytest.mark.parametrize("numbered", [True, False])
def test_blocks_that_all_have_the_same_index_or_none_are_told_apart(
    session: Session, numbered: bool
) -> None:
    chunks = without_index(ANTHROPIC, "index")
    if numbered:
        chunks = [{**chunk, "index": 0} for chunk in chunks]
    found = told(session, "anthropic", chunks)
    assert found.state == "complete"
    assert found.payload["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hello world."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
        {"type": "text", "text": "So be it."},
    ]


def test_a_block_that_begins_twice_is_one(session: Session) -> None:
    events: list[dict[str, Any]] = []
    for event in ANTHROPIC:
        events += [event, event] if event["type"] == "content_block_start" else [event]
    events = [
        {**event, "content_block": {**event["content_block"], "text": ""}}
        if event.get("content_block", {}).get("text")
        else event
        for event in events
    ]
    kinds = [part["type"] for part in told(session, "anthropic", events).payload["content"]]
    assert kinds == ["thinking", "text", "tool_use", "text"]


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        (["world."], "world."),
        (["Good ", "bye."], "Good bye."),
        (["Good ", "world."], "Good world."),
        (["Hello ", "world.", " And more."], "Hello world. And more."),
    ],
)
def test_an_item_that_ends_with_other_words_than_were_shown_changes_none_of_them(
    session: Session, deltas: list[str], shown: str
) -> None:
    """The provider's own words are kept beside them."""
    done = said("Hello world.")
    chunks = response([done], *item(0, done, *map(words, deltas)))
    found = told(session, "openai.responses", chunks)
    assert (found.state, found.text, found.finish) == ("partial", shown, "unread")
    assert ["part", 0, done] in found.payload["parts"][-1]["chunks"]


@pytest.mark.parametrize("deltas", [[], ["Hello "], ["Hello ", "world."]])
@pytest.mark.parametrize("ends", ["item", "response"])
def test_words_that_only_the_end_of_a_response_brings_are_shown(
    session: Session, ends: str, deltas: list[str]
) -> None:
    done = said("Hello world.")
    events = item(0, done, *map(words, deltas))
    chunks = response([THOUGHT, done], *(events if ends == "item" else events[:-1]))
    found = told(session, "openai.responses", chunks)
    assert (found.state, found.text) == ("complete", "Hello world.")
    assert found.payload == [THOUGHT, done]


@pytest.mark.parametrize("left_out", [("output_index",), ("output_index", "item_id")])
def test_items_without_a_number_are_told_apart(session: Session, left_out: tuple[str, ...]) -> None:
    chunks = without_index(STREAMS["openai.responses"], *left_out)
    found = told(session, "openai.responses", chunks)
    assert (found.state, found.text) == ("complete", "Hello world. And more.So be it.")
    # … and when the stream is cut before its end
    found = told(session, "openai.responses", chunks[:-1])
    assert (found.state, found.text) == ("partial", "Hello world. And more.So be it.")
    assert [each["type"] for each in found.payload] == [
        "reasoning",
        "message",
        "function_call",
        "message",
    ]


@pytest.mark.parametrize("format", FINAL)
def test_words_that_only_the_final_form_of_a_message_has_are_shown(
    session: Session, format: str
) -> None:
    first = STREAMS[format][0]
    for chunks in ([], [first]):
        found = told(session, format, [*chunks, {"final": FINAL[format]}])
        assert (found.state, found.text) == ("complete", "Hello world.")
        assert found.payload == FINAL[format]


def test_an_item_that_is_no_message_may_have_any_content(session: Session) -> None:
    odd = {**CALLED, "content": 7}
    told(session, "openai.responses", response([odd], *item(0, CALLED)))
    assert session.context("openai.responses")[1] == odd
