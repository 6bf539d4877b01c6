"""A store that can't take a message: nobody is told that it has arrived, and its sender is told why."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hermes_gateway import World

from holdfast.adapters.hermes import unusable
from holdfast.adapters.hermes.received.refusal import NotReceived
from holdfast.adapters.hermes.serving import serving_at


@pytest.fixture
def world(tmp_path):
    """A gateway whose store is damaged."""
    (tmp_path / "holdfast.db").write_bytes(b"\x81damage" * 900)
    return World(tmp_path)


def test_what_a_damaged_store_cant_take_is_not_confirmed_and_its_sender_is_told(world):
    with pytest.raises(NotReceived, match="can't be stored"):
        asyncio.run(world.say("Hello."))
    [(chat, words, reply_to, metadata)] = world.adapter.sent
    assert chat == "c1" and "was not answered" in words and "is damaged" in words
    assert reply_to == "m1" and metadata == {"anchor": "m1"}
    assert world.agent.asked == [] and world.adapter._active_sessions == {}


def test_what_a_full_disk_cant_take_is_not_confirmed_and_its_sender_is_told(tmp_path, monkeypatch):
    world = World(tmp_path)

    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(serving_at(world.db.db_path).inbox, "receive", full)
    with pytest.raises(NotReceived):
        asyncio.run(world.say("Hello."))
    assert len(world.adapter.sent) == 1 and world.agent.asked == []
    serving_at(world.db.db_path).store.close()


def test_a_sender_whom_hermes_does_not_speak_to_is_told_nothing(world):
    world.runner.refused = ("u1",)
    with pytest.raises(NotReceived):
        asyncio.run(world.say("Hello."))
    assert world.adapter.sent == []


def test_a_platform_that_can_not_send_confirms_nothing_either(world):
    async def broken(**named):
        raise ConnectionError("no line")

    world.adapter._send_with_retry = broken
    with pytest.raises(NotReceived):
        asyncio.run(world.say("Hello."))


def test_a_command_that_can_not_be_stored_is_passed_on(world):
    seen = []

    async def handle(event):
        await asyncio.sleep(0)
        seen.append(event.text)

    async def scene():
        world.adapter._message_handler = handle
        await world.say("/status")
        await asyncio.gather(*world.adapter._session_tasks.values())

    asyncio.run(scene())
    assert seen == ["/status"] and world.adapter.sent == []


def test_the_store_is_tried_again_with_the_next_message(world, tmp_path):
    async def scene():
        with pytest.raises(NotReceived):
            await world.say("Hello.")
        (tmp_path / "holdfast.db").unlink()
        await world.say("Again.")
        await world.rests()

    asyncio.run(scene())
    assert world.agent.asked == ["Again."]
    serving_at(world.db.db_path).store.close()


COMMAND = """
import sys, threading
sys.path[:0] = [{tests!r}]
import hermes_modules
modules = hermes_modules.patched()
db = modules.SessionDB(db_path={path!r})
sys.stderr = open("/dev/null", "w")
{code}
"""


@pytest.fixture
def command(tmp_path):
    """What a command of Hermes that runs this code says, and its exit code."""
    (tmp_path / "holdfast.db").write_bytes(b"\x81damage" * 900)

    def run(code):
        text = COMMAND.format(
            tests=str(Path(__file__).parent), path=str(tmp_path / "state.db"), code=code
        )
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    "code",
    ["db.get_messages_as_conversation('s1')", "modules.AIAgent(session_db=db); print('goes on')"],
)
def test_a_command_on_a_damaged_store_ends_with_a_sentence(command, code):
    status, out, told = command(code)
    assert status == 1 and out == ""
    assert told.startswith("holdfast: The store at") and told.count("\n") == 1
    for advice in ("holdfast doctor", "is moved away", "holdfast hermes uninstall"):
        assert advice in told


def test_an_agent_in_a_thread_answers_with_the_reason(command):
    code = """
def work():
    agent = modules.AIAgent(session_db=db, script=[["Hello."]])
    result = agent.run_conversation("Hi.")
    print(len(agent.requests), result["failed"], result["final_response"])
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    status, out, _ = command(code)
    assert status == 0 and out.startswith("0 True ⚠️ Your message can't be stored")
    assert "is damaged" in out


def test_other_errors_are_told_as_ever(command):
    status, _, told = command("sys.stderr = sys.__stderr__\nraise ValueError('no')")
    assert status == 1 and told.startswith("Traceback") and "ValueError: no" in told


def test_the_sentence_is_said_by_one_hook(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    unusable.tell_in_a_sentence()
    first = sys.excepthook
    unusable.tell_in_a_sentence()
    assert sys.excepthook is first
