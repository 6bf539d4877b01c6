"""What `Session.record` promises on a real store: nothing lost, nothing doubled, the list is the
context (I-12).
"""

import asyncio
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

import holdfast
import procs
from holdfast import Session, Store
from holdfast.domain.record.fingerprint import fingerprint
from holdfast.engine.protocol import Write
from holdfast.errors import BadArgument, InvalidMessage, SessionEnded
from holdfast.formats import registry
from holdfast.runtime.live.session_log import SessionLog
from thorough import few_cases

Payload = dict[str, Any]


def user(text: str) -> Payload:
    return {"role": "user", "content": text}


def assistant(text: str) -> Payload:
    return {"role": "assistant", "content": text}


def call(call_id: str, arguments: str = "{}") -> Payload:
    function = {"name": "ls", "arguments": arguments}
    asked = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [asked]}


def result(call_id: str, text: str) -> Payload:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def system(text: str) -> Payload:
    return {"role": "system", "content": text}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(tmp_path / "agent.db", durability="process") as opened:
        yield opened


def again(session: Session) -> Session:
    """Another handle to the same session, with no memory, as another process would have."""
    return session_of(holdfast.open(session._log.engine.where, durability="process"), session)


def session_of(store: Store, session: Session) -> Session:
    return store.get(session.id)


def said(session: Session) -> list[str]:
    """What every message of the transcript says, tool outputs included."""
    return [fingerprint(message.payload).text for message in session.transcript()]


def stored(session: Session) -> list[Any]:
    return [message.payload for message in session.transcript()]


# The shapes of the public defects
# ------------------------------------------------------------------------------------


def test_hermes_44837_a_flush_after_a_merging_repair_still_stores_the_answer(
    session: Session,
) -> None:
    """B1: repair merges two users, the list shrinks by one, and a position would now point past its
    end.
    """
    messages = [user("one"), assistant("1"), user("two"), user("three")]
    session.record(messages)
    messages[2]["content"] += "\n\n" + messages.pop()["content"]
    messages.append(assistant("to both"))
    recorded = session.record(messages)
    assert len(recorded.new) == 1
    assert said(session) == ["one", "1", "two", "three", "to both"]
    assert list(session.context()) == messages
    assert session.record(messages).new == ()
    messages.append(user("four"))
    session.record(messages)
    assert said(session)[-2:] == ["to both", "four"]


def test_hermes_43936_46053_a_list_shorter_than_its_history_still_stores_its_tail(
    session: Session,
) -> None:
    """B1: after a compaction the list is shorter than what was flushed; its tail is new all the
    same.
    """
    history = [message for n in range(30) for message in (user(f"q{n}"), assistant(f"a{n}"))]
    session.record(history)
    shorter = [
        user("Summary of what was said."),
        *copy.deepcopy(history[-4:]),
        user("go on"),
        assistant("on I go"),
    ]
    other = again(session)
    assert len(other.record(shorter).new) == 3
    assert said(session) == [m["content"] for m in history] + [
        "Summary of what was said.",
        "go on",
        "on I go",
    ]
    assert said(session).count("q28") == 1
    assert list(session.context())[-1] == assistant("on I go")
    assert other.record(shorter).new == ()


def test_hermes_two_overlapping_turns_on_one_agent_lose_neither(store: Store) -> None:
    """B2: two turns work on copies of one list and flush in turn; both answers are in the
    transcript, each once.
    """
    handle = store.session("k")
    shared = [user("hello"), assistant("hi")]
    handle.record(shared)
    one, two = copy.deepcopy(shared), copy.deepcopy(shared)
    first, second = store.session("k"), store.session("k")
    for messages, mine, text in ((one, first, "first"), (two, second, "second")):
        mine.record(messages)
        messages.append(user(text))
        mine.record(messages)
    for messages, mine, text in ((one, first, "to the first"), (two, second, "to the second")):
        messages.append(assistant(text))
        mine.record(messages)
    assert said(handle) == ["hello", "hi", "first", "second", "to the first", "to the second"]


def test_hermes_overlapping_turns_on_one_handle_lose_neither(session: Session) -> None:
    """B2: the same with one shared handle, as a cached agent has it: its memory is of whoever
    recorded last.
    """
    shared = [user("hello"), assistant("hi")]
    session.record(shared)
    one, two = copy.deepcopy(shared), copy.deepcopy(shared)
    for messages, text in ((one, "first"), (two, "second")):
        messages.append(user(text))
        session.record(messages)
    for messages, text in ((one, "to the first"), (two, "to the second")):
        messages.append(assistant(text))
        session.record(messages)
    for text in ("hello", "hi", "to the first", "to the second"):
        assert said(session).count(text) == 1
    assert {"first", "second"} <= set(said(session))


def test_hermes_31507_scaffolding_popped_after_an_early_flush_leaves_the_answer_to_be_stored(
    session: Session,
) -> None:
    """B1: what an early flush stored is popped from the list again; the cursor of then would skip
    the answer.
    """
    messages = [user("do it"), assistant("(empty)"), user("You returned nothing, go on.")]
    session.record(messages)
    del messages[1:]
    messages.append(assistant("done"))
    assert len(session.record(messages).new) == 1
    assert said(session) == ["do it", "(empty)", "You returned nothing, go on.", "done"]
    assert list(session.context()) == [user("do it"), assistant("done")]


# Laws
# ----------------------------------------------------------------------------------------------------------------


def test_recording_a_list_again_moves_nothing(session: Session) -> None:
    messages = [system("Be kind."), user("a"), call("c1"), result("c1", "out"), assistant("b")]
    head = session.record(messages).head
    for presented in (messages, copy.deepcopy(messages), list(session.context())):
        recorded = session.record(presented)
        assert (recorded.new, recorded.head) == ((), head)
        assert session.info().head == head
    assert again(session).record(list(again(session).context())).head == head


def test_the_ids_of_what_was_new_are_those_of_the_transcript(session: Session) -> None:
    first = session.record([user("a"), assistant("b")])
    second = session.record([user("a"), assistant("b"), user("c")])
    assert [message.id for message in session.transcript()] == [*first.new, *second.new]
    assert second.head == session.info().head == [entry.seq for entry in session.entries()][-1]


def test_payloads_come_back_byte_for_byte(session: Session) -> None:
    """I-14: what is stored is what was presented, odd keys and odd characters included."""
    odd = {
        "role": "user",
        "content": "nul \0, lone \udcff, 🦀",
        "x_trace": {"n": [1, 2.5, None, True]},
    }
    session.record([odd, assistant("ok")])
    assert stored(session) == [odd, assistant("ok")]
    assert stored(again(session)) == [odd, assistant("ok")]


def test_words_before_a_call_are_known_apart_and_together(session: Session) -> None:
    """The view shows words and a call of one speaker as one message; an agent's own list may go on
    having two.
    """
    messages = [user("a"), assistant("I look."), call("c1"), result("c1", "out"), assistant("b")]
    head = session.record(messages).head
    together = {**call("c1"), "content": "I look."}
    assert list(session.context()) == [user("a"), together, result("c1", "out"), assistant("b")]
    for handle in (again(session), session):
        assert handle.record(copy.deepcopy(messages)) == holdfast.Recorded((), head)
        assert handle.record(list(handle.context())) == holdfast.Recorded((), head)
        assert handle.record(copy.deepcopy(messages)) == holdfast.Recorded((), head)


def test_agents_that_load_and_record_in_turn_double_nothing(session: Session) -> None:
    """I-12, B2: what one handle has hidden with its list, the other still presents, merged with its
    neighbours.
    """
    other = again(session)
    session.append("go")
    mine = [*session.context(), assistant("a/0")]
    session.record(mine)
    mine, theirs = list(session.context()), list(other.context())
    other.record([*theirs, assistant("b/0")])
    theirs = list(other.context())
    session.record([*mine, assistant("a/1")])
    other.record([*theirs, assistant("b/1")])
    assert said(session) == ["go", "a/0", "b/0", "a/1", "b/1"]


def test_a_known_user_merged_with_a_new_one_stores_only_the_new_one(session: Session) -> None:
    messages = [user("a"), assistant("b"), user("known")]
    session.record(messages)
    messages[2]["content"] += "\n\nfresh"
    session.record(messages)
    assert said(session) == ["a", "b", "known", "fresh"]
    assert list(session.context()) == messages


def test_a_shortened_tool_output_changes_the_view_and_not_the_transcript(session: Session) -> None:
    messages = [user("a"), call("c1"), result("c1", "x" * 5000), assistant("b")]
    session.record(messages)
    messages[2]["content"] = "x…"
    assert session.record(messages).new == ()
    assert list(session.context()) == messages
    assert list(again(session).context()) == messages
    assert said(session)[2] == "x" * 5000
    messages[2]["content"] = "x" * 5000
    session.record(messages)
    assert list(again(session).context()) == messages


def test_a_changed_system_message_is_a_new_version_of_the_instructions_and_no_message(
    session: Session,
) -> None:
    session.record([system("Be kind."), user("a")])
    session.record([system("Be brief."), user("a")])
    assert session.instructions() == "Be brief."
    assert said(session) == ["a"]
    assert list(session.context()) == [system("Be brief."), user("a")]
    assert [entry.kind for entry in session.entries()].count("instructions") == 2


def test_equal_texts_are_as_many_messages_as_were_presented(session: Session) -> None:
    """B7, I-2: the same word twice is two messages."""
    messages: list[Payload] = []
    for n in range(5):
        messages += [user("yes"), assistant("ok")]
        session.record(copy.deepcopy(messages) if n % 2 else messages)
    assert said(session) == ["yes", "ok"] * 5
    assert again(session).record(list(session.context())).new == ()


def test_marks_the_caller_puts_on_its_messages_make_nothing_new(session: Session) -> None:
    """Hermes marks what it has flushed with `_db_persisted` in the message itself."""
    messages = [user("a"), call("c1"), result("c1", "out"), assistant("b")]
    head = session.record(messages).head
    for message in messages:
        message["_db_persisted"] = True
    assert session.record(messages) == holdfast.Recorded((), head)
    assert session.record(copy.deepcopy(messages)) == holdfast.Recorded((), head)
    assert again(session).record(messages) == holdfast.Recorded((), head)


def test_the_objects_of_an_sdk_are_recorded_like_their_dicts(session: Session) -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    reply = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [asked]}
    )
    words = ChatCompletionMessage.model_validate({"role": "assistant", "content": "done"})
    messages = [user("a"), reply, result("c1", "out"), words]
    head = session.record(messages).head
    assert stored(session) == [user("a"), call("c1"), result("c1", "out"), assistant("done")]
    assert session.record(messages).head == head
    assert (
        session.record([user("a"), call("c1"), result("c1", "out"), assistant("done")]).head == head
    )


ANTHROPIC: list[Payload] = [
    user("look"),
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/"}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "bin etc"}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "bin and etc"}]},
]

RESPONSES: list[Payload] = [
    {"role": "user", "content": "look"},
    {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": '{"path": "/"}'},
    {"type": "function_call_output", "call_id": "t1", "output": "bin etc"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "bin and etc"}],
    },
]


@pytest.mark.parametrize(
    ("format", "messages"), [("anthropic", ANTHROPIC), ("openai.responses", RESPONSES)]
)
def test_lists_of_other_formats_are_recorded_alike(
    session: Session, format: str, messages: list[Payload]
) -> None:
    messages = copy.deepcopy(messages)
    for end in range(1, len(messages) + 1):
        assert len(session.record(messages[:end], format=format).new) == 1
    assert stored(session) == messages
    assert list(session.context(format)) == messages
    head = session.info().head
    for handle in (session, again(session)):
        assert handle.record(copy.deepcopy(messages), format=format) == holdfast.Recorded((), head)
        assert handle.record(list(handle.context(format)), format=format) == holdfast.Recorded(
            (), head
        )
    shorter = [*copy.deepcopy(messages[:1]), *copy.deepcopy(messages[-1:]), user("and now?")]
    assert len(session.record(shorter, format=format).new) == 1
    assert list(session.context(format)) == shorter
    assert stored(session) == [*messages, user("and now?")]


def test_a_context_of_another_format_recorded_in_it_stores_only_what_is_new(
    session: Session,
) -> None:
    """A provider switch: the list of one format goes on in another."""
    session.record([user("look"), call("t1"), result("t1", "bin"), assistant("bin")])
    switched = [*session.context("anthropic"), user("and now?")]
    again(session).record(switched, format="anthropic")
    assert said(session).count("and now?") == 1
    assert len(said(session)) == 5


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("hello", id="a text for a list"),
        pytest.param({"role": "user", "content": "hello"}, id="a message for a list"),
        pytest.param(7, id="a number for a list"),
        pytest.param([user("ok"), 7], id="a number for a message"),
        pytest.param([user("ok"), None], id="nothing for a message"),
        pytest.param(
            [user("ok"), {"role": "user", "content": float("nan")}], id="not a JSON number"
        ),
        pytest.param(
            [user("ok"), {"role": "user", "content": [{"type": "text", "text": b"x"}]}], id="bytes"
        ),
        pytest.param([user("ok"), {"role": "user", 7: "x"}], id="a key that is no string"),
        pytest.param([user("ok"), {"role": "wizard", "content": "x"}], id="an unknown role"),
        pytest.param([user("ok"), {"content": "x"}], id="no role"),
    ],
)
def test_a_list_that_can_not_be_stored_is_refused_whole(session: Session, bad: Any) -> None:
    """I-3: an error means that nothing was written."""
    session.record([user("before")])
    head = session.info().head
    with pytest.raises((BadArgument, InvalidMessage)):
        session.record(bad)
    assert session.info().head == head
    assert said(session) == ["before"]


def test_an_unknown_format_is_refused_and_named(session: Session) -> None:
    with pytest.raises(BadArgument, match="morse"):
        session.record([user("a")], format="morse")


def test_a_text_in_a_list_is_recorded_once_or_refused(session: Session) -> None:
    """I-12: whatever a bare string means, presenting it again must not double it."""
    try:
        session.record(["hello", assistant("hi")])
    except InvalidMessage:
        assert said(session) == []
        return
    session.record(["hello", assistant("hi")])
    again(session).record(["hello", assistant("hi")])
    assert said(session) == ["hello", "hi"]


def test_what_a_turn_has_stored_is_recognised_in_the_callers_list(session: Session) -> None:
    """B2: an agent that uses turns and also records its list has one copy of everything."""
    messages = [user("hello"), assistant("hi")]
    session.record(messages)
    with session.turn("how are you?") as turn:
        turn.say("fine")
    messages += [user("how are you?"), assistant("fine"), user("good")]
    assert len(session.record(messages).new) == 1
    assert said(session) == ["hello", "hi", "how are you?", "fine", "good"]


def test_a_message_loaded_here_and_hidden_by_another_handle_is_not_stored_again(
    store: Store, tmp_path: Path
) -> None:
    """I-12: a handle knows what it has given out, whatever others do to the view meanwhile."""
    first = store.session("k")
    messages = [user("a"), assistant("b"), user("c"), assistant("d")]
    first.record(messages)
    with holdfast.open(tmp_path / "agent.db", durability="process") as other_store:
        other = other_store.session("k")
        loaded = list(other.context())
        first.record(messages[2:])
        loaded.append(user("e"))
        other.record(loaded)
        assert said(first) == ["a", "b", "c", "d", "e"]
        assert list(other.context()) == loaded


def test_a_list_changed_while_it_is_being_recorded_is_stored_as_it_was(tmp_path: Path) -> None:
    """F7, I-3: frozen at the call, also when another writer came first and the recording is judged
    anew.
    """

    async def race() -> list[str]:
        async with holdfast.open_async(tmp_path / "agent.db", durability="process") as store:
            session = await store.session("k")
            messages = [user("as it was")]
            recording = session.record(messages)
            await session.append(assistant("meanwhile"))
            messages[0]["content"] = "as it became"
            messages.append(user("too late"))
            await recording
            return [message.text async for message in session.transcript()]

    assert asyncio.run(race()) == ["meanwhile", "as it was"]


def test_recording_into_an_ended_session_is_refused(store: Store) -> None:
    """C1, I-8: nothing is written to a session that its key has left."""
    old = store.session("k")
    old.record([user("a")])
    new = store.reset("k")
    with pytest.raises(SessionEnded) as caught:
        old.record([user("a"), user("b")])
    assert caught.value.current_id == new.id
    assert said(old) == ["a"]


CARRY_ON = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.session("k")
        messages = list(session.context())
        say("before", session.info().head)
        say("same", session.record(messages).head)
        messages += [{"role": "user", "content": "there"}, {"role": "assistant", "content": "from afar"}]
        say("new", len(session.record(messages).new))
"""


def test_a_list_reloaded_in_another_process_carries_on_where_it_was(
    store: Store, tmp_path: Path
) -> None:
    """B4, I-9: the other process computes the same context, and recording it back adds nothing."""
    session = store.session("k")
    messages = [
        system("Be kind."),
        user("a"),
        user("b"),
        call("c1"),
        result("c1", "long output"),
        assistant("yes"),
    ]
    session.record(messages)
    messages[4]["content"] = "long…"
    del messages[1]
    session.record(messages)
    lines = dict(line.split(" ") for line in procs.run(CARRY_ON, tmp_path / "agent.db"))
    assert lines["before"] == lines["same"]
    assert lines["new"] == "2"
    messages += [user("there"), assistant("from afar"), user("here")]
    assert len(session.record(messages).new) == 1
    assert said(session) == ["a", "b", "", "long output", "yes", "there", "from afar", "here"]
    assert list(session.context()) == messages


@pytest.mark.parametrize("is_shown_together", [False, True])
def test_a_system_message_that_a_context_shows_among_the_users_words_is_known(
    session: Session, is_shown_together: bool
) -> None:
    """I-12: Anthropic's contexts have no system messages; Claude Code's lists do."""
    said = [user("Hi"), system("The date has changed."), assistant("Hello.")]
    session.record([*said, user("A?"), system("Be brief.")], format="anthropic")
    other = again(session)
    asked = [*said, user("A?"), system("Be brief."), assistant("A."), user("B?")]
    if is_shown_together:
        asked = [*other.context("anthropic"), assistant("A."), user("B?")]
    assert len(other.record(asked, format="anthropic").new) == 2
    roles = [each.role for each in other.transcript()]
    assert roles == ["user", "system", "assistant", "user", "system", "assistant", "user"]


@pytest.mark.parametrize("more", [0, 1])
def test_a_list_that_has_a_message_where_a_later_turn_took_it_is_recognised(
    tmp_path: Path, more: int
) -> None:
    """I-12: the turn that had taken it died unused and gave it back, after it was recorded; the
    view has moved it.
    """
    with (
        holdfast.open(tmp_path / "agent.db") as store,
        holdfast.open(tmp_path / "agent.db") as other,
    ):
        session = store.session("k")
        session.append("one")
        dying = other.session("k").turn("two")
        session.record([*session.context(), user("three"), assistant("Three.")])
        dying._work.session.submit(
            Write(dying._work.session.id, fence=dying._work.number, seize=True, renew_s=0)
        ).result()
        with session.turn("four") as turn:
            turn.say("Four.")
        shown = ["one\n\nthree", "Three.", "two\n\nfour", "Four."]
        assert [payload["content"] for payload in session.context()] == shown
        messages = [*session.context(), *[user("five")][:more]]
        assert len(session.record(messages).new) == more
        assert list(session.context()) == messages


def as_the_past_is_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Has something happen each time before a recording looks into the past."""
    history = SessionLog.history

    def history_later(log: SessionLog) -> Any:
        act()
        return history(log)

    # As one of Holdfast's own: a stranger in the middle of a call is taken for a signal handler.
    names = {**globals(), "__name__": "holdfast.tests"}
    theirs = FunctionType(history_later.__code__, names, closure=history_later.__closure__)
    monkeypatch.setattr(SessionLog, "history", theirs)


def test_what_comes_while_a_recording_looks_into_the_past_is_not_taken_for_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-12: a view names its new messages by the places they will get. To look into the past brings
    the log up to date: another process may have written meanwhile, and has those places.
    """
    session = store.session("k")
    other = again(session)
    messages = [user("one"), assistant("One."), user("two"), assistant("Two.")]
    session.record(messages)
    session.record(messages[2:])
    came = ["Here.", "There.", "Yonder."]
    as_the_past_is_read(monkeypatch, lambda: came and other.append(came.pop(0)))
    recorded = session.record([*messages, user("three"), assistant("Three.")])
    assert len(recorded.new) == 2 and recorded.head == session.info().head
    assert "Three." in [payload["content"] for payload in session.context()]
    assert "Three." in [payload["content"] for payload in again(session).context()]
    texts = [message.text for message in session.transcript()]
    assert [texts.count(text) for text in ("Here.", "There.", "Three.")] == [1, 1, 1]
    assert store.check() == []


def test_a_list_that_another_has_just_stored_is_told_with_the_head_that_has_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-12: nothing is new in a list that another process stores while a recording looks into the
    past; and the head that is told of is one whose log has the list.
    """
    session = store.session("k")
    with session.turn("Hello") as turn:
        turn.say("An answer.")
        turn.retract("x")
    other = again(session)
    came = [[user("New.")]]
    as_the_past_is_read(monkeypatch, lambda: came and other.record(came.pop()))
    recorded = again(session).record([user("New.")])
    assert not came
    assert (recorded.new, recorded.head) == ((), session.info().head)
    assert [message.text for message in session.transcript()].count("New.") == 1


# Lists that are older than an answer
# ------------------------------------------------------------------------------------


def hide_by_label(session: Session) -> None:
    session.label(named(session, "Later words.").id, visible_to_model=False)


def hide_by_rewind(session: Session) -> None:
    session.rewind(named(session, "Known words.").id)


def named(session: Session, text: str) -> holdfast.Message:
    [message] = [each for each in session.transcript() if each.text == text]
    return message


def deny(session: Session, calls: list[str]) -> None:
    for call_id in calls:
        session.decide(call_id, False, by="ann")


def approve_and_answer(session: Session, calls: list[str]) -> None:
    for call_id in calls:
        session.decide(call_id, True, by="ann")
    with session.turn() as turn:
        for due in turn.calls():
            turn.call(due.name, due.arguments, call_id=due.call_id)
            turn.result(due.call_id, "Paid.")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["openai.chat", "openai.responses", "anthropic", "holdfast"])
@pytest.mark.parametrize("hide", [hide_by_label, hide_by_rewind])
@pytest.mark.parametrize("decide", [deny, approve_and_answer])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("by_user", [False, True])
def test_a_list_older_than_an_answer_brings_nothing_back_that_was_hidden_meanwhile(
    store: Store,
    format: str,
    hide: Callable[[Session], None],
    decide: Callable[[Session, list[str]], None],
    count: int,
    by_user: bool,
) -> None:
    """I-11, I-12: the answer is the newest message, and stands beside its call: what the list has
    after it was said before.
    """
    session = store.session("k")
    with session.turn("Pay.") as turn:
        calls = [turn.call("pay", {"euros": n}, needs_approval=True) for n in range(count)]
    for text in ("Known words.", "Later words."):
        if by_user:
            session.append(text)
        else:
            with session.turn() as turn:
                turn.say(text)
    messages = [*session.context(format), *spoken("Next.", format)]
    before = said(session)
    hide(session)
    decide(session, calls)
    assert len(again(session).record(messages, format=format).new) == 1
    shown = str(list(session.context(format)))
    assert "Known words." in shown and "Later words." not in shown
    assert said(session)[: len(before)] == before
    assert [said(session).count(text) for text in ("Known words.", "Later words.")] == [1, 1]


@pytest.mark.parametrize("decide", [deny, approve_and_answer])
def test_what_was_retracted_is_not_brought_back_by_a_list_older_than_an_answer(
    store: Store, decide: Callable[[Session, list[str]], None]
) -> None:
    session = store.session("k")
    with session.turn("Pay.") as turn:
        call_id = turn.call("pay", {"euros": 8}, needs_approval=True)
    session.append("Well?")
    with session.turn() as turn:
        turn.say("Known words.")
        turn.say("Later words.")
        messages = [*session.context(), user("Next.")]
        turn.retract()
    decide(session, [call_id])
    assert len(again(session).record(messages).new) == 1
    assert "Later words." not in str(list(session.context()))


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize("format", ["openai.chat", "anthropic", "holdfast"])
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("hidden", [0, 1])
def test_words_that_a_context_joined_to_a_call_stay_hidden_in_a_list_that_has_them(
    store: Store, format: str, answered: bool, more: int, hidden: int
) -> None:
    """I-11: a list has no say in what a label hides; all that is joined there is known."""
    session = store.session("k")
    texts = ["First words.", "Other words."]
    with session.turn("Go.") as turn:
        for text in texts:
            turn.say(text)
        called = turn.call("ls", {"path": "."})
        messages = [*session.context(format), *spoken("Next.", format) * more]
        if answered:
            turn.result(called, "Nothing.")
    secret = named(session, texts[hidden]).id
    session.label(secret, visible_to_model=False)
    assert len(again(session).record(messages, format=format).new) == more
    shown = str(list(session.context(format)))
    assert [text in shown for text in texts] == [hidden == 1, hidden == 0]
    session.label(secret, visible_to_model=True)
    shown = str(list(session.context(format)))
    assert [shown.count(text) for text in texts] == [1, 1]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("more", ["", "Next."])
@pytest.mark.parametrize("decided", [False, True])
def test_what_repair_shows_beside_words_in_one_payload_is_never_stored(
    store: Store, fresh: bool, more: str, decided: bool
) -> None:
    """I-12, FAULTS A10: results and words are one payload for Anthropic, and one of the words was
    hidden since.
    """
    session = store.session("k")
    with session.turn("Pay.") as turn:
        calls = [turn.call("pay", {"euros": n}, needs_approval=True) for n in range(2)]
    session.append_all([user("Known words."), user("Later words.")])
    session.decide(calls[0], False, by="ann")
    messages = copy.deepcopy(list(session.context("anthropic")))
    hide_by_label(session)
    if decided:
        session.decide(calls[1], False, by="bob")
    before = said(session)
    if more:
        messages[-1]["content"].append({"type": "text", "text": more})
    recorder = again(session) if fresh else session
    recorder.record(messages, format="anthropic")
    recorder.record(messages, format="anthropic")
    assert said(session) == [*before, *[more][: len(more)]]
    shown = str(list(session.context("anthropic")))
    assert "Later words." not in shown and "Denied by ann." in shown
    assert shown.count("[waiting for approval]") == (not decided)


def spoken(text: str, format: str) -> list[Any]:
    return [registry.get(format).say("user", text)]
