"""What a gateway of Hermes has left in its inbox: handed in again, in its place, until a turn has it;
and what comes to nothing each time is given up in plain sight.
"""

import asyncio

import hermes_modules
import pytest
from hermes_gateway import World, busy, goes_on

from holdfast.adapters.hermes.received import given_up, put_back
from holdfast.adapters.hermes.received.book import STARTS_MAX
from holdfast.adapters.hermes.received.event_labels import labels_of
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.received.queues import Chat
from holdfast.adapters.hermes.serving import serving_at
from holdfast.testing.oracle import judge

KEY = "agent:main:stub:dm:c1"


@pytest.fixture
def play(tmp_path):
    """Runs a scene in a world of its own."""
    path = tmp_path / "state.db"

    def run(scene, **more):
        world = World(tmp_path, **more)
        asyncio.run(scene(world))
        assert judge(serving_at(path).store) == []
        return world

    yield run
    serving_at(path).store.close()


def store_of(world):
    return serving_at(world.db.db_path).store


def left(world, *texts):
    """These lie in the inbox since a process that is gone."""
    for text in texts:
        labels = labels_of(world.event(text), KEY, "")
        del labels["hermes"]["process"]
        store_of(world).accept("hermes-inbox:stub:c1", text, labels=labels)


def test_what_comes_new_waits_behind_what_was_put_back(play):
    async def scene(world):
        await busy(world)
        left(world, "One.", "Two.", "Three.")
        await world.runner._drain_startup_restore_queue()
        world.adapter.is_debouncing = True
        await world.say("New.")
        await world.adapter._flush_text_debounce_now(KEY)
        await goes_on(world)

    world = play(scene)
    assert world.agent.asked == ["First.", "One.", "Two.", "Three.\nNew."]
    told = [m.text for m in store_of(world).session("hermes:s1").transcript() if m.role == "user"]
    assert told == ["First.", "One.", "Two.", "Three.", "New."]


def test_what_is_put_back_is_not_joined_to_what_came_after_it(play):
    async def scene(world):
        await busy(world)
        left(world, "Old.")
        inbox = serving_at(world.db.db_path).inbox
        inbox.load()
        world.adapter.is_debouncing = True
        await world.say("New.")
        await world.adapter._flush_text_debounce_now(KEY)
        [old] = inbox.book.left_behind()[KEY]
        old.is_left = False
        again = world.event("Old.")
        inbox.attach(again, [old])
        world.hermes.base.merge_pending_message_event(
            world.adapter._pending_messages, KEY, again, merge_text=True
        )
        await goes_on(world)

    world = play(scene)
    assert world.agent.asked == ["First.", "Old.", "New."]


def test_a_process_that_ends_before_the_turn_begins_is_no_try(play):
    async def scene(world):
        left(world, "Patient.")
        for _ in range(5):
            # Each a process that is killed before Hermes is done with it.
            inbox = GatewayInbox(store_of(world))
            inbox.load()
            [[message]] = inbox.book.left_behind().values()
            hopeful, hopeless = inbox.hopeful_of([message])
            inbox.note_tries(hopeful)
            found.append((len(hopeful), len(hopeless)))
        await world.runner._drain_startup_restore_queue()
        await world.rests()

    found = []
    world = play(scene)
    assert found == [(1, 0)] * 5
    assert world.agent.asked == ["Patient."] and world.adapter.sent == []


def test_a_message_that_may_be_what_ends_each_process_is_given_up_in_the_end(play):
    async def scene(world):
        left(world, "Poison.")
        for _ in range(STARTS_MAX + 1):
            inbox = GatewayInbox(store_of(world))
            inbox.load()
            [[message]] = inbox.book.left_behind().values()
            hopeful, hopeless = inbox.hopeful_of([message])
            inbox.note_tries(hopeful)
            found.append((len(hopeful), len(hopeless)))

    found = []
    play(scene)
    assert found == [(1, 0)] * STARTS_MAX + [(0, 1)]


POISON = "Poison, and more words than anybody would want to read once more in a notice."


def test_what_comes_to_nothing_each_time_is_given_up_in_plain_sight(play):
    async def scene(world):
        handle = world.adapter._message_handler

        async def lose(event):
            seen.append(event.text)
            if event.text != POISON:
                await handle(event)

        world.adapter._message_handler = lose
        left(world, POISON)
        await world.runner._drain_startup_restore_queue()
        await world.rests()
        await world.say("Next.")
        await world.rests()

    seen = []
    world = play(scene)
    assert seen.count(POISON) == 3 and world.agent.asked == ["Next."]
    [(chat, notice, *_)] = world.adapter.sent
    assert chat == "c1"
    assert "“Poison, and more words than anybody would want to read once…”" in notice
    store = store_of(world)
    told = [(m.role, m.text) for m in store.session("hermes:s1").transcript()]
    assert told[:2] == [("user", POISON), ("assistant", notice)]
    assert given_up.count_of(store) == 1
    assert POISON not in [message.text for message in store.pending()]
    [first, *_] = store.session("hermes:s1").turns()
    assert first.end == "failed"


def test_how_often_a_message_was_tried_in_vain_is_known_to_the_next_process(play):
    async def scene(world):
        left(world, "Twice.")
        inbox = GatewayInbox(store_of(world))
        inbox.load()
        [[message]] = inbox.book.left_behind().values()
        for _ in range(3):
            inbox.hopeful_of([message])
            inbox.note_tries([message])
        found.append(message.tries)
        another = GatewayInbox(store_of(world))
        another.load()
        [[message]] = another.book.left_behind().values()
        found.append(message.tries)

    found = []
    play(scene)
    assert found == [2, 2]


def test_what_is_given_up_before_its_chat_has_a_session_stays_in_its_inbox(play):
    async def scene(world):
        world.runner.session_store.peek_session_id = lambda key: None
        left(world, "Poison.")
        inbox = serving_at(world.db.db_path).inbox
        inbox.load()
        [[message]] = inbox.book.left_behind().values()
        chat = Chat(KEY, world.adapter, world.runner, inbox)
        assert given_up.store(chat, [message], "Given up.")
        assert not given_up.store(chat, [message], "Given up.")

    world = play(scene)
    inbox = store_of(world).session("hermes-inbox:stub:c1")
    assert [m.text for m in inbox.transcript()] == ["Poison.", "Given up."]
    assert given_up.count_of(store_of(world)) == 1 and not list(store_of(world).pending())


def test_a_gateway_that_shuts_down_hands_nothing_in(play):
    async def scene(world):
        left(world, "Later.")
        inbox = serving_at(world.db.db_path).inbox
        inbox.load()
        world.runner._draining = True
        await put_back.at_idle(Chat(KEY, world.adapter, world.runner, inbox))
        await world.rests()

    world = play(scene)
    assert world.agent.asked == [] and len(store_of(world).pending()) == 1


def test_the_next_turns_history_has_what_was_given_up(tmp_path, play):
    async def scene(world):
        left(world, "Poison.")
        inbox = serving_at(world.db.db_path).inbox
        inbox.load()
        [[message]] = inbox.book.left_behind().values()
        given_up.store(Chat(KEY, world.adapter, world.runner, inbox), [message], "Given up.")

    db = hermes_modules.patched().SessionDB(db_path=tmp_path / "state.db")
    db.create_session("s1", "cli")
    play(scene)
    for _ in range(2):
        history = db.get_messages_as_conversation("s1")
        assert [each["content"] for each in history] == ["Poison.", "Given up."]
