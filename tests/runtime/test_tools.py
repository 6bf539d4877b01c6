"""Tools: a call is stored before the tool runs, its outcome after, and the two stay a pair (I-10,
I-22).

Fault classes E1 to E6 and E14 of FAULTS.md.
"""

import json
import threading

import pytest

import holdfast
from holdfast.errors import NotFound, TurnInterrupted
from holdfast.testing.providers import check
from looking import ends, other_handle
from procs import child

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def states(session):
    return [(call.call_id, call.state) for call in session.calls()]


def asking(*calls, content=None):
    """An assistant's chat message with these calls, each `(id, name)`."""
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for call_id, name in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def pairs(session):
    """(name of the call, what answers it) for every call of the chat context, which is checked on
    the way.
    """
    for format in FORMATS:
        assert check(format, session.context(format)) == [], format
    found, names = [], []
    for payload in session.context("openai.chat"):
        if payload["role"] == "assistant":
            names += [
                (call["id"], call["function"]["name"]) for call in payload.get("tool_calls", ())
            ]
        elif payload["role"] == "tool":
            name = next(name for call_id, name in names if call_id == payload["tool_call_id"])
            found.append((name, payload["content"]))
    return found


def test_a_call_is_stored_before_the_tool_may_run_and_its_outcome_after(store, where):
    """I-22, FAULTS E14: seen from outside, inside the tool."""
    session = store.session("k")
    with other_handle(where) as other, session.turn("Hi") as turn:
        eye = other.session("k")
        call_id = turn.call("pay", {"sum": 5})
        [call] = eye.calls()
        assert (call.call_id, call.name, call.state, call.outcome) == (call_id, "pay", "open", None)
        result = turn.result(call_id, "paid")
        [call] = eye.calls()
        assert (call.state, call.outcome) == ("done", result)
        turn.say("Paid.")
        assert eye.context()[1]["tool_calls"][0]["function"] == {
            "name": "pay",
            "arguments": '{"sum":5}',
        }
    assert pairs(session) == [("pay", "paid")]


def test_a_call_that_the_model_streamed_is_marked_as_started_and_not_repeated(store):
    """I-22, FAULTS E4: `call` with the model's id stores that the tool is about to run; the call is
    not doubled.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.add(asking(("call_a", "look"), ("call_b", "wait")))
        assert turn.call("look", "{}", call_id="call_a") == "call_a"
        assert [entry.kind for entry in session.entries()].count("call") == 1
        assert states(session) == [("call_a", "open"), ("call_b", "open")]
        turn.result("call_a", "seen")
        turn.call("wait", "{}", call_id="call_b")
        turn.result("call_b", "waited")
    assert states(session) == [("call_a", "done"), ("call_b", "done")]
    assert pairs(session) == [("look", "seen"), ("wait", "waited")]


def test_the_states_of_a_call_are_open_done_failed_and_unknown(store):
    """I-22."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.add(asking(("a", "works"), ("b", "breaks"), ("c", "hangs")))
        turn.result("a", "fine")
        turn.result("b", "no such file", error=True)
        assert states(session) == [("a", "done"), ("b", "failed"), ("c", "open")]
        turn.interrupt()
    assert states(session) == [("a", "done"), ("b", "failed"), ("c", "unknown")]
    assert [name for name, _ in pairs(session)] == ["works", "breaks", "hangs"]
    assert "interrupted" in pairs(session)[2][1]


def test_a_failure_is_told_to_the_model_as_one(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        for id, failed in (("a", False), ("b", True)):
            turn.call("look", {}, call_id=id)
            turn.result(id, "what it says", error=failed)
        turn.say("So be it.")
    results = [
        block
        for payload in session.context("anthropic")
        for block in (payload["content"] if isinstance(payload["content"], list) else ())
        if block["type"] == "tool_result"
    ]
    assert [block.get("is_error", False) for block in results] == [False, True]


def test_a_result_needs_a_call(store):
    """FAULTS E2: nothing is stored for a call that nobody made."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        before = session.info().head
        with pytest.raises(NotFound):
            turn.result("call_x", "what?")
        assert session.info().head == before
        turn.say("Never mind.")


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", ["call", "tool", "result"])
def test_a_process_killed_around_its_tool_leaves_a_valid_context(store, where, killed_after):
    """I-9, I-10, I-22, FAULTS E1, E14: the outcome is "unknown" or there, and the next request is
    valid.
    """
    script = """
        import holdfast
        with holdfast.open(sys.argv[1]).turn("k", "Pay.") as turn:
            call = turn.call("pay", {"sum": 5}, call_id="call_0")
            say("call")
            hear()
            say("tool")
            hear()
            turn.result(call, "paid")
            say("result")
            hear()
    """
    with child(script, where) as writer:
        for step in ("call", "tool", "result"):
            writer.wait_for(step)
            if step == killed_after:
                break
            writer.tell()
        writer.kill()
    session = store.session("k")
    done = killed_after == "result"
    assert states(session) == [("call_0", "done" if done else "unknown")]
    [(name, answer)] = pairs(session)
    assert name == "pay" and (
        answer == "paid" if done else "interrupted" in answer and "unknown" in answer
    )
    assert session.pending() == [], "a turn that has called a tool has used its message"
    with session.turn("Did you?") as turn:
        assert check("openai.chat", turn.context()) == []
        assert states(session)[0] == ("call_0", "done" if done else "unknown")
    assert list(ends(store, session.id).values()) == [["abandoned"], ["completed"]]


def test_a_result_that_comes_after_its_turn_was_stopped_takes_its_place(store):
    """I-7, I-10, FAULTS E1: late, kept, next to its call, in every format; the call is done and no
    longer unknown.
    """
    session = store.session("k")
    turn = session.turn("Hi")
    turn.add(asking(("a", "look"), ("b", "wait")))
    turn.result("a", "seen")
    session.stop()
    with session.turn("Go on") as second:
        second.say("On it.")
    assert pairs(session) == [
        ("look", "seen"),
        ("wait", "[interrupted: the outcome of this call is unknown]"),
    ]
    with pytest.raises(TurnInterrupted):
        turn.result("b", "waited")
    assert pairs(session) == [("look", "seen"), ("wait", "waited")]
    assert states(session) == [("a", "done"), ("b", "done")]
    roles = [payload["role"] for payload in session.context()]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]


def test_a_result_for_a_dead_turn_can_be_stored_by_the_next_one(store, where):
    """I-10, FAULTS E14: the process died, the tool did not; whoever learns of its outcome stores
    it.
    """
    script = """
        import holdfast
        turn = holdfast.open(sys.argv[1]).turn("k", "Pay.")
        turn.call("pay", {}, call_id="call_0")
        say("called")
        hear()
    """
    with child(script, where) as writer:
        writer.wait_for("called")
        writer.kill()
    session = store.session("k")
    with session.turn("And?") as turn:
        turn.result("call_0", "it was paid")
        turn.say("It was paid.")
    assert states(session) == [("call_0", "done")]
    assert pairs(session) == [("pay", "it was paid")]


def test_two_results_for_one_call_are_both_kept_and_one_is_shown(store):
    """I-10, FAULTS E3: the provider's error and the SDK's error both come in."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.add(asking(("a", "look")))
        turn.result("a", "first")
        turn.result("a", "second")
        turn.add({"role": "tool", "tool_call_id": "a", "content": "third"})
    assert [message.role for message in session.transcript()] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
    ]
    assert pairs(session) == [("look", "first")]
    assert states(session) == [("a", "done")]


def test_call_0_fifty_times_is_fifty_pairs(store, where):
    """I-2, I-10, FAULTS E4: servers count their ids from nought in every response."""
    session = store.session("k")
    for number in range(50):
        with session.turn(f"q{number}") as turn:
            if number % 2:
                turn.add(asking(("call_0", f"tool{number}")))
            turn.call(f"tool{number}", "{}", call_id="call_0")
            turn.result("call_0", f"r{number}")
            turn.say(f"a{number}")
    assert pairs_by_place(session) == [(f"tool{number}", f"r{number}") for number in range(50)]
    assert states(session) == [("call_0", "done")] * 50
    with other_handle(where) as other:
        assert pairs_by_place(other.session("k")) == pairs_by_place(session)


def pairs_by_place(session):
    """The same as `pairs`, by position: in a chat context the answers stand right after their
    message.
    """
    for format in FORMATS:
        assert check(format, session.context(format)) == [], format
    found, names = [], []
    for payload in session.context("openai.chat"):
        if payload["role"] == "assistant":
            names = [call["function"]["name"] for call in payload.get("tool_calls", ())]
        elif payload["role"] == "tool":
            found.append((names.pop(0), payload["content"]))
    return found


def test_call_0_fifty_times_in_one_turn_is_fifty_pairs(store):
    """FAULTS E4: one agent loop, fifty model responses, one id."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        for number in range(50):
            turn.add(asking(("call_0", f"tool{number}")))
            turn.result("call_0", f"r{number}")
    assert pairs_by_place(session) == [(f"tool{number}", f"r{number}") for number in range(50)]


def test_equal_ids_in_one_response_pair_in_order(store):
    """FAULTS E4, E6: three parallel calls, all "call_0", two of them answered before the turn was
    stopped.
    """
    session = store.session("k")
    turn = session.turn("Hi")
    turn.add(asking(("call_0", "one"), ("call_0", "two"), ("call_0", "three")))
    turn.result("call_0", "r1")
    turn.result("call_0", "r2")
    session.stop()
    assert pairs_by_place(session)[:2] == [("one", "r1"), ("two", "r2")]
    assert "interrupted" in pairs_by_place(session)[2][1]
    assert states(session) == [("call_0", "done"), ("call_0", "done"), ("call_0", "unknown")]


def test_a_late_result_with_a_reused_id_goes_to_its_own_turn(store):
    """I-7, FAULTS E4, F4: two later turns have used the same id meanwhile."""
    session = store.session("k")
    first = session.turn("one")
    first.call("slow", "{}", call_id="call_0")
    for name in ("quick", "again"):
        with session.turn(name, on_busy="interrupt") as turn:
            turn.call(name, "{}", call_id="call_0")
            turn.result("call_0", f"result of {name}")
            turn.say("Done.")
    with pytest.raises(TurnInterrupted):
        first.result("call_0", "result of slow")
    expected = [
        ("slow", "result of slow"),
        ("quick", "result of quick"),
        ("again", "result of again"),
    ]
    assert pairs_by_place(session) == expected
    assert states(session) == [("call_0", "done")] * 3


def test_parallel_results_from_many_threads_are_each_stored_once(store):
    """FAULTS E6, A3: twenty tools finish at once, in any order; one message with twenty calls,
    twenty results.
    """
    session = store.session("k")
    names = [(f"c{number}", f"tool{number}") for number in range(20)]
    with session.turn("Hi") as turn:
        turn.add(asking(*names))
        gate = threading.Barrier(20)

        def work(call_id, name):
            gate.wait()
            turn.call(name, "{}", call_id=call_id)
            turn.result(call_id, f"result of {name}")

        threads = [threading.Thread(target=work, args=each) for each in reversed(names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        turn.say("All done.")
    assert pairs(session) == [(name, f"result of {name}") for _, name in names]
    assert [payload["role"] for payload in session.context()] == [
        "user",
        "assistant",
        *["tool"] * 20,
        "assistant",
    ]


def test_each_finished_pair_is_stored_when_it_is_made(store, where):
    """FAULTS A3: three tools finish, then the process is killed before the turn's end: three pairs
    are there.
    """
    script = """
        import holdfast
        turn = holdfast.open(sys.argv[1]).turn("k", "Hi")
        for number in range(3):
            turn.result(turn.call(f"tool{number}", "{}"), f"r{number}")
        say("done")
        hear()
    """
    with child(script, where) as writer:
        writer.wait_for("done")
        writer.kill()
    assert pairs(store.session("k")) == [("tool0", "r0"), ("tool1", "r1"), ("tool2", "r2")]


def test_text_that_arrives_in_the_middle_of_a_tool_stands_after_its_result(store):
    """I-10, FAULTS E5: a message appended between call and result does not come between them in any
    format.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.add(asking(("a", "look"), ("b", "wait")))
        turn.result("b", "waited")
        session.append({"role": "user", "content": "Are you there?"})
        turn.result("a", "seen")
        turn.say("Yes.")
    assert pairs(session) == [("look", "seen"), ("wait", "waited")]
    assert [message.role for message in session.transcript()] == [
        "user",
        "assistant",
        "tool",
        "user",
        "tool",
        "assistant",
    ]


def test_a_blank_result_says_so(store):
    """FAULTS E10: a silent tool; the log keeps the blank, no request has one."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.result(turn.call("quiet", "{}"), "")
        turn.result(turn.call("data", {}), {"rows": [1, 2]})
    (_, blank), (_, data) = pairs(session)
    assert blank.strip() and json.loads(data) == {"rows": [1, 2]}


def test_a_call_of_a_superseded_turn_is_refused_before_the_tool_runs(store):
    """I-7, I-22: the tool must not run, so nothing of the call is stored."""
    session = store.session("k")
    old = session.turn("one")
    with session.turn("two", on_busy="interrupt") as turn:
        turn.say("Two.")
    with pytest.raises(TurnInterrupted):
        old.call("pay", {})
    assert session.calls() == []


def test_arguments_come_back_as_they_were_said(store):
    """I-14: text stays text, with its spaces; data is written as JSON."""
    session = store.session("k")
    said = '{ "a":1,\n "b" : "é" }'
    with session.turn("Hi") as turn:
        turn.result(turn.call("one", said), "ok")
        turn.result(turn.call("two", {"a": [1.5, None, "é"]}), "ok")
    one, two = (
        payload["tool_calls"][0]["function"]["arguments"]
        for payload in session.context()
        if payload.get("tool_calls")
    )
    assert one == said and json.loads(two) == {"a": [1.5, None, "é"]}


def test_two_turns_do_not_share_their_open_calls(store):
    """FAULTS E4: an interrupted call keeps its place when a later turn answers its own call of that
    id.
    """
    session = store.session("k")
    with session.turn("one") as turn:
        turn.call("first", "{}", call_id="call_0")
        turn.interrupt()
    with session.turn("two") as turn:
        turn.call("second", "{}", call_id="call_0")
        turn.result("call_0", "r2")
    (first, nothing), (second, answer) = pairs_by_place(session)
    assert (first, second, answer) == ("first", "second", "r2") and "interrupted" in nothing
    assert states(session) == [("call_0", "unknown"), ("call_0", "done")]


def test_a_message_that_is_added_speaks_in_its_own_role(store):
    """I-14: a tool's message, a user's, an assistant's: as the payload says, not as `add` would
    guess.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.add(asking(("a", "look")))
        turn.add({"role": "tool", "tool_call_id": "a", "content": "seen"})
        turn.add({"role": "user", "content": "[a note from the harness]"})
        turn.add({"role": "assistant", "content": "Seen."})
        turn.add(
            {"role": "user", "content": [{"type": "text", "text": "Sure?"}]}, format="anthropic"
        )
        turn.add("Sure.")
    roles = ["user", "assistant", "tool", "user", "assistant", "user", "assistant"]
    assert [message.role for message in session.transcript()] == roles
    assert [payload["role"] for payload in session.context()] == roles
    assert states(session) == [("a", "done")] and pairs(session) == [("look", "seen")]
