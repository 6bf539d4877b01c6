"""Rewinding: the view goes back, for everybody and for good, and what happened stays (I-1, I-9, FAULTS D5, I9)."""

import asyncio
from pathlib import Path

import pytest

import holdfast
import procs
from holdfast import Message, Session, Store
from holdfast.errors import NotFound, SessionBusy, SessionEnded, TurnInterrupted
from holdfast.testing.providers import check
from looking import other_handle
from talking import FORMATS, contexts, dialogue, named, talk, texts, told


def assert_same_everywhere(path: Path, session: Session) -> None:
    with other_handle(path) as other:
        assert contexts(other.get(session.id)) == contexts(session)


def test_the_view_ends_with_the_message_and_the_transcript_is_whole(session: Session) -> None:
    talk(session, *range(4))
    log = list(session.entries())
    session.rewind(named(session, "answer 1").id)
    assert texts(session) == dialogue(0, 1)
    assert told(session) == dialogue(0, 1, 2, 3)
    assert list(session.entries())[:-1] == log


def test_a_rewind_survives_a_restart(path: Path) -> None:
    """I9: the process that rewound is gone."""
    script = """
        import holdfast, os, signal
        store = holdfast.open(sys.argv[1], durability="process")
        session = store.session("k")
        for n in range(3):
            with session.turn(f"ask {n}") as turn:
                turn.say(f"answer {n}")
        session.rewind([message for message in session.transcript()][1].id)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with procs.child(script, path) as other:
        other.lines()
        other.kill()
        assert other.code == -9
    with holdfast.open(path, durability="process") as store:
        assert texts(store.session("k")) == dialogue(0)
        assert told(store.session("k")) == dialogue(0, 1, 2)


def test_the_next_turn_goes_on_from_there(path: Path, session: Session) -> None:
    """I9: and no later turn brings back what was rewound."""
    talk(session, *range(4))
    session.rewind(named(session, "answer 1").id)
    with session.turn("ask again") as turn:
        assert [message["content"] for message in turn.context()] == [*dialogue(0, 1), "ask again"]
        turn.say("answer again")
    for n in range(5):
        talk(session, f"later {n}")
    shown = [*dialogue(0, 1, "again"), *dialogue(*(f"later {n}" for n in range(5)))]
    assert texts(session) == shown
    assert_same_everywhere(path, session)


def test_what_was_rewound_is_brought_back_by_rewinding_to_the_last_message(path: Path, session: Session) -> None:
    talk(session, *range(4))
    whole = contexts(session)
    last = named(session, "answer 3").id
    session.rewind(named(session, "ask 0").id)
    assert texts(session) == ["ask 0"]
    session.rewind(named(session, "answer 2").id)
    assert texts(session) == dialogue(0, 1, 2)
    session.rewind(last)
    assert contexts(session) == whole
    assert_same_everywhere(path, session)


def test_every_message_can_be_rewound_to_with_a_valid_context(path: Path, session: Session) -> None:
    """In the middle of a turn and of a tool pair too."""
    for n in range(2):
        with session.turn(f"ask {n}") as turn:
            turn.call("look", {}, call_id="c1")
            turn.call("touch", {}, call_id="c2")
            turn.result("c2", "warm")
            turn.result("c1", "seen")
            turn.say(f"answer {n}")
    messages = list(session.transcript())
    for message in [*messages, *reversed(messages)]:
        session.rewind(message.id)
        for format in FORMATS:
            assert check(format, session.context(format)) == []
        assert session._work.room.log().order[-1].id == message.id
        assert_same_everywhere(path, session)


def test_a_rewind_to_before_a_compaction_shows_the_originals(path: Path, session: Session) -> None:
    """D5: in the handle that compacted, in one that began with the compaction, and in a new one."""
    talk(session, *range(6))
    session.compact("a summary", keep_turns=2)
    with other_handle(path, durability="process") as other:
        warm = other.get(session.id)
        assert "a summary" in texts(warm)[0]
        session.rewind(named(session, "answer 2").id)
        for handle in (session, warm):
            assert texts(handle) == dialogue(0, 1, 2)
        talk(warm, "next")
        for handle in (session, warm):
            assert texts(handle) == dialogue(0, 1, 2, "next")
    assert_same_everywhere(path, session)


def test_a_rewind_to_after_a_compaction_keeps_its_summary(path: Path, session: Session) -> None:
    talk(session, *range(6))
    session.compact("a summary", keep_turns=3)
    talk(session, "after")
    session.rewind(named(session, "answer 4").id)
    assert "a summary" in texts(session)[0]
    assert texts(session)[1:] == ["answer 3", *dialogue(4)]
    assert_same_everywhere(path, session)
    assert session.compact("another", keep_turns=1) is not None
    assert "answer 3" not in str(contexts(session))
    assert_same_everywhere(path, session)


def test_rewound_messages_are_not_summarised(session: Session) -> None:
    talk(session, *range(4))
    session.rewind(named(session, "answer 1").id)
    covered: list[str] = []

    def summarise(messages: list[Message]) -> str:
        covered.extend(message.text for message in messages)
        return "a summary"

    talk(session, "next")
    session.compact(summarise, keep_turns=1)
    assert covered == dialogue(0, 1)
    assert "ask 2" not in str(contexts(session))


def test_a_warm_handle_sees_the_rewind_of_another(path: Path, session: Session) -> None:
    talk(session, *range(4))
    with other_handle(path, durability="process") as other:
        warm = other.session("k")
        assert texts(warm) == dialogue(0, 1, 2, 3)
        session.rewind(named(session, "answer 0").id)
        assert texts(warm) == dialogue(0)
        warm.rewind(named(session, "answer 3").id)
        assert texts(session) == dialogue(0, 1, 2, 3)


def test_a_running_turn_is_not_rewound_under_its_writer(session: Session) -> None:
    talk(session, *range(2))
    first = next(session.transcript())
    with session.turn("ask") as turn:
        head = session.info().head
        with pytest.raises(SessionBusy) as caught:
            session.rewind(first.id)
        assert caught.value.turn_id == turn.id
        assert session.info().head == head
        turn.say("answer")
    session.rewind(first.id)
    assert texts(session) == ["ask 0"]


@pytest.mark.parametrize("name", ["", "0" * 32, "not an id", "🦀"])
def test_an_unknown_message_is_not_found(session: Session, name: str) -> None:
    talk(session, 1)
    head = session.info().head
    with pytest.raises(NotFound):
        session.rewind(name)
    assert session.info().head == head


def test_a_message_of_another_session_is_not_found(store: Store, session: Session) -> None:
    talk(session, 1)
    talk(store.session("other"), 2)
    with pytest.raises(NotFound):
        session.rewind(next(store.session("other").transcript()).id)


def test_an_ended_session_is_not_rewound(session: Session) -> None:
    talk(session, 1)
    first = next(session.transcript())
    session.end("done")
    with pytest.raises(SessionEnded):
        session.rewind(first.id)


def test_rewound_text_does_not_come_back_by_recording(path: Path, session: Session) -> None:
    """I9: the list that goes on is the rewound one, in this handle and in a new one."""
    roles = ["user", "assistant"] * 3
    listed = [{"role": role, "content": text} for role, text in zip(roles, dialogue(*range(3)), strict=True)]
    session.record(listed)
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        for n, handle in enumerate((session, other.get(session.id), session)):
            listed = [*handle.context(), {"role": "user", "content": f"new {n}"}]
            assert len(handle.record(listed).new) == 1
            listed.append({"role": "assistant", "content": f"reply {n}"})
            assert len(handle.record(listed).new) == 1
    shown = [*dialogue(0), *(text for n in range(3) for text in (f"new {n}", f"reply {n}"))]
    assert texts(session) == shown
    assert_same_everywhere(path, session)


def test_a_text_that_is_said_again_after_a_rewind_is_a_new_message(store: Store, session: Session) -> None:
    """I-2: recorded too, by a handle that did not record the first one."""
    store.session("k").record([{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}])
    session.rewind(next(session.transcript()).id)
    assert len(session.record([*session.context(), {"role": "assistant", "content": "gone"}]).new) == 1
    assert told(session) == ["go", "gone", "gone"]
    assert texts(session) == ["go", "gone"]


def test_a_late_result_of_a_turn_that_is_still_shown_takes_its_place(path: Path, session: Session) -> None:
    """I-10."""
    talk(session, 0)
    late = session.turn("ask late")
    late.call("look", {}, call_id="c1")
    session.stop()
    question = named(session, "ask late")
    talk(session, 1)
    session.rewind(question.id)
    session.rewind(list(session.transcript())[3].id)
    with pytest.raises(TurnInterrupted):
        late.result("c1", "found")
    assert session.context()[-1] == {"role": "tool", "tool_call_id": "c1", "content": "found"}
    assert_same_everywhere(path, session)


def test_a_message_that_waits_is_taken_after_a_rewind(store: Store, session: Session, path: Path) -> None:
    """I-4."""
    talk(session, *range(3))
    store.accept("k", "still waiting")
    session.rewind(named(session, "answer 0").id)
    with session.turn() as turn:
        assert [message["content"] for message in turn.context()] == [*dialogue(0), "still waiting"]
        turn.say("here")
    assert_same_everywhere(path, session)


def test_a_message_hidden_before_a_rewind_can_be_shown_after_it(path: Path, session: Session) -> None:
    """I-13."""
    talk(session, *range(3))
    question = named(session, "ask 0")
    session.label(question.id, visible_to_model=False)
    session.rewind(named(session, "answer 1").id)
    assert "ask 0" not in str(contexts(session))
    session.label(question.id, visible_to_model=True)
    assert texts(session) == dialogue(0, 1)
    assert_same_everywhere(path, session)


def test_a_rewind_through_the_async_face(path: Path, session: Session) -> None:
    talk(session, *range(3))
    target = named(session, "answer 0").id

    async def scene() -> None:
        async with holdfast.open_async(path, durability="process") as store:
            there = await store.session("k")
            await there.rewind(target)
            assert [message["content"] for message in await there.context()] == dialogue(0)
            with pytest.raises(NotFound):
                await there.rewind("nobody")

    asyncio.run(asyncio.wait_for(scene(), 60))
    assert texts(session) == dialogue(0)
