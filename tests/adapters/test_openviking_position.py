"""What follows from what was seen at OpenViking, and what a message of ours is there: decided
without a server."""

import pytest

import holdfast
from holdfast.adapters.openviking.client.outgoing import next_batch, outgoing
from holdfast.adapters.openviking.client.position import (
    LogPlace,
    MessagesLost,
    Position,
    SeenThere,
    compared,
    source_ids,
)

OURS = [LogPlace(2, "a"), LogPlace(3, "b"), LogPlace(4, "c")]
SENT = Position(sent=OURS[-1], live=3)


def seen(*live, count=None, archives=0, archived=(), pending=False):
    return SeenThere(
        True, len(live) if count is None else count, archives, frozenset(live), frozenset(archived),
        pending,
    )  # fmt: skip


def test_what_is_all_there_stays_as_it_is():
    assert compared(SENT, OURS, seen("a", "b", "c")) == (SENT, None)


def test_what_arrived_without_an_answer_is_known():
    after, lost = compared(SENT, OURS, seen("a", "b", "c", "d"))
    assert (after.sent, after.known, after.live, lost) == (OURS[-1], ("d",), 4, None)


def test_a_wiped_session_is_sent_again_from_where_its_live_messages_began():
    after, lost = compared(SENT, OURS, seen())
    assert (after.sent, after.known, after.live) == (LogPlace(), (), 0)
    assert lost == MessagesLost(3, "wiped")


def test_what_was_written_after_a_wipe_is_not_sent_twice_and_told_as_misplaced():
    after, lost = compared(SENT, OURS, seen("c"))
    assert (after.sent, after.known) == (LogPlace(), ("c",))
    assert lost == MessagesLost(2, "wiped", misplaced=1)


def test_what_another_commit_has_archived_is_not_missed_later():
    after, lost = compared(SENT, OURS, seen("c", archives=1, archived=("a", "b")))
    assert (after.since, after.archives, after.live, lost) == (OURS[1], 1, 1, None)


def test_what_lies_in_a_failed_archive_is_reported_and_not_sent_for_ever():
    after, lost = compared(SENT, OURS, seen(archives=1))
    assert (after.sent, after.since, lost) == (OURS[-1], OURS[-1], MessagesLost(3, "hidden"))
    after, lost = compared(SENT, OURS, seen(archives=2, archived=("a",)))
    assert (after.since, lost) == (OURS[-1], MessagesLost(2, "hidden"))


def test_a_pending_archive_is_read_again_next_time():
    after, _ = compared(SENT, OURS, seen("c", archives=1, archived=("a", "b"), pending=True))
    assert after.archives == 0


@pytest.mark.parametrize("there", [SeenThere(False), seen("x", archives=1)])
def test_a_session_that_lost_its_archives_is_sent_whole(there):
    position = Position(sent=OURS[-1], since=OURS[-1], live=0, archives=2, requests=40)
    after, lost = compared(position, [], there)
    assert (after.sent, after.since, after.requests) == (LogPlace(), LogPlace(), 0)
    assert after.known == tuple(sorted(there.live)) and lost.why == "gone"


def test_a_session_that_is_new_has_lost_nothing():
    assert compared(Position(live=0), [], SeenThere(False))[1] is None


def test_a_checkpoint_is_no_proof_that_its_messages_are_there():
    shown = [
        {"source_message_ids": ["a"]},
        {"message_kind": "checkpoint", "source_message_ids": ["b"]},
        {"source_message_ids": None},
        "no message",
    ]
    assert source_ids(shown) == {"a"}


# Messages.


@pytest.fixture
def session(tmp_path):
    with holdfast.open(tmp_path / "a.db", durability="process") as store:
        yield store.session("orchard")


def sent(session, running=None, **position):
    items = outgoing(list(session.transcript()), running=running)
    return next_batch(items, Position(**position), most=100, upto=None)


def tools(body):
    return [
        (part["tool_id"], part["tool_name"], part["tool_input"], part["tool_status"], part["tool_output"])
        for part in body["parts"]
        if part["type"] == "tool"
    ]  # fmt: skip


def test_a_call_and_its_result_are_one_part_and_both_ids_go_along(session):
    with session.turn("Measure.") as turn:
        call = turn.call("shell", {"a": 1})
        result = turn.result(call, "31 %")
        turn.say("31 %.")
    ask, step, end = sent(session).bodies
    assert [ask["role"], step["role"], end["role"]] == ["user", "assistant", "assistant"]
    assert tools(step) == [(call, "shell", {"a": 1}, "completed", "31 %")]
    assert step["source_message_ids"][1:] == [result]
    assert {ask["turn_id"], step["turn_id"], end["turn_id"]} == {turn.id}
    assert end["parts"] == [{"type": "text", "text": "31 %."}]


def test_a_failed_call_and_one_of_unknown_outcome_are_errors(session):
    with session.turn("Measure.") as turn:
        turn.result(turn.call("shell", {}, "c1"), "no such file", error=True)
        turn.call("shell", "not an object", "c2")
    _, failed, unknown = sent(session).bodies
    assert tools(failed) == [("c1", "shell", {}, "error", "no such file")]
    assert tools(unknown)[0][2:4] == ({"input": "not an object"}, "error")


def test_a_message_waits_for_the_results_of_its_calls_while_its_turn_runs(session):
    with session.turn("Measure.") as turn:
        call = turn.call("shell", {})
        batch = sent(session, running=turn.id)
        assert len(batch.bodies) == 1
        session.append("And hurry.")
        assert len(sent(session, running=turn.id).bodies) == 1
        turn.result(call, "31 %")
        batch = sent(session, running=turn.id)
    assert [body["role"] for body in batch.bodies] == ["user", "assistant", "user"]
    # The result lies behind the last message: it went along, and is not sent by itself.
    assert batch.carried == frozenset()
    assert batch.upto.seq == list(session.transcript())[-1].seq


def test_a_result_that_comes_too_late_goes_by_itself(session):
    with session.turn("Measure.") as turn:
        turn.call("shell", {}, "c1")
    first = sent(session)
    session.append({"role": "tool", "tool_call_id": "c1", "content": "31 %"})
    [late] = sent(session, sent=first.upto, known=first.known).bodies[-1:]
    assert late["role"] == "assistant"
    assert late["parts"] == [
        {"type": "tool", "tool_id": "c1", "tool_status": "completed", "tool_output": "31 %"}
    ]


def test_what_was_given_in_its_own_shape_goes_as_it_is(session):
    parts = [{"type": "context", "uri": "viking://x", "abstract": "An orchard."}]
    given = {"role": "user", "parts": parts, "peer_id": "ann", "turn_id": "t", "mine": 1}
    id = session.append(given, format="openviking")
    [body] = sent(session).bodies
    assert body.pop("created_at")
    assert body == {
        "role": "user", "parts": parts, "peer_id": "ann", "turn_id": "t",
        "source_message_ids": [id],
    }  # fmt: skip


def test_what_says_nothing_is_passed_over(session):
    session.append({"role": "system", "content": "Be brief."})
    session.append({"role": "assistant", "content": " "})
    batch = sent(session)
    assert batch.bodies == [] and batch.upto.seq == session.head()


def test_a_batch_ends_at_its_limit_at_a_commit_and_when_it_is_large(session):
    for number in range(5):
        session.append("x" * (3 << 20) if number == 3 else f"{number}")
    messages = list(session.transcript())
    items = list(outgoing(messages, running=None))
    assert len(next_batch(items, Position(), most=2, upto=None).bodies) == 2
    assert len(next_batch(items, Position(), most=9, upto=messages[0].seq).bodies) == 1
    assert len(next_batch(items, Position(), most=9, upto=None).bodies) == 5
    known = next_batch(items, Position(known=(messages[0].id,)), most=9, upto=None)
    assert len(known.bodies) == 4 and known.known == frozenset()
