"""Two machines, one store: processes that share nothing but the database agree on keys, events,
turns and chunks.
"""

from collections.abc import Iterator

import pytest

import holdfast
import procs
from holdfast.errors import AlreadyAccepted, SessionBusy, SessionEnded, TurnInterrupted
from looking import ends

EVENTS = 25


@pytest.fixture
def store(database: str) -> Iterator[holdfast.Store]:
    with holdfast.open(database) as opened:
        yield opened


DELIVERED = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        say("ready")
        while (event := hear()):
            try:
                with store.turn("k", f"question {event}", event_id=event) as turn:
                    turn.say(f"answer {event}")
                say("turn", turn.id)
            except holdfast.errors.AlreadyAccepted as accepted:
                say("again", accepted.turn_id)
"""


@pytest.mark.slow
def test_an_event_that_is_delivered_to_both_machines_is_one_turn(database, store):
    """I-2, C1: at the same moment, over and over; the second one is told which turn it was."""
    with procs.child(DELIVERED, database) as a, procs.child(DELIVERED, database) as b:
        for each in (a, b):
            each.wait_for("ready")
        for number in range(EVENTS):
            for each in (a, b):
                each.tell(f"event-{number}")
            said = sorted(each.line() or "" for each in (a, b))
            assert [line.split()[0] for line in said] == ["again", "turn"], said
            assert said[0].split()[1] in (said[1].split()[1], "None"), "both name the same turn"
        for each in (a, b):
            each.tell("")
            each.end()
    session = store.session("k")
    assert sorted(m.text for m in session.transcript()) == sorted(
        f"{word} event-{number}" for number in range(EVENTS) for word in ("question", "answer")
    )
    assert all(len(found) == 1 for found in ends(store, session.id).values())


RESETS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        session = store.session("k")
        with session.turn("hello") as turn:
            turn.say("from there")
        say("ready", session.id)
        hear()
        say("reset", store.reset("k").id)
        hear()
"""


@pytest.mark.slow
def test_a_reset_on_one_machine_is_seen_by_the_next_turn_on_the_other(database, store):
    """I-8, A3: the handle from before can't start a turn, and the key means the new session."""
    with procs.child(RESETS, database) as other:
        before = store.get(other.wait_for("ready"))
        assert len(before.context()) == 2
        other.tell()
        after = other.wait_for("reset")
        with store.turn("k", "again") as turn:
            assert [message["content"] for message in turn.context("openai.chat")] == ["again"]
            assert turn.id.startswith(after)
        with pytest.raises(SessionEnded) as ended, before.turn("late"):
            pass
        assert ended.value.current_id == after
        other.tell()
        other.end()


SPEAKS = """
    import holdfast
    def pieces():
        while (piece := hear()):
            yield piece
    with holdfast.open(sys.argv[1]) as store, store.turn("k", "go") as turn:
        say("running")
        for text in turn.deliver(pieces()):
            say("shown", text)
"""


@pytest.mark.slow
def test_a_follower_on_one_machine_sees_chunks_written_on_the_other_as_they_are_written(
    database, store
):
    """I-5, I-15: each before the next is spoken, while the turn runs."""
    with procs.child(SPEAKS, database) as other:
        other.wait_for("running")
        events = (event for event in store.session("k").follow() if event.text)
        assert next(events).text == "go"
        for number in range(20):
            other.tell(f"<{number}>")
            assert other.wait_for("shown") == f"<{number}>"
            event = next(events)
            assert (event.kind, event.text) == ("chunk", f"<{number}>")
        other.tell("")
        other.end()


ELSEWHERE = """
    import holdfast
    from holdfast.runtime.store import open_store
    from looking import HandWorld
    world = HandWorld()
    world.ahead_s = float(sys.argv[2])
    with open_store(sys.argv[1], world=world) as store:
        with store.turn("k", "from there", lease_s=5) as turn:
            say("running", turn.id)
            hear()
            say(*[text for text in turn.deliver(iter(["still", "mine"]))])
        say("left")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_machines_whose_clocks_are_an_hour_apart_agree_on_who_holds_a_turn(
    database, store, ahead_s
):
    """I-6: leases are the database's business; neither clock makes a running turn look dead."""
    with procs.child(ELSEWHERE, database, ahead_s) as other:
        running = other.wait_for("running")
        with pytest.raises(SessionBusy) as busy, store.turn("k", "from here", on_busy="refuse"):
            pass
        assert busy.value.turn_id == running
        other.tell()
        assert other.line() == "still mine"
        other.wait_for("left")
        other.end()
    session = store.session("k")
    with session.turn("from here") as turn:
        turn.say("now it is free")
    assert [found for found in ends(store, session.id).values()] == [["completed"], ["completed"]]


@pytest.mark.slow
def test_a_machine_that_stands_still_loses_its_turn_when_its_lease_is_over(database, store):
    """I-6, I-7: the other one goes on; what it had shown is kept, and it learns that it was
    overtaken.
    """
    with procs.child(STANDS_STILL, database) as other:
        other.wait_for("shown")
        other.freeze()
        with store.turn("k", "from here") as turn:
            turn.say("taken over")
        other.thaw()
        other.tell()
        other.wait_for("overtaken")
        other.end()
    session = store.session("k")
    said = {message.text: message.turn for message in session.transcript()}
    assert said["from there"] == said["shown"] != said["from here"] == said["taken over"]
    assert [found for found in ends(store, session.id).values()] == [["abandoned"], ["completed"]]


STANDS_STILL = """
    import holdfast
    from holdfast.errors import TurnInterrupted
    with holdfast.open(sys.argv[1]) as store:
        try:
            with store.turn("k", "from there", lease_s=1) as turn:
                pieces = turn.deliver(iter(["shown", "too late"]))
                say(next(pieces))
                hear()
                list(pieces)
        except TurnInterrupted:
            say("overtaken")
"""


def test_an_accepted_message_is_known_to_both(database, store):
    """I-4: received here, answered there; the same event again is the same receipt."""
    first = store.accept("k", "hello", event_id="e")
    with holdfast.open(database) as other:
        again = other.accept("k", "hello", event_id="e")
        assert (again.message_id, again.again) == (first.message_id, True)
        with pytest.raises(AlreadyAccepted), other.turn("k", "hello", event_id="e"):
            pass
        with other.session("k").turn() as turn:
            turn.say("hi")
    assert store.session("k").pending() == []
    assert [message.text for message in store.session("k").transcript()] == ["hello", "hi"]


def test_a_writer_that_was_stopped_elsewhere_stores_no_further_chunk(database, store):
    """I-7: one chunk after the other, each a statement of its own; another machine stops the turn
    between two.
    """
    session = store.session("k")
    with holdfast.open(database) as elsewhere, pytest.raises(TurnInterrupted):
        with session.turn("go on") as turn:
            pieces = turn.deliver(iter(["one ", "two ", "three"]))
            assert [next(pieces), next(pieces)] == ["one ", "two "]
            elsewhere.session("k").stop("enough")
            assert next(pieces) is None, "it was shown"
    said = [message.text for message in session.transcript() if message.role == "assistant"]
    assert said == ["one two "] and [len(each) for each in ends(store, session.id).values()] == [1]
