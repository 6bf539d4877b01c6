"""Copying a store: the sessions are the same ones there, whatever happens on the way, and nothing
there is lost.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from aftermath import left_over, unsound
from copies import ODD, beside, fill, told
from holdfast import copy
from holdfast.errors import AlreadyAccepted, HoldfastError, StoreUnavailable
from holdfast.runtime.transfer import compare_logs, copy_store
from holdfast.testing.oracle import judge
from procs import child

pytestmark = pytest.mark.usefixtures("small_pages")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is soon full, so that small sessions take several."""
    monkeypatch.setattr(compare_logs, "PAGE", 5)


@pytest.fixture
def target(path: Path) -> Path:
    return beside(path)


def say(where: Path, key: str, *texts: str) -> str:
    """Turns in the current session of a key; its id."""
    with holdfast.open(where, durability="process") as store:
        session = store.session(key)
        for text in texts:
            with session.turn(text) as turn:
                turn.say(f"Answer to {text}")
        return session.id


def texts(where: Path, id: str) -> list[str]:
    with holdfast.open(where, durability="process") as store:
        return [message.text for message in store.get(id).transcript()]


# Sameness


def test_a_copied_store_is_the_same_store(path: Path, target: Path) -> None:
    """Entries byte for byte, inbox, outbox, keys, epochs, forks, labels, blobs, events; ended and
    erased ones too.
    """
    fill(path)
    fill(path, tenant="acme \ud7ff\0")
    before = told(path)
    copied = copy(path, target)
    assert told(target) == before == told(path)
    assert (copied.sessions, copied.differences, copied.in_use) == (len(before["sessions"]), (), ())
    assert (
        copied.entries
        == copied.added
        == sum(len(each["entries"]) for each in before["sessions"].values())
    )
    with holdfast.open(target) as store:
        assert (judge(store), store.check()) == ([], [])
    assert unsound(target) == []


def test_a_copy_of_a_copy_has_the_same_digest(path: Path, target: Path) -> None:
    fill(path)
    first = copy(path, target)
    second = copy(target, beside(path, "third.db"))
    assert second.digest == first.digest
    assert told(beside(path, "third.db")) == told(path)


def test_copying_again_adds_nothing(path: Path, target: Path) -> None:
    fill(path)
    first = copy(path, target)
    again = copy(path, target)
    assert (again.sessions, again.entries, again.digest) == (
        first.sessions,
        first.entries,
        first.digest,
    )
    assert again.added == 0


def test_copying_again_brings_over_what_is_new(path: Path, target: Path) -> None:
    """Also what has left the inbox and the outbox meanwhile, and what has ended."""
    fill(path)
    copy(path, target)
    with holdfast.open(path, durability="process") as store:
        with store.session("telegram:dm:42").turn("Go on.") as turn:
            turn.say("Gladly.")
        for owed in store.outbox():
            owed.sent()
        store.session("parent").end("over")
        store.reset("cli:ada")
        store.session("new")
    assert copy(path, target).added > 0
    assert told(target) == told(path)


def test_one_tenant_can_be_copied_alone(path: Path, target: Path) -> None:
    fill(path)
    with holdfast.open(path, tenant="acme") as store:
        store.session("theirs").append("hello")
    assert copy(path, target, tenant="acme").sessions == 1
    assert {each["state"]["tenant"] for each in told(target)["sessions"].values()} == {"acme"}


def test_what_was_accepted_before_the_move_is_not_accepted_after_it(
    path: Path, target: Path
) -> None:
    """I-2: in the key's current session, in one before it, in one that was erased; of a turn
    without a message too.
    """
    fill(path)
    copy(path, target)
    with holdfast.open(target, durability="process") as store:
        assert store.accept("telegram:dm:42", "once more", event_id="update-1").again
        for key, event in (
            ("reset", "life-0"),
            ("reset", "carried-1"),
            ("reset", "alone"),
            ("erased", "erased-1"),
        ):
            with pytest.raises(AlreadyAccepted):
                store.session(key).turn("once more", event_id=event)
        with pytest.raises(AlreadyAccepted):
            store.session("odd \U0010ffff\0").turn("once more", event_id=ODD)


def test_an_event_whose_id_json_can_not_hold_is_known_after_the_move(
    path: Path, target: Path
) -> None:
    """Two halves of a character side by side: entries tell of them as one."""
    with holdfast.open(path, durability="process") as store:
        store.accept("k", "once", event_id="\ud800\udfff")
    copy(path, target)
    with holdfast.open(target, durability="process") as store:
        assert store.accept("k", "twice", event_id="\ud800\udfff").again


def test_work_goes_on_in_the_target(path: Path, target: Path) -> None:
    fill(path)
    copy(path, target)
    with holdfast.open(target, durability="process") as store:
        session = store.session("telegram:dm:42")
        with session.turn("Go on.") as turn:
            assert [message.text for message in turn.inbox()] == []
            turn.say("Gladly.")
        assert session.pending() == []
        assert {owed.reply_to for owed in store.outbox()} >= {ODD}
        assert store.search("Gladly") != []
        assert judge(store) == []


def test_a_source_that_is_not_there_is_not_made(path: Path, target: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no store"):
        copy(path, target)
    assert not path.exists() and not target.exists()


def test_progress_is_told_up_to_the_end(path: Path, target: Path) -> None:
    fill(path)
    seen = []
    copied = copy(path, target, progress=seen.append)
    assert [each.entries for each in seen] == sorted(each.entries for each in seen)
    last = seen[-1]
    assert (last.sessions, last.entries) == (last.sessions_total, last.entries_total)
    assert (last.sessions, last.entries) == (copied.sessions, copied.entries)


def test_pages_and_what_is_under_way_make_no_difference(
    path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session at a time, one entry a page, turns longer than what is held back; and all of it
    at once.
    """
    fill(path)
    monkeypatch.setattr(copy_store, "WIDTH", 1)
    monkeypatch.setattr(compare_logs, "PAGE", 1)
    monkeypatch.setattr(compare_logs, "HELD_MAX", 3)
    small = copy(path, target)
    assert told(target) == told(path)
    monkeypatch.setattr(copy_store, "WIDTH", 1000)
    monkeypatch.setattr(compare_logs, "PAGE", 1000)
    assert copy(path, beside(path, "large.db")).digest == small.digest


def test_a_target_that_does_not_keep_what_it_is_given_is_found_out(
    path: Path, target: Path
) -> None:
    left, other = say(path, "k", "One.", "Two."), say(path, "other", "One.")
    holdfast.open(target).close()
    with closing(sqlite3.connect(target)) as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON entry WHEN new.seq = 6 BEGIN UPDATE entry SET at = "
            "1 WHERE n = new.n; END"
        )
    [difference] = copy(path, target).differences
    assert (difference.session_id, difference.seq) == (left, 6)
    assert told(target)["sessions"][other] == told(path)["sessions"][other]


# In use


def test_a_session_in_use_is_copied_up_to_its_running_turn_and_caught_up(
    path: Path, target: Path
) -> None:
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        with session.turn("One.") as turn:
            turn.say("First.")
        running = session.turn("Two.", event_id="two")
        running.say("Half an")
        copied = copy(path, target)
        assert copied.in_use == (session.id,)
        with holdfast.open(target, durability="process") as there:
            mirror = there.get(session.id)
            assert mirror.info().state == "open"
            assert [message.text for message in mirror.transcript()] == ["One.", "First.", "Two."]
            assert [message.text for message in mirror.pending()] == ["Two."]
            assert judge(there) == []
        assert copy(path, target).added == 0
        with running:
            running.say("Second.")
        assert copy(path, target).in_use == ()
    assert told(target) == told(path)


def test_a_turn_whose_process_was_killed_does_not_keep_a_copy_from_being_whole(
    path: Path, target: Path
) -> None:
    script = """
        import holdfast
        session = holdfast.open(sys.argv[1]).session("k")
        turn = session.turn("One.")
        for text in turn.deliver(iter(["Half an ", "answer"])):
            say("said")
            if text == "answer":
                say("all")
                hear()
    """
    with child(script, path) as other:
        other.wait_for("all")
        assert len(copy(path, target).in_use) == 1
        other.kill()
    assert copy(path, target).in_use == ()
    assert told(target) == told(path)
    with holdfast.open(target) as store:
        assert [(message.text, message.state) for message in store.session("k").transcript()][
            1:
        ] == [("Half an answer", "partial")]


def test_a_fork_of_a_running_turn_waits_for_the_turn(path: Path, target: Path) -> None:
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        with session.turn("One.") as turn:
            turn.say("First.")
            fork = session.fork()
            with fork.turn("Elsewhere.") as other:
                other.say("There.")
            assert set(copy(path, target).in_use) == {session.id, fork.id}
            with holdfast.open(target) as there, pytest.raises(HoldfastError):
                there.get(fork.id)
        assert copy(path, target).in_use == ()
    assert told(target) == told(path)


@pytest.mark.slow
def test_a_store_that_is_written_all_the_while_is_caught_up_in_the_end(
    path: Path, target: Path
) -> None:
    say(path, "k0", "One.")
    stop, written = threading.Event(), threading.Event()

    def write() -> None:
        with holdfast.open(path, durability="process") as store:
            number = 0
            while not stop.is_set() or number < 20:
                number += 1
                with store.session(f"k{number % 4}").turn(f"Turn {number}.", reply_to="me") as turn:
                    list(turn.deliver(["An ", "answer."]))
                if number % 2:
                    [owed] = store.outbox(limit=1)
                    owed.sent()
                if number % 7 == 0:
                    store.reset(f"k{number % 4}")
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            assert copy(path, target).differences == ()
            with holdfast.open(target) as store:
                assert store.check() == []
    finally:
        stop.set()
        writer.join()
    assert written.is_set(), "it wrote to the end"
    assert copy(path, target).in_use == ()
    assert told(target) == told(path)


# Two histories


def test_a_session_that_went_on_in_the_target_is_left_and_the_rest_is_copied(
    path: Path, target: Path
) -> None:
    left, other = say(path, "k", "One."), say(path, "other", "One.")
    copy(path, target)
    head = len(told(path)["sessions"][left]["entries"])
    say(target, "k", "Theirs.")
    say(path, "k", "Ours.")
    say(path, "other", "Two.")
    before = told(target)["sessions"][left]
    copied = copy(path, target)
    [difference] = copied.differences
    assert (difference.session_id, difference.key, difference.seq) == (left, "k", head + 1)
    assert difference.source_digest and difference.target_digest != difference.source_digest
    assert told(target)["sessions"][left] == before
    assert told(target)["sessions"][other] == told(path)["sessions"][other]


def test_a_session_that_went_on_in_the_target_alone_is_told_of(path: Path, target: Path) -> None:
    left = say(path, "k", "One.")
    copy(path, target)
    head = len(told(path)["sessions"][left]["entries"])
    say(target, "k", "Theirs.")
    [difference] = copy(path, target).differences
    assert (difference.seq, difference.source_digest) == (head + 1, None)
    assert difference.target_digest
    assert texts(target, left)[2:] == ["Theirs.", "Answer to Theirs."]


def test_a_key_that_has_a_session_in_the_target_keeps_it(path: Path, target: Path) -> None:
    ours, theirs = say(path, "k", "One."), say(target, "k", "Theirs.")
    also = say(path, "other", "One.")
    copied = copy(path, target)
    [difference] = copied.differences
    assert difference.session_id == ours and theirs in difference.problem
    with holdfast.open(target) as store:
        assert store.session("k").id == theirs
        assert store.get(also).key == "other"


def test_a_key_whose_session_went_on_in_the_target_keeps_it_through_a_reset_of_the_source(
    path: Path, target: Path
) -> None:
    left = say(path, "k", "One.")
    copy(path, target)
    say(target, "k", "Theirs.")
    with holdfast.open(path, durability="process") as store:
        new = store.reset("k").id
    assert {each.session_id for each in copy(path, target).differences} == {left, new}
    with holdfast.open(target) as store:
        assert store.session("k").id == left


def test_a_fork_of_a_session_that_differs_is_left_if_it_shares_the_difference(
    path: Path, target: Path
) -> None:
    parent = say(path, "k", "One.")
    copy(path, target)
    with holdfast.open(path, durability="process") as store:
        before = store.get(parent).fork().id
        store.get(parent).append("Ours.")
        after = store.get(parent).fork().fork().id
    say(target, "k", "Theirs.")
    left = {each.session_id for each in copy(path, target).differences}
    assert left >= {parent, after} and before not in left
    assert texts(target, before) == texts(path, before)


def test_an_event_that_the_target_knows_stays_as_it_is_known_there(
    path: Path, target: Path
) -> None:
    for where in (path, target):
        with holdfast.open(where, durability="process") as store:
            session = store.session("k")
            session.append("once", event_id="e")
    known = told(target)["events"]
    assert len(copy(path, target).differences) == 1
    assert told(target)["events"] == known


# Erasure


def test_an_erasure_is_carried_over_to_what_was_copied_before(path: Path, target: Path) -> None:
    """I-21: no byte of it is left in the target's files."""
    id = say(path, "k", "A secret name.", "Another secret name.")
    copy(path, target)
    assert left_over(target, ["secret name"]) != []
    with holdfast.open(path, durability="process") as store:
        store.erase(id)
    assert copy(path, target).differences == ()
    assert told(target) == told(path)
    assert left_over(target, ["secret name"]) == []
    with holdfast.open(path, durability="process") as store:
        store.erase(id)  # once more: one more entry
    copy(path, target)
    assert told(target) == told(path)


def test_a_session_that_was_erased_in_the_target_does_not_come_back(
    path: Path, target: Path
) -> None:
    id = say(path, "k", "A secret name.")
    copy(path, target)
    with holdfast.open(target, durability="process") as store:
        store.erase(id)
    before = told(target)
    assert [each.session_id for each in copy(path, target).differences] == [id]
    assert told(target) == before
    assert left_over(target, ["secret name"]) == []


# Cut short, and side by side

COPY = """
    import holdfast
    from holdfast.runtime.transfer import compare_logs
    compare_logs.PAGE = 5
    count = 0
    def tell(progress):
        global count
        count += 1
        say("at", count)
        if count == int(sys.argv[3]):
            say("there")
            hear()
    holdfast.copy(sys.argv[1], sys.argv[2], progress=tell)
    say("done")
"""


@pytest.mark.slow
def test_a_copy_that_was_killed_is_resumed_by_copying_again(path: Path, target: Path) -> None:
    """SIGKILL, again and again, each time a little further on. What is half there is sound, and not
    written again.
    """
    fill(path)
    whole = len(told(path)["sessions"])
    for place in (1, 2, 5, 12, 25):
        with child(COPY, path, target, place) as copier:
            copier.wait_for("there")
            copier.kill()
        with holdfast.open(target) as store:
            assert store.check() == []
    copied = copy(path, target)
    assert (copied.sessions, copied.differences) == (whole, ())
    assert copied.added < copied.entries
    assert told(target) == told(path)


@pytest.mark.slow
def test_a_copy_that_is_killed_while_it_writes_is_resumed_too(path: Path, target: Path) -> None:
    fill(path)
    for _ in range(3):
        with child(COPY, path, target, 0) as copier:
            copier.wait_for("at")
            copier.kill()
    assert copy(path, target).differences == ()
    assert told(target) == told(path)
    assert unsound(target) == []


@pytest.mark.slow
def test_copies_side_by_side_do_no_harm(path: Path, target: Path) -> None:
    """Two processes and a thread of this one, all into one target."""
    fill(path)
    with child(COPY, path, target, 0) as one, child(COPY, path, target, 0) as two:
        copied = copy(path, target)
        one.wait_for("done")
        two.wait_for("done")
    assert copied.differences == ()
    assert told(target) == told(path)
    with holdfast.open(target) as store:
        assert (judge(store), store.check()) == ([], [])
