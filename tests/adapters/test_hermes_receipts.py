"""What comes in through Hermes' gateway is stored before Hermes sees it, and gets one turn, whatever
Hermes does with it.
"""

import asyncio
import threading

import hermes_gateway
import pytest
from hermes_gateway import World, busy, goes_on

import holdfast
from holdfast import Receipt
from holdfast.adapters.hermes.received.book import Book, Received, overwritten
from holdfast.adapters.hermes.received.event_labels import words_of
from holdfast.adapters.hermes.serving import serving_at
from holdfast.adapters.hermes.spoken.live_list import unmerged
from holdfast.testing.oracle import judge
from procs import child


@pytest.fixture
def play(tmp_path):
    """Runs a scene in a world of its own; gives what the user has said, as the conversation has it."""
    path = tmp_path / "state.db"

    def run(scene, **more):
        world = World(tmp_path, **more)
        asyncio.run(scene(world))
        store = serving_at(path).store
        assert judge(store) == []
        return world, said(store)

    yield run
    serving_at(path).store.close()


def said(store):
    session = store.session("hermes:s1")
    return [message.text for message in session.transcript() if message.role == "user"]


def waiting(world):
    return [message.text for message in serving_at(world.db.db_path).store.pending()]


async def says(world, *texts, **more):
    """Messages that come when nothing runs, each by itself."""
    for text in texts:
        await world.say(text, **more)
        await world.rests()


def meanwhile(*texts):
    """A scene: these come while a turn runs."""

    async def scene(world):
        await busy(world)
        for text in texts:
            await world.say(text)
        await goes_on(world)

    return scene


@pytest.mark.slow
def test_a_message_is_stored_before_hermes_sees_it(play):
    async def scene(world):
        handle = world.runner._handle_message

        async def look(event):
            found.append(waiting(world))
            return await handle(event)

        world.adapter._message_handler = look
        await says(world, "Hello.", media_urls=["/tmp/a.png"])

    found = []
    world, told = play(scene)
    assert found == [["Hello."]]
    assert told == ["Hello."] and waiting(world) == []
    store = serving_at(world.db.db_path).store
    [message, _] = store.session("hermes:s1").transcript()
    assert message.labels["hermes"]["source"]["chat_id"] == "c1"
    assert message.labels["hermes"]["media_urls"] == ["/tmp/a.png"]
    assert message.payload == {"role": "user", "content": "Hello."}


FIVE = [f"Follow-up {number}." for number in range(5)]


def test_five_follow_ups_get_a_turn_each_in_order(play):
    world, told = play(meanwhile(*FIVE))
    assert told == ["First.", *FIVE]
    assert world.agent.asked == ["First.", *FIVE] and waiting(world) == []


def test_without_receipts_the_same_gateway_loses_one(tmp_path):
    world = World(tmp_path, hermes=hermes_gateway.modules())
    asyncio.run(meanwhile(*FIVE)(world))
    serving_at(world.db.db_path).store.close()
    assert len(set(world.agent.asked)) == 5


@pytest.mark.slow
def test_more_than_hermes_holds_wait_in_the_store(play):
    texts = [f"Number {number:02d}." for number in range(40)]
    _, told = play(meanwhile(*texts), mode="queue")
    assert told == ["First.", *texts]


@pytest.mark.slow
def test_a_message_that_is_delivered_twice_is_answered_once(play):
    async def scene(world):
        await says(world, "Once.", "Once.", id="same")
        await says(world, "/status", "/status", id="cmd")
        await says(world, "Twice.", id="a")
        await says(world, "Twice.", id="b")

    assert play(scene)[1] == ["Once.", "Twice.", "Twice."]


def test_an_edit_is_another_update_of_a_message(play):
    async def scene(world):
        for update, text in enumerate(("Book two.", "Book three.")):
            await says(world, text, id="m", platform_update_id=update)
        await says(world, "Book three.", id="m", platform_update_id=1)

    assert play(scene)[1] == ["Book two.", "Book three."]


def test_joined_messages_stay_apart_in_the_transcript_and_share_a_turn(play):
    async def scene(world):
        world.adapter.is_debouncing = True
        await busy(world)
        await world.say("One.")
        await world.say("Two.")
        await goes_on(world)

    world, told = play(scene)
    assert world.agent.asked == ["First.", "One.\nTwo."]
    assert told == ["First.", "One.", "Two."] and waiting(world) == []


@pytest.mark.parametrize("is_awaited", [False, True])
def test_pieces_that_a_platform_joins_have_a_receipt_each_before_it_does(play, is_awaited):
    async def scene(world):
        for text, id in (("One.", "a"), ("Two.", "b"), ("Two.", "b")):
            await world.adapter.piece(world.event(text, id))
            found.append(waiting(world))
        await world.adapter.flush()
        await world.rests()

    found = []
    world, told = play(scene, adapter=lambda base: hermes_gateway.batching(base, is_awaited)())
    assert found == [["One."], ["One.", "Two."], ["One.", "Two."]]
    assert world.agent.asked == ["One.\nTwo."]
    assert told == ["One.", "Two."] and waiting(world) == []


def test_words_that_steer_are_taken_when_the_model_sees_them(play):
    async def scene(world):
        world.agent.tools = True
        await meanwhile("Mind the gap.", "And the step.")(world)

    world, told = play(scene, mode="steer")
    assert world.agent.seen == ["Mind the gap.\nAnd the step."]
    assert told == ["First.", "Mind the gap.", "And the step."]
    assert world.agent.asked == ["First."] and waiting(world) == []


def test_words_that_steer_too_late_get_the_next_turn(play):
    world, told = play(meanwhile("Mind the gap.", "And the step."), mode="steer")
    assert world.agent.asked == ["First.", "Mind the gap.\nAnd the step."]
    assert told == ["First.", "Mind the gap.", "And the step."] and waiting(world) == []


@pytest.mark.parametrize(
    "texts", [("Mind the gap.", "/queue Then that."), ("/queue Then that.", "Mind the gap.")]
)
def test_words_that_steer_nothing_stand_in_the_queue_where_they_came_in(play, texts):
    # Hermes drops words that it is handed back, if anything else waits.
    world, told = play(meanwhile(*texts), mode="steer")
    assert world.agent.asked == ["First.", *(text.removeprefix("/queue ") for text in texts)]
    assert told == ["First.", *texts] and waiting(world) == []


def test_what_hermes_had_no_room_for_is_not_passed_by_what_came_after_it(play):
    async def scene(world):
        world.runner.HOLDS = 0
        await busy(world)
        await world.say("Dropped.")
        world.runner.HOLDS = 32
        await world.say("After it.")
        await goes_on(world)

    world, told = play(scene, mode="queue")
    assert world.agent.asked == told == ["First.", "Dropped.", "After it."]


def test_words_that_come_when_the_last_were_handed_back_do_not_steer_the_next_turn(play):
    async def scene(world):
        loop = asyncio.get_running_loop()

        def late():
            world.agent.is_final = lambda: None
            asyncio.run_coroutine_threadsafe(world.say("Late."), loop).result(20)

        await busy(world)
        world.agent.is_final = late
        await goes_on(world)
        await says(world, "Afterwards.")

    world, told = play(scene, mode="steer")
    assert world.agent.asked == told == ["First.", "Late.", "Afterwards."]


def test_what_is_queued_as_its_turn_ends_is_answered_before_what_comes_next(play):
    async def scene(world):
        await busy(world)
        world.runner.may_queue.clear()
        late = asyncio.create_task(world.say("Late."))
        while not world.runner.may_queue._waiters:
            await asyncio.sleep(0)
        world.agent.may_answer.set()
        while world.adapter._active_sessions:
            await asyncio.sleep(0.01)
        world.runner.may_queue.set()
        await late
        await says(world, "Next.")

    world, told = play(scene, mode="queue")
    assert world.agent.asked == told == ["First.", "Late.", "Next."]


def test_what_is_stored_and_not_yet_handed_on_when_a_turn_ends_is_not_lost(play, monkeypatch):
    async def scene(world):
        inbox = serving_at(world.db.db_path).inbox
        receive = inbox.receive
        is_stored, may_go_on = threading.Event(), threading.Event()

        def received(*given):
            is_new = receive(*given)
            is_stored.set()
            may_go_on.wait(20)
            return is_new

        await busy(world)
        monkeypatch.setattr(inbox, "receive", received)
        late = asyncio.create_task(world.say("Late."))
        await asyncio.to_thread(is_stored.wait, 20)
        world.agent.may_answer.set()
        while world.adapter._active_sessions:
            await asyncio.sleep(0.01)
        may_go_on.set()
        await late
        await world.rests()

    world, told = play(scene)
    assert world.agent.asked == told == ["First.", "Late."]


def test_an_answer_to_a_question_of_hermes_is_no_message_for_the_model(play):
    async def scene(world):
        await busy(world)
        world.runner.question = answers.append
        await world.say("The second one.")
        await goes_on(world)

    answers = []
    world, told = play(scene)
    assert answers == ["The second one."]
    assert world.agent.asked == told == ["First."] and waiting(world) == []


def test_a_message_that_interrupts_too_late_is_not_run_twice(play):
    async def scene(world):
        await says(world, "First.")
        event = world.event("Late.")
        # It arrives while the turn ends: in the slot, and in the flag that nobody clears.
        key = hermes_gateway.build_session_key(event.source)
        world.adapter._active_sessions[key] = True
        await world.adapter.handle_message(event)
        del world.adapter._active_sessions[key]
        await world.adapter.handle_message(world.adapter._pending_messages.pop(key))
        await world.rests()

    world, told = play(scene)
    assert world.agent.asked == ["First.", "Late."]
    assert told == ["First.", "Late."]


def test_what_hermes_does_not_answer_is_settled_and_not_put_back(play):
    async def scene(world):
        world.runner.refused = ("stranger",)
        await says(world, "Let me in!", user="stranger")
        await busy(world)
        await world.say("Me, too!", user="stranger")
        await goes_on(world)

    world, told = play(scene)
    assert told == ["First."] and waiting(world) == []
    inbox = serving_at(world.db.db_path).store.session("hermes-inbox:stub:c1")
    assert [m.text for m in inbox.transcript()][:1] == ["Let me in!"]


def test_a_reset_settles_what_is_queued_and_stops_nothing_that_comes_after(play):
    async def scene(world):
        await busy(world)
        await world.say("In the slot.")
        await world.say("Behind it.")
        await world.say("/new")
        await goes_on(world)
        await says(world, "Afterwards.")

    world, told = play(scene, mode="queue")
    assert "Behind it." not in world.agent.asked
    assert told[-1] == "Afterwards." and waiting(world) == []


def test_what_is_lost_on_its_way_to_a_turn_is_put_back(play):
    async def scene(world):
        prepare = world.runner._prepare_profile_scoped_inbound_message_text

        async def lose(*, event, **more):
            lost.append(event.text)
            world.runner._prepare_profile_scoped_inbound_message_text = prepare
            return None

        await busy(world)
        await world.say("Lost?")
        world.runner._prepare_profile_scoped_inbound_message_text = lose
        await goes_on(world)

    lost = []
    world, told = play(scene)
    assert lost == ["Lost?"] and world.agent.asked == told == ["First.", "Lost?"]
    assert waiting(world) == []


KILLED = """
    import asyncio
    sys.path.insert(0, sys.argv[2])
    from hermes_gateway import World

    async def scene():
        world = World(sys.argv[1], mode="queue")
        world.agent.may_answer.clear()
        await world.say("First.")
        await world.starts()
        for text in ("One.", "Two.", "/queue Three.", "/status"):
            await world.say(text)
        say("queued")
        await asyncio.sleep(60)

    asyncio.run(scene())
"""


@pytest.mark.slow
def test_what_was_queued_when_the_gateway_was_killed_gets_its_turns_after_a_start(play, tmp_path):
    with child(KILLED, tmp_path, hermes_gateway.__file__.rpartition("/")[0]) as gateway:
        gateway.wait_for("queued")
        gateway.kill()

    async def scene(world):
        world.runner._startup_restore_in_progress = True
        await world.say("New.", id="new")
        await world.runner._drain_startup_restore_queue()
        world.runner._startup_restore_in_progress = False
        await world.rests()
        await world.runner._drain_startup_restore_queue()
        await world.rests()

    world, told = play(scene, mode="queue")
    # The first had begun: it waits in its session, which Hermes itself resumes, or for its next turn.
    assert world.agent.asked == ["One.", "Two.", "Three.", "New."]
    assert sorted(told) == sorted(["First.", "New.", "One.", "Two.", "/queue Three."])
    assert waiting(world) == []


@pytest.mark.slow
def test_messages_of_a_living_process_are_left_to_it(play, tmp_path):
    async def scene(world):
        await world.runner._drain_startup_restore_queue()
        await world.rests()

    with child(KILLED, tmp_path, hermes_gateway.__file__.rpartition("/")[0]) as gateway:
        gateway.wait_for("queued")
        world, _ = play(scene)
        assert world.agent.asked == []


def test_a_text_that_hermes_has_joined_in_place_is_taken_apart_again():
    first, second, third = {"role": "user"}, {"role": "user"}, {"role": "user"}
    assistant = {"role": "assistant", "content": "Yes."}

    def said(*texts):
        dicts = (first, second, third)
        return [
            (live, {"role": "user", "content": text})
            for live, text in zip(dicts, texts, strict=False)
        ]

    apart = said("A", "B", "C")
    assert unmerged(said("A\n\nB", "B")) == said("A", "B")
    assert unmerged(said("A\n\nB\n\nB\n\nC", "B\n\nC", "C")) == apart
    assert unmerged(said("A\n\nB")) == said("A\n\nB")
    answered = [*said("A\n\nB"), (assistant, assistant), *said("B")]
    assert unmerged(answered) == answered


# Decisions.


def received(id, key="chat", event_id=None):
    return Received(Receipt("s", id), key=key, text=id, event_id=event_id)


def test_what_is_lost_is_open_and_nowhere():
    book = Book()
    some = [received(name) for name in ("1", "2", "3", "4", "5")]
    for each in (*reversed(some), received("6", key="another chat")):
        book.add(each)
    book.close([some[0]])
    book.enter([some[1]])
    some[3].is_held = True
    assert [each.id for each in book.lost("chat", {"3"})] == ["5"]
    book.enter([some[1]])
    book.leave([some[1]])
    assert "2" not in [each.id for each in book.lost("chat", ())]
    book.leave([some[1]])
    assert [each.id for each in book.lost("chat", ())] == ["2", "3", "5"]
    assert book.close(some) == some[1:] and book.close(some) == []


def test_a_copy_of_an_event_leads_to_its_message_until_that_is_closed():
    book, one = Book(), received("1", event_id="stub:c1:m1")
    book.add(one)
    assert book.of_event("stub:c1:m1") is one and book.of_event(None) is None
    book.close([one])
    assert book.of_event("stub:c1:m1") is None


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([], ["2"], (False, False)),
        (["1"], [], (True, False)),
        (["1"], ["2"], (True, True)),
        (["2"], ["1"], (True, False)),
        (["2", "5"], ["3"], (True, True)),
    ],
)
def test_of_two_events_for_one_slot_both_are_kept_in_the_order_in_which_they_came(
    before, after, kept
):
    assert overwritten([received(id) for id in before], [received(id) for id in after]) == kept


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/queue Do it.", "Do it."),
        ("/q@bot Do it.", "Do it."),
        ("/steer  Left!", "Left!"),
        ("/new", "/new"),
        ("queue this", "queue this"),
    ],
)
def test_a_command_that_carries_words_is_told_from_them(text, words):
    assert words_of(text) == words


def test_the_store_lies_beside_state_db(play):
    async def scene(world):
        await says(world, "Hello.")

    world, _ = play(scene)
    with holdfast.open(world.db.db_path.with_name("holdfast.db"), read_only=True) as store:
        assert said(store) == ["Hello."]
