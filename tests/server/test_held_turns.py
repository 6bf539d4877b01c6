"""Turns that are held for HTTP clients, when servers are killed, clients vanish and answers are lost."""

import asyncio
import contextlib
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from starlette.responses import Response

import holdfast
import holdfast.testing
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.server.turns import held
from holdfast.testing.oracle import judge
from thorough import few_on_postgres
from wire_server import WireServer, ask, in_thread

pytestmark = [
    pytest.mark.slow,
    few_on_postgres(
        "who holds a turn is told from its lease, which each engine keeps alike", every=3
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with WireServer(tmp_path_factory.mktemp("held") / "s.db") as served:
        yield served


def _until(look, limit_s=20.0):
    """Asks again until this is true: another process's state has no signal to wait on."""
    over = threading.Event()
    timer = threading.Timer(limit_s, over.set)
    timer.start()
    try:
        while not (found := look()):
            assert not over.is_set(), "it never came"
            over.wait(0.02)
        return found
    finally:
        timer.cancel()


def test_a_killed_server_leaves_what_was_said_and_the_start_is_asked_again(tmp_path):
    """I-4, I-5, I-6: chunks that were answered are there after SIGKILL; a message that was not used
    is given back, and the same `Idempotency-Key` gets a turn with it.
    """
    with WireServer(tmp_path / "s.db") as server:
        spoken = server.turn("a")
        server.stream(spoken["id"], "Half of ", "an answer")
        unused = server.turn("b", "Not used.", headers={"Idempotency-Key": "b1"})
        server.kill()
        server.start()
        said = [("Hello.", "complete"), ("Half of an answer", "partial")]
        assert server.texts(spoken["session_id"]) == said
        again = server.turn("b", "Not used.", headers={"Idempotency-Key": "b1"})
        assert again["id"] != unused["id"] and again["session_id"] == unused["session_id"]
        server.stream(again["id"], "Used.", close=True)
        assert server.end(again["id"])["end"] == "completed"
        told = [("Not used.", "complete"), ("Used.", "complete")]
        assert server.texts(again["session_id"]) == told
        late = server.ask("POST", f"/v1/turns/{spoken['id']}/messages", {"message": "Late."})
        assert (late.status, late.code) == (409, "turn_interrupted")
        # One that was used is not run again by itself: who asks is told where it is.
        body = {"key": "b", "message": "Not used."}
        known = server.ask("POST", "/v1/turns", body, headers={"Idempotency-Key": "b1"})
        assert known.status == 201 and known.body["id"] == again["id"]
        server.kill()
        server.start()
        known = server.ask("POST", "/v1/turns", body, headers={"Idempotency-Key": "b1"})
        assert (known.code, known.body["turn_id"]) == ("already_accepted", again["id"])


def test_a_server_that_is_told_to_end_ends_its_turns(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        turn = server.turn("a")
        server.stream(turn["id"], "Half of ")
        code, said = server.end()
        assert (code, said) == (-15, "")
    with holdfast.open(tmp_path / "s.db") as store:
        [ended] = store.session("a").turns()
        assert (ended.end, ended.reason) == ("interrupted", "the store was closed")
        assert [message.state for message in store.session("a").transcript()][-1] == "partial"


def test_a_client_that_renews_keeps_its_turn_and_one_that_does_not_loses_it(server):
    kept = server.turn("renewed", lease_s=2)
    lost = server.turn("lost", lease_s=2)
    renew = f"/v1/turns/{kept['id']}/renew"

    def is_over():
        assert server.ask("POST", renew).done["lease_s"] == 2
        return server.ask("GET", f"/v1/turns/{lost['id']}").done["end"]

    assert _until(is_over) == "abandoned"
    assert server.ask("GET", f"/v1/turns/{kept['id']}").done["lease_left_s"] > 0
    assert server.ask("POST", renew, {"lease_s": 60}).done["lease_s"] == 60
    assert server.end(kept["id"])["end"] == "completed"
    told = server.ask("POST", f"/v1/turns/{lost['id']}/renew")
    assert (told.code, told.body["reason"]) == ("turn_interrupted", "its client's lease ran out")


def test_a_request_that_takes_long_does_not_let_the_lease_run_out(server):
    """Compaction in a session waits for its running turn: that turn is its own client's here."""
    turn = server.turn("long", lease_s=0.5)
    path = f"/v1/turns/{turn['id']}"
    for number in range(3):
        server.ask("POST", f"{path}/messages", {"message": f"Number {number}."}).done  # noqa: B018
    done = server.ask("POST", f"{path}/compact", {"summary": "Numbers.", "keep_turns": 0}).done
    assert done["covered"]
    context = server.ask("GET", f"{path}/context").done["messages"]
    assert "Numbers." in json.dumps(context)
    assert server.end(turn["id"])["end"] == "completed"


def test_of_many_writers_that_know_the_same_head_one_succeeds(server):
    session = server.ask("POST", "/v1/sessions", {"key": "guarded"}).done["id"]
    path = f"/v1/sessions/{session}/messages"

    def write(number):
        head = {"If-Match": '"1"'}
        return server.ask("POST", path, {"message": f"Writer {number}."}, headers=head)

    with ThreadPoolExecutor(12) as pool:
        told = list(pool.map(write, range(12)))
    assert sorted(each.status for each in told) == [201, *[409] * 11]
    [(written, _)] = server.texts(session)
    for each in told:
        if each.status == 409:
            assert (each.code, each.body["head"]) == ("stale", 2)
            assert [missed["body"]["content"] for missed in each.body["missed"]] == [written]
    # A turn that is started so, too; and it goes on without the guard.
    head = {"If-Match": '"2"'}
    start = f"/v1/sessions/{session}/turns"
    turn = server.ask("POST", start, {"message": "Go on."}, headers=head).done
    server.stream(turn["id"], "Gone on.", close=True)
    assert server.end(turn["id"])["end"] == "completed"


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """Where two servers may have one store."""
    if request.param == "sqlite":
        return tmp_path / "s.db"
    return request.getfixturevalue("database")


def test_a_turn_is_held_by_the_process_that_started_it(where):
    with WireServer(where) as one, WireServer(where) as other:
        turn = one.turn("shared")
        told = other.ask("POST", f"/v1/turns/{turn['id']}/streams")
        assert (told.status, told.code) == (421, "held_elsewhere")
        shown = other.ask("GET", f"/v1/turns/{turn['id']}").done
        assert (shown["end"], shown["lease_left_s"]) == (None, None)
        # Stopping is for everybody.
        stop = f"/v1/sessions/{turn['session_id']}/stop"
        assert other.ask("POST", stop).done == {"stopped": True}
        assert one.ask("POST", f"/v1/turns/{turn['id']}/streams").code == "turn_interrupted"


def test_of_two_servers_one_is_killed_and_the_other_goes_on(where):
    """I-4, I-5: what the killed one has answered is there, and its turn is no longer in the way."""
    with WireServer(where) as one, WireServer(where) as other:
        cut = one.turn("shared")
        one.stream(cut["id"], "Half of ", "an answer")
        waiting = one.ask("POST", "/v1/inbox", {"key": "shared", "message": "And now?"}).done
        one.kill()
        turn = other.turn("shared", "Go on.")
        assert turn["session_id"] == cut["session_id"] == waiting["session_id"]
        other.stream(turn["id"], "Gone on.", close=True)
        assert other.end(turn["id"])["end"] == "completed"
        told = dict(other.texts(turn["session_id"]))
        assert told == {
            "Hello.": "complete",
            "Half of an answer": "partial",
            "And now?": "complete",
            "Go on.": "complete",
            "Gone on.": "complete",
        }
        assert other.ask("GET", f"/v1/turns/{cut['id']}").done["end"] == "abandoned"


def test_payloads_come_back_byte_for_byte_and_any_unicode_passes(server):
    """I-14."""
    turn = server.turn("bytes")
    path = f"/v1/turns/{turn['id']}/messages"
    half = '{"role":"assistant","content":"half: \\ud83d, whole: \\ud83d\\ude00"}'
    big = '{"role":"assistant","content":"n","x":[123456789012345678901234567890,1e-7,"\\u0000"]}'
    for payload in (half, big):
        server.ask("POST", path, raw=f'{{"message": {payload}}}'.encode()).done  # noqa: B018
    server.end(turn["id"])
    page = server.ask("GET", f"/v1/sessions/{turn['session_id']}/transcript").done
    assert [each["payload"] for each in page["items"][1:]] == [json.loads(half), json.loads(big)]
    context = server.ask("GET", f"/v1/sessions/{turn['session_id']}/context").done
    # No request could be sent with half a character.
    assert context["messages"][1]["content"].startswith("half: \ufffd, whole: 😀")


def test_chunks_of_a_provider_become_its_message(server):
    turn = server.turn("provider")
    path = f"/v1/turns/{turn['id']}/streams"
    id = server.ask("POST", path, {"format": "openai.chat"}).done["message_id"]
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi "}}]},
        {"choices": [{"index": 0, "delta": {"content": "there"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    pushed = server.ask("POST", f"{path}/{id}", {"index": 0, "chunks": chunks, "close": True})
    assert pushed.done == {"text": "Hi there", "index": 3}
    wrong = server.ask("POST", f"{path}/{id}", {"index": 3, "chunks": ["more"]})
    assert wrong.code == "bad_argument"
    assert server.end(turn["id"])["end"] == "completed"
    assert server.texts(turn["session_id"])[1] == ("Hi there", "complete")


def test_a_client_that_goes_away_while_it_waits_leaves_its_message(server):
    """I-4; and the next start takes it."""
    import http.client

    running = server.turn("waits")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"key": "waits", "message": "I wait."})
    connection.request("POST", "/v1/turns", body, {"Authorization": f"Bearer {server.key}"})
    inbox = f"/v1/sessions/{running['session_id']}/inbox"
    _until(lambda: server.ask("GET", inbox).done["items"])
    connection.close()
    # the server has seen that it left: nothing is under way but this question
    _until(lambda: "under_way 1\n" in server.ask("GET", "/metrics").body)
    server.end(running["id"])
    taker = server.ask("POST", "/v1/turns", {"key": "waits"}).done
    server.end(taker["id"])
    page = server.ask("GET", f"/v1/sessions/{running['session_id']}/transcript").done
    assert [each["turn"] for each in page["items"]] == [running["id"], taker["id"]]


def test_a_compaction_whose_client_goes_away_while_it_waits_is_not_done(server):
    import http.client

    running = server.turn("summed")
    session = f"/v1/sessions/{running['session_id']}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"summary": "All of it.", "keep_turns": 0})
    head = {"Authorization": f"Bearer {server.key}"}
    connection.request("POST", f"{session}/compact", body, head)
    _until(lambda: "under_way 2\n" in server.ask("GET", "/metrics").body)
    connection.close()
    _until(lambda: "under_way 1\n" in server.ask("GET", "/metrics").body)
    server.end(running["id"])
    context = server.ask("GET", f"{session}/context").done["messages"]
    assert "All of it." not in json.dumps(context)


def test_a_server_that_is_told_to_end_answers_those_who_wait(tmp_path):
    """Followers, and starts and compactions that wait for another turn: it had waited for them in
    vain, and then cut them off with a traceback.
    """
    with WireServer(tmp_path / "s.db") as served:
        session = served.turn("k")["session_id"]
        store = holdfast.open(f"http://127.0.0.1:{served.port}", token=served.key)
        read = threading.Event()

        def follow():
            with contextlib.suppress(holdfast.errors.HoldfastError):
                for _ in store.session("k").follow():
                    read.set()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        with ThreadPoolExecutor(2) as pool:
            start = {"key": "k", "message": "Next.", "on_busy": "wait"}
            summary = {"summary": "All of it.", "keep_turns": 0}
            waiting = [
                pool.submit(served.ask, "POST", "/v1/turns", start),
                pool.submit(served.ask, "POST", f"/v1/sessions/{session}/compact", summary),
            ]
            assert read.wait(20)
            _until(lambda: len(served.texts(session)) == 2)
            # both of them, what the follower asks, and this question
            _until(lambda: "under_way 4\n" in served.ask("GET", "/metrics").body)
            assert served.end() == (-signal.SIGTERM, "")
            for each in waiting:
                assert (each.result().status, each.result().code) == (503, "store_unavailable")
        store.close()
        follower.join(20)
        assert not follower.is_alive()


def test_a_late_message_that_is_asked_again_is_stored_once(tmp_path):
    """I-7: its turn was stopped elsewhere. It is kept, its sender is told that the turn is over, and
    asks again because that answer was lost.
    """
    with WireServer(tmp_path / "s.db") as one, WireServer(tmp_path / "s.db") as other:
        turn = one.turn("k")
        stop = f"/v1/sessions/{turn['session_id']}/stop"
        assert other.ask("POST", stop).done == {"stopped": True}
        key = {"Idempotency-Key": "late"}
        path = f"/v1/turns/{turn['id']}/messages"
        for _ in range(3):
            told = one.ask("POST", path, {"message": "Too late."}, headers=key)
            assert (told.status, told.code) == (409, "turn_interrupted")
        assert [text for text, _ in one.texts(turn["session_id"])] == ["Hello.", "Too late."]


OVERTAKERS = {
    "taken over": ("POST", "/v1/turns", {"key": "{key}", "message": "No.", "on_busy": "interrupt"}),
    "stopped": ("POST", "/v1/sessions/{session}/stop", {}),
    "reset": ("POST", "/v1/reset", {"key": "{key}"}),
}


def _overtake(server, turn, way):
    method, path, body = OVERTAKERS[way]
    names = {"key": turn["key"], "session": turn["session_id"]}
    filled = {name: value.format(**names) for name, value in body.items()}
    server.ask(method, path.format(**names), filled).done  # noqa: B018


@pytest.mark.parametrize("told_by", ["renew", "context", "end", "nothing"])
@pytest.mark.parametrize("way", OVERTAKERS)
def test_all_that_an_overtaken_client_finishes_is_kept_late_whatever_it_was_told_before(
    server, way, told_by
):
    """I-7: its tools have run, several at once, and it hears of the end by another request first."""
    turn = server.turn(f"overtaken: {way}, {told_by}")
    path = f"/v1/turns/{turn['id']}"
    calls = []
    for number in range(3):
        call = {"name": "pay", "arguments": {"number": number}}
        calls.append(server.ask("POST", f"{path}/calls", call).done["call_id"])
    _overtake(server, turn, way)
    if told_by != "nothing":
        method = "GET" if told_by == "context" else "POST"
        told = server.ask(method, f"{path}/{told_by}")
        assert (told.status, told.code) == (409, "turn_interrupted")
    for number, call in enumerate(calls):
        key = {"Idempotency-Key": f"paid {number}"}
        for _ in range(3):
            paid = {"call_id": call, "content": f"Paid {number}."}
            told = server.ask("POST", f"{path}/results", paid, headers=key)
            assert (told.status, told.code) == (409, "turn_interrupted")
    told = server.ask("POST", f"{path}/messages", {"message": "All paid."})
    assert told.code == "turn_interrupted"
    session = f"/v1/sessions/{turn['session_id']}"
    late = []
    for each in server.ask("GET", f"{session}/transcript").done["items"]:
        if each["late"]:
            assert each["turn"] == turn["id"]
            late.append(each["text"])
    assert late == ["Paid 0.", "Paid 1.", "Paid 2.", "All paid."]
    states = [each["state"] for each in server.ask("GET", f"{session}/calls").done["items"]]
    assert states == ["done"] * 3
    # Nothing else is done in it, and nobody else may.
    for step, body in (("streams", {}), ("calls", {"name": "pay"}), ("inbox", {}), ("renew", {})):
        assert server.ask("POST", f"{path}/{step}", body).code == "turn_interrupted"
    assert server.ask("GET", path).done["lease_left_s"] is None


def test_what_was_stored_in_time_is_not_stored_again_late(server):
    """The answer was lost, its turn was taken over, and its client asks again."""
    turn = server.turn("in time")
    path, key = f"/v1/turns/{turn['id']}/messages", {"Idempotency-Key": "in time"}
    said = server.ask("POST", path, {"message": "In time."}, headers=key).done
    _overtake(server, turn, "taken over")
    for _ in range(2):
        assert server.ask("POST", path, {"message": "In time."}, headers=key).done == said
        assert server.ask("POST", f"/v1/turns/{turn['id']}/renew").code == "turn_interrupted"
    texts = [text for text, _ in server.texts(turn["session_id"])]
    assert texts.count("In time.") == 1


def test_a_turn_that_its_own_client_has_ended_takes_nothing_late(server):
    turn = server.turn("ended")
    server.end(turn["id"])
    told = server.ask("POST", f"/v1/turns/{turn['id']}/messages", {"message": "No."})
    assert told.code == "turn_interrupted"
    assert [text for text, _ in server.texts(turn["session_id"])] == ["Hello."]


def test_only_the_last_of_the_overtaken_turns_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(held, "OVERTAKEN_MAX", 1)
    with in_thread(tmp_path / "s.db") as (port, token):
        ask_here = partial(ask, port, token, "POST")
        turns = []
        for key in ("a", "b"):
            turns.append(ask_here("/v1/turns", {"key": key, "message": "Hello."}).done)
            ask_here("/v1/turns", {"key": key, "message": "No.", "on_busy": "interrupt"})
            # The first tells the server, too.
            for _ in range(2):
                assert ask_here(f"/v1/turns/{turns[-1]['id']}/renew").code == "turn_interrupted"
        for turn in turns:
            told = ask_here(f"/v1/turns/{turn['id']}/messages", {"message": "Late."})
            assert told.code == "turn_interrupted"
        counts = []
        for turn in turns:
            path = f"/v1/sessions/{turn['session_id']}/transcript"
            items = ask(port, token, "GET", path).done["items"]
            counts.append([each["text"] for each in items].count("Late."))
        assert counts == [0, 1]


def test_a_turn_takes_nothing_late_as_it_is_ended():
    """Its end is stored, and not answered yet."""
    turns = held.LeasedTurns(RealWorld())
    with holdfast.testing.temporary_store() as store:
        with store.turn("k", "Hello.") as work:
            session = AsyncSession(work._work.session)
            leased = turns.hold(AsyncTurn(work._work), session, lease_s=30)
            leased.is_ending = True
        assert turns.get(session.tenant, leased.id) is None
        assert turns.overtaken(session.tenant, leased.id) is None


def test_a_reset_and_a_fork_are_done_once_over_a_restart(where):
    """A message that came to the new session is not lost to a reset that is asked again."""
    key = {"Idempotency-Key": "once"}
    with WireServer(where) as server:
        running = server.turn("k")
        reset = server.ask("POST", "/v1/reset", {"key": "k"}, headers=key).done
        assert reset["id"] != running["session_id"]
        server.ask("POST", "/v1/inbox", {"key": "k", "message": "New."}).done  # noqa: B018
        path = f"/v1/sessions/{reset['id']}/fork"
        fork = server.ask("POST", path, {}, headers=key).done
        server.kill()
        server.start()
        assert server.ask("POST", "/v1/reset", {"key": "k"}, headers=key).done == reset
        assert server.ask("POST", path, {}, headers=key).done == fork
        # And it is told from another one, though the server that did it is gone.
        other = server.ask("POST", path, {"key": "other"}, headers=key)
        assert (other.status, other.code) == (422, "key_reused")
        other = server.ask("POST", "/v1/reset", {"key": "k", "reason": "other"}, headers=key)
        assert (other.status, other.code) == (422, "key_reused")
        assert server.texts(reset["id"]) == [("New.", "pending")]
        sessions = server.ask("GET", "/v1/sessions").done["items"]
        assert len(sessions) == 3
    with holdfast.open(where) as store:
        assert judge(store) == []


def test_what_is_still_being_done_is_not_done_again_however_much_else_is_asked(monkeypatch):
    monkeypatch.setattr(held, "ANSWERS_MAX", 2)

    async def play():
        answers, begun, may_end = held.Answers(), [], asyncio.Event()

        async def work(name):
            begun.append(name)
            if name == "slow":
                await may_end.wait()
            return Response(name)

        def ask(name):
            return asyncio.ensure_future(answers.once(name, b"", partial(work, name)))

        slow = ask("slow")
        for number in range(5):
            await ask(f"quick {number}")
        again = ask("slow")
        await asyncio.sleep(0)
        may_end.set()
        assert (await slow).body == (await again).body == b"slow"
        assert begun == ["slow", *(f"quick {number}" for number in range(5))]
        # Those that are over are forgotten, the oldest first.
        await ask("quick 0")
        assert begun.count("quick 0") == 2

    asyncio.run(play())
