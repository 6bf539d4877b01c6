"""Forking: a new session with a shared past, nothing copied, neither side touched by the other
(I-1, FAULTS J3, B9).
"""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
import procs
from holdfast import Event, Session, Store
from holdfast.domain.entry import note_of
from holdfast.errors import Conflict, NotFound, SessionEnded
from holdfast.runtime.live.follow import Follower
from looking import other_handle
from talking import assert_valid, contexts, dialogue, named, talk, texts, told


def assert_same_everywhere(path: Path, *sessions: Session) -> None:
    with other_handle(path) as other:
        for session in sessions:
            fresh = other.get(session.id)
            assert contexts(fresh) == contexts(session)
            assert told(fresh) == told(session)


def rows(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return next(iter(connection.execute("SELECT count(*) FROM entry")))[0]
    finally:
        connection.close()


def spent(session: Session) -> tuple[int, int]:
    usage = session.info().usage
    return usage.input, usage.output


HIDDEN = {"visible_to_model": False}

# Nothing is copied
# ---------------------------------------------------------------------------------------------------


def test_a_fork_copies_nothing(path: Path, session: Session) -> None:
    """J3: one row for each fork, however long the past."""
    talk(session, *range(20))
    before = rows(path)
    forks = [session.fork() for _ in range(5)]
    assert rows(path) == before + 5
    for fork in forks:
        assert told(fork) == dialogue(*range(20))
        assert contexts(fork) == contexts(session)
    assert len({fork.id for fork in forks} | {session.id}) == 6


def test_the_shared_past_is_the_same_messages(session: Session) -> None:
    """I-2: the same ids, so that nobody counts or shows them twice."""
    talk(session, *range(3))
    fork = session.fork()
    assert [(m.id, m.seq, m.payload, m.at) for m in fork.transcript()] == [
        (m.id, m.seq, m.payload, m.at) for m in session.transcript()
    ]


def test_usage_is_counted_once(session: Session) -> None:
    """J3: by the session that spent it."""
    answer = {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "answer"},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7},
    }
    for _ in range(2):
        with session.turn("ask") as turn:
            list(turn.deliver(iter(chunks(answer)), format="openai.chat"))
    mine = spent(session)
    assert mine == (200, 14)
    fork = session.fork()
    assert spent(fork) == (0, 0)
    with fork.turn("ask") as turn:
        list(turn.deliver(iter(chunks(answer)), format="openai.chat"))
    second = fork.fork()
    assert (spent(session), spent(fork), spent(second)) == (mine, (100, 7), (0, 0))
    assert sum(message.usage is not None for message in second.transcript()) == 3


def chunks(answer: dict[str, Any]) -> list[dict[str, Any]]:
    text = answer["choices"][0]["message"]["content"]
    return [
        {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            ]
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": answer["usage"]},
    ]


def test_the_log_of_a_fork_is_dense_and_says_where_it_comes_from(session: Session) -> None:
    """I-1, B9."""
    talk(session, *range(3))
    fork = session.fork(at=named(session, "answer 1").id)
    talk(fork, "there")
    entries = list(fork.entries())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    opened = [entry for entry in entries if entry.kind == "opened"][-1]
    note = note_of("opened", opened.note)
    assert (note.parent, note.parent_seq) == (session.id, opened.seq - 1)
    assert entries[: opened.seq - 1] == list(session.entries())[: opened.seq - 1]
    assert next(fork.entries(after=opened.seq - 2)) == entries[opened.seq - 2]
    assert fork.info().head == len(entries)


def test_a_long_past_is_told_page_by_page(store: Store, session: Session) -> None:
    """More than a page on each side of the fork."""
    for n in range(2300):
        session.append(f"m{n}")
    fork = session.fork()
    for n in range(5):
        fork.append(f"f{n}")
    assert told(fork) == [*(f"m{n}" for n in range(2300)), *(f"f{n}" for n in range(5))]
    assert [message.text for message in fork.transcript(after=2299, limit=4)] == [
        "m2298",
        "m2299",
        "f0",
        "f1",
    ]


# Neither touches the other
# -------------------------------------------------------------------------------------------


def test_parent_and_fork_go_their_own_ways(path: Path, session: Session) -> None:
    talk(session, 0, 1)
    fork = session.fork()
    talk(session, "here")
    talk(fork, "there")
    talk(session, "here too")
    assert texts(session) == told(session) == dialogue(0, 1, "here", "here too")
    assert texts(fork) == told(fork) == dialogue(0, 1, "there")
    fork.rewind(named(fork, "ask 0").id)
    fork.label(named(fork, "ask 0").id, colour="red")
    fork.instructions("be brief")
    assert named(session, "ask 0").labels == {}
    assert texts(session) == dialogue(0, 1, "here", "here too")
    assert session.instructions() is None
    session.rewind(named(session, "answer 0").id)
    assert texts(fork)[-1] == "ask 0"
    assert_same_everywhere(path, session, fork)


def test_both_can_be_in_a_turn_at_once(session: Session) -> None:
    talk(session, 0)
    fork = session.fork()
    with session.turn("here") as here, fork.turn("there") as there:
        here.say("h")
        there.say("t")
    assert texts(session)[-2:] == ["here", "h"]
    assert texts(fork)[-2:] == ["there", "t"]


def test_a_stale_event_of_the_parent_is_a_new_one_in_a_fork_without_its_key(
    session: Session,
) -> None:
    """An event id is unique in its key, and a fork has another or none."""
    with session.turn("ask", event_id="e1") as turn:
        turn.say("answer")
    fork = session.fork()
    with fork.turn("ask", event_id="e1") as turn:
        turn.say("another answer")
    assert texts(fork) == ["ask", "answer", "ask", "another answer"]


def test_resetting_the_parents_key_leaves_the_fork(store: Store, session: Session) -> None:
    talk(session, 0)
    fork = session.fork()
    store.reset("k")
    talk(fork, 1)
    assert texts(fork) == dialogue(0, 1)


# Where it parts
# ------------------------------------------------------------------------------------------------------


def test_a_fork_at_a_message_ends_with_it_wherever_that_is(path: Path, session: Session) -> None:
    """In the middle of a turn and of a tool pair: the context is valid and goes on."""
    for n in range(2):
        with session.turn(f"ask {n}") as turn:
            turn.call("look", {}, call_id="c1")
            turn.call("touch", {}, call_id="c2")
            turn.result("c2", "warm")
            turn.result("c1", "seen")
            turn.say(f"answer {n}")
    messages = list(session.transcript())
    forks = []
    for index, message in enumerate(messages):
        fork = session.fork(at=message.id)
        forks.append(fork)
        assert [one.id for one in fork.transcript()] == [one.id for one in messages[: index + 1]]
        assert_valid(fork)
        assert fork._log.log().visible[-1].id == message.id
        talk(fork, "next")
        assert_valid(fork)
        assert texts(fork)[-1] == "answer next"
    assert [message.id for message in session.transcript()] == [message.id for message in messages]
    assert_same_everywhere(path, session, *forks)


def test_an_unknown_message_is_not_found_and_no_session_is_made(
    path: Path, store: Store, session: Session
) -> None:
    talk(session, 0)
    talk(store.session("other"), 1)
    before = rows(path)
    for name in ("0" * 32, next(store.session("other").transcript()).id):
        with pytest.raises(NotFound):
            session.fork(at=name)
    assert rows(path) == before


def test_a_fork_of_a_fork_has_the_whole_past(path: Path, session: Session) -> None:
    talk(session, 0, 1)
    chain = [session]
    for n in range(2, 7):
        chain.append(chain[-1].fork())
        talk(chain[-1], n)
    assert texts(chain[-1]) == told(chain[-1]) == dialogue(*range(7))
    early = chain[-1].fork(at=named(session, "answer 0").id)
    talk(early, "early")
    assert texts(early) == dialogue(0, "early")
    middle = chain[-1].fork(at=named(chain[3], "ask 3").id)
    assert texts(middle) == [*dialogue(0, 1, 2), "ask 3"]
    assert_same_everywhere(path, *chain, early, middle)


def test_a_message_that_waited_its_turn_can_be_forked_at(
    path: Path, store: Store, session: Session
) -> None:
    """It was accepted before the turn that took it: the view of the fork ends with it all
    the same.
    """
    talk(session, 0)
    store.accept("k", "accepted one")
    store.accept("k", "accepted two")
    with session.turn() as turn:
        turn.say("answer both")
    fork = session.fork(at=named(session, "accepted two").id)
    assert texts(fork)[:2] == dialogue(0)
    assert texts(fork)[-1].endswith("accepted two")
    assert fork.pending() == []
    talk(fork, "next")
    assert_valid(fork)
    assert_same_everywhere(path, fork)


def test_a_fork_at_a_message_has_the_labels_that_it_was_accepted_with(
    path: Path, store: Store, session: Session
) -> None:
    """I-13: they were stored together; those that it got later are the parent's alone."""
    seen = store.accept("k", "What's this?", labels={"files": ["a.png"]}).message_id
    hidden = store.accept("k", "a secret", labels={"visible_to_model": False}).message_id
    with session.turn() as turn:
        turn.say("A lighthouse.")
    session.label(seen, later=True)
    for at, labels in ((seen, [{"files": ["a.png"]}]), (hidden, [{"files": ["a.png"]}, HIDDEN])):
        fork = session.fork(at=at)
        assert [message.labels for message in fork.transcript()] == labels
        assert texts(fork) == ["What's this?"]
        assert_same_everywhere(path, fork)


def test_a_fork_at_a_message_that_came_from_elsewhere_has_its_labels(
    path: Path, store: Store, session: Session
) -> None:
    """Taken from another session's inbox, or carried along by a reset: in what order ever."""
    receipts = [store.accept("in", f"{n}", labels={"n": n}) for n in range(2)]
    with session.turn(take=receipts) as turn:
        turn.say("both")
    fork = session.fork(at=receipts[0].message_id)
    assert [message.labels for message in fork.transcript()] == [{"n": 0}]
    for n in range(2):
        store.accept("k", f"waits {n}", labels={"n": n})
    carried = store.reset("k", reason="anew")
    first = carried.pending()[0].id
    assert [message.labels for message in carried.fork(at=first).transcript()] == [{"n": 0}]
    with carried.turn() as turn:
        turn.say("both")
    assert_same_everywhere(path, session, carried)


@pytest.mark.parametrize("deed", ["record", "compact", "rewind"])
def test_what_waited_while_the_view_was_changed_is_there_in_a_fork_at_a_later_message_that_waits(
    path: Path, store: Store, session: Session, deed: str
) -> None:
    """I-4, I-9: both were accepted, and the fork is made at the second."""
    talk(session, *range(3))
    store.accept("k", "first")
    if deed == "record":
        session.record(list(session.context())[2:])
    elif deed == "compact":
        session.compact("a summary", keep_turns=1)
    else:
        session.rewind(named(session, "answer 1").id)
    fork = session.fork(at=store.accept("k", "second").message_id)
    assert texts(fork)[-1] == "first\n\nsecond"
    assert_same_everywhere(path, fork)
    fork.rewind(named(fork, "first").id)
    assert texts(fork)[-1] == "first"
    assert_same_everywhere(path, fork)


def test_what_waits_in_the_parents_inbox_can_not_be_rewound_to_in_the_fork(
    store: Store, session: Session
) -> None:
    talk(session, 0)
    waiting = store.accept("k", "waiting").message_id
    talk(fork := session.fork(at=None), 1)
    with pytest.raises(NotFound):
        fork.rewind(waiting)
    store.accept("k", "meanwhile")
    session.append("aside")
    later = session.fork()
    with pytest.raises(NotFound, match="answered in the one it comes from"):
        later.rewind(waiting)


@pytest.mark.parametrize("last", [False, True])
def test_what_waits_in_the_parents_inbox_is_answered_there_only(
    store: Store, session: Session, path: Path, last: bool
) -> None:
    """I-4: accepted once, answered once; whether or not it is the last that happened."""
    talk(session, 0)
    with session.turn("ask 1") as turn:
        if not last:
            store.accept("k", "waiting")
        turn.say("answer 1")
    if last:
        store.accept("k", "waiting")
    fork = session.fork()
    assert fork.pending() == []
    assert fork.info().pending == 0
    with fork.turn("to the fork") as turn:
        assert [message["content"] for message in turn.context()] == [
            *dialogue(0, 1),
            "to the fork",
        ]
    assert [message.text for message in session.pending()] == ["waiting"]
    with session.turn() as turn:
        assert turn.context()[-1]["content"] == "waiting"
    assert_same_everywhere(path, session, fork)


@pytest.mark.parametrize("later", [0, 700])
def test_what_waits_in_the_parents_inbox_is_told_as_answered_elsewhere(
    store: Store, session: Session, later: int
) -> None:
    """A reader of the fork sees why no context of it has the message."""
    talk(session, 0)
    first = store.accept("k", "first").message_id
    second = store.accept("k", "second").message_id
    session.append_all(["aside", *["more"] * later])
    fork = session.fork()
    talk(grandchild := fork.fork(), 1)
    at_second = session.fork(at=second)

    def states(of: Session) -> dict[str, str]:
        return {each.id: each.state for each in of.transcript()}

    with session.turn() as turn:
        turn.say("To both.")
    for branch in (fork, grandchild):
        assert [states(branch)[each] for each in (first, second)] == ["elsewhere"] * 2
        assert set(states(branch).values()) == {"elsewhere", "complete"}
        assert not any("first" in str(each["content"]) for each in branch.context())
    # They part at a message that waits: it stands there, and what waited before it.
    assert set(states(at_second).values()) == set(states(session).values()) == {"complete"}
    assert "first" in str(at_second.context())
    late = at_second.fork()
    assert set(states(late).values()) == {"complete"}


# Turns and ends
# ------------------------------------------------------------------------------------------------------


def test_a_turn_that_runs_in_the_parent_does_not_run_in_the_fork(
    path: Path, session: Session
) -> None:
    talk(session, 0)
    with session.turn("ask 1") as turn:
        turn.call("look", {}, call_id="c1")
        fork = session.fork()
        assert (fork.info().state, fork.info().running) == ("open", None)
        assert_valid(fork)
        assert "interrupted" in str(fork.context())
        assert "still running" in str(turn.context())
        talk(fork, "there")
        turn.result("c1", "found")
        turn.say("answer 1")
    assert "found" not in str(contexts(fork))
    assert texts(fork)[-2:] == dialogue("there")
    assert texts(session)[-1] == "answer 1"
    assert_same_everywhere(path, session, fork)


def test_the_fork_of_an_ended_session_can_go_on(path: Path, session: Session) -> None:
    talk(session, 0)
    session.end("done")
    fork = session.fork()
    assert fork.info().state == "open"
    talk(fork, 1)
    assert texts(fork) == dialogue(0, 1)
    with pytest.raises(SessionEnded):
        session.turn("more")
    assert_same_everywhere(path, session, fork)


def test_a_fork_ends_for_itself(session: Session) -> None:
    talk(session, 0)
    fork = session.fork()
    fork.end("done")
    with pytest.raises(SessionEnded):
        fork.turn("more")
    talk(session, 1)
    assert texts(session) == dialogue(0, 1)


def test_a_fork_made_by_a_process_that_was_killed_is_whole(path: Path) -> None:
    script = """
        import holdfast, os, signal
        store = holdfast.open(sys.argv[1], durability="process")
        session = store.session("k")
        for n in range(3):
            with session.turn(f"ask {n}") as turn:
                turn.say(f"answer {n}")
        fork = session.fork(key="forked")
        say("fork", fork.id)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with procs.child(script, path) as other:
        id = other.wait_for("fork")
        other.lines()
        other.kill()
    with holdfast.open(path, durability="process") as store:
        assert store.session("forked", create=False).id == id
        talk(store.get(id), 3)
        assert texts(store.get(id)) == dialogue(0, 1, 2, 3)
        assert texts(store.session("k")) == dialogue(0, 1, 2)


# Keys
# ----------------------------------------------------------------------------------------------------------------


def test_a_fork_without_a_key_is_found_by_its_id_alone(store: Store, session: Session) -> None:
    talk(session, 0)
    fork = session.fork()
    assert fork.key is None
    assert store.get(fork.id).key is None
    assert store.session("k").id == session.id


def test_a_free_key_is_bound_to_the_fork(store: Store, session: Session) -> None:
    talk(session, 0)
    fork = session.fork(key="branch")
    assert (fork.key, fork.epoch) == ("branch", 1)
    assert store.session("branch").id == fork.id
    with store.turn("branch", "ask 1") as turn:
        turn.say("answer 1")
    assert texts(fork) == dialogue(0, 1)


def test_a_key_that_is_bound_is_not_taken_from_its_session(
    path: Path, store: Store, session: Session
) -> None:
    talk(session, 0)
    bound = store.session("other")
    before = rows(path)
    for key, holder in (("other", bound), ("k", session)):
        with pytest.raises(Conflict) as caught:
            session.fork(key=key)
        assert caught.value.session_id == holder.id
    assert rows(path) == before


def test_a_key_whose_session_has_ended_goes_on_with_the_fork(
    store: Store, session: Session
) -> None:
    talk(session, 0)
    session.end("done")
    fork = session.fork(key="k")
    assert (store.session("k").id, fork.epoch) == (fork.id, 2)
    talk(fork, 1)
    assert texts(store.session("k")) == dialogue(0, 1)


# Compactions
# ---------------------------------------------------------------------------------------------------------


def test_a_fork_after_a_compaction_shares_the_summary(path: Path, session: Session) -> None:
    session.instructions("be kind")
    talk(session, *range(100))
    session.compact("a summary", keep_turns=2)
    fork = session.fork()
    assert contexts(fork) == contexts(session)
    assert told(fork) == dialogue(*range(100))
    assert_same_everywhere(path, fork)
    with other_handle(path) as other:
        fresh = other.get(fork.id)
        assert fresh.context()[0]["content"] == "be kind"
        assert fresh._log.log().since > 300, "the shared history is not read again"
    talk(fork, "there")
    assert fork.compact("its own", keep_turns=1) is not None
    assert "a summary" in str(contexts(session))
    assert "a summary" not in str(contexts(fork))
    assert_same_everywhere(path, session, fork)


def test_a_fork_before_a_compaction_shows_the_originals(path: Path, session: Session) -> None:
    """D5."""
    talk(session, *range(6))
    session.compact("a summary", keep_turns=2)
    talk(session, 6)
    fork = session.fork(at=named(session, "answer 4").id)
    assert texts(fork) == dialogue(*range(5))
    talk(fork, "there")
    assert texts(fork) == dialogue(*range(5), "there")
    assert_same_everywhere(path, session, fork)


def test_a_later_compaction_or_rewind_of_the_parent_does_not_change_the_fork(
    path: Path, session: Session
) -> None:
    talk(session, *range(4))
    session.compact("first", keep_turns=2)
    talk(session, 4)
    fork = session.fork()
    shown = contexts(fork)
    talk(session, 5)
    session.compact("second", keep_turns=1)
    assert contexts(fork) == shown
    assert_same_everywhere(path, session, fork)
    session.rewind(named(session, "ask 0").id)
    assert contexts(fork) == shown
    assert_same_everywhere(path, session, fork)


def test_a_fork_can_rewind_to_before_a_compaction_it_shares(path: Path, session: Session) -> None:
    talk(session, *range(5))
    session.compact("a summary", keep_turns=1)
    fork = session.fork()
    fork.rewind(named(session, "answer 1").id)
    assert texts(fork) == dialogue(0, 1)
    talk(fork, "there")
    assert texts(fork) == dialogue(0, 1, "there")
    assert "a summary" in texts(session)[0]
    assert_same_everywhere(path, session, fork)


def test_recording_in_a_fork_adds_what_is_new(path: Path, session: Session) -> None:
    """I-12: the past is known there as in the parent."""
    talk(session, *range(3))
    fork = session.fork()
    listed = [*fork.context(), {"role": "user", "content": "new"}]
    assert len(fork.record(listed).new) == 1
    assert fork.record(listed).new == ()
    assert texts(fork) == [*dialogue(0, 1, 2), "new"]
    assert told(session) == dialogue(0, 1, 2)
    assert_same_everywhere(path, session, fork)


# Following
# -----------------------------------------------------------------------------------------------------------


def drain(session: Session, after: str | None = None) -> list[Event]:
    """All that can be had now, without waiting."""
    follower = Follower(session._log, after)
    events: list[Event] = []
    while more := follower.step():
        events += more
    return events


def test_following_a_fork_tells_the_past_once_and_then_its_own(session: Session) -> None:
    """I-15, from every cursor."""
    for n in range(2):
        with session.turn(f"ask {n}") as turn:
            list(turn.deliver(iter(["one ", "two"])))
    fork = session.fork(at=list(session.transcript())[2].id)
    with fork.turn("there") as turn:
        list(turn.deliver(iter(["three ", "four"])))
    with session.turn("here") as turn:
        list(turn.deliver(iter(["not ", "there"])))
    events = drain(fork)
    seqs = [event.entry.seq for event in events if event.entry is not None]
    assert seqs == list(range(1, fork.info().head + 1))
    assert [event.text for event in events if event.message_id] == [
        "ask 0",
        "one two",
        "ask 1",
        "there",
        "three four",
    ]
    for index, event in enumerate(events):
        assert drain(fork, event.cursor) == events[index + 1 :]


def test_the_chunks_of_a_turn_that_runs_in_the_parent_are_not_told_in_the_fork(
    session: Session,
) -> None:
    talk(session, 0)
    with session.turn("ask 1") as turn:
        stream = turn.deliver(iter(["one ", "two"]))
        next(stream)
        fork = session.fork()
        assert [event.text for event in drain(fork) if event.message_id] == [*dialogue(0), "ask 1"]
        list(stream)
    assert [event.text for event in drain(fork) if event.message_id] == [*dialogue(0), "ask 1"]


def test_a_fork_of_an_ended_session_is_followed_beyond_that_end(session: Session) -> None:
    talk(session, 0)
    session.end("done")
    fork = session.fork()
    talk(fork, 1)
    fork.end("done too")
    assert [event.text for event in fork.follow() if event.message_id] == dialogue(0, 1)


def test_a_fork_through_the_async_face(path: Path, session: Session) -> None:
    talk(session, 0, 1)
    at = named(session, "answer 0").id

    async def scene() -> str:
        async with holdfast.open_async(path, durability="process") as store:
            there = await (await store.session("k")).fork(at=at, key="branch")
            async with there.turn("ask there") as turn:
                await turn.say("answer there")
            with pytest.raises(Conflict):
                await there.fork(key="branch")
            assert [message.text async for message in there.transcript()] == dialogue(0, "there")
            return there.id

    id = asyncio.run(asyncio.wait_for(scene(), 60))
    with other_handle(path) as other:
        assert texts(other.get(id)) == dialogue(0, "there")
