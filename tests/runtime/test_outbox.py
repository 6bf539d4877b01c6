"""The outbox: what stands is owed, once, in order, and to one sender at a time (I-23)."""

import asyncio
import threading

import pytest

import holdfast
from holdfast.domain.entry import Retracted
from holdfast.engine.protocol import Write
from holdfast.errors import BadArgument
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres(
    "what is owed is folded in `domain`; an engine's outbox has its laws in the conformance suite",
    every=3,
)


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


def texts(owed):
    return [one.text for one in owed]


def reply(store, text, key="k", to="ann"):
    with store.turn(key, "hello", reply_to=to) as turn:
        turn.say(text)


def test_what_was_retracted_is_not_owed(store):
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("Wrong.")
        turn.retract("retried")
        turn.say("Right.")
    assert texts(store.outbox()) == ["Right."]


def test_a_turn_that_has_nothing_left_to_say_owes_nothing(store):
    with store.turn("k", "hello", reply_to="ann"):
        pass
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("Wrong.")
        turn.retract("never mind")
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.result(turn.call("look", {}), "seen")
        turn.say("  \n")
    assert store.outbox() == []
    assert store._work.engine.debts(store.session("k").id) == [], "nor is anything noted"


def test_what_the_model_does_not_see_is_owed_all_the_same(store):
    reply(store, "A notice.")
    session = store.session("k")
    session.label(list(session.transcript())[-1].id, visible_to_model=False)
    assert texts(store.outbox()) == ["A notice."]


def test_what_was_summed_up_since_is_owed_in_every_process(store, where):
    """A load begins with the summary: of a turn that it covers, the end alone may come after where
    the load begins, because something waited in the inbox then.
    """
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("All of it.")
        store.accept("k", "later")
    store.session("k").compact("They said hello.", keep_turns=0)
    with holdfast.open(where, durability="process") as other:
        assert texts(other.outbox()) == ["All of it."]
        [owed] = other.outbox(claim_s=30)
        owed.sent()
    assert store.outbox() == []


def test_what_a_turn_has_summed_up_itself_is_owed(store, where):
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("The first half.")
        store.accept("k", "one more thing", reply_to="bob")
        turn.inbox()
        store.session("k").compact("Half of it was said.", keep_turns=0)
    with holdfast.open(where, durability="process") as other:
        assert [(owed.reply_to, owed.text) for owed in other.outbox()] == [
            ("ann", "The first half."),
            ("bob", "The first half."),
        ]


def test_several_addressees_are_owed_in_the_order_they_asked(store):
    for number in range(5):
        for name in ("zoe", "ann", "mia", "bob"):
            store.accept("k", f"question {number}", reply_to=f"{name} {number}")
        with store.session("k").turn() as turn:
            turn.say(f"answer {number}")
    expected = [f"{name} {number}" for number in range(5) for name in ("zoe", "ann", "mia", "bob")]
    assert [owed.reply_to for owed in store.outbox()] == expected


def test_one_who_asked_twice_is_owed_one_reply(store):
    for text in ("one", "two"):
        store.accept("k", text, reply_to="ann")
    with store.session("k").turn("three", reply_to="bob") as turn:
        turn.say("All of it.")
    assert [(owed.reply_to, owed.text) for owed in store.outbox()] == [
        ("bob", "All of it."),
        ("ann", "All of it."),
    ]


def test_debts_without_words_hide_no_others(store):
    """Releases before this one noted them."""
    session = store.session("k")
    with session.turn("hello", reply_to="ann") as turn:
        turn.say("Hi.")
    log = session._log.log()
    reply(store, "Here.")
    assert texts(store.outbox(limit=1)) == ["Hi."]
    log.retracted.update(message.id for message in session.transcript() if message.text == "Hi.")
    assert texts(store.outbox(limit=2)) == ["Hi.", "Here."], "another handle reads the log itself"


def test_a_debt_of_which_every_word_was_retracted_is_not_handed_out(store):
    """Releases before this one noted debts of silent turns: they stay, and nobody sends an empty
    reply.
    """
    reply(store, "Wrong.")
    session = store.session("k")
    [message] = [message for message in session.transcript() if message.text == "Wrong."]
    session_log = session._log
    session_log.submit(
        Write(
            session_log.id,
            drafts=(session_log.draft("retract", Retracted((message.id,), "older"), turn=1),),
        )
    ).result()
    reply(store, "Right.")
    assert texts(store.outbox()) == ["Right."]
    assert len(store._work.engine.debts(session.id)) == 2


def test_a_claimed_reply_is_given_to_nobody_else(store, where):
    for number in range(3):
        reply(store, f"answer {number}")
    assert texts(store.outbox(limit=2, claim_s=60)) == ["answer 0", "answer 1"]
    with holdfast.open(where) as other:
        mine = other.outbox(claim_s=60)
        assert texts(mine) == ["answer 2"]
        assert other.outbox(claim_s=60) == []
        assert len(other.outbox()) == 3, "a look without a claim shows all that is owed"
        mine[0].failed("no network")
    assert texts(store.outbox(claim_s=60)) == ["answer 2"], "it was given back"


def test_a_claim_that_ran_out_is_given_to_the_next(store):
    reply(store, "answer")
    [first] = store.outbox(claim_s=0.05)
    second = []
    while not second:
        second = store.outbox(claim_s=60)
    first.failed("late")
    assert store.outbox(claim_s=60) == [], "a claim is given back by the one that has it"
    second[0].sent("m1")
    assert store.outbox() == []


@pytest.mark.slow
def test_many_senders_send_each_reply_once(store, where):
    for number in range(40):
        reply(store, f"answer {number}", key=f"k{number % 5}")
    sent, lock, gate = [], threading.Lock(), threading.Barrier(8)
    others = [holdfast.open(where, durability="process") for _ in range(2)]

    def send(handle):
        gate.wait()
        while owed := handle.outbox(limit=7, claim_s=60):
            for one in owed:
                with lock:
                    sent.append(one.id)
                one.sent()

    senders = [
        threading.Thread(target=send, args=(handle,)) for handle in [store, *others, store] * 2
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    for other in others:
        other.close()
    assert len(sent) == len(set(sent)) == 40
    assert store.outbox() == []


@pytest.mark.slow
def test_processes_send_each_reply_once_and_what_a_killed_one_had_is_given_back(store, where):
    for number in range(6):
        reply(store, f"answer {number}")
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        say("ready")
        hear()
        owed = store.outbox(limit=4, claim_s=float(sys.argv[2]))
        say("claimed", *sorted(one.id for one in owed))
        hear()
    """
    with child(script, where, "2") as one, child(script, where, "60") as two:
        for each in (one, two):
            each.wait_for("ready")
            each.tell("go")
        claimed = [each.wait_for("claimed").split() for each in (one, two)]
        one.kill()
        two.kill()
    assert len({*claimed[0], *claimed[1]}) == len(claimed[0]) + len(claimed[1])
    back = []
    while len(back) < 6 - len(claimed[1]):
        back += [owed.id for owed in store.outbox(claim_s=60)]
        threading.Event().wait(0.02)
    assert not {*back} & {*claimed[1]}


@pytest.mark.parametrize("claim_s", [0, -1, float("nan"), float("inf"), "60"])
def test_a_claim_takes_seconds(store, claim_s):
    with pytest.raises(BadArgument):
        store.outbox(claim_s=claim_s)


def test_a_turn_confirms_its_own_reply(store):
    with store.turn("k", "hello", reply_to="ann") as turn:
        list(turn.deliver(iter(["Good ", "day."])))
        turn.sent("m1")
    assert store.outbox() == []
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("Good night.")
    turn.sent("m2")
    turn.sent("m2")
    assert store.outbox() == []


def test_what_a_turn_says_after_it_has_confirmed_is_owed(store, where):
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("Streamed.")
        turn.sent()
        turn.say("And this.")
    with holdfast.open(where) as other:
        assert texts(other.outbox()) == ["And this."]
    turn.sent()
    assert store.outbox() == []


def test_confirming_one_turn_confirms_no_other(store):
    reply(store, "First.")
    with store.turn("k", "hello", reply_to="ann") as turn:
        turn.say("Second.")
    turn.sent()
    assert texts(store.outbox()) == ["First."]


def test_asyncio_claims_and_confirms_alike(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("hello", reply_to="ann") as turn:
                await turn.say("Hi.")
                await turn.sent("m1")
            assert await store.outbox() == []
            async with session.turn("hello", reply_to="ann") as turn:
                await turn.say("Bye.")
            [owed] = await store.outbox(claim_s=60)
            assert await store.outbox(claim_s=60) == []
            await owed.failed("no network")
            [owed] = await store.outbox(claim_s=60)
            await owed.sent()
            assert await store.outbox() == []

    asyncio.run(story())


@pytest.mark.parametrize("claim_s", [None, 30])
@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_erased_meanwhile_is_owed_no_more(store, claim_s, confirmed):
    reply(store, "hi")
    [owed] = store.outbox(claim_s=claim_s)
    if confirmed:
        owed.sent()
    session = store.session("k")
    store.erase(session.id)
    before = list(session.entries())
    owed.sent()
    owed.failed("unreachable")
    owed.sent("platform id")
    assert list(session.entries()) == before and store.outbox() == []
