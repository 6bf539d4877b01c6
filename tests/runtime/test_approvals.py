"""Calls that wait for approval (I-10, I-22; FAULTS E7, E13)."""

import asyncio

import pytest

import holdfast
from holdfast.errors import NotFound
from holdfast.testing.providers import check
from looking import other_handle
from procs import child

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


@pytest.fixture
def session(either_store):
    return either_store.session("k")


def states(session):
    return [call.state for call in session.calls()]


def ask(session, arguments=None, call_id="c1"):
    with session.turn("Delete it.") as turn:
        return turn.call("rm", arguments or {"path": "/x"}, call_id=call_id, needs_approval=True)


def test_a_call_that_waits_is_shown_as_waiting_and_stays_open(session, path):
    """FAULTS E7: waiting is a state, not an orphan to be repaired; in another process too."""
    assert ask(session).waiting
    with other_handle(path) as other:
        theirs = other.session("k")
        assert states(theirs) == states(session) == ["waiting"]
        assert theirs.context()[-1]["content"] == "[waiting for approval]"
        for format in FORMATS:
            assert check(format, theirs.context(format)) == []
    assert [entry.kind for entry in session.entries()] == [
        "opened",
        "message",
        "turn",
        "message",
        "ask",
        "end",
    ]


def test_a_process_that_dies_while_a_call_waits_leaves_it_waiting(path):
    script = """
        import holdfast
        turn = holdfast.open(sys.argv[1]).session("k").turn("Delete it.")
        turn.call("rm", {"path": "/x"}, call_id="c1", needs_approval=True)
        say("asked")
        hear()
    """
    with child(script, path) as other:
        other.wait_for("asked")
        other.kill()
    with holdfast.open(path) as store:
        assert states(store.session("k")) == ["waiting"]


def test_an_approval_is_used_once_by_exactly_this_call(session):
    """FAULTS E13: bound to the id and the arguments' digest, good for one start."""
    ask(session)
    session.decide("c1", True, by="ann")
    assert states(session) == ["approved"]
    with session.turn("Go on.") as turn:
        assert not turn.call("rm", {"path": "/x"}, call_id="c1").waiting
        assert states(session) == ["open"]
        turn.result("c1", "gone")
        again = turn.call("rm", {"path": "/x"}, call_id="c1", needs_approval=True)
        assert again.waiting
    assert states(session) == ["done", "waiting"]


def test_other_arguments_are_asked_about_again(session):
    """FAULTS E13: approve, then replay with other arguments."""
    ask(session)
    session.decide("c1", True, by="ann")
    with session.turn("Go on.") as turn:
        assert turn.call("rm", {"path": "/y"}, call_id="c1", needs_approval=True).waiting
        assert not turn.call("rm", {"path": "/x"}, call_id="c1").waiting
        turn.result("c1", "x is gone")
    session.decide("c1", False, by="bob")
    assert states(session) == ["done", "denied"]
    contents = [payload["content"] for payload in session.context() if payload["role"] == "tool"]
    assert contents == ["x is gone", "Denied by bob."]


def test_a_call_that_waits_is_not_run_by_leaving_out_the_question(session):
    ask(session)
    with session.turn("Just do it.") as turn:
        assert turn.call("rm", {"path": "/x"}, call_id="c1").waiting


def test_a_call_that_the_model_made_can_wait(session):
    call = {
        "id": "c7",
        "type": "function",
        "function": {"name": "rm", "arguments": '{"path":"/x"}'},
    }
    with session.turn("Delete it.") as turn:
        turn.add({"role": "assistant", "content": None, "tool_calls": [call]})
        assert turn.call("rm", '{"path":"/x"}', call_id="c7", needs_approval=True).waiting
        assert len(session.calls()) == 1
        session.decide("c7", True, by="ann")
        assert not turn.call("rm", '{"path":"/x"}', call_id="c7").waiting
        turn.result("c7", "gone")
    assert states(session) == ["done"]


def test_a_decision_is_made_once_and_only_about_what_waits(session):
    ask(session)
    with pytest.raises(NotFound):
        session.decide("c2", True, by="ann")
    session.decide("c1", False, by="ann")
    with pytest.raises(NotFound):
        session.decide("c1", True, by="bob")
    assert states(session) == ["denied"]


def test_a_compaction_covers_no_call_that_waits(session):
    """FAULTS D2."""
    ask(session)
    for number in range(3):
        with session.turn(f"Question {number}.") as turn:
            turn.say("Answer.")
    assert session.compact("All of it.", keep_turns=0) is None
    session.decide("c1", False, by="ann")
    assert session.compact("All of it.", keep_turns=0) is not None


def test_an_approved_call_that_runs_in_a_later_turn_is_shown_as_running_until_that_ends(
    session, path
):
    """I-10: it was asked for in another turn; no outcome yet is not interrupted."""
    two = [
        {"id": id, "type": "function", "function": {"name": "rm", "arguments": "{}"}}
        for id in ("c1", "c2")
    ]
    with session.turn("Delete them.") as turn:
        turn.add({"role": "assistant", "content": None, "tool_calls": two})
        turn.call("rm", "{}", call_id="c1", needs_approval=True)
    session.decide("c1", True, by="ann")

    def shown(handle):
        return [payload["content"] for payload in handle.context() if payload["role"] == "tool"]

    with other_handle(path) as other:
        theirs = other.session("k")
        with session.turn("Go on.") as turn:
            assert not turn.call("rm", "{}", call_id="c1").waiting
            for handle in (session, theirs):
                assert "still running" in shown(handle)[0]
                assert "interrupted" in shown(handle)[1]
            assert states(theirs) == ["open", "unknown"]
        for handle in (session, theirs):
            assert ["interrupted" in words for words in shown(handle)] == [True, True]
        assert states(theirs) == ["unknown", "unknown"]


def test_a_fork_does_not_show_what_runs_in_its_parent_as_running(session):
    ask(session)
    session.decide("c1", True, by="ann")
    with session.turn("Go on.") as turn:
        turn.call("rm", {"path": "/x"}, call_id="c1")
        fork = session.fork()
        assert "still running" in str(session.context())
        assert "still running" not in str(fork.context())


def test_a_call_tells_its_arguments_as_they_were_said(session, path):
    """So that an approved one can be run by whoever finds it; after a compaction, from pages of the
    log.
    """
    said = [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "rm", "arguments": '{"path":  "/x"}'},
        },
        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": ""}},
    ]
    with session.turn("Look.") as turn:
        turn.add({"role": "assistant", "content": "Now:", "tool_calls": said})
        turn.call("rm", {"path": "/y", "force": True})
        turn.add(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "rm", "input": {"a": 1}}],
            },
            format="anthropic",
        )
    arguments = ['{"path":  "/x"}', "", '{"path":"/y","force":true}', '{"a":1}']
    assert [call.arguments for call in session.calls()] == arguments
    for number in range(3):
        with session.turn(f"Question {number}.") as turn:
            turn.say("Answer.")
    assert session.compact("All of it.", keep_turns=1) is not None
    with other_handle(path) as other:
        assert [call.arguments for call in other.session("k").calls()] == arguments


def test_a_call_that_waits_where_no_load_looks_can_be_decided(session, path):
    """It was hidden, or rewound away, before a compaction; `calls` lists it, so it can be
    answered.
    """
    ask(session)
    session.label(list(session.transcript())[1].id, visible_to_model=False)
    for number in range(3):
        with session.turn(f"Question {number}.") as turn:
            turn.say("Answer.")
    assert session.compact("All of it.", keep_turns=1) is not None
    with other_handle(path) as other:
        theirs = other.session("k")
        assert states(theirs) == ["waiting"]
        theirs.decide("c1", False, by="ann")
        assert states(theirs) == states(session) == ["denied"]


def test_the_async_face_decides_alike(path):
    async def story():
        async with holdfast.open_async(path) as store:
            session = await store.session("k")
            async with session.turn("Delete it.") as turn:
                assert (await turn.call("rm", {}, call_id="c1", needs_approval=True)).waiting
            await session.decide("c1", True, by="ann")
            return [call.state for call in await session.calls()]

    assert asyncio.run(story()) == ["approved"]
