"""Ctrl-C at every line of a reading (I-9): what a handle keeps for the next time is as it was
before, or forgotten, but never half of something.

After each interrupt the same handle is asked again, and tells what a new one tells.
"""

import asyncio
import contextlib

import pytest

import holdfast
from holdfast.runtime.live import session_log
from interrupting import Interrupt, points

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
OUTCOME = {"role": "tool", "tool_call_id": "c", "content": "done"}


def speak(session, number):
    """A little of all that changes what is shown, for a handle that has read the rest."""
    ids = session.append_all(["q", {"role": "assistant", "content": f"a{number}"}, "hidden"])
    session.label(ids[-1], visible_to_model=False, n=number)
    with session.turn(f"t{number}", take=[]) as turn:
        turn.add_all([CALL, OUTCOME])
        turn.say("well")
    end = session.append(f"end {number}")
    session.append(f"gone {number}")
    session.rewind(end)


def seen(session):
    """All that is told of a session from what its handle keeps."""
    return {
        "context": list(session.context()),
        "pending": [message.id for message in session.pending()],
        "transcript": [(m.id, m.text, m.labels, m.state) for m in session.transcript()],
        "info": session.info(),
        "by seq": [message.id for message in session._log.history().by_seq],
    }


ACTS = [
    lambda session: session.pending(),
    lambda session: session.context(),
    lambda session: session._log.history(),
    lambda session: session.info(),
    lambda session: session._log.labels(),
]
"""Whatever is told of a session, in an order in which each finds something to do."""
WHERE_IT_IS_KEPT = ("domain/log", "runtime/live")


@pytest.fixture
def talk(store, monkeypatch):
    """A session of several pages: a fork, compacted, with messages that wait."""
    monkeypatch.setattr(session_log, "PAGE", 7)
    past = store.session("past")
    past.instructions("Be brief.")
    speak(past, 0)
    talk = past.fork(key="k")
    speak(talk, 1)
    talk.compact(lambda _: "so far", keep_turns=1)
    speak(talk, 2)
    store.accept("k", "waits")
    return talk


def lines_of(act, handle, only=WHERE_IT_IS_KEPT):
    count = Interrupt(only=only)
    with count:
        act(handle)
    return count.lines


def interrupted(act, handle, at, only=WHERE_IT_IS_KEPT):
    point = Interrupt(at=at, only=only)
    with contextlib.suppress(KeyboardInterrupt), point:
        act(handle)
    assert point.reached
    return point.where


def asked_before(handle, index):
    for act in ACTS[:index]:
        act(handle)
    return handle


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(ACTS)))
def test_a_first_reading_that_was_interrupted_anywhere_leaves_nothing_half_read(store, talk, index):
    expected, act = seen(store.session("k")), ACTS[index]
    for at in points(lines_of(act, asked_before(store.session("k"), index)), step=11):
        handle = asked_before(store.session("k"), index)
        where = interrupted(act, handle, at)
        assert seen(handle) == expected, where


def test_a_context_that_was_interrupted_at_any_line_as_it_was_made_is_made_anew(store):
    """The few lines that make one are all tried: what is kept of it grows in two of them."""
    session = store.session("k")
    session.append_all(["q", {"role": "assistant", "content": "a"}] * 3)
    session.append_all(["q", CALL, OUTCOME, {"role": "assistant", "content": "well"}, "q"])
    whole = list(session.context())
    making = ("runtime/live/context.py",)
    for at in range(1, lines_of(ACTS[1], store.session("k"), making) + 1):
        handle = store.session("k")
        where = interrupted(ACTS[1], handle, at, making)
        assert list(handle.context()) == whole, where


@pytest.mark.slow
def test_going_on_with_what_was_read_may_be_interrupted_anywhere_and_again(store):
    """One handle, interrupted again and again, each time with something new to read."""
    for number, act in enumerate(ACTS):
        handle, other = store.session(f"{number}"), store.session(f"{number}")
        speak(other, 0)
        seen(handle)
        speak(other, 0)
        for at in points(lines_of(act, handle), step=37):
            speak(other, at)
            where = interrupted(act, handle, at)
            assert seen(handle) == seen(store.session(f"{number}")), where


@pytest.mark.slow
def test_a_list_that_is_recorded_after_an_interrupt_is_not_stored_twice(store, talk):
    """`record` compares a list with what was read: a message that is missing there is new to it."""
    listed = [dict(payload) for payload in store.session("k").context()]
    act = ACTS[1]
    for at in points(lines_of(act, store.session("k")), step=41):
        handle = store.session("k")
        where = interrupted(act, handle, at)
        assert handle.record(listed).new == (), where


def test_what_an_interrupted_reading_leaves_is_read_by_another_thread(path):
    """As a store on an event loop reads."""

    async def main():
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            await session.append_all(["q", {"role": "assistant", "content": "a"}] * 3)
            whole = list(await session.context())
            log = session._log
            log._forget()
            for at in points(lines_of(lambda log: log.context("openai.chat"), log), step=5):
                log._forget()
                interrupted(lambda log: log.context("openai.chat"), log, at)
                assert list(await session.context()) == whole

    asyncio.run(main())
