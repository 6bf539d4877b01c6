"""A turn takes messages that wait in another session: accepted under a key of the gateway's own,
answered in the session that is known only later (I-4).
"""

import asyncio
import threading

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted, BadArgument, InvalidMessage, NotFound
from holdfast.testing.oracle import judge
from looking import other_handle
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres("which message a turn may take is decided in `runtime/turns`")

LIMIT_S = 60.0


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def said(session):
    return [message.text for message in session.transcript()]


def waiting(session):
    return [message.text for message in session.pending()]


def test_a_message_is_answered_in_the_session_whose_turn_takes_it(store):
    first = store.accept("inbox", "first", event_id=1)
    second = store.accept("inbox", "second", event_id=2)
    inbox, session = store.session("inbox"), store.session("conversation")
    with session.turn(take=[first]) as turn:
        assert list(turn.context()) == [{"role": "user", "content": "first"}]
        turn.say("yes")
    assert said(session) == ["first", "yes"]
    assert waiting(inbox) == ["second"]
    with session.turn("and mine", take=[second]) as turn:
        turn.say("both")
    assert said(session) == ["first", "yes", "second", "and mine", "both"]
    assert next(m.id for m in session.transcript()) == first.message_id
    assert list(inbox.context()) == []
    assert judge(store) == []


def test_a_running_turn_takes_just_those_that_are_named(store):
    session = store.session("conversation")
    with session.turn("go") as turn:
        turn.say("going")
        steer = store.accept("inbox", "left!")
        store.accept("inbox", "another time")
        own = store.accept("conversation", "own, and not named")
        assert [message.text for message in turn.inbox(take=[steer])] == ["left!"]
        assert turn.inbox(take=[]) == []
        with pytest.raises(NotFound):
            turn.inbox(take=[steer])
        turn.say("left")
    assert said(session) == ["go", "going", "own, and not named", "left!", "left"]
    assert [m.id for m in session.pending()] == [own.message_id]
    assert [m.text for m in store.pending()] == ["another time", "own, and not named"]
    assert judge(store) == []


def test_what_is_pending_in_the_store_can_be_named(store):
    store.accept("inbox", "from before")
    [found] = store.pending()
    with store.turn("conversation", take=[found]) as turn:
        turn.say("now")
    assert said(store.session("conversation")) == ["from before", "now"]
    assert list(store.pending()) == []


def test_the_same_event_is_known_though_its_message_has_moved(store):
    receipt = store.accept("inbox", "once", event_id="e")
    session = store.session("conversation")
    with session.turn(take=[receipt]) as turn:
        turn.say("yes")
    again = store.accept("inbox", "once", event_id="e")
    assert (again.message_id, again.again) == (receipt.message_id, True)
    with pytest.raises(AlreadyAccepted) as told:
        store.turn("inbox", "once", event_id="e")
    assert (told.value.session_id, told.value.turn_id) == (session.id, turn.id)


def test_what_does_not_wait_is_not_found_and_nothing_is_started(store):
    receipt = store.accept("inbox", "gone")
    with store.turn("conversation", take=[receipt]) as turn:
        turn.say("taken")
    session, inbox = store.session("conversation"), store.session("inbox")
    before = (list(session.entries()), list(inbox.entries()))
    with pytest.raises(NotFound):
        session.turn(take=[receipt])
    strange = holdfast.Receipt("0" * 32, receipt.message_id)
    with pytest.raises(NotFound):
        session.turn(take=[strange])
    assert (list(session.entries()), list(inbox.entries())) == before


def test_another_tenants_messages_are_as_good_as_none(store):
    receipt = store.for_tenant("else").accept("inbox", "private")
    with pytest.raises(NotFound):
        store.turn("conversation", take=[receipt])
    assert waiting(store.for_tenant("else").session("inbox")) == ["private"]


def test_a_message_that_a_reset_has_carried_on_is_found(store):
    receipt = store.accept("inbox", "still here")
    store.reset("inbox")
    with store.turn("conversation", take=[receipt]) as turn:
        turn.say("yes")
    assert said(store.session("conversation")) == ["still here", "yes"]
    assert list(store.pending()) == []
    assert judge(store) == []


def test_of_two_sessions_that_want_one_message_one_has_it(store, where):
    receipt = store.accept("inbox", "once")
    outcomes = []
    gate = threading.Barrier(4)

    def taking(number):
        with other_handle(where) as other:
            session = other.session(f"conversation {number}")
            gate.wait(LIMIT_S)
            try:
                with session.turn(take=[receipt]) as turn:
                    turn.say("mine")
                outcomes.append("taken")
            except NotFound:
                outcomes.append("not there")

    threads = [threading.Thread(target=taking, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(outcomes) == ["not there"] * 3 + ["taken"]
    assert judge(store) == []


def test_a_turn_that_is_killed_before_it_said_anything_gives_it_back_where_it_was_asked(where):
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        receipt = store.accept("inbox", "hello", event_id="e", labels={"chat": 7})
        turn = store.turn("conversation", take=[receipt])
        say("running")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("running")
        other.kill()
    with holdfast.open(where) as store:
        [found] = store.pending()
        assert (found.text, found.key, found.labels) == ("hello", "conversation", {"chat": 7})
        with store.turn("conversation") as turn:
            turn.say("hello again")
        assert said(store.session("conversation")) == ["hello", "hello again"]
        assert judge(store) == []


def test_labels_lie_beside_the_message_and_go_where_it_goes(store):
    beside = {"source": {"platform": "telegram", "chat_id": "7"}, "media": ["/tmp/a.png"]}
    receipt = store.accept("inbox", "look", labels=beside)
    [found] = store.pending()
    [waits] = store.session("inbox").pending()
    assert found.labels == waits.labels == beside
    session = store.session("conversation")
    with session.turn(take=[receipt]) as turn:
        assert list(turn.context()) == [{"role": "user", "content": "look"}]
        turn.say("I see")
    assert [m.labels for m in session.transcript()] == [beside, {}]


@pytest.mark.parametrize("wrong", ["abc", 7, ["a"], {1: 2}, {"visible_to_model": "no"}])
def test_labels_that_are_none_are_refused_and_nothing_is_stored(store, wrong):
    with pytest.raises(BadArgument):
        store.accept("inbox", "x", labels=wrong)
    with pytest.raises((BadArgument, InvalidMessage)):
        store.accept("inbox", "x", labels={"a": object()})
    assert list(store.pending()) == []


def test_a_message_can_be_accepted_that_the_model_is_not_to_see(store):
    store.accept("k", "for the log alone", labels={"visible_to_model": False})
    with store.turn("k", "and this for you") as turn:
        assert list(turn.context()) == [{"role": "user", "content": "and this for you"}]
        turn.say("yes")
    assert said(store.session("k"))[0] == "for the log alone"


def test_erasing_the_session_that_answered_takes_the_words_from_where_they_waited(store):
    kept = store.accept("inbox", "stays")
    receipt = store.accept("inbox", "secret words", labels={"name": "secret name"})
    session, inbox = store.session("conversation"), store.session("inbox")
    with session.turn(take=[receipt]) as turn:
        turn.say("answer")
    erased = store.erase(session.id)
    assert erased.copies == (inbox.id,)
    assert [m.state for m in inbox.transcript()] == ["pending", "erased"]
    assert not any(b"secret" in e.note + e.body for e in inbox.entries())
    with store.turn("next", take=[kept]) as turn:
        turn.say("fine")
    assert judge(store) == []


def test_a_copy_of_the_store_tells_the_same(store, where, tmp_path):
    receipt = store.accept("inbox", "hello", labels={"chat": 7})
    with store.turn("conversation", take=[receipt]) as turn:
        turn.say("hi")
    store.accept("inbox", "waits")
    target = tmp_path / "copy.db"
    holdfast.copy(where, target)
    with holdfast.open(target) as copied:
        assert said(copied.session("conversation")) == ["hello", "hi"]
        assert [m.text for m in copied.pending()] == ["waits"]
        assert judge(copied) == []


def test_on_an_event_loop(where):
    async def scene():
        async with holdfast.open_async(where) as store:
            one = await store.accept("inbox", "one", labels={"n": 1})
            two = await store.accept("inbox", "two")
            session = await store.session("conversation")
            async with session.turn(take=[one]) as turn:
                await turn.say("here")
                taken = await turn.inbox(take=[two])
                await turn.say("and here")
            return [message.text for message in taken], [m.text async for m in session.transcript()]

    taken, told = asyncio.run(scene())
    assert taken == ["two"]
    assert told == ["one", "here", "two", "and here"]


def test_an_inbox_is_read_once_however_many_of_its_messages_are_taken(store, monkeypatch):
    receipts = [store.accept("inbox", f"word {number}") for number in range(30)]
    session, inbox = store.session("conversation"), store.session("inbox").id
    engine, read = store._work.engine, []
    ask = engine.inbox

    def counted(place, *given, **options):
        read.append(place)
        return ask(place, *given, **options)

    monkeypatch.setattr(engine, "inbox", counted)
    with session.turn(take=receipts) as turn:
        turn.say("all of them")
    assert said(session) == [*(f"word {number}" for number in range(30)), "all of them"]
    assert 0 < read.count(inbox) <= 3
