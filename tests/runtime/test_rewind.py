"""Rewinding: the view goes back, for everybody and for good, and what happened stays (I-1, I-9,
FAULTS D5, I9).
"""

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
import procs
from holdfast import Message, Session, Store
from holdfast.errors import Conflict, NotFound, SessionBusy, SessionEnded, TurnInterrupted
from holdfast.testing.providers import check
from looking import other_handle
from talking import FORMATS, assert_same_everywhere, contexts, dialogue, named, talk, texts, told


def listed(*names: object) -> list[dict[str, Any]]:
    """What `talk` says, as an agent's own list."""
    roles = ["user", "assistant"] * len(names)
    return [
        {"role": role, "content": text} for role, text in zip(roles, dialogue(*names), strict=True)
    ]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


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


def test_what_was_rewound_is_brought_back_by_rewinding_to_the_last_message(
    path: Path, session: Session
) -> None:
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
        assert session._log.log().visible[-1].id == message.id
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


@pytest.mark.parametrize("name", ["0" * 32, "not an id", "🦀"])
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


# Lists that are older than the rewind
# ---------------------------------------------------------------------------------


def test_rewound_text_does_not_come_back_by_recording(path: Path, session: Session) -> None:
    """I9: the list that goes on is the rewound one, in this handle and in a new one."""
    session.record(listed(*range(3)))
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        for n, handle in enumerate((session, other.get(session.id), session)):
            messages = [*handle.context(), user(f"new {n}")]
            assert len(handle.record(messages).new) == 1
            messages.append({"role": "assistant", "content": f"reply {n}"})
            assert len(handle.record(messages).new) == 1
    shown = [*dialogue(0), *(text for n in range(3) for text in (f"new {n}", f"reply {n}"))]
    assert texts(session) == shown
    assert_same_everywhere(path, session)


def test_a_text_that_is_said_again_after_a_rewind_is_a_new_message(
    store: Store, session: Session
) -> None:
    """I-2: recorded too, by a handle that did not record the first one."""
    store.session("k").record(
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]
    )
    session.rewind(next(session.transcript()).id)
    assert (
        len(session.record([*session.context(), {"role": "assistant", "content": "gone"}]).new) == 1
    )
    assert told(session) == ["go", "gone", "gone"]
    assert texts(session) == ["go", "gone"]


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("more", [True, False])
def test_a_list_recorded_before_a_rewind_brings_nothing_back(
    path: Path, session: Session, copied: bool, more: bool
) -> None:
    """I9: whoever recorded it knows nothing of the rewind; what is new in it is kept, once."""
    messages = listed(0, 1, 2)
    session.record(messages)
    with other_handle(path, durability="process") as other:
        other.get(session.id).rewind(named(session, "answer 0").id)
    messages += [user("new")] * more
    for _ in range(2):
        shown = copy.deepcopy(messages) if copied else messages
        session.record(shown)
        assert texts(session) == [*dialogue(0), *["new"] * more]
        assert told(session) == [*dialogue(0, 1, 2), *["new"] * more]
    messages.append(user("newer"))
    assert len(session.record(copy.deepcopy(messages) if copied else messages).new) == 1
    assert texts(session) == [*dialogue(0), "\n\n".join([*["new"] * more, "newer"])]
    assert_same_everywhere(path, session)


def test_a_list_of_a_process_that_never_loaded_the_session_brings_nothing_back(
    path: Path, session: Session
) -> None:
    """I9, I-12: it reads its list from a file of its own."""
    talk(session, *range(3))
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        stale = other.get(session.id)
        messages = [*listed(0, 1, 2), user("new")]
        assert len(stale.record(messages).new) == 1
        head = session.info().head
        assert stale.record(messages).new == stale.record(copy.deepcopy(messages)).new == ()
        assert session.info().head == head
    assert texts(session) == [*dialogue(0), "new"]
    assert told(session) == [*dialogue(0, 1, 2), "new"]
    assert_same_everywhere(path, session)


def test_a_context_loaded_before_a_rewind_brings_nothing_back(path: Path, session: Session) -> None:
    talk(session, *range(3))
    with other_handle(path, durability="process") as other:
        stale = other.get(session.id)
        messages = list(stale.context())
        session.rewind(named(session, "answer 0").id)
        talk(session, "else")
        assert len(stale.record([*messages, user("new")]).new) == 1
    assert "answer 1" not in texts(session)
    assert texts(session)[-1] == "new"
    assert told(session) == [*dialogue(0, 1, 2, "else"), "new"]


@pytest.mark.parametrize("looks_first", [True, False])
def test_a_list_with_what_was_rewound_away_stays_recognised_after_its_owner_has_looked(
    path: Path, session: Session, looks_first: bool
) -> None:
    """I-12: the owner goes on with its own list, though it has been told what the model sees."""
    messages = listed(0, 1, 2)
    session.record(messages)
    with other_handle(path, durability="process") as other:
        other.get(session.id).rewind(named(session, "answer 0").id)
    if not looks_first:
        session.record(copy.deepcopy(messages))
    assert texts(session) == dialogue(0)
    messages.append(user("new"))
    assert len(session.record(copy.deepcopy(messages)).new) == 1
    assert texts(session) == [*dialogue(0), "new"]


# Saying the same again
# ------------------------------------------------------------------------------------------------


def cut_own_list(session: Session, messages: list[Any]) -> list[Any]:
    return messages[:2]


def cut_a_copy(session: Session, messages: list[Any]) -> list[Any]:
    return copy.deepcopy(messages[:2])


def load(session: Session, messages: list[Any]) -> list[Any]:
    return list(session.context())


@pytest.mark.parametrize("go_back", [cut_own_list, cut_a_copy, load])
@pytest.mark.parametrize("more", [1, 2])
def test_what_is_said_again_on_the_handle_that_recorded_it_first_is_a_new_message(
    path: Path, session: Session, go_back: Callable[..., list[Any]], more: int
) -> None:
    """I-2: one text, two messages; also when all that was rewound away is said again."""
    messages = listed(0, 1)
    session.record(messages)
    session.rewind(named(session, "answer 0").id)
    messages = [*go_back(session, messages), *listed(1)[:more]]
    assert len(session.record(messages).new) == more
    assert session.record(messages).new == ()
    assert texts(session) == dialogue(0, 1)[: 2 + more]
    assert told(session) == [*dialogue(0, 1), *dialogue(1)[:more]]
    assert_same_everywhere(path, session)


def test_what_the_owner_of_a_list_says_again_is_new_though_another_has_rewound(
    path: Path, session: Session
) -> None:
    """I-2: its own objects are there but for those that were rewound away; so it was cut, and this
    is said again.
    """
    messages = listed(0, 1)
    session.record(messages)
    with other_handle(path, durability="process") as other:
        other.get(session.id).rewind(named(session, "answer 0").id)
    assert len(session.record([*messages[:2], user("ask 1")]).new) == 1
    assert texts(session) == [*dialogue(0), "ask 1"]


def test_a_question_asked_again_by_another_process_is_a_new_message(
    path: Path, session: Session
) -> None:
    """I-2: its list has the question and not the answer that had followed it; nobody would have cut
    just that.
    """
    talk(session, *range(2))
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        there = other.get(session.id)
        messages = [*listed(0), user("ask 1")]
        assert len(there.record(messages).new) == 1
        messages.append({"role": "assistant", "content": "answer 1"})
        assert len(there.record(messages).new) == 1
    assert texts(session) == dialogue(0, 1)
    assert told(session) == dialogue(0, 1, 1)


def test_a_text_said_again_in_a_turn_is_a_new_message(session: Session) -> None:
    talk(session, *range(2))
    session.rewind(named(session, "answer 0").id)
    talk(session, 1)
    assert texts(session) == dialogue(0, 1)
    assert told(session) == dialogue(0, 1, 1)


# Late words
# -----------------------------------------------------------------------------------------------------------


def come_late(turn: Any, how: str) -> None:
    with pytest.raises(TurnInterrupted):
        turn.add("late words") if how == "words" else turn.result("c1", "late outcome")


def stopped_turn(session: Session) -> Any:
    turn = session.turn("ask late")
    turn.call("look", {}, call_id="c1")
    session.stop()
    return turn


@pytest.mark.parametrize("how", ["words", "outcome"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_late_words_of_a_turn_that_was_rewound_away_stay_away(
    path: Path, session: Session, how: str, goes_on: bool
) -> None:
    """I9, I-7: they are stored under their own turn, and that turn is gone; for the warm handle and
    a new one.
    """
    talk(session, 0)
    late = stopped_turn(session)
    session.rewind(named(session, "answer 0").id)
    if goes_on:
        talk(session, 1)
    come_late(late, how)
    shown = dialogue(0, 1) if goes_on else dialogue(0)
    assert texts(session) == shown
    assert_same_everywhere(path, session)
    talk(session, 2)
    assert texts(session) == [*shown, *dialogue(2)]
    assert len(told(session)) == len(shown) + 2 + 3
    assert_same_everywhere(path, session)


def test_late_words_of_the_turn_that_the_view_went_back_into_stay_away(
    path: Path, session: Session
) -> None:
    """I9: the view ends with the question; an answer to it that comes late was given before the
    view went back.
    """
    talk(session, 0)
    late = stopped_turn(session)
    session.rewind(named(session, "ask late").id)
    come_late(late, "words")
    come_late(late, "outcome")
    assert texts(session) == [*dialogue(0), "ask late"]
    assert_same_everywhere(path, session)


def test_late_words_of_a_turn_before_the_one_that_the_view_went_back_to_stand_in_their_place(
    path: Path, session: Session
) -> None:
    """I-7."""
    late = stopped_turn(session)
    talk(session, 1, 2)
    session.rewind(named(session, "answer 1").id)
    come_late(late, "outcome")
    come_late(late, "words")
    shown = [message["content"] for message in session.context()]
    assert shown == ["ask late", None, "late outcome", "late words", *dialogue(1)]
    assert_same_everywhere(path, session)


@pytest.mark.parametrize("how", ["words", "outcome"])
def test_what_came_late_is_brought_back_with_its_turn(
    path: Path, session: Session, how: str
) -> None:
    talk(session, 0)
    late = stopped_turn(session)
    talk(session, 1)
    session.rewind(named(session, "answer 0").id)
    come_late(late, how)
    session.rewind(named(session, "answer 1").id)
    assert f"late {how}" in str(contexts(session))
    assert texts(session)[-2:] == dialogue(1)
    assert_same_everywhere(path, session)
    session.rewind(list(session.transcript())[-1].id)
    assert texts(session)[-1] == f"late {how}"
    assert_same_everywhere(path, session)


@pytest.mark.parametrize("how", ["words", "outcome"])
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_late_words_of_a_turn_that_was_rewound_away_stay_away_after_a_compaction(
    path: Path, session: Session, how: str, keep: int
) -> None:
    """I9, I-9: in a handle that has followed, in one that began with the compaction, and in a new
    one.
    """
    talk(session, 0, 1)
    late = stopped_turn(session)
    talk(session, 2)
    session.rewind(named(session, "answer 1").id)
    talk(session, 3)
    assert session.compact("a summary", keep_turns=keep) is not None or keep == 3
    with other_handle(path, durability="process") as other:
        began = other.get(session.id)
        before = contexts(began)
        come_late(late, how)
        for handle in (session, began):
            assert contexts(handle) == before
            assert "late" not in str(contexts(handle))
        talk(session, 4)
        assert contexts(began) == contexts(session)
    assert_same_everywhere(path, session)


@pytest.mark.parametrize("how", ["words", "outcome"])
def test_a_rewind_after_a_compaction_takes_late_words_along_and_keeps_the_load_short(
    path: Path, session: Session, how: str
) -> None:
    """I9: a load that begins with the compaction knows of the rewind."""
    talk(session, *range(30))
    assert session.compact("a summary", keep_turns=2) is not None
    late = stopped_turn(session)
    talk(session, "after")
    session.rewind(named(session, "answer 29").id)
    come_late(late, how)
    assert "late" not in str(contexts(session))
    with other_handle(path) as other:
        fresh = other.get(session.id)
        assert contexts(fresh) == contexts(session)
        assert fresh._log.log().since > 1
    session.rewind(named(session, "answer after").id)
    assert f"late {how}" in str(contexts(session))
    assert "a summary" in texts(session)[0]
    assert_same_everywhere(path, session)


def test_a_fork_shares_a_rewind_and_goes_its_own_way(path: Path, session: Session) -> None:
    """I9, J3: late words are the parent's; both can go back and forth by themselves."""
    talk(session, 0)
    late = stopped_turn(session)
    talk(session, 1)
    session.rewind(named(session, "answer 0").id)
    fork = session.fork()
    come_late(late, "words")
    talk(fork, "there")
    assert texts(session) == dialogue(0)
    assert texts(fork) == dialogue(0, "there")
    fork.rewind(named(session, "answer 1").id)
    assert texts(fork)[-2:] == dialogue(1)
    assert texts(session) == dialogue(0)
    for handle in (session, fork):
        assert_same_everywhere(path, handle)


# Lines
# ----------------------------------------------------------------------------------------------------------------


def test_a_rewind_leads_back_along_the_line_that_led_to_the_message(
    path: Path, session: Session
) -> None:
    """What was said on another line stays away, however often the view goes to and fro."""
    talk(session, *range(3))
    session.rewind(named(session, "answer 0").id)
    talk(session, "other")
    session.rewind(named(session, "ask other").id)
    talk(session, "third")
    lines = {
        "answer 2": dialogue(0, 1, 2),
        "answer other": dialogue(0, "other"),
        "answer third": [*dialogue(0), "ask other\n\nask third", "answer third"],
        "answer 1": dialogue(0, 1),
        "ask other": [*dialogue(0), "ask other"],
    }
    ids = {text: named(session, text).id for text in lines}
    for text in [*lines, *reversed(lines)]:
        session.rewind(ids[text])
        assert texts(session) == lines[text]
        assert_same_everywhere(path, session)


def test_what_a_compaction_left_away_is_brought_back_as_it_was_said(
    path: Path, session: Session
) -> None:
    """I-11: the summary is of another line; what led to the message is shown instead, whole."""
    talk(session, *range(3))
    session.rewind(named(session, "answer 0").id)
    talk(session, "a", "b")
    assert session.compact("a summary", keep_turns=1) is not None
    session.rewind(named(session, "answer 2").id)
    assert texts(session) == dialogue(0, 1, 2)
    assert_same_everywhere(path, session)
    session.rewind(named(session, "answer b").id)
    assert texts(session) == dialogue(0, "a", "b")
    assert_same_everywhere(path, session)


def test_a_rewind_within_what_a_list_has_shaped_keeps_the_shape(
    path: Path, session: Session
) -> None:
    """The list's own summary stays in front; what it had dropped doesn't come back with what is
    brought back.
    """
    messages = listed(*range(4))
    session.record(messages)
    messages[:4] = [user("the story so far")]
    session.record(messages)
    last = named(session, "answer 3").id
    session.rewind(named(session, "answer 2").id)
    assert texts(session) == ["the story so far\n\nask 2", "answer 2"]
    session.rewind(last)
    assert texts(session) == ["the story so far\n\nask 2", "answer 2", *dialogue(3)]
    assert_same_everywhere(path, session)
    session.rewind(named(session, "answer 1").id)
    assert texts(session) == dialogue(0, 1)
    assert_same_everywhere(path, session)


def test_what_a_list_had_dropped_before_a_rewind_is_not_shown_by_an_older_list(
    path: Path, session: Session
) -> None:
    """I9: it was said after the message that the view went back to."""
    messages = listed(*range(3))
    session.record(messages)
    session.record(messages[:4])
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        assert len(other.get(session.id).record([*listed(*range(3)), user("new")]).new) == 1
    assert texts(session) == [*dialogue(0), "new"]
    assert told(session) == [*dialogue(*range(3)), "new"]


def test_what_a_list_had_dropped_is_not_brought_back_by_an_older_list_and_a_rewind(
    path: Path, session: Session
) -> None:
    """I9: a list that is recorded while the view has gone back has no say in what is shown when it
    comes back.
    """
    session.record(listed(*range(3)))
    session.record([*listed(0), *listed(2)])
    last = named(session, "answer 2").id
    session.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as other:
        stale = other.get(session.id)
        assert stale.record(listed(*range(3))).new == ()
        session.rewind(last)
    assert texts(session) == dialogue(0, 2)
    assert_same_everywhere(path, session)


def test_a_message_in_the_inbox_is_not_rewound_to_and_the_error_says_why(
    store: Store, session: Session
) -> None:
    talk(session, 0)
    waiting = store.accept("k", "still waiting").message_id
    head = session.info().head
    with pytest.raises(Conflict, match="inbox"):
        session.rewind(waiting)
    assert session.info().head == head
    with session.turn() as turn:
        turn.say("here")
    session.rewind(waiting)
    assert texts(session) == [*dialogue(0), "still waiting"]


def test_a_call_that_was_rewound_away_is_asked_about_again(path: Path, session: Session) -> None:
    """I-22: ids are reused; an approval is for the call that was shown, not for one that says the
    same.
    """
    talk(session, 0)
    for _ in range(2):
        with session.turn("ask") as turn:
            assert turn.call("rm", {"path": "/x"}, call_id="call_0", needs_approval=True).waiting
        session.decide("call_0", True, by="ann")
        session.rewind(named(session, "answer 0").id)
    with session.turn("ask") as turn:
        assert turn.call("rm", {"path": "/x"}, call_id="call_0", needs_approval=True).waiting
    assert [call.state for call in session.calls()] == ["rewound", "rewound", "waiting"]
    assert_same_everywhere(path, session)


def test_a_late_result_of_a_turn_that_is_still_shown_takes_its_place(
    path: Path, session: Session
) -> None:
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


def test_a_message_that_waits_is_taken_after_a_rewind(
    store: Store, session: Session, path: Path
) -> None:
    """I-4."""
    talk(session, *range(3))
    store.accept("k", "still waiting")
    session.rewind(named(session, "answer 0").id)
    with session.turn() as turn:
        assert [message["content"] for message in turn.context()] == [*dialogue(0), "still waiting"]
        turn.say("here")
    assert_same_everywhere(path, session)


def test_a_message_hidden_before_a_rewind_can_be_shown_after_it(
    path: Path, session: Session
) -> None:
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


def test_a_message_that_went_on_to_another_session_was_in_no_view(
    store: Store, session: Session
) -> None:
    session.append("hello")
    receipt = store.accept("k", "moved")
    with store.turn("other", take=[receipt]) as turn:
        turn.say("here")
    [moved] = [message.id for message in session.transcript() if message.text == "moved"]
    with pytest.raises(NotFound, match="went on to another session"):
        session.rewind(moved)
    assert texts(session.fork(moved)) == ["hello\n\nmoved"]
    with pytest.raises(NotFound, match="take the id from"):
        session.rewind("0" * 32)
