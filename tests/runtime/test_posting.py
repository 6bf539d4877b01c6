"""What comes in and what is owed: receipts, the inbox, the outbox (I-4, I-23; FAULTS A4-A8, A10,
C2).
"""

import random
import threading

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted
from looking import HandWorld, other_handle
from procs import child


def texts(messages):
    return [message.text for message in messages]


def said(store, key="k"):
    return [m.text for m in store.session(key).transcript() if m.role == "user"]


def test_a_receipt_is_durable_and_names_the_message(path):
    """I-4: what was accepted is seen by whoever opens the store next."""
    with holdfast.open(path) as store:
        receipt = store.accept("k", "Hello.", event_id="e1", reply_to="chat:1")
        with other_handle(path) as other:
            [message] = other.session("k").pending()
    assert (message.id, message.text, message.state) == (receipt.message_id, "Hello.", "pending")
    assert (message.event_id, message.reply_to) == ("e1", "chat:1")
    assert not receipt.again


def test_the_same_event_is_one_message_in_parallel_and_after_a_restart(path):
    """FAULTS A6: two webhooks at once, and once more after a restart."""
    with holdfast.open(path) as store:
        receipts = []
        workers = [
            threading.Thread(
                target=lambda: receipts.append(store.accept("k", "Hello.", event_id="e1"))
            )
            for _ in range(8)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    with holdfast.open(path) as store:
        receipts.append(store.accept("k", "Hello.", event_id="e1"))
        assert texts(store.session("k").pending()) == ["Hello."]
    assert len({receipt.message_id for receipt in receipts}) == 1
    assert sum(not receipt.again for receipt in receipts) == 1


def test_a_retry_whose_first_copy_never_came_is_accepted(path):
    """FAULTS A7: identity decides, not the look of a retry."""
    with holdfast.open(path) as store:
        assert not store.accept("k", "Hello again.", event_id="e2").again
        with pytest.raises(AlreadyAccepted):
            store.turn("k", "Hello again.", event_id="e2")


def test_accepted_messages_wait_in_order_and_the_next_turn_takes_them(path):
    with holdfast.open(path) as store:
        with store.turn("k", "first") as turn:
            for text in ("second", "third"):
                store.accept("k", text)
            assert texts(store.session("k").pending()) == ["second", "third"]
            assert turn.context() == [{"role": "user", "content": "first"}]
            turn.say("one")
        with store.turn("k", "fourth") as turn:
            assert turn.context()[-1] == {"role": "user", "content": "second\n\nthird\n\nfourth"}
            turn.say("two")
        assert store.session("k").pending() == []


def test_a_running_turn_takes_what_came_meanwhile(path):
    """FAULTS A8: steering is claimed durably, in order."""
    with holdfast.open(path) as store, store.turn("k", "first") as turn:
        store.accept("k", "and make it quick")
        store.accept("k", "please")
        assert texts(turn.inbox()) == ["and make it quick", "please"]
        assert turn.inbox() == []
        assert turn.context() == [
            {"role": "user", "content": "first\n\nand make it quick\n\nplease"}
        ]
        turn.say("done")


def test_a_turn_that_dies_gives_back_what_it_had_not_used(path):
    """FAULTS A8, I-4: killed after the claim, before it said anything."""
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        store.accept("k", "one"); store.accept("k", "two")
        turn = store.session("k").turn()
        say("taken")
        hear()
    """
    with child(script, path) as other:
        other.wait_for("taken")
        other.kill()
    with holdfast.open(path) as store:
        assert texts(store.session("k").pending()) == ["one", "two"]
        with store.session("k").turn() as turn:
            assert turn.context() == [{"role": "user", "content": "one\n\ntwo"}]
            turn.say("here")


def test_a_reply_is_owed_until_it_is_sent_and_both_tries_carry_one_key(path):
    """FAULTS A4, I-23: killed between commit and send, and between send and `sent()`."""
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        with store.turn("k", "hello", reply_to="chat:1") as turn:
            turn.say("Hi.")
        say("committed")
        hear()
        [owed] = store.outbox()
        say("sending", owed.id)
        hear()
    """
    with child(script, path) as other:
        other.wait_for("committed")
        other.tell("go on")
        first = other.wait_for("sending").strip()
        other.kill()
    with holdfast.open(path) as store:
        [owed] = store.outbox()
        assert (owed.id, owed.text, owed.reply_to, owed.key) == (first, "Hi.", "chat:1", "k")
        owed.failed("no network")
        [again] = store.outbox()
        assert again.id == first
        again.sent(platform_id="m-9")
        again.sent(platform_id="m-9")
        assert store.outbox() == []
    with holdfast.open(path) as store:
        assert store.outbox() == []


def test_an_old_reply_says_how_old_it_is(path):
    """FAULTS A5."""
    world = HandWorld()
    with holdfast.open(path, world=world) as store:
        with store.turn("k", "hello", reply_to="chat:1") as turn:
            turn.say("Hi.")
        world.ahead_s += 15 * 3600
        [owed] = store.outbox()
        assert owed.age_s >= 15 * 3600


def test_the_return_address_is_fixed_when_the_message_is_accepted(path):
    """FAULTS C2: another inbound message does not redirect the reply."""
    with holdfast.open(path) as store:
        store.accept("a", "question of A", reply_to="chat:A")
        with store.session("a").turn() as turn:
            store.accept("b", "question of B", reply_to="chat:B")
            turn.say("answer for A")
        assert [(owed.reply_to, owed.text) for owed in store.outbox()] == [
            ("chat:A", "answer for A")
        ]


def test_a_turn_that_did_not_complete_owes_nothing_and_its_error_is_no_speech(path):
    """FAULTS A10: errors are records."""
    with holdfast.open(path) as store:
        with (
            pytest.raises(ZeroDivisionError, match="provider 500"),
            store.turn("k", "hello", reply_to="chat:1") as turn,
        ):
            turn.context()
            raise ZeroDivisionError("provider 500")
        assert store.outbox() == []
        assert "provider 500" not in repr(store.session("k").context())
        assert said(store) == ["hello"]
        with pytest.raises(ZeroDivisionError), store.turn("k", "again", reply_to="chat:1") as turn:
            turn.say("Half of")
            raise ZeroDivisionError
        assert store.outbox() == [], "half an answer is owed to nobody"


def test_messages_that_wait_over_a_reset_go_on_in_the_new_session(path):
    with holdfast.open(path) as store:
        store.accept("k", "one", reply_to="chat:1")
        new = store.reset("k")
        assert texts(new.pending()) == ["one"]
        assert store.accept("k", "two").session_id == new.id
        with new.turn() as turn:
            turn.say("here")
        assert [owed.reply_to for owed in store.outbox()] == ["chat:1"]


def test_hermes_burst_one_slow_turn_and_eight_quick_follow_ups(path):
    """Five quick messages during one slow turn lost one in three runs of three; here none of eight
    is lost.
    """
    with holdfast.open(path) as store:
        with store.turn("k", "slow", event_id="0") as turn:
            for number in range(1, 9):
                store.accept("k", f"quick {number}", event_id=str(number))
            turn.say("done")
        with store.session("k").turn() as turn:
            words = "\n\n".join(f"quick {number}" for number in range(1, 9))
            assert turn.context()[-1] == {"role": "user", "content": words}
            turn.say("all of them")
        assert said(store) == ["slow", *(f"quick {number}" for number in range(1, 9))]


def test_hermes_burst_forty_messages_at_random_gaps(path):
    """Forty messages from one sender while an agent answers whatever waits: each is in exactly one
    turn, in order.
    """
    chance = random.Random(7)
    with holdfast.open(path, durability="process") as store:
        sent, done = threading.Event(), []

        def agent():
            while True:
                over = sent.is_set()
                if store.session("k").pending():
                    with store.session("k").turn() as turn:
                        done.append(turn.context()[-1]["content"])
                        turn.say("ok")
                elif over:
                    return

        store.session("k")
        worker = threading.Thread(target=agent)
        worker.start()
        for number in range(40):
            store.accept("k", f"m{number}", event_id=str(number))
            for _ in range(chance.randrange(3)):
                store.session("k").info()
        sent.set()
        worker.join(60)
        assert "\n\n".join(done).split("\n\n") == [f"m{number}" for number in range(40)]


def test_hermes_queued_then_killed(path):
    """What was queued behind a running turn survives the death of the process."""
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        turn = store.turn("k", "slow")
        for text in turn.deliver(["working ", "on it"]):
            pass
        for number in range(5):
            store.accept("k", f"queued {number}")
        say("queued")
        hear()
    """
    with child(script, path) as other:
        other.wait_for("queued")
        other.kill()
    with holdfast.open(path) as store:
        assert texts(store.session("k").pending()) == [f"queued {number}" for number in range(5)]


def test_the_async_face_accepts_and_pays_alike(path):
    import asyncio

    async def story():
        async with holdfast.open_async(path) as store:
            await store.accept("k", "one", reply_to="chat:1")
            async with (await store.session("k")).turn() as turn:
                await turn.say("Hi.")
            [owed] = await store.outbox()
            await owed.failed("no network")
            await owed.sent()
            return await store.outbox()

    assert asyncio.run(story()) == []
