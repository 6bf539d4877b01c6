"""Any text goes in and comes out, wherever it is given; what can't be kept is refused with its
place (FAULTS H7, K9).

Stored bytes are data, never code (I-20): whatever a payload looks like, it comes back as the plain
data it was.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Session, Store
from holdfast.errors import BadArgument, HoldfastError, InvalidMessage
from thorough import examples

ODD = '\0\x01\x7f\x85\ud800\udbff\udc00\udfff\u2028\ufeff\ufffe\uffff🦀\U0010fffff\\"\n\r\t é'
ANY_TEXT = st.one_of(
    st.text(st.characters(codec=None), min_size=1, max_size=12),  # type: ignore[arg-type]
    st.text(st.sampled_from(ODD), min_size=1, max_size=8),
)


def joined(value: Any) -> Any:
    """A high and a low surrogate side by side are one character to every JSON reader."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts") / "agent.db"


def tells(
    path: Path, said: Callable[[Store, Session], Any], asked: Callable[[Store, Session], Any]
) -> Any:
    """What one handle says, as another one reads it."""
    with holdfast.open(path, durability="process") as store:
        session = store.reset("k")
        said(store, session)
        id = session.id
    with holdfast.open(path, durability="process") as store:
        return asked(store, store.get(id))


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(text=ANY_TEXT)
def test_any_text_comes_back_as_it_was_said(shared: Path, text: str) -> None:
    """H7: by the user, by the agent in one piece and in several, and in parts."""

    def said(_: Store, session: Session) -> None:
        session.append(text)
        session.append({"role": "user", "content": [{"type": "text", "text": text}]})
        with session.turn(text) as turn:
            turn.say(text)
            assert "".join(turn.deliver([text, "|", text])) == f"{text}|{text}"

    found = tells(
        shared, said, lambda _, session: [message.text for message in session.transcript()]
    )
    assert [joined(each) for each in found] == [
        joined(each) for each in (text, text, text, text, f"{text}|{text}")
    ]


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    name=ANY_TEXT,
    arguments=st.dictionaries(ANY_TEXT, st.one_of(ANY_TEXT, st.lists(ANY_TEXT))),
    content=ANY_TEXT,
)
def test_any_text_comes_back_from_a_tool(
    shared: Path, name: str, arguments: dict[str, Any], content: str
) -> None:
    """H7: its name, its arguments, what it answered and the id of the call."""

    def said(_: Store, session: Session) -> None:
        with session.turn("Go") as turn:
            turn.result(turn.call(name, arguments, call_id=content), content)

    def asked(_: Store, session: Session) -> Any:
        (call,) = session.calls()
        *_, answer = session.transcript()
        return call.name, call.call_id, answer.parts[0].content, json.loads(call.arguments)

    said_name, said_id, said_content, said_arguments = tells(shared, said, asked)
    assert [joined(each) for each in (said_name, said_id, said_content)] == [
        joined(each) for each in (name, content, content)
    ]
    assert joined(said_arguments) == joined(arguments)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(text=ANY_TEXT)
def test_any_text_comes_back_from_all_that_is_noted(shared: Path, text: str) -> None:
    """H7: labels, instructions, reasons, errors, addresses, event ids."""

    def said(store: Store, session: Session) -> None:
        session.instructions(text)
        id = session.append("Hi", event_id=text)
        session.label(id, **{text: text})
        session.turn("one").interrupt(text)
        session.turn("two").fail(text)
        with session.turn("three", reply_to=text) as turn:
            turn.say("Yes.")
        assert joined(store.outbox()[-1].reply_to) == joined(text)
        store.outbox()[-1].failed(text)
        store.outbox()[-1].sent(text)
        with pytest.raises(HoldfastError):
            session.append("Hi again", event_id=text)
        session.end(text)

    def asked(store: Store, session: Session) -> Any:
        first = next(iter(session.transcript()))
        return [
            session.instructions(),
            first.labels,
            first.event_id,
            list(session.transcript())[3].reply_to,
        ]

    found = tells(shared, said, asked)
    assert joined(found) == joined([text, {text: text}, text, text])


@settings(max_examples=examples(40))
@given(text=ANY_TEXT)
def test_a_name_that_can_not_be_compared_is_refused_with_its_place(shared: Path, text: str) -> None:
    """H7: keys and tenants are found, sorted and compared by the engine; whatever is accepted is
    found again.
    """
    is_name = text.encode("utf-8", "ignore").decode() == text
    for place, attempt in (
        ("key", lambda: holdfast.open(shared, durability="process")),
        ("tenant", lambda: holdfast.open(shared, durability="process", tenant=text)),
    ):
        key = text if place == "key" else "k"
        try:
            with attempt() as store:
                id = store.session(key).id
                assert is_name and store.session(key, create=False).id == id
                assert [each.id for each in store.sessions(key=key)][:1] == [id]
        except BadArgument as error:
            assert not is_name and error.parameter == place
            str(error).encode()


def test_an_error_about_odd_text_can_be_printed(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        for attempt in (
            lambda: store.get("\ud800"), lambda: session.rewind("\ud800"), lambda: session.fork(key="\ud800"),
            lambda: store.sessions(key="\ud800"), lambda: session.context("\ud800"), lambda: store.backup("\ud800"),
            lambda: holdfast.open(tmp_path / "\ud800.db"), lambda: holdfast.open(f"{tmp_path}/\0.db"),
        ):  # fmt: skip
            with pytest.raises(HoldfastError) as caught:
                attempt()
            assert str(caught.value).encode()


# Data, never code
# ----------------------------------------------------------------------------------------------------


class Evil:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run!",)


CRAFTED: list[Any] = [
    {"role": "user", "content": "x", "__reduce__": ["os.system", "true"]},
    {
        "role": "user",
        "content": "x",
        "__class__": "Evil",
        "__dict__": {"a": 1},
        "__proto__": {"b": 2},
    },
    {
        "role": "user",
        "content": "x",
        "py/object": "builtins.eval",
        "py/reduce": [{"py/type": "os.system"}, ["true"]],
    },
    {
        "role": "user",
        "content": "x",
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "x"],
        "kwargs": {"a": 1},
    },
    {
        "role": "user",
        "content": "x",
        "$type": "System.Object",
        "!!python/object/apply:os.system": ["true"],
    },
    {"role": "user", "content": [{"type": "call", "id": "a", "name": "b", "arguments": "c"}]},
    {"role": "user", "content": pickle.dumps(Evil()).decode("latin-1")},
    {"role": "user", "content": "{{7*7}} ${7*7} %(a)s {0.__class__}"},
    {"role": "user", "content": "x", "n": 10**400, "m": -(2**63) - 1, "f": 1e308},
    {"role": "user", "content": "'; DROP TABLE entry; --"},
]


@pytest.mark.parametrize("payload", CRAFTED, ids=range(len(CRAFTED)))
def test_a_crafted_payload_comes_back_as_plain_data(
    tmp_path: Path, payload: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """I-20, K9: stored, read in every format, searched and listed; nothing is revived."""
    with holdfast.open(tmp_path / "agent.db") as store:
        store.session("k").append(payload)
    with holdfast.open(tmp_path / "agent.db") as store:
        (message,) = store.session("k").transcript()
        assert message.payload == payload
        assert plain(message.payload), "nothing but what JSON has"
        for format in ("openai.chat", "openai.responses", "anthropic", "holdfast"):
            assert plain(list(store.session("k").context(format)))
        store.search("x")
        assert store.check() == []
    assert "run!" not in capsys.readouterr().out


def plain(value: Any) -> bool:
    """Whether this is JSON's own data, by its very types."""
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "content"),
        (Evil(), "content"),
        (b"bytes", "content"),
        ({1: "x"}, "content"),
        ({"a": {1}}, "content.a"),
    ],
    ids=["not a number", "an object", "bytes", "a key that is no string", "a set"],
)
def test_what_is_not_data_is_refused_with_its_place_and_nothing_is_written(
    tmp_path: Path, value: Any, place: str
) -> None:
    """I-20, K9."""
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        head = session.info().head
        for attempt in (
            lambda: session.append({"role": "user", "content": value}),
            lambda: session.turn({"role": "user", "content": value}),
            lambda: store.accept("k", {"role": "user", "content": value}),
        ):
            with pytest.raises(InvalidMessage) as caught:
                attempt()
            assert caught.value.place == place
        with pytest.raises(InvalidMessage):
            session.label(session.id, content=value)
        assert session.info().head == head


HALF = "a\ud800b"


@pytest.mark.parametrize("format", ["openai.chat", "openai.responses", "anthropic", "holdfast"])
def test_half_a_character_is_kept_and_never_sent(tmp_path: Path, format: str) -> None:
    """H7: JSON may hold it, and no request can: the transcript has it, contexts have U+FFFD."""
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        session.instructions(f"Be kind. {HALF}")
        for _ in range(3):
            session.append(HALF)
            with session.turn(HALF) as turn:
                call = turn.call(HALF, {HALF: [HALF]})
                turn.result(call, HALF)
                turn.say(HALF)
        with session.turn({"role": "user", "content": HALF, "x": {HALF: HALF}}) as turn:
            sent = turn.context(format)
            msgspec.json.encode([sent.instructions, *sent])
            assert "a\ufffdb" in json.dumps(list(sent), ensure_ascii=False)
            turn.add({"role": "assistant", "content": HALF})
        sent = session.context(format)
        msgspec.json.encode([sent.instructions, *sent])
        count = len(list(session.transcript()))
        assert next(iter(session.transcript())).text == HALF
        if format in ("openai.chat", "anthropic"):
            # Words that a context has shown in another way are known again.
            session.record(list(sent), format=format)
            assert len(list(session.transcript())) == count
