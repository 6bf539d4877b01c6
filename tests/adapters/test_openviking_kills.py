"""OpenViking's client is killed at every step, and so is the server: each message and each commit
arrives once, in order.

A step is a record stored, a request begun, sent or answered. The child kills itself with SIGKILL at
the n-th; the next one does the same work again from the start, with the same event ids, as the
caller of a killed process would. This goes on until a child lives to the end.
"""

import random

import pytest

import holdfast
from holdfast.adapters.openviking import Client
from procs import child
from thorough import SWEEP, few_cases
from viking_server import VikingServer

# Forks without threads: a fork costs a hundredth of a new interpreter.
SCRIPT = """
import http.client, os, signal
import holdfast
from holdfast.adapters.openviking import Client
from holdfast.adapters.openviking.client import commits, workers
from holdfast.adapters.openviking.client.deliveries import DeliveryLog
from holdfast.adapters.openviking.client.http_connection import HttpConnection

workers.FIRST_PAUSE_S = commits.POLL_S = 0.02
left = 0

def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def stepping(kind, name):
    function = getattr(kind, name)
    def stepped(*given, **named):
        step()
        result = function(*given, **named)
        step()
        return result
    setattr(kind, name, stepped)

stepping(holdfast.Session, "append")
stepping(DeliveryLog, "request")
stepping(DeliveryLog, "store")
stepping(HttpConnection, "ask")
stepping(http.client.HTTPConnection, "getresponse")  # before it: sent, and not answered

def work(path, url, key):
    with (
        holdfast.open(path, durability="process") as store,
        Client(url, store=store, background=False, grace_s=0.1) as client,
    ):
        client.add_message(key, "user", "m0", event_id=0)
        assert client.flush()
        commit = client.commit(key, event_id="first")
        client.add_message(key, "assistant", "m1", event_id=1)
        client.add_message(key, "user", "m2", event_id=2)
        assert commit.wait(20).state == "completed"
        assert client.flush()

work(sys.argv[1], sys.argv[2], "first")  # what is loaded when it is first used, is loaded now
def share(path, url, key, name):
    with (
        holdfast.open(path, durability="process") as store,
        Client(url, store=store, grace_s=0.1) as client,
    ):
        for number in range(4):
            client.add_message(key, "user", f"{name}{number}", event_id=f"{name}{number}")
        assert client.flush()

def forked(count, function, *given):
    global left
    left = int(count)
    child = os.fork()
    if child == 0:
        function(sys.argv[1], sys.argv[2], *given)
        os._exit(0)
    return child

while line := hear():
    key, count, *names = line.split()
    if names:  # two processes send one session, and one of them is killed
        children = [forked(count, share, key, "a"), forked(0, share, key, "b")]
    else:
        children = [forked(count, work, key)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    say("ended", *codes)
"""


def ran(other, key, kill_at):
    other.tell(f"{key} {kill_at}")
    return int(other.wait_for("ended"))


def ran_together(other, key, kill_at):
    other.tell(f"{key} {kill_at} together")
    return other.wait_for("ended")


@pytest.mark.slow
def test_a_client_that_is_killed_at_any_step_sends_all_once(tmp_path):
    with VikingServer() as viking, child(SCRIPT, tmp_path / "a.db", viking.url) as other:
        step = 1
        while ran(other, f"s{step}", step) == -9:
            assert ran(other, f"s{step}", 0) == 0
            assert viking.archives(f"s{step}") == [["m0"]], f"killed at {step}"
            assert viking.live(f"s{step}") == ["m1", "m2"], f"killed at {step}"
            step += 1 if SWEEP else 3
    assert step > 40


@pytest.mark.slow
def test_a_client_that_is_killed_again_and_again_sends_all_once(tmp_path):
    with VikingServer() as viking, child(SCRIPT, tmp_path / "a.db", viking.url) as other:
        kills = 1
        while ran(other, "s", 5 + kills) == -9:
            kills += 1
        assert viking.archives("s") == [["m0"]] and viking.live("s") == ["m1", "m2"]
    assert kills > 5


@pytest.mark.slow
def test_of_two_senders_of_one_session_one_is_killed(tmp_path):
    with VikingServer() as viking, child(SCRIPT, tmp_path / "a.db", viking.url) as other:
        for kill_at in (3, 9, 13, 17, 21, 25):
            key = f"s{kill_at}"
            assert ran_together(other, key, kill_at) in ("-9 0", "0 0")
            assert ran_together(other, key, 0) == "0 0"
            with holdfast.open(tmp_path / "a.db") as store:
                stored = [message.text for message in store.session(key).transcript()]
            assert viking.live(key) == stored
            assert sorted(stored) == [f"{name}{number}" for name in "ab" for number in range(4)]


FAULTS = [
    "drop",
    "die",
    "error",
    "failed",
    "busy",
    "hiccup",
    "twice",
    "torn",
    "killed",
    "wiped",
    "gone",
]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("seed", range(3))
def test_random_faults_lose_double_and_misplace_nothing(tmp_path, monkeypatch, seed):
    monkeypatch.setattr("holdfast.adapters.openviking.client.workers.FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr("holdfast.adapters.openviking.client.commits.POLL_S", 0.002)
    dice = random.Random(seed)
    with VikingServer() as viking, holdfast.open(tmp_path / "a.db", durability="process") as store:
        client = Client(viking.url, store=store, background=False, grace_s=0.05)
        for number in range(40):
            _do(viking, dice.choice([*FAULTS, *[""] * 8]))
            client.add_message("s", "user", f"m{number}")
            if dice.random() < 0.15:
                client.commit("s", keep_recent_count=dice.choice([0, 0, 1]))
            if dice.random() < 0.5:
                assert client.flush()
            if dice.random() < 0.1:
                client.close()
                client = Client(viking.url, store=store, background=False, grace_s=0.05)
                client.resume()
        assert client.flush()
        states = {commit.state for commit in client.report("s").commits}
    assert viking.everything("s") == [f"m{number}" for number in range(40)]
    assert states <= {"completed", "accepted", "skipped"}


def _do(viking, fault):
    if fault in ("killed", "wiped", "gone"):
        viking.kill()
        if fault == "wiped" and "s" in viking.sessions:
            viking.wipe("s")
        if fault == "gone":
            viking.sessions.clear()
        viking.start()
    elif fault:
        viking.next(fault)
