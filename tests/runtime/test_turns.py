"""A turn: durable from its first moment, and ended exactly once, whatever happens (I-4, I-6).

Fault classes A1, A2, A3, A6, A7, A9, I7, I8 of FAULTS.md.
"""

import gc
import threading
import weakref

import pytest

import holdfast
from holdfast.domain.entry import note_of
from holdfast.engine.protocol import Write
from holdfast.errors import (
    AlreadyAccepted,
    BadArgument,
    InvalidMessage,
    SessionBusy,
    TurnInterrupted,
)
from holdfast.runtime.store import open_store
from holdfast.runtime.turns.recovery import settle
from holdfast.testing.providers import check
from looking import HandWorld, end_notes, ends, journaled, other_handle, raw_entries, told
from procs import child, run
from thorough import few_cases

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def only_end(store, session):
    """The end of the one turn of this session, asserted to be the only one."""
    found = ends(store, session.id)
    assert list(found) == [1] and len(found[1]) == 1, found
    return found[1][0]


# The inbound message.


def test_the_inbound_message_is_durable_with_its_event_before_turn_returns(store, where):
    """I-4, FAULTS A2: the model has not been called yet, and another handle already reads the
    prompt.
    """
    session = store.session("k")
    turn = session.turn("Book a table.", event_id="evt-1", reply_to="telegram:42")
    with other_handle(where) as other:
        [message] = other.session("k").transcript()
        assert (message.role, message.text, message.event_id) == ("user", "Book a table.", "evt-1")
        assert message.turn == turn.id and message.reply_to == "telegram:42"
        known = other._work.engine.accepted(session._log.scope, "evt-1")
        assert known is not None and known.message.hex() == message.id
    turn.interrupt()


def test_the_inbound_message_survives_a_process_that_is_killed_right_after_turn_returns(
    store, where
):
    """I-4, FAULTS A2: sent, the model hangs, the process is killed: the prompt is there, for the
    next turn.
    """
    script = """
        import holdfast
        holdfast.open(sys.argv[1]).session("k").turn("Hello?", event_id="evt-1")
        say("started")
        hear()
    """
    with child(script, where) as writer:
        writer.wait_for("started")
        writer.kill()
    session = store.session("k")
    assert told(session) == [("user", "Hello?", "pending")]
    with pytest.raises(AlreadyAccepted):
        session.turn("Hello?", event_id="evt-1")
    with session.turn() as turn:
        assert turn.context() == [{"role": "user", "content": "Hello?"}]
        turn.say("Yes.")
    assert told(session) == [("user", "Hello?", "complete"), ("assistant", "Yes.", "complete")]


def test_a_message_that_cannot_be_stored_starts_no_turn(store):
    """I-3: refused before anything is written, and the session is as free as before."""
    session = store.session("k")
    before = len(raw_entries(store, session.id))
    with pytest.raises(InvalidMessage):
        session.turn({"role": "user", "content": object()})
    with pytest.raises(InvalidMessage):
        session.turn(12)
    with pytest.raises(BadArgument):
        session.turn("x", on_busy="hope")
    assert len(raw_entries(store, session.id)) == before
    with session.turn("x", on_busy="refuse"):
        pass


def test_a_message_is_frozen_when_it_is_given(store):
    """I-3, FAULTS F7: what its owner does to it afterwards is not in the store."""
    session = store.session("k")
    message = {"role": "user", "content": [{"type": "text", "text": "before"}]}
    with session.turn(message) as turn:
        message["content"][0]["text"] = "after"
        assert turn.context() == [{"role": "user", "content": [{"type": "text", "text": "before"}]}]


def test_one_event_is_one_turn_however_often_it_comes(store, where):
    """I-2, FAULTS A6, A7: twice in a row, after a restart, through either door; the error names
    what it became.
    """
    session = store.session("k")
    with session.turn("Pay.", event_id="evt-1") as turn:
        turn.say("Paid.")
    for again in (
        lambda: session.turn("Pay.", event_id="evt-1"),
        lambda: store.turn("k", "Pay.", event_id="evt-1"),
    ):
        with pytest.raises(AlreadyAccepted) as told_so:
            again()
        assert told_so.value.turn_id == turn.id and told_so.value.session_id == session.id
        assert told_so.value.message_id == next(session.transcript()).id
    with other_handle(where) as other, pytest.raises(AlreadyAccepted):
        other.turn("k", "Pay.", event_id="evt-1")
    assert list(ends(store, session.id)) == [1]


def test_an_event_is_known_through_a_reset_and_names_the_session_it_was_accepted_in(store):
    """I-2, FAULTS A6: the webhook tries again after /new; the answer is where it was done, not a
    second run.
    """
    old = store.session("k")
    with old.turn("Pay.", event_id="evt-1") as turn:
        turn.say("Paid.")
    new = store.reset("k")
    assert new.id != old.id
    for again in (
        lambda: new.turn("Pay.", event_id="evt-1"),
        lambda: store.turn("k", "Pay.", event_id="evt-1"),
    ):
        with pytest.raises(AlreadyAccepted) as told_so:
            again()
        assert (told_so.value.session_id, told_so.value.turn_id) == (old.id, turn.id)
    assert told(new) == []


def test_the_same_event_under_another_key_or_tenant_is_another_event(store, where):
    """I-2, I-19: event ids are unique in their key only."""
    with store.turn("k", "Pay.", event_id="evt-1"), store.turn("other", "Pay.", event_id="evt-1"):
        pass
    with other_handle(where, tenant="second") as other:
        with other.turn("k", "Pay.", event_id="evt-1"):
            pass
        sessions = [store.session("k"), store.session("other"), other.session("k")]
        assert [told(session) for session in sessions] == [[("user", "Pay.", "complete")]] * 3


@pytest.mark.parametrize("fresh", [True, False])
def test_two_threads_with_the_same_event_at_once_make_one_turn(store, fresh):
    """I-2, FAULTS A6: the claim is made in the transaction that starts the turn."""
    if not fresh:
        store.session("k")
    gate, outcomes = threading.Barrier(8), []

    def knock():
        gate.wait()
        try:
            with store.turn("k", "Pay.", event_id="evt-1") as turn:
                turn.say("Paid.")
            outcomes.append(turn.id)
        except AlreadyAccepted as error:
            outcomes.append(error)

    threads = [threading.Thread(target=knock) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session = store.session("k")
    ran = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(ran) == 1 and len(outcomes) == 8
    assert {error.turn_id for error in outcomes if isinstance(error, AlreadyAccepted)} <= {ran[0]}
    assert told(session) == [("user", "Pay.", "complete"), ("assistant", "Paid.", "complete")]


@pytest.mark.slow
def test_two_processes_with_the_same_event_at_once_make_one_turn(store, where):
    """I-2, FAULTS A6, F1."""
    script = """
        import holdfast
        from holdfast.errors import AlreadyAccepted
        store = holdfast.open(sys.argv[1])
        say("ready")
        for number in range(20):
            hear()
            try:
                with store.turn("k", "Pay.", event_id=f"evt-{number}") as turn:
                    turn.say("Paid.")
                say("ran", turn.id)
            except AlreadyAccepted as error:
                say("known", error.turn_id)
    """
    with child(script, where) as one, child(script, where) as two:
        one.wait_for("ready"), two.wait_for("ready")
        for number in range(20):
            one.tell(), two.tell()
            words = sorted(answer.split()[0] for answer in (one.line(), two.line()))
            assert words == ["known", "ran"], f"event {number}"
    session = store.session("k")
    assert [message.text for message in session.transcript()] == ["Pay.", "Paid."] * 20


# The one end.


def test_a_clean_exit_completes_the_turn(store):
    """I-6."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.say("Hello.")
    assert only_end(store, session) == "completed"


@pytest.mark.parametrize(
    "error, end",
    [
        (ValueError("broke"), "failed"),
        (TimeoutError("slow"), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(1), "interrupted"),
        (GeneratorExit(), "interrupted"),
        (BaseException("strange"), "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_an_exception_ends_the_turn_once_and_is_raised_on(store, error, end):
    """I-6, FAULTS A1, A3, A10: what was said stays, the error is a record and never speech."""
    session = store.session("k")
    with pytest.raises(type(error)) as raised:
        with session.turn("Hi") as turn:
            turn.say("One moment.")
            raise error
    assert raised.value is error
    assert only_end(store, session) == end
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "One moment.", "complete")]
    [note] = end_notes(store, session.id)
    assert type(error).__name__ in (note.error or "") + (note.reason or "")
    for format in FORMATS:
        context = session.context(format)
        assert check(format, context) == []
        assert "broke" not in str(list(context)) and "Error" not in str(list(context))


def test_a_generator_that_is_closed_ends_its_turn(store, where):
    """I-6: an agent written as a generator is dropped by its consumer in the middle of a
    sentence.
    """
    session = store.session("k")

    def agent():
        with session.turn("Hi") as turn:
            yield from turn.deliver(["One ", "two ", "three"])

    running = agent()
    assert next(running) == "One "
    running.close()
    assert only_end(store, session) == "interrupted"
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "One ", "partial")]


def test_ctrl_c_in_the_middle_of_a_stream_keeps_what_was_shown(store, where):
    """I-5, I-6, FAULTS A1: a real SIGINT, which arrives anywhere: in the source, in a commit, in
    the consumer.
    """
    script = """
        import holdfast, itertools
        store = holdfast.open(sys.argv[1])
        with store.turn("k", "Count.") as turn:
            for text in turn.deliver(f"{number} " for number in itertools.count()):
                say("shown", text)
    """
    with child(script, where) as writer:
        shown = [writer.wait_for("shown") for _ in range(20)]
        writer.interrupt()
        shown += [line.partition(" ")[2] for line in writer.lines()]
        assert "KeyboardInterrupt" in writer.errors()
    session = store.session("k")
    assert only_end(store, session) == "interrupted"
    [_, answer] = session.transcript()
    assert answer.state == "partial" and answer.text.startswith("".join(shown))


def test_a_killed_process_leaves_one_end_and_all_that_was_shown(store, where):
    """I-5, I-6, FAULTS A1: 3 of 5 chunks delivered, SIGKILL; the text is stored, partial, and the
    turn abandoned.
    """
    script = """
        import holdfast
        def source():
            yield "One "
            yield "two "
            yield "three "
            hear()
        with holdfast.open(sys.argv[1]).turn("k", "Count.") as turn:
            for text in turn.deliver(source()):
                say("shown", text)
    """
    with child(script, where) as writer:
        for expected in ("One ", "two ", "three "):
            assert writer.wait_for("shown") == expected
        writer.kill()
    session = store.session("k")
    assert told(session) == [
        ("user", "Count.", "complete"),
        ("assistant", "One two three ", "partial"),
    ]
    assert only_end(store, session) == "abandoned"
    assert session.context() == [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "One two three "},
    ]


def test_a_turn_is_ended_once_even_if_it_is_ended_twice(store):
    """I-6: interrupt() and fail() in the block, then the block's own exit."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.interrupt("enough")
    assert only_end(store, session) == "interrupted"
    with session.turn("Again") as turn:
        turn.fail(ValueError("no"))
        turn.interrupt()
    assert ends(store, session.id) == {1: ["interrupted"], 2: ["failed"]}
    assert [note.error for note in end_notes(store, session.id)] == [None, "ValueError: no"]


@pytest.mark.slow
def test_a_turn_that_is_dropped_without_an_end_is_ended_by_the_next_one_who_looks(store):
    """I-6, FAULTS I8: nobody holds the Turn any more; it must not look as if it ran for ever."""
    session = store.session("k")
    turn = session.turn("Hi")
    turn.say("Hello.")
    del turn
    gc.collect()
    with session.turn("Again") as second:  # waits for the keeper to notice, which it does by itself
        second.say("Yes.")
    found = ends(store, session.id)
    assert [len(each) for each in found.values()] == [1, 1] and found[1][0] in (
        "abandoned",
        "interrupted",
    )


def test_a_turn_that_was_renewed_is_missed_as_soon_as_it_is_dropped(store):
    """I-6: nothing that its renewals left behind keeps it alive until the garbage is collected."""
    turn = store.session("k").turn("Hi")
    turn._work.renew()
    turn.say("Hello.")
    missed = weakref.ref(turn._work)
    del turn
    assert missed() is None


# Settling what the dead have left.

KILLED_IN_STREAM = """
    import holdfast
    store = holdfast.open(sys.argv[1])
    turn = store.turn("k", "Hi", lease_s=3600)
    stream = turn.deliver(iter(["Well, ", "no"]))
    say("shown", next(stream))
    hear()
"""

LOOKS = {
    "context": lambda session: session.context(),
    "info": lambda session: session.info(),
    "transcript": lambda session: list(session.transcript()),
    "pending": lambda session: session.pending(),
    "calls": lambda session: session.calls(),
    "turn": lambda session: session.turn("Next", on_busy="refuse").interrupt(),
    "stop": lambda session: session.stop(),
}


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("zombie", [False, True], ids=["reaped", "zombie"])
def test_a_dead_process_s_turn_is_settled_at_once_by_whoever_looks(store, where, look, zombie):
    """I-6, FAULTS I8: the lease has an hour to go, but the process is gone from this machine."""
    with child(KILLED_IN_STREAM, where) as writer:
        writer.wait_for("shown")
        (writer.kill_unreaped if zombie else writer.kill)()
        session = store.session("k")
        assert ends(store, session.id) == {1: []}
        LOOKS[look](session)
        assert ends(store, session.id)[1] == ["abandoned"]
    assert told(session)[:2] == [("user", "Hi", "complete"), ("assistant", "Well, ", "partial")]


def test_many_who_look_at_once_settle_a_dead_turn_once(store, where):
    """I-6: eight handles find the same dead turn."""
    with child(KILLED_IN_STREAM, where) as writer:
        writer.wait_for("shown")
        writer.kill()
    gate = threading.Barrier(8)
    contexts = []

    def look():
        with open_store(where) as mine:
            session = mine.session("k")
            gate.wait()
            contexts.append(list(session.context()))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(contexts) == 8 and all(context == contexts[0] for context in contexts)
    session = store.session("k")
    assert only_end(store, session) == "abandoned"
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "Well, ", "partial")]


def test_a_settler_that_was_killed_between_its_two_commits_is_carried_on(store, where):
    """I-6: a seized turn with no end is found and ended by the next one."""
    with child(KILLED_IN_STREAM, where) as writer:
        writer.wait_for("shown")
        writer.kill()
    session = store.session("k")
    session_log = session._log
    # the first half of settling, and no more
    session_log.submit(Write(session_log.id, fence=1, seize=True, ended_too=True)).result()
    assert ends(store, session.id) == {1: []}
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "Well, ", "partial")]
    assert only_end(store, session) == "abandoned"


def test_a_stop_that_is_cut_off_between_its_two_commits_is_carried_on_as_a_stop(where):
    """I-6, I-16: whoever stopped the turn died half-way; the next one, after a short while, writes
    what is missing.
    """
    world = HandWorld()
    with open_store(where) as store, open_store(where, world=world) as other:
        turn = store.session("k").turn("Hi")
        stream = turn.deliver(iter(["Well, ", "no"]))
        assert next(stream) == "Well, "
        session = other.session("k")
        session_log = session._log
        half = settle(session_log, session_log.state(), end="interrupted", reason="stopped: user")
        next(half).result()  # the first commit, and never the second
        with pytest.raises(TurnInterrupted):
            next(stream)
        assert session.info().state == "running", "whoever stopped it has a moment to finish"
        world.ahead_s = 10
        assert session.info().state == "open"
        assert told(session) == [("user", "Hi", "complete"), ("assistant", "Well, ", "partial")]
        assert only_end(other, session) == "interrupted" and session.pending() == []


def test_a_running_turn_of_a_living_process_is_not_settled(store, where):
    """I-6, I-16: looking at it, from here or from elsewhere, leaves it running."""
    script = """
        import holdfast
        with holdfast.open(sys.argv[1]).turn("k", "Hi") as turn:
            say("started")
            hear()
            turn.say("Hello.")
        say("ended")
    """
    with child(script, where) as writer:
        writer.wait_for("started")
        session = store.session("k")
        for look in ("context", "info", "transcript", "pending", "calls"):
            LOOKS[look](session)
        with pytest.raises(SessionBusy):
            session.turn("x", on_busy="refuse")
        assert session.info().state == "running"
        writer.tell()
        writer.wait_for("ended")
    assert only_end(store, session) == "completed"


def test_a_lease_that_ran_out_lets_the_next_one_end_the_turn(where):
    """I-6, I-7, FAULTS I8, F4: a writer that lives but has not renewed loses the turn at lease
    expiry.
    """
    here, there = HandWorld(), HandWorld()
    with open_store(where, world=here) as store, open_store(where, world=there) as other:
        turn = store.session("k").turn("Hi", lease_s=30)
        stream = turn.deliver(iter(["Well, ", "no"]))
        assert next(stream) == "Well, "
        session = other.session("k")
        there.ahead_s = 29
        assert session.info().state == "running"
        there.ahead_s = 31
        assert session.info().state == "open"
        assert told(session) == [("user", "Hi", "complete"), ("assistant", "Well, ", "partial")]
        with pytest.raises(TurnInterrupted):
            next(stream)
        assert ends(other, session.id) == {1: ["abandoned"]}
        assert journaled(store, session.id) in ("", "Well, ")


@pytest.mark.slow
def test_a_running_turn_renews_its_lease_by_itself(where):
    """FAULTS I8: a tool that runs longer than the lease does not cost its turn the session."""
    script = """
        import holdfast
        with holdfast.open(sys.argv[1]).turn("k", "Hi", lease_s=3) as turn:
            say("started")
            hear()
            turn.say("Done at last.")
        say("ended")
    """
    with child(script, where) as writer, open_store(where) as store:
        writer.wait_for("started")
        engine = store._work.engine
        session_id = store.session("k").id
        session_log = store.session("k")._log
        tick = session_log.world.tick
        first = engine.state(session_id).lease_left_s + tick()
        changed = threading.Event()
        while not changed.wait(0.02):  # until the lease reaches well beyond where it first ended
            if engine.state(session_id).lease_left_s + tick() > first + 0.5:
                changed.set()
        assert store.session("k").info().state == "running"
        writer.tell()
        writer.wait_for("ended")
        assert ends(store, session_id) == {1: ["completed"]}


@pytest.mark.slow
def test_a_process_that_stood_still_for_its_lease_is_overtaken_and_told(store, where):
    """I-6, I-7, FAULTS F4: SIGSTOP beyond the lease, another takes over, SIGCONT: refused, nothing
    delivered.
    """
    script = """
        import holdfast
        from holdfast.errors import TurnInterrupted
        store = holdfast.open(sys.argv[1])
        turn = store.turn("k", "Hi", lease_s=0.3)
        def source():
            yield "before "
            say("asleep")
            hear()
            yield "after"
        try:
            with turn:
                for text in turn.deliver(source()):
                    say("shown", text)
        except TurnInterrupted as error:
            say("told", error.turn_id)
    """
    with child(script, where) as writer:
        assert writer.wait_for("shown") == "before "
        writer.wait_for("asleep")
        writer.freeze_between_commits(where)
        session = store.session("k")
        with session.turn("Anybody?") as turn:  # waits until the lease is over
            turn.say("Me.")
        writer.thaw()
        writer.tell()
        said = writer.end()
    assert [line.split()[0] for line in said] == ["told"], (
        "the overtaken writer handed something on"
    )
    assert list(ends(store, session.id).values()) == [["abandoned"], ["completed"]]
    assert [payload["content"] for payload in session.context()] == [
        "Hi",
        "before ",
        "Anybody?",
        "Me.",
    ]


# What a turn that dies gives back.


def test_a_turn_that_dies_before_it_has_used_its_message_gives_it_back(store, where):
    """I-4, FAULTS A8: pending again, in order, with what it had taken from the inbox; the next turn
    takes all of it.
    """
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        turn = store.turn("k", "first", event_id="evt-1")
        turn.context()
        say("started")
        hear()
    """
    with child(script, where) as writer:
        writer.wait_for("started")
        writer.kill()
    session = store.session("k")
    assert [message.text for message in session.pending()] == ["first"]
    assert session.context() == []
    with session.turn("second") as turn:
        assert session.pending() == []
        assert [message.text for message in session.transcript()] == ["first", "second"]
        assert turn.context() == [{"role": "user", "content": "first\n\nsecond"}]
        turn.say("Both.")
    first, second, _ = session.transcript()
    assert first.turn == second.turn == turn.id
    with pytest.raises(AlreadyAccepted) as told_so:
        session.turn("first", event_id="evt-1")
    assert told_so.value.turn_id == turn.id


@pytest.mark.slow
def test_a_message_that_is_given_back_again_and_again_is_one_message(store, where):
    """I-2, I-4, FAULTS A9: three turns die on it before one answers it."""
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        turn = store.session("k").turn(sys.argv[2] or None)
        say("started")
        hear()
    """
    for text in ("Hello?", "", ""):
        with child(script, where, text) as writer:
            writer.wait_for("started")
            writer.kill()
    session = store.session("k")
    assert told(session) == [("user", "Hello?", "pending")]
    with session.turn() as turn:
        turn.say("Here.")
    assert told(session) == [("user", "Hello?", "complete"), ("assistant", "Here.", "complete")]
    assert list(ends(store, session.id).values()) == [["abandoned"]] * 3 + [["completed"]]


def test_a_turn_that_has_spoken_keeps_its_message(store, where):
    """I-4: one chunk was shown, so the message was used; it is not answered a second time by
    itself.
    """
    with child(KILLED_IN_STREAM, where) as writer:
        writer.wait_for("shown")
        writer.kill()
    session = store.session("k")
    assert session.pending() == []
    assert len({message.turn for message in session.transcript()}) == 1


def test_a_turn_that_was_stopped_keeps_its_message(store):
    """I-16: stopping is an explicit act: the message was not lost with a process, it was
    waved off.
    """
    session = store.session("k")
    turn = session.turn("Never mind")
    assert session.stop() is True
    assert session.pending() == [] and session.stop() is False
    assert ends(store, session.id) == {1: ["interrupted"]}
    with pytest.raises(TurnInterrupted):
        turn.say("But")


# The agent's own turns, and retries inside a turn.


def test_a_turn_without_a_message_is_the_agent_s_own(store):
    """A heartbeat leaves no words of a user behind (FAULTS B12)."""
    session = store.session("k")
    with session.turn() as turn:
        turn.say("Good morning.")
    assert told(session) == [("assistant", "Good morning.", "complete")]
    for format in FORMATS:
        assert check(format, session.context(format)) == []


def test_a_retry_inside_a_turn_does_not_repeat_the_prompt(store):
    """FAULTS A9: the model answers empty twice, then with text: one user message, and a valid
    context.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        for answer in ([], [""], ["Hello."]):
            assert "".join(turn.deliver(answer)) == "".join(answer)
    assert [role for role, _, _ in told(session)].count("user") == 1
    assert only_end(store, session) == "completed"
    assert session.context() == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
    ]


def test_a_retracted_answer_is_out_of_the_model_s_view_and_in_the_transcript(store):
    """The user did see it (I-1); the model is not told it said it."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        list(turn.deliver(["Wrong."]))
        turn.retract("retried")
        assert turn.context() == [{"role": "user", "content": "Hi"}]
        list(turn.deliver(["Right."]))
    assert [text for _, text, _ in told(session)] == ["Hi", "Wrong.", "Right."]
    assert session.context()[-1]["content"] == "Right."


def test_the_log_of_a_turn_is_dense_and_names_its_turn(store):
    """I-1: seqs from 1 without a gap; every entry of the turn carries its number."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        call = turn.call("look", {"at": "sky"})
        turn.result(call, "blue")
        turn.say("Blue.")
    entries = list(session.entries())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    kinds = [entry.kind for entry in entries if entry.kind != "opened"]
    assert kinds == ["message", "turn", "message", "message", "message", "end"]
    assert note_of("end", entries[-1].note).end == "completed"


def test_another_process_reads_what_this_one_wrote(store, where):
    """I-9: the same transcript and the same context, computed elsewhere."""
    with store.turn("k", "Hi") as turn:
        list(turn.deliver(["Hel", "lo."]))
    said = run(
        """
        import holdfast, json
        session = holdfast.open(sys.argv[1]).session("k")
        say(json.dumps([message.text for message in session.transcript()]))
        say(json.dumps(session.context()))
        """,
        where,
    )
    assert said == [
        '["Hi", "Hello."]',
        '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]',
    ]
