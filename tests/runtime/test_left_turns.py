"""A turn that is left while the store can't be written: its end is stored as soon as it can be, as
it was left (I-6).

Nobody works on such a turn any more, so nobody should wait for it: not until its lease runs out,
and not for as long as somebody still holds the error that was raised out of it.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Store
from holdfast.domain.entry import note_of
from holdfast.errors import StoreUnavailable
from holdfast.runtime.changes import end_session
from holdfast.testing.faults.disk import LASTING, WRITING, Faults
from holdfast.testing.oracle import judge
from looking import end_notes, ends, other_handle, told, when

LIMIT_S = 30


class Disk:
    """A disk that fills up and is freed again."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def fill(self) -> None:
        self._faults.fail_at(self._faults.count + 1)

    def free(self) -> None:
        self._faults.heal()


@pytest.fixture
def disk() -> Iterator[Disk]:
    with Faults(trouble="full", times=LASTING, verbs=WRITING) as faults:
        yield Disk(faults)


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(tmp_path / "agent.db") as store:
        yield store


def test_a_turn_that_was_completed_on_a_full_disk_is_completed_by_the_next_one(
    store: Store, disk: Disk
) -> None:
    """I-6, I-23: with its own end, and its reply owed; though its error is still held."""
    session = store.session("k")
    with pytest.raises(StoreUnavailable) as held:
        with session.turn("one", reply_to="desk") as turn:
            turn.say("All of it.")
            disk.fill()
    disk.free()
    with session.turn("two"):
        pass
    assert held.value is not None and turn.id
    assert list(ends(store, session.id).values()) == [["completed"], ["completed"]]
    assert [owed.text for owed in store.outbox()] == ["All of it."]
    assert judge(store) == []


def test_what_was_shown_before_the_disk_was_full_is_in_the_transcript(
    store: Store, disk: Disk
) -> None:
    """I-5, A1: its message could not be stored when the stream broke; the turn's end has it."""
    session, shown = store.session("k"), []
    with pytest.raises(StoreUnavailable):
        with session.turn("one") as turn:
            for text in turn.deliver(["Once ", "upon ", "a time"]):
                shown.append(text)
                if text == "upon ":
                    disk.fill()
    disk.free()
    [_, (role, text, state)] = told(session)
    assert (role, state) == ("assistant", "partial")
    assert text.startswith("".join(shown)) and shown == ["Once ", "upon "]
    assert [note.end for note in end_notes(store, session.id)] == ["failed"]
    assert judge(store) == []


def test_a_message_that_was_shown_whole_is_stored_whole_though_the_disk_was_full_at_its_end(
    store: Store, disk: Disk
) -> None:
    """I-5: the caller goes on in the same turn, once there is room."""
    session = store.session("k")
    with session.turn("one") as turn:
        with pytest.raises(StoreUnavailable):
            for text in turn.deliver(["Once ", "upon"]):
                if text == "upon":
                    disk.fill()
        disk.free()
        turn.say("Sorry for that.")
    assert {
        ("assistant", "Once upon", "complete"),
        ("assistant", "Sorry for that.", "complete"),
    } <= set(told(session))
    assert list(ends(store, session.id).values()) == [["completed"]]
    assert judge(store) == []


@pytest.mark.slow
def test_the_keeper_ends_it_when_nobody_looks(store: Store, disk: Disk) -> None:
    session = store.session("k")
    with pytest.raises(StoreUnavailable):
        with session.turn("one") as turn:
            turn.say("All of it.")
            disk.fill()
    disk.free()
    # News may be of something else: a watcher is woken whenever the engine can't tell.
    when(session, lambda: any(ends(store, session.id).values()))
    assert list(ends(store, session.id).values()) == [["completed"]]


def test_closing_the_store_ends_it(tmp_path: Path, disk: Disk) -> None:
    with holdfast.open(tmp_path / "agent.db") as store:
        session = store.session("k")
        with pytest.raises(StoreUnavailable):
            with session.turn("one") as turn:
                turn.say("All of it.")
                disk.fill()
        disk.free()
    with other_handle(tmp_path / "agent.db") as store:
        assert list(ends(store, session.id).values()) == [["completed"]]


def test_the_block_s_own_error_is_raised_on_and_is_how_the_turn_ends(
    store: Store, disk: Disk
) -> None:
    session = store.session("k")
    with pytest.raises(ZeroDivisionError) as raised:
        with session.turn("one"):
            disk.fill()
            raise ZeroDivisionError
    assert any("could not be ended" in note for note in raised.value.__notes__)
    disk.free()
    assert session.info().state == "open"
    assert [(note.end, note.error) for note in end_notes(store, session.id)] == [
        ("failed", "ZeroDivisionError")
    ]


def test_a_whole_message_is_told_once_though_its_turn_was_left_and_its_chunks_are_still_there(
    store: Store,
) -> None:
    """I-2: whoever settles the turn reads the journal, and knows what was entered."""
    session = store.session("k")
    turn = session.turn("Hi")
    assert "".join(turn.deliver(iter(["All ", "of it."]))) == "All of it."
    del turn
    with session.turn("Again") as second:
        second.say("Yes.")
    assert [message.text for message in session.transcript()] == [
        "Hi",
        "All of it.",
        "Again",
        "Yes.",
    ]
    found = judge(store)
    assert not found, "\n".join(found)


def test_a_call_that_could_not_be_stored_can_be_made_again(store: Store, disk: Disk) -> None:
    """I-22: the model's own call is started once, and answered once."""
    session = store.session("k")
    asked = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}  # fmt: skip
    with session.turn("one") as turn:
        turn.add(asked)
        disk.fill()
        with pytest.raises(StoreUnavailable):
            turn.call("look", "{}", call_id="c1")
        disk.free()
        turn.call("look", "{}", call_id="c1")
        disk.fill()
        with pytest.raises(StoreUnavailable):
            turn.result("c1", "seen")
        disk.free()
        turn.result("c1", "seen")
    assert [(call.call_id, call.state) for call in session.calls()] == [("c1", "done")]
    kinds = [entry.kind for entry in session.entries()]
    assert kinds.count("call") == 1 and kinds.count("message") == 3
    notes = [
        note_of("message", entry.note) for entry in session.entries() if entry.kind == "message"
    ]
    assert notes[-1].target is not None, "it still says which call it answers"
    assert judge(store) == []


def test_a_stop_that_broke_off_in_the_middle_is_carried_on_by_the_next_one(
    store: Store, disk: Disk
) -> None:
    """I-6: the turn was seized, and could neither be ended nor let go of; nobody waits for that."""
    session = store.session("k")
    running = session.turn("one")
    running.say("Well,")
    plan = end_session.stop(session._log, "enough")
    request = next(plan)
    while not hasattr(request, "done"):  # up to the seizure, the first commit
        request = plan.send(request.work())
    outcome = request.result()
    disk.fill()
    request = plan.send(outcome)
    with pytest.raises(StoreUnavailable):
        while True:
            try:
                answer = request.work() if hasattr(request, "work") else request.result()
            except StoreUnavailable as trouble:
                request = plan.throw(trouble)
            else:
                request = plan.send(answer)
    disk.free()
    with session.turn("two", on_busy="refuse"):
        pass
    assert list(ends(store, session.id).values()) == [["interrupted"], ["completed"]]
    assert judge(store) == []


def test_the_same_for_asyncio(tmp_path: Path, disk: Disk) -> None:
    async def scene() -> None:
        async with await holdfast.open_async(tmp_path / "agent.db") as store:
            session = await store.session("k")
            with pytest.raises(StoreUnavailable) as held:
                async with session.turn("one", reply_to="desk") as turn:
                    await turn.say("All of it.")
                    disk.fill()
            disk.free()
            async with session.turn("two"):
                pass
            assert held.value is not None
            assert [owed.text for owed in await store.outbox()] == ["All of it."]

    asyncio.run(asyncio.wait_for(scene(), LIMIT_S))
    with other_handle(tmp_path / "agent.db") as store:
        assert list(ends(store, store.session("k").id).values()) == [["completed"], ["completed"]]
        assert judge(store) == []
