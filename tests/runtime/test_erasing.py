"""Erasing: a canary is nowhere in any file of the store, and everything else is where it was (I-21,
FAULTS K6-K8).
"""

import random
from contextlib import suppress

import apsw
import pytest

import holdfast
from carrying import CANARY, HOWS, LARGE, carried
from holdfast.errors import NotFound, SessionEnded
from looking import HandWorld, other_handle, patient
from procs import child


def files_with(path, word=CANARY):
    """The files of the store in which this word is, in any case. The search index, which reads the
    log in idle time, has a journal that comes and goes.
    """
    needle = word.lower().encode()
    found = []
    for file in sorted(path.parent.iterdir()):
        with suppress(FileNotFoundError):
            if needle in file.read_bytes().lower():
                found.append(file.name)
    return found


def told_everywhere(store, key="k"):
    """A session with the canary in every place that words can get to."""
    store.accept(
        key, f"accepted {CANARY}", event_id=f"event {CANARY}", reply_to=f"reply to {CANARY}"
    )
    session = store.session(key)
    session.instructions(f"You are {CANARY}.")
    with session.turn(
        f"Hello {CANARY}", event_id=f"another {CANARY}", reply_to=f"me, {CANARY}"
    ) as turn:
        for _ in turn.deliver(iter([CANARY[:5], CANARY[5:], " said in chunks ", CANARY])):
            pass
        call = turn.call(f"tool_{CANARY}", {"q": CANARY}, call_id=f"call_{CANARY}")
        turn.result(call, LARGE)
    with pytest.raises(RuntimeError), session.turn(f"again {CANARY}") as turn:
        turn.say(f"I fail: {CANARY}")
        raise RuntimeError(CANARY)
    first = next(session.transcript())
    session.label(first.id, note=CANARY)
    session.append(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": LARGE}}]}
    )
    session.record([*session.context(), {"role": "user", "content": f"recorded {CANARY}"}])
    session.compact(f"They spoke of {CANARY}.", keep_turns=0)
    with session.turn("once more") as turn:
        turn.retract(f"because {CANARY}")
    with session.turn("ask") as turn:
        turn.call("rm", {"path": CANARY}, needs_approval=True)
    session.decide(session.calls()[-1].call_id, True, by=CANARY)
    store.outbox()[0].failed(CANARY)
    session.stop(CANARY)
    session.append(f"last {CANARY}")
    return session


def test_a_canary_is_nowhere_in_any_file_after_an_erasure(store, path):
    session = told_everywhere(store)
    assert files_with(path)
    store.erase(session.id)
    assert files_with(path) == []
    store.close()
    assert files_with(path) == []


def test_a_canary_that_was_searched_for_is_not_in_the_search_file_either(store, path):
    session = told_everywhere(store)
    assert store.search(CANARY)
    # an index shortens what words have in common
    assert "agent.db-search" in files_with(path, CANARY[-8:])
    store.erase(session.id)
    assert files_with(path, CANARY[-8:]) == []
    assert store.search(CANARY) == []


@pytest.mark.slow
def test_a_canary_among_many_sessions_is_gone_and_theirs_stay(store, path):
    """Pages are shared, rows move, journal rows were deleted long ago: what is erased was
    everywhere.
    """
    chance = random.Random(7)
    others = [store.session(f"other {number}") for number in range(30)]
    erased = store.session("erased")
    for number in range(400):
        session = chance.choice([*others, erased, erased])
        word = CANARY if session is erased else "Agelaius"
        size = chance.choice([1, 1, 40, 400, 8000])
        if chance.random() < 0.3:
            with session.turn(f"{word} {number}", reply_to=f"{word} {number}") as turn:
                for _ in turn.deliver(iter([f"{word} "] * min(size, 30))):
                    pass
        else:
            session.append(f"{word} {number} " * size)
    before = {other.id: [message.payload for message in other.transcript()] for other in others}
    owed = {debt.id for debt in store.outbox(limit=1000) if debt.session_id != erased.id}
    store.erase(erased.id)
    assert files_with(path) == []
    assert {
        other.id: [message.payload for message in other.transcript()] for other in others
    } == before
    assert {debt.id for debt in store.outbox(limit=1000)} == owed
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").get == "ok"


def test_an_erasure_leaves_others_that_run_what_they_have_said_and_owe(store):
    with store.turn("owes", "Hi", reply_to="ann") as turn:
        turn.say("Owed.")
    other = store.session("runs").turn("Go on.")
    stream = other.deliver(iter(["Said", " before", " and after."]))
    assert next(stream) == "Said"
    store.erase(told_everywhere(store).id)
    state = store._work.engine.state(store.session("runs").id)
    kept = store._work.engine.journal(state.id, after=state.journal)
    assert len(kept) == 1, "it is all that a crash would leave of these words"
    assert "".join(stream) == " before and after."
    with other:
        other.say("Done.")
    assert [(owed.reply_to, owed.text) for owed in store.outbox()] == [("ann", "Owed.")]


@pytest.mark.slow
def test_erasing_one_session_after_another_leaves_nothing_of_any(store, path):
    """Each erasure moves rows about among those that are erased later."""
    chance = random.Random(11)
    words = [f"{CANARY}{number:02d}" for number in range(10)]
    sessions = {word: store.session(word[-2:]) for word in words}
    for _ in range(250):
        word = chance.choice(words)
        if chance.random() < 0.4:
            with sessions[word].turn(
                word, reply_to=word, event_id=f"{word} {chance.random()}"
            ) as turn:
                list(turn.deliver(iter([word, " ", word * chance.choice([1, 200])])))
        else:
            sessions[word].append(f"{word} " * chance.choice([1, 10, 100, 5000]))
        if chance.random() < 0.05:
            assert store.search(word) is not None
    chance.shuffle(words)
    for done, word in enumerate(words, 1):
        store.erase(sessions[word].id)
        assert [gone for gone in words[:done] if files_with(path, gone)] == []
        for left in words[done:]:
            assert all(
                left in message.text
                for message in sessions[left].transcript()
                if message.role == "user"
            )


ERASE = """
import holdfast
store = holdfast.open(sys.argv[1])
say("ready")
store.erase(sys.argv[2])
say("done")
hear()
"""


@pytest.mark.slow
def test_an_erasure_that_was_killed_can_be_done_again(path):
    """Killed at any point, the session is as it was or erased whole; asked again, nothing of it is
    left.
    """
    for spins in (0, 1_000, 20_000, 100_000, 200_000, 400_000, 800_000):
        with holdfast.open(path) as store:
            session = told_everywhere(store, key=f"killed after {spins}")
        with child(ERASE, path, session.id) as other:
            other.wait_for("ready")
            for _ in range(spins):
                pass
            other.kill()
        with holdfast.open(path) as store:
            states = {message.state == "erased" for message in store.get(session.id).transcript()}
            assert len(states) == 1
            store.erase(session.id)
        assert files_with(path) == []


def test_an_erasure_leaves_the_places_of_the_entries_and_an_audit_entry(store):
    session = told_everywhere(store)
    before = [(entry.seq, entry.kind, entry.turn, entry.id) for entry in session.entries()]
    erasure = store.erase(session.id)
    after = list(session.entries())
    assert [(entry.seq, entry.kind, entry.turn, entry.id) for entry in after[:-1]] == before
    assert after[-1].kind == "erased" and erasure.done
    assert (erasure.entries, erasure.messages) == (
        len(before),
        sum(kind == "message" for _, kind, *_ in before),
    )
    told = list(session.transcript())
    assert {(message.state, message.payload, message.text) for message in told} == {
        ("erased", None, "")
    }
    assert [message.id for message in told] == [
        id.hex() for _, kind, _, id in before if kind == "message"
    ]


def test_a_preview_tells_what_an_erasure_takes_and_takes_nothing(store):
    session = told_everywhere(store)
    before = list(session.entries())
    preview = store.erase(session.id, preview=True)
    assert list(session.entries()) == before and not preview.done
    done = store.erase(session.id)
    fields = ("entries", "messages", "bytes", "blobs", "forks")
    assert [getattr(done, name) for name in fields] == [getattr(preview, name) for name in fields]
    assert preview.blobs == 1 and preview.bytes > len(LARGE)


def test_an_erased_session_is_over_for_every_handle_and_its_key_goes_on(store, path):
    session = told_everywhere(store)
    with other_handle(path) as far:
        elsewhere = far.get(session.id)
        assert any(CANARY in str(payload) for payload in elsewhere.context())
        store.erase(session.id)
        for handle in (session, elsewhere):
            assert (
                list(handle.context()) == []
                and handle.pending() == []
                and handle.instructions() is None
            )
            with pytest.raises(SessionEnded):
                handle.append("late")
            with pytest.raises(SessionEnded):
                handle.turn("late")
            assert handle.info().state == "ended" and handle.info().title == ""
    assert store.session("k").id != session.id and store.session("k").epoch == session.epoch + 1


def test_late_words_of_a_turn_do_not_come_back_into_an_erased_session(store, path):
    session = store.session("k")
    turn = session.turn("go")
    call = turn.call("slow", {})
    store.erase(session.id)
    with pytest.raises(holdfast.HoldfastError):
        turn.result(call, f"late {CANARY}")
    assert files_with(path) == []
    assert [entry.kind for entry in session.entries()][-1] == "erased"


def test_an_event_of_an_erased_session_is_not_taken_for_a_new_one(store):
    told_everywhere(store)
    session = store.session("k")
    store.erase(session.id)
    again = store.accept("k", "redelivered", event_id=f"event {CANARY}")
    assert again.again and again.session_id == session.id


def test_erasing_twice_changes_nothing_but_the_audit(store, path):
    session = told_everywhere(store)
    store.erase(session.id)
    before = list(session.entries())
    again = store.erase(session.id)
    after = list(session.entries())
    assert (
        again.done
        and after[: len(before)] == before
        and [e.kind for e in after[len(before) :]] == ["erased"]
    )
    assert files_with(path) == []


def test_a_fork_loses_the_past_it_shared_and_keeps_its_own_words(store, path):
    session = told_everywhere(store)
    fork = session.fork()
    fork.append("my own words")
    assert store.erase(session.id, preview=True).forks == (fork.id,)
    store.erase(session.id)
    assert files_with(path) == []
    assert [message.text for message in fork.transcript() if message.state != "erased"] == [
        "my own words"
    ]
    with other_handle(path) as far:
        assert [payload["content"] for payload in far.get(fork.id).context()] == ["my own words"]
        with far.get(fork.id).turn("go on") as turn:
            turn.say("yes")


def test_forks_of_forks_are_named_too(store):
    session = told_everywhere(store)
    fork = session.fork()
    fork.append("my own words")
    grandchild = fork.fork()
    other = session.fork()
    losing = tuple(sorted((fork.id, grandchild.id, other.id)))
    assert store.erase(session.id, preview=True).forks == losing
    assert store.erase(fork.id, preview=True).forks == (grandchild.id,)
    assert store.erase(session.id).forks == losing
    states = [message.state for message in grandchild.transcript()]
    assert "erased" in states and states[-1] == "complete"


def test_a_blob_that_two_sessions_said_goes_with_the_second(store, path):
    one, two = store.session("one"), store.session("two")
    for session in (one, two):
        session.append(LARGE)
    store.erase(one.id)
    assert files_with(path) and next(two.transcript()).text == LARGE
    store.erase(two.id)
    assert files_with(path) == []


@pytest.mark.slow
def test_a_reader_that_holds_old_pages_is_said_to_be_in_the_way(path, monkeypatch):
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.2))
    with holdfast.open(path, durability="process") as store:
        session = told_everywhere(store)
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchall()
        with pytest.raises(holdfast.errors.StoreUnavailable, match="erase the session again"):
            store.erase(session.id)
        reader.close()
        store.erase(session.id)
        assert files_with(path) == []


def test_erasing_what_is_not_there_is_not_found(store):
    with pytest.raises(NotFound):
        store.erase("00000000-0000-4000-8000-000000000000")


def test_retention_is_previewed_and_takes_whole_sessions_by_their_activity(path):
    world = HandWorld()
    store = holdfast.open(path, durability="process", world=world)
    old, young, running = store.session("old"), store.session("young"), store.session("running")
    old.append(CANARY)
    turn = running.turn("long work", lease_s=30 * 10**6)
    parent = store.session("parent")
    parent.append("shared")
    child = parent.fork()
    world.ahead_s = 40 * 86_400
    young.append("hello")
    child.append("still here")
    preview = store.retain(30)
    assert [(found.session_id, found.done) for found in preview] == [(old.id, False)]
    assert next(old.transcript()).text == CANARY
    assert [(found.session_id, found.done) for found in store.retain(30, preview=False)] == [
        (old.id, True)
    ]
    assert [entry.kind for entry in old.entries()][-1] == "erased"
    assert next(young.transcript()).text == "hello" and next(child.transcript()).text == "shared"
    turn.say("done")
    turn.interrupt()
    assert store.retain(30) == []
    store.close()


def test_retention_for_no_time_at_all_is_refused(store):
    for days in (0, -1):
        with pytest.raises(holdfast.errors.BadArgument):
            store.retain(days)


def test_retention_keeps_all_that_a_fork_of_a_fork_shares(path):
    """A young session's past lies in its parent and in its parent's parent."""
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        root = store.session("root")
        root.append("the beginning")
        middle = root.fork()
        middle.append("the middle")
        leaf = middle.fork()
        world.ahead_s = 40 * 86_400
        leaf.append("the end")
        assert store.retain(30) == [] == store.retain(30, preview=False)
        assert [message.text for message in leaf.transcript()] == [
            "the beginning",
            "the middle",
            "the end",
        ]


def test_a_preview_does_not_tell_whether_another_tenant_has_the_same_blob(path):
    """I-19: parts that are equal lie once in the file, and that is nobody's business."""
    picture = {"role": "user", "content": [{"type": "text", "text": "QUJD" * 20_000}]}
    with holdfast.open(path, tenant="red") as red, holdfast.open(path, tenant="blue") as blue:
        mine = red.session("k")
        mine.append(picture)
        alone = red.erase(mine.id, preview=True)
        assert alone.blobs == 1
        blue.session("k").append(picture)
        assert red.erase(mine.id, preview=True) == alone
        red.erase(mine.id)
        assert next(iter(blue.session("k").transcript())).payload == picture
        red.session("again").append(picture)
        red.session("and again").append(picture)
        assert red.erase(red.session("again").id, preview=True).blobs == 0, (
            "another session of its own has it"
        )


@pytest.mark.parametrize("how", HOWS)
def test_what_was_carried_along_by_a_reset_goes_with_the_session_that_answered_it(path, how):
    """The sessions it waited in before keep all else that was said in them."""
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        session, before = carried(store, world, how)
        assert store.search(CANARY) and "agent.db-search" in files_with(path, CANARY[-8:])
        preview = store.erase(session.id, preview=True)
        assert preview.copies == tuple(sorted(each.id for each in before))
        warm = [list(each.context()) for each in before]
        assert store.erase(session.id).copies == preview.copies
        assert files_with(path, CANARY[-8:]) == []
        assert store.search(CANARY) == []
        assert [hit.session_id for hit in store.search("kept")] == [before[0].id]
        assert [list(each.context()) for each in before] == warm
        for each in before:
            told = [(message.state, message.text) for message in each.transcript()]
            assert (
                told
                == [("complete", "kept where it is")] * (each is before[0]) + [("erased", "")] * 2
            )
            assert [entry.kind for entry in each.entries()][
                -1
            ] == "blanked" and each.info().state == "ended"
        again = store.erase(session.id)
        assert again.done and [len(list(each.entries())) for each in before] == [
            list(each.entries())[-1].seq for each in before
        ]
        assert [[entry.kind for entry in each.entries()].count("blanked") for each in before] == [
            1
        ] * len(before)
    with holdfast.open(path) as store:
        assert store.check() == []
    assert files_with(path, CANARY[-8:]) == []


def test_what_was_carried_away_belongs_to_where_it_was_answered(path):
    """Erasing the session that it waited in takes that one's copy and no more; then the other's
    goes with the other.
    """
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        session, [old, middle] = carried(store, world, "reset, reset")
        store.erase(middle.id)
        assert next(message.text for message in session.transcript()) == f"Hello {CANARY}"
        assert [message.state for message in old.transcript()] == ["complete"] * 3
        store.erase(session.id)
        assert files_with(path) == []
        assert [message.text for message in old.transcript()] == ["kept where it is", "", ""]


def test_a_message_that_a_turn_gave_back_leaves_nothing_in_that_turn_either(path):
    """The turn that took it and was reset away has its event id and its address in the note of its
    start.
    """
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        session.append("kept where it is")
        session.turn(f"Hello {CANARY}", event_id=f"event {CANARY}", reply_to=f"to {CANARY}")
        store.reset("k")
        with store.session("k").turn() as turn:
            turn.say("answered")
        assert [message.text for message in store.session("k").transcript()] == [
            f"Hello {CANARY}",
            "answered",
        ]
        store.erase(store.session("k").id)
        assert files_with(path) == []
        assert [message.text for message in session.transcript()] == ["kept where it is", ""]


def test_a_picture_that_the_old_session_has_said_too_stays_there(path):
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": LARGE}}]}
    with holdfast.open(path, durability="process") as store:
        old = store.session("k")
        old.append(picture)
        store.accept("k", picture)
        new = store.reset("k")
        with new.turn() as turn:
            turn.say("I see.")
        store.erase(new.id)
        assert [message.payload for message in old.transcript()] == [picture, None]
        store.erase(old.id)
        assert files_with(path) == []


def test_a_fork_that_parted_at_a_carried_message_loses_it_too(path):
    with holdfast.open(path, durability="process") as store:
        old = store.session("k")
        old.append("before")
        receipt = store.accept("k", f"Hello {CANARY}")
        fork = old.fork(at=receipt.message_id)
        assert CANARY in str(list(fork.context()))
        new = store.reset("k")
        with new.turn() as turn:
            turn.say("answered")
        assert CANARY in str(list(fork.context()))
        store.erase(new.id)
        assert CANARY not in str(list(fork.context())) and CANARY not in str(
            [m.text for m in fork.transcript()]
        )
        assert files_with(path) == []


def test_retention_takes_a_session_and_those_that_its_messages_came_through(path):
    """They are erased in one go, though the erasure of one writes to the other."""
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        session, before = carried(store, world, "reset, reset")
        world.ahead_s += 40 * 86_400
        done = store.retain(30, preview=False)
        assert {each.session_id for each in done} == {session.id, *(each.id for each in before)}
        assert files_with(path) == []


def test_an_erasure_elsewhere_is_no_news_of_the_session_that_loses_a_copy(path):
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        session, [old] = carried(store, world, "reset")
        world.ahead_s += 20 * 86_400
        store.erase(session.id)
        world.ahead_s += 20 * 86_400
        assert old.id in {found.session_id for found in store.retain(30)}


def test_a_copied_store_loses_what_the_source_has_lost(path, tmp_path):
    world = HandWorld()
    target = tmp_path / "elsewhere" / "copy.db"
    target.parent.mkdir()
    with holdfast.open(path, durability="process", world=world) as store:
        session, before = carried(store, world, "reset, reset")
        assert holdfast.copy(path, target).differences == ()
        assert files_with(target)
        store.erase(session.id)
    for _ in range(2):
        assert holdfast.copy(path, target).differences == ()
        assert files_with(target) == []
    with holdfast.open(target) as there:
        assert next(there.get(before[0].id).transcript()).text == "kept where it is"


def test_blobs_are_those_that_go_with_a_session(where):
    """In a file sessions share them; on a server each session has its own."""
    shared = where.endswith(".db")
    with holdfast.open(where) as store:
        one, two = store.session("one"), store.session("two")
        for session in (one, two):
            session.append(LARGE)
        found = [store.erase(each.id).blobs for each in (one, two)]
        assert found == ([0, 1] if shared else [1, 1])


def test_a_warm_handle_has_no_labels_of_what_was_erased(where):
    """I-21: a fork's own labels on words that it shares, and those of a parent that was erased."""
    with holdfast.open(where) as store, holdfast.open(where) as other:
        parent = store.session("k")
        shared = parent.append("Hello.")
        parent.label(shared, told_by="the parent")
        first, second = parent.fork(), parent.fork()
        first.label(shared, secret=CANARY)
        warm = [first, second, other.get(first.id), other.get(second.id)]
        for each in warm:
            assert [message.labels for message in each.transcript()] != [{}]
        store.erase(first.id)
        assert CANARY not in repr(
            [message.labels for each in warm for message in each.transcript()]
        )
        store.erase(parent.id)
        for each in warm:
            fresh = store.get(each.id).transcript()
            assert [m.labels for m in each.transcript()] == [m.labels for m in fresh]
            assert "the parent" not in repr([m.labels for m in each.transcript()])
