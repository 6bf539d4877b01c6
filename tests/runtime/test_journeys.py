"""A message that waits goes on: with a reset, with a turn of another session that takes it, and on
again from where that turn gave it back. It is one message all the way: what is told of it, taken
and erased follows it through every session (I-2, I-4, I-21).
"""

import gc
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted, NotFound
from holdfast.runtime.changes.receive import start_turn
from holdfast.runtime.plans.plan import Pause, _wait
from holdfast.runtime.turns.start_turn import TurnRequest
from holdfast.testing.oracle import judge
from procs import child
from thorough import few_cases, few_on_postgres

pytestmark = few_on_postgres(
    "where a message has been is kept in its session's log and folded in `domain`",
)

WORDS, NAME = "SECRETWORDS", "SECRETNAME"
LABELS = {"from": NAME}
JOURNEYS = {
    "answered where it was accepted": ["turn a"],
    "reset": ["reset a", "turn a"],
    "reset twice": ["reset a", "reset a", "turn a"],
    "taken": ["turn b"],
    "taken by a running turn": ["inbox b"],
    "reset, taken": ["reset a", "turn b"],
    "reset, taken by a running turn": ["reset a", "inbox b"],
    "reset twice, taken": ["reset a", "reset a", "turn b"],
    "dropped": ["drop b", "turn b"],
    "dropped, taken": ["drop b", "turn c"],
    "dropped, taken by a running turn": ["drop b", "inbox c"],
    "dropped, reset": ["drop b", "reset b", "turn b"],
    "dropped twice, reset, taken": ["drop b", "drop c", "reset c", "turn d"],
    "reset, dropped, reset, taken": ["reset a", "drop b", "reset b", "turn c"],
}
"""Each ends where the message is answered."""


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def walk(store, steps, receipt):
    """Takes a message on its journey, and gives the session it ends in."""
    key = "a"
    for step in steps:
        act, key = step.split()
        if act == "reset":
            store.reset(key)
        elif act == "drop":
            turn = store.turn(key, take=[receipt])
            del turn
            gc.collect()
            assert {m.id: m.key for m in store.pending()}[receipt.message_id] == key
        elif act == "inbox":
            with store.turn(key, "hello") as turn:
                turn.inbox(take=[receipt])
                turn.say("answer")
        else:
            with store.turn(key, take=[receipt]) as turn:
                turn.say("answer")
    return store.session(key)


def words_left(store):
    found = []
    for each in store.sessions():
        for entry in store.get(each.id).entries():
            if WORDS.encode() in entry.note + entry.body or NAME.encode() in entry.note:
                found.append((each.key, each.epoch, entry.kind))
    return found


@few_cases(every=2)
@pytest.mark.parametrize("journey", JOURNEYS)
def test_erasing_the_session_that_answered_takes_the_words_from_the_whole_journey(store, journey):
    receipt = store.accept("a", WORDS, event_id=WORDS, reply_to=WORDS, labels=LABELS)
    other = store.accept("a", "another one", labels={"n": 1})
    session = walk(store, JOURNEYS[journey], receipt)
    left_in = {each[:2] for each in words_left(store)} - {(session.key, session.epoch)}
    erased = store.erase(session.id)
    assert words_left(store) == []
    assert store.search(WORDS) == []
    assert {(store.get(id).key, store.get(id).epoch) for id in erased.copies} == left_in
    if session.key != "a":
        with store.turn("z", take=[other]) as turn:
            assert [message.labels for message in store.session("z").transcript()] == [{"n": 1}]
            turn.say("yes")
    assert judge(store) == [] and store.check() == []


def test_erasing_a_session_that_a_message_only_came_through_takes_its_copy_alone(store):
    receipt = store.accept("a", WORDS)
    through = walk(store, ["drop b"], receipt)
    session = walk(store, ["reset b", "turn c"], receipt)
    assert store.erase(through.id).copies == ()
    assert [message.text for message in session.transcript()] == [WORDS, "answer"]
    assert sorted(key for key, _, _ in words_left(store)) == ["a", "b", "c"]
    store.erase(session.id)
    assert words_left(store) == []


def test_a_label_that_was_set_after_the_message_had_gone_goes_with_it(store):
    receipt = store.accept("a", WORDS)
    accepted = store.session("a")
    session = walk(store, ["reset a", "turn b"], receipt)
    store.session("a").label(receipt.message_id, seen_by=NAME)
    assert accepted.info().state == "ended"
    store.erase(session.id)
    assert words_left(store) == []


@few_cases(every=2)
@pytest.mark.parametrize("journey", JOURNEYS)
def test_an_event_that_comes_again_is_told_the_turn_that_answered_it(
    store, tmp_path, where, journey
):
    receipt = store.accept("a", "What's this?", event_id=7)
    session = walk(store, JOURNEYS[journey], receipt)
    turn = next(message.turn for message in session.transcript() if message.text == "answer")
    target = tmp_path / "copy.db"
    holdfast.copy(where, target)
    with holdfast.open(target) as copied:
        for each in (store, copied):
            with pytest.raises(AlreadyAccepted) as told:
                each.turn("a", "What's this?", event_id=7)
            assert (told.value.turn_id, told.value.session_id) == (turn, session.id)
            assert "a turn took it" in str(told.value)


@few_cases(every=2)
@pytest.mark.parametrize(
    "journey", [name for name in JOURNEYS if "dropped" in name or "reset" in name]
)
def test_a_receipt_is_good_wherever_its_message_waits(store, journey):
    store.accept("a", "hello", event_id=7, labels={"chat": 42})
    receipt = store.accept("a", "hello", event_id=7)
    walk(store, JOURNEYS[journey][:-1], receipt)
    [waits] = store.pending()
    with pytest.raises(AlreadyAccepted) as told:
        store.turn("a", "hello", event_id=7)
    assert (told.value.turn_id, told.value.session_id) == (None, waits.session_id)
    with store.turn("z", take=[receipt]) as turn:
        turn.say("hi")
    assert list(store.pending()) == []
    first = next(store.session("z").transcript())
    assert (first.id, first.text, first.labels) == (receipt.message_id, "hello", {"chat": 42})
    with pytest.raises(NotFound):
        store.turn("y", take=[receipt])
    assert judge(store) == []


@pytest.mark.parametrize("steps", [["drop b"], ["drop b", "drop c"], ["reset a", "drop b"]])
def test_a_message_does_not_come_to_a_session_twice(store, steps):
    """I-2: a log has it once. It can be taken where it waits, and elsewhere."""
    receipt = store.accept("a", "hello")
    session = store.reset("a") if steps[0] == "reset a" else store.session("a")
    for step in range(70):
        session.append(f"said meanwhile {step}")
    walk(store, [step for step in steps if step != "reset a"], receipt)
    before = list(session.entries())
    for named in (receipt, *store.pending()):
        with pytest.raises(NotFound, match="the log of this session has it"):
            session.turn(take=[named])
        with store.turn("a", "go") as turn, pytest.raises(NotFound, match="the log"):
            turn.inbox(take=[named])
    assert [entry for entry in session.entries() if entry.seq <= len(before)] == before
    walk(store, ["turn z"], receipt)
    assert judge(store) == [] and store.check() == []


BEHIND = {
    "its labels": lambda store, session: None,
    "a message": lambda store, session: session.append("behind it"),
    "a turn": lambda store, session: run_own(session),
    "many entries": lambda store, session: session.append_all(["behind it"] * 300),
    "a turn that gave it back": lambda store, session: drop(store.turn("a")),
}
"""What stands in a log behind a message that waits."""


def run_own(session):
    with session.turn(take=[]) as turn:
        turn.say("my own turn")


def drop(turn):
    del turn
    gc.collect()


@few_cases(every=4)
@pytest.mark.parametrize("steps", [[], ["reset a"], ["drop b"]])
@pytest.mark.parametrize("behind", BEHIND)
def test_a_fork_does_not_take_what_the_past_that_it_shares_has(store, behind, steps):
    """I-2: a log has each message once, wherever in it the message is read from."""
    with store.turn("a", "first") as turn:
        turn.say("one")
    session = store.session("a")
    receipt = store.accept("a", "hello", labels={"chat": 42})
    BEHIND[behind](store, session)
    fork = session.fork(key="fork").fork(key="fork of it")
    walk(store, steps, receipt)
    before = list(fork.entries())
    for named in (receipt, *store.pending()):
        with pytest.raises(NotFound, match="forked from"):
            fork.turn(take=[named])
        with fork.turn("go") as turn, pytest.raises(NotFound, match="forked from"):
            turn.inbox(take=[named])
    assert [entry for entry in fork.entries() if entry.seq <= len(before)] == before
    assert [message.id for message in fork.transcript()].count(receipt.message_id) == 1
    walk(store, ["turn z"], receipt)
    assert judge(store) == [] and store.check() == []


def test_a_fork_takes_what_came_to_its_parent_after_they_had_parted(store):
    session = store.session("a")
    run_own(session)
    fork = session.fork()
    receipt = store.accept("a", "hello", labels={"chat": 42})
    with fork.turn(take=[receipt]) as turn:
        turn.say("hi")
    [taken] = [each for each in fork.transcript() if each.id == receipt.message_id]
    assert (taken.labels, taken.turn) == ({"chat": 42}, turn.id)
    assert judge(store) == [] and store.check() == []


def test_a_killed_turn_is_one_hop_of_many(where):
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        receipt = store.accept("a", "SECRETWORDS", event_id=7, labels={"from": "SECRETNAME"})
        turn = store.turn("b", take=[receipt])
        say("running")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("running")
        other.kill()
    with holdfast.open(where) as store:
        receipt = store.accept("a", WORDS, event_id=7)
        session = walk(store, ["reset b", "turn c"], receipt)
        with pytest.raises(AlreadyAccepted) as told:
            store.turn("a", WORDS, event_id=7)
        assert told.value.session_id == session.id and told.value.turn_id is not None
        store.erase(session.id)
        assert words_left(store) == []
        assert judge(store) == []


def test_the_words_are_in_no_file(path):
    with holdfast.open(path) as store:
        receipt = store.accept("a", WORDS, labels=LABELS)
        store.search(WORDS)
        store.erase(walk(store, ["reset a", "drop b", "turn c"], receipt).id)
    for file in path.parent.iterdir():
        held = file.read_bytes()
        assert WORDS.encode() not in held and NAME.encode() not in held, file.name


def test_an_event_whose_message_was_erased_while_it_waited_does_not_wait(store):
    store.accept("a", WORDS, event_id=7)
    store.erase(store.reset("a").id)
    with pytest.raises(AlreadyAccepted) as told:
        store.turn("a", WORDS, event_id=7)
    assert told.value.turn_id is None and "erased" in str(told.value)


@pytest.mark.parametrize("is_reset", [False, True], ids=["", "after a reset"])
@pytest.mark.parametrize("event_id", [None, "7"])
def test_who_waits_with_a_message_is_told_that_it_was_erased(store, event_id, is_reset):
    """And where it was: not in the key's next session, which never had it."""
    with ThreadPoolExecutor(1) as another:  # nobody waits for a turn of its own
        running = another.submit(store.turn, "a", "first").result()
    wish = TurnRequest(
        store._work.world,
        WORDS,
        format="openai.chat",
        event_id=event_id,
        on_busy="wait",
        reply_to=None,
        lease_s=30,
    )
    plan = start_turn(store._work, "a", wish, reset=None)
    request = next(plan)
    while not isinstance(request, Pause):
        request = plan.send(_wait(request))
    erased = store.reset("a") if is_reset else store.session("a")
    [waits] = store.pending()
    store.erase(erased.id)
    assert running.stopped
    with pytest.raises(AlreadyAccepted, match="was erased before a turn took it") as told:
        while True:
            request = plan.send(None if isinstance(request, Pause) else _wait(request))
    error = told.value
    assert (error.event_id, error.message_id) == (event_id, waits.id)
    assert (error.session_id, error.turn_id) == (erased.id, None)
    assert waits.id in str(error) and "not in this store" not in str(error)
    if event_id is not None:
        with pytest.raises(AlreadyAccepted) as told:
            store.turn("a", WORDS, event_id=event_id)
        assert told.value.fields == error.fields


def test_an_event_whose_answer_was_erased_was_answered(store):
    receipt = store.accept("a", WORDS, event_id=7)
    session = walk(store, ["reset a", "turn b"], receipt)
    [turn] = [each.id for each in session.turns()]
    store.erase(session.id)
    with pytest.raises(AlreadyAccepted) as told:
        store.turn("a", WORDS, event_id=7)
    assert (told.value.turn_id, told.value.session_id) == (turn, session.id)


def test_an_event_that_was_appended_waits_for_no_turn(store):
    id = store.session("a").append("a note", event_id=7)
    for act in (
        store.session("a").append,
        lambda *given, **named: store.turn("a", *given, **named),
    ):
        with pytest.raises(AlreadyAccepted) as told:
            act("a note", event_id=7)
        assert (told.value.message_id, told.value.turn_id) == (id, None)
        assert "wait" not in str(told.value)


def test_a_message_that_went_to_a_session_that_is_not_here_is_told_so(path):
    with holdfast.open(path) as store:
        receipt = store.accept("a", "hello", event_id=7)
        lost = walk(store, ["drop b", "turn c"], receipt).id
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE session SET tenant = 'else' WHERE id = ?", (lost,))
    with holdfast.open(path) as store:
        with pytest.raises(AlreadyAccepted) as told:
            store.turn("a", "hello", event_id=7)
        assert told.value.turn_id is None and "not in this store" in str(told.value)
        with pytest.raises(NotFound):
            store.turn("d", take=[receipt])


@pytest.mark.parametrize("how", ["reset", "end", "policy"])
def test_labels_go_along_with_a_message_through_every_reset(store, how):
    hidden = {"chat": 42, "visible_to_model": False}
    store.accept("k", "for the log only", labels=hidden)
    receipt = store.accept("k", "hello", labels={"chat": 42, "files": ["a.png"]})
    store.session("k").label(receipt.message_id, seen=True)
    store.session("k").label(receipt.message_id, chat=43)
    for _ in range(2):
        if how == "reset":
            store.reset("k")
        elif how == "end":
            store.session("k").end("bye")
            store.session("k")
        else:
            store.session("k", reset=holdfast.Idle(hours=0))
    labels = [hidden, {"chat": 43, "files": ["a.png"], "seen": True}]
    assert store.session("k").epoch == 3
    assert [message.labels for message in store.pending()] == labels
    with store.turn("k") as turn:
        assert list(turn.context()) == [{"role": "user", "content": "hello"}]
        turn.say("yes")
    assert [message.labels for message in store.session("k").transcript()] == [*labels, {}]
    assert judge(store) == [] and store.check() == []


def test_labels_go_along_where_a_reset_and_a_turn_are_one(store):
    store.accept("k", "hello", labels={"chat": 42})
    store.session("k").end("bye")
    with store.turn("k", "and this") as turn:
        turn.say("yes")
    told = [(message.text, message.labels) for message in store.session("k").transcript()]
    assert told == [("hello", {"chat": 42}), ("and this", {}), ("yes", {})]
    running = store.turn("k", "go")
    store.accept("k", "hello again", labels={"chat": 43})
    store.reset("k")
    assert [message.labels for message in store.pending()] == [{"chat": 43}]
    del running


@pytest.mark.parametrize("act", ["erase", "tell", "take"])
def test_a_journey_costs_what_was_stored_while_its_message_waited(store, monkeypatch, act):
    """I-27: not the length of the logs that it led through."""
    accepted = store.session("a")
    read = []
    engine = store._work.engine
    entries = engine.entries

    def counted(*given, **named):
        found = entries(*given, **named)
        read.append(len(found))
        return found

    def cost():
        receipt = store.accept("a", "hello", event_id=f"event {accepted.info().head}")
        event = f"event {accepted.info().head - 1}"
        session = walk(store, ["drop b", "turn c"], receipt)
        accepted.append_all([f"said later {number}" for number in range(1500)])
        read.clear()
        monkeypatch.setattr(engine, "entries", counted)
        if act == "erase":
            assert store.erase(session.id, preview=True).copies
        elif act == "tell":
            with pytest.raises(AlreadyAccepted):
                store.turn("a", "hello", event_id=event)
        else:
            with pytest.raises(NotFound):
                store.turn("d", take=[receipt])
        monkeypatch.setattr(engine, "entries", entries)
        return sum(read)

    first = cost()
    accepted.append_all([f"said before {number}" for number in range(1500)])
    assert cost() < first + 1000
