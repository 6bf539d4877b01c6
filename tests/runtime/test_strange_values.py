"""Whatever a program hands over as data is refused before anything is written, or kept and read
back equal (I-25).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

import holdfast
import strangers
from holdfast.domain.message import thaw
from holdfast.domain.record.fingerprint import snapshot
from holdfast.engine.protocol import JournalRow
from holdfast.errors import CallerMistake, InvalidMessage
from holdfast.formats import registry
from holdfast.runtime.live.message import parts_of, text_of
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.turns.message_stream import Stream, as_shown
from thorough import examples, few_cases, few_on_postgres

pytestmark = few_on_postgres("values are checked at the border, before there is an engine")

FORMATS = registry.known()

PLACES: dict[str, Callable[[Any], Any]] = {
    "a message": lambda v: v,
    "content": lambda v: {"role": "user", "content": v},
    "parts": lambda v: {"role": "assistant", "parts": v, "content": "x"},
    "a block": lambda v: {"role": "assistant", "content": [v], "parts": [v]},
    "a role": lambda v: {"role": v, "content": "x", "parts": [{"type": "text", "text": "x"}]},
    "metadata": lambda v: {
        "role": "user",
        "content": "x",
        "parts": [],
        "metadata": v,
        "id": v,
        "created": v,
        "name": v,
    },
    "a block's type": lambda v: {"role": "user", "content": [{"type": v}], "parts": [{"type": v}]},
    "media": lambda v: {
        "role": "user",
        "content": [{"type": "image_url", "image_url": v, "text": v}],
    },
    "a picture": lambda v: {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": v}}],
    },
    "a source": lambda v: {
        "role": "user",
        "content": [{"type": "image", "source": v, "data": v, "mimeType": v}],
    },
    "beside": lambda v: {
        "role": "assistant",
        "content": "x",
        **dict.fromkeys(("refusal", "audio", "images", "reasoning"), v),
    },
    "calls": lambda v: {"role": "assistant", "tool_calls": v},
    "a single call": lambda v: {"role": "assistant", "content": "x", "function_call": v},
    "a call": lambda v: {
        "role": "assistant",
        "tool_calls": [{"id": v, "type": v, "function": {"name": v, "arguments": v}}],
    },
    "a custom call": lambda v: {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "custom", "custom": v}],
    },
    "a tool's message": lambda v: {"role": "tool", "tool_call_id": v, "content": v, "name": v},
    "tool_use": lambda v: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": v, "name": v, "input": v}],
    },
    "tool_result": lambda v: {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": v, "content": v, "is_error": v}],
    },
    "thinking": lambda v: {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": v, "signature": v}],
    },
    "an item": lambda v: {"type": v, "call_id": v, "id": v, "status": v},
    "function_call": lambda v: {"type": "function_call", "call_id": v, "name": v, "arguments": v},
    "an output": lambda v: {"type": "function_call_output", "call_id": v, "output": v},
    "reasoning": lambda v: {
        "type": "reasoning",
        "summary": v,
        "content": v,
        "encrypted_content": v,
        "id": v,
    },
    "a response": lambda v: [{"type": "message", "role": "assistant", "content": v, "phase": v}],
    "neutral": lambda v: {
        "role": "user",
        "parts": [
            {"type": "text", "text": v},
            {"type": "call", "id": v, "name": v, "arguments": v},
        ],
    },
    "goose": lambda v: {
        "role": "user",
        "created": v,
        "content": [{"type": "toolRequest", "id": v, "toolCall": v}],
    },
    "goose's answer": lambda v: {
        "role": "user",
        "content": [{"type": "toolResponse", "id": v, "toolResult": v}],
    },
    "openviking": lambda v: {
        "role": "user",
        "parts": [{"type": "tool", "tool_id": v, "tool_name": v, "tool_output": v}],
    },
}
"""Where in a message a value may stand, over all formats."""


def insist(format: str, value: Any) -> None:
    """It is refused in our words, or what is stored is equal to it, and can be read."""
    try:
        spoken = speak(value, format)
    except InvalidMessage as error:
        assert len(str(error)) < 600
        return
    kept = thaw(spoken.body)
    said = strangers.as_json(value)
    assert kept == (said if not isinstance(said, str) else kept)
    assert isinstance(text_of(parts_of(spoken.note, spoken.body)), str)
    registry.get(format).note(kept)


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("place", PLACES)
def test_a_strange_value_anywhere_in_a_message_is_refused_or_kept(place: str) -> None:
    for format in FORMATS:
        for value in strangers.VALUES.values():
            insist(format, PLACES[place](value))


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(strangers.odd_data)
def test_nested_values_are_refused_or_kept(value: Any) -> None:
    for format in ("openai.chat", "anthropic", "openai.responses"):
        for place in ("a message", "content", "metadata", "a block"):
            insist(format, PLACES[place](value))


CHUNKS: dict[str, Callable[[Any], list[Any]]] = {
    "openai.chat": lambda v: [
        v,
        {"choices": v},
        {
            "id": v,
            "model": v,
            "usage": v,
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": "hi", "role": v, "audio": v, "odd": v, "tool_calls": v},
                    "finish_reason": v,
                }
            ],
        },
        {
            "choices": [
                {
                    "index": v,
                    "delta": {
                        "content": v,
                        "tool_calls": [
                            {
                                "index": v,
                                "id": v,
                                "type": v,
                                "function": {"name": v, "arguments": v},
                            }
                        ],
                    },
                }
            ]
        },
        {"choices": [{"index": 0, "delta": {"content": " there"}, "finish_reason": "stop"}]},
    ],
    "anthropic": lambda v: [
        v,
        {"type": "message_start", "message": {"id": v, "model": v, "usage": v, "content": v}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_delta", "index": v, "delta": v},
        {"type": "content_block_start", "index": v, "content_block": v},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": v, "name": v, "input": v},
        },
        {"type": v},
        {"type": "message_delta", "delta": {"stop_reason": v}, "usage": v},
        {"type": "message_stop"},
    ],
    "openai.responses": lambda v: [
        v,
        {"type": v},
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": "hi",
        },
        {
            "type": "response.output_text.delta",
            "output_index": v,
            "content_index": v,
            "item_id": v,
            "delta": v,
        },
        {"type": "response.output_item.done", "output_index": v, "item": v},
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": v, "name": v, "arguments": v},
        },
        {
            "type": "response.completed",
            "response": {"output": v, "usage": v, "model": v, "status": v},
        },
    ],
    "holdfast": lambda v: [
        v,
        ("text", 0, "hi"),
        (v, v, v),
        ("part", 0, v),
        ("meta", 0, {"finish": v, "model": v, "usage": v}),
        ("done", 0, v),
    ],
    "text": lambda v: ["hi", v],
}


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("format", CHUNKS)
def test_a_strange_chunk_never_takes_shown_words_along(format: str) -> None:
    """A chunk whose `__repr__` raises, a number of somebody's own class: the stream goes on, and
    what was shown is in the message, put together by its format or as it was shown.
    """
    for name, value in strangers.VALUES.items():
        chunks = CHUNKS[format](value)
        for some in (chunks, *([chunk] for chunk in chunks)):
            stream, rows, shown = Stream(b"m", format=format, into="openai.chat"), [], ""
            for chunk in some:
                try:
                    row, text = stream.take([chunk])
                except InvalidMessage:
                    is_text = issubclass(type(chunk), str)
                    # Of a provider's stream, at its beginning, where nothing is shown yet.
                    assert not is_text if format == "text" else not rows, name
                    continue
                shown += text
                if row is not None:
                    rows.append(JournalRow(len(rows), 1, row.message, len(rows), row.body))
            stream.finish()
            assert strangers.joined(shown) == shown_of(stream, rows), name


def test_an_index_that_is_a_text_is_not_multiplied() -> None:
    for name in ("output_index", "content_index"):
        stream = Stream(b"m", format="openai.responses", into="openai.chat")
        chunk = {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": "hi",
        }
        row, _ = stream.take([{**chunk, name: "x" * 70_000}])
        assert row is not None and len(row.body) < 100_000 and stream.unread


def shown_of(stream: Stream, rows: list[JournalRow]) -> str:
    try:
        spoken = stream.message()
    except Exception:
        spoken = as_shown(rows)
    return "" if spoken is None else text_of(parts_of(spoken.note, spoken.body))


def test_an_emoji_that_comes_in_two_halves_is_one_character_of_a_whole_message(
    session: holdfast.Session,
) -> None:
    """Servers that cut text by UTF-16 units send lone surrogates."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": half}}]} for half in ("a\ud83d", "\ude00b")
    ]
    with session.turn("q") as turn:
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        assert "".join(turn.deliver([*chunks, last], format="openai.chat")) == "a\ud83d\ude00b"
    *_, said = session.transcript()
    assert (said.text, said.state, session.turns()[0].end) == (
        "a\U0001f600b",
        "complete",
        "completed",
    )


SAID: dict[str, Callable[[holdfast.Store, holdfast.Session, Any], Any]] = {
    "Store.accept": lambda store, session, v: store.accept("accepts", v),
    "Store.turn": lambda store, session, v: store.turn("turns", v, on_busy="interrupt").interrupt(),
    "Session.append": lambda store, session, v: session.append(v),
    "Session.append_all": lambda store, session, v: session.append_all(["fine", v]),
    "Session.record": lambda store, session, v: session.record([v]),
    "Session.label": lambda store, session, v: session.label(
        next(session.transcript()).id, note=v, other=[v]
    ),
    "Session.instructions": lambda store, session, v: session.instructions(v),
    "Session.compact": lambda store, session, v: session.compact(lambda _: v, keep_turns=0),
    "Turn.add": lambda store, session, v: in_turn(store, lambda turn: turn.add(v)),
    "Turn.add_all": lambda store, session, v: in_turn(
        store, lambda turn: turn.add_all(["fine", v])
    ),
    "Turn.call": lambda store, session, v: in_turn(store, lambda turn: turn.call("f", v)),
    "Turn.result": lambda store, session, v: in_turn(
        store, lambda turn: turn.result(turn.call("f", {}), v)
    ),
    "Turn.deliver": lambda store, session, v: in_turn(
        store, lambda turn: list(turn.deliver([v], format="openai.chat"))
    ),
}


def in_turn(store: holdfast.Store, work: Callable[[holdfast.Turn], Any]) -> Any:
    with store.session("works").turn("q", on_busy="interrupt") as turn:
        return work(turn)


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("call", SAID)
def test_every_call_that_takes_data_refuses_it_or_keeps_it(where: str, call: str) -> None:
    """Both engines: what is refused has left nothing, and what was kept can be read in
    every way.
    """
    with holdfast.open(where, durability="process") as store:
        session = store.session("k")
        session.append("hello")
        few = not where.endswith("agent.db")
        for name, value in list(strangers.VALUES.items())[:: 5 if few else 1]:
            before = store.info().entries
            try:
                SAID[call](store, session, value)
            except CallerMistake:
                wrote = store.info().entries - before
                assert not wrote or "Turn." in call, (
                    f"{name}: refused, and yet something was written"
                )
        assert store.check() == []
        for listed in store.sessions():
            readable(store.get(listed.id))


def readable(session: holdfast.Session) -> None:
    for message in session.transcript():
        assert "can't be read" not in message.text
        assert isinstance(repr(message), str) and isinstance(message.labels, dict)
    for format in FORMATS:
        assert isinstance(session.context(format), list)
    session.info(), session.calls(), session.turns(), list(session.entries())


@pytest.mark.slow
def test_what_was_kept_is_read_back_equal(where: str) -> None:
    with holdfast.open(where, durability="process") as store:
        session = store.session("k")
        first = session.append("hello")
        for name, value in strangers.KEPT.items():
            said = strangers.as_json(value)
            session.append({"role": "user", "content": "x", "metadata": value})
            session.label(first, note=value)
            *_, last = session.transcript()
            assert last.payload["metadata"] == said, name
            assert next(session.transcript()).labels["note"] == said, name
            with session.turn("q") as turn:
                call = turn.call("f", {"given": value})
                turn.result(call, {"answer": value})
            made, answered = list(session.transcript())[-2:]
            assert thaw(made.calls[0].arguments.encode()) == {"given": said}, name
            assert thaw(answered.text.encode()) == {"answer": said}, name


@pytest.fixture
def mute() -> Iterator[Exception]:
    yield type("Mute", (RuntimeError,), {"__str__": strangers._boom, "__repr__": strangers._boom})()


def test_an_error_that_can_not_say_what_it_is_ends_its_turn_all_the_same(
    session: holdfast.Session, mute: Exception
) -> None:
    with pytest.raises(RuntimeError) as raised, session.turn("q") as turn:
        turn.say("half")
        raise mute
    assert raised.value is mute
    session.turn("again").fail(mute)
    assert [turn.end for turn in session.turns()] == ["failed", "failed"]
    assert all((turn.error or "").startswith("Mute: ") for turn in session.turns())


def test_an_error_that_can_not_say_what_it_is_ends_a_tasks_turn_all_the_same(
    path: Any, mute: Exception
) -> None:
    async def main() -> list[str | None]:
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            with pytest.raises(RuntimeError):
                async with session.turn("q"):
                    raise mute
            await (await session.turn("again")).fail(mute)
            return [turn.end for turn in await session.turns()]

    assert asyncio.run(main()) == ["failed", "failed"]


class Claims:
    """Claims so many times to be equal to whatever it is compared with, and then no more."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __eq__(self, other: object) -> bool:
        self.times -= 1
        return self.times >= 0

    def __hash__(self) -> int:
        return 0


KNOWN = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]


def test_a_value_that_raises_when_it_is_compared_is_refused_in_a_known_message(
    session: holdfast.Session,
) -> None:
    session.record(KNOWN)
    strange = [KNOWN[0], {"role": "assistant", "content": strangers.raising("__eq__")}, KNOWN[2]]
    with pytest.raises(InvalidMessage, match=r"messages\[1\]"):
        session.record(strange)
    assert not session.record(KNOWN).new
    assert session.context() == KNOWN


@pytest.mark.parametrize("is_worded", [False, True])
@pytest.mark.parametrize("times", [*range(6), 100])
def test_a_value_in_a_known_message_is_at_most_what_it_claims_to_be(
    store: holdfast.Store, times: int, is_worded: bool
) -> None:
    session = store.session("k")
    session.record(KNOWN)
    if is_worded:  # by another handle: what the first one remembers is not what is shown
        store.session("k").record([KNOWN[0], {"role": "assistant", "content": "b2"}, KNOWN[2]])
    shown, said = session.context(), [message.text for message in session.transcript()]
    lie = {"role": "assistant", "content": Claims(times)}
    try:
        found = session.record([KNOWN[0], lie, KNOWN[2], {"role": "user", "content": "d"}])
    except InvalidMessage:
        assert session.context() == shown
    else:
        assert len(found.new) == 1
        assert [message.text for message in session.transcript()] == [*said, "d"]
    for remembered in session._memory.last("openai.chat").messages:
        assert {type(value) for value in remembered.snapshot.values()} == {str}


def test_a_snapshot_of_a_known_message_holds_nothing_but_json_data() -> None:
    with pytest.raises(InvalidMessage):
        snapshot({"role": "user", "content": [{"type": "text", "text": Claims(9)}]})
