"""Keys, epochs and resets: which session a key means, and that no other is written to (I-8, FAULTS
C1-C4, K3).
"""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
import procs
from holdfast import Daily, Idle, Session, Store
from holdfast.errors import BadArgument, HoldfastError, NotFound, SessionEnded, TurnInterrupted
from holdfast.runtime.changes.receive import start_turn
from holdfast.runtime.plans.plan import Pause, _wait
from holdfast.runtime.turns.start_turn import TurnRequest
from worlds import HandWorld, local_ms

LIMIT_S = 60


@pytest.fixture
def world() -> HandWorld:
    return HandWorld()


@pytest.fixture
def store(path: Path, world: HandWorld) -> Iterator[Store]:
    with holdfast.open(path, durability="process", world=world) as opened:
        yield opened


def say(store: Store, key: str, text: str, **options: object) -> str:
    """One whole turn; the id of the session it landed in."""
    with store.turn(key, text, **options) as turn:  # type: ignore[arg-type]
        turn.say(f"re: {text}")
    return turn.id.rpartition(":")[0]


def said(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


# Keys
# ----------------------------------------------------------------------------------------------------------------


def test_a_key_means_one_session_until_it_is_reset(store: Store) -> None:
    first = store.session("telegram:dm:42")
    assert store.session("telegram:dm:42").id == first.id
    assert (first.key, first.epoch, first.tenant) == ("telegram:dm:42", 1, "default")
    assert say(store, "telegram:dm:42", "hello") == first.id


def test_keys_are_separate_however_alike(store: Store) -> None:
    """C4: no key is a part, a prefix or another case of another."""
    keys = ["a", "A", "a:", "a:b", "a b", " a", "ä", "a\u0308", "a%", "a_", "a\n", "a\0", "🦀"]
    assert len({store.session(key).id for key in keys}) == len(keys)
    for key in keys:
        say(store, key, f"only in {key!r}")
    for key in keys:
        assert said(store.session(key)) == [f"only in {key!r}", f"re: only in {key!r}"]


def test_tenants_do_not_see_each_other(path: Path, store: Store) -> None:
    """I-19: the same key is another session, an id of another tenant is not found, an event id is
    another event.
    """
    mine = store.session("k")
    say(store, "k", "mine", event_id="e1")
    with holdfast.open(path, durability="process", tenant="other") as other:
        theirs = other.session("k")
        assert theirs.id != mine.id
        assert say(other, "k", "theirs", event_id="e1") == theirs.id
        for name in (mine.id, mine.id[:8]):
            with pytest.raises(NotFound):
                other.get(name)
        other.reset("k")
    assert store.session("k").id == mine.id
    assert said(mine) == ["mine", "re: mine"]


@pytest.mark.parametrize(
    ("one", "other"), [(("a\nb", "c"), ("a", "b\nc")), (("a", "\nb"), ("a\n", "b"))]
)
def test_an_event_id_belongs_to_its_tenant_and_key_whatever_they_are_called(
    path: Path, one: tuple[str, str], other: tuple[str, str]
) -> None:
    """I-19, A6: names run together must not make two tenants' events one."""
    for tenant, key in (one, other):
        with holdfast.open(path, durability="process", tenant=tenant) as store:
            say(store, key, "hello", event_id="e1")
            assert said(store.session(key)) == ["hello", "re: hello"]


@pytest.mark.parametrize("key", ["", None, 7])
def test_no_key_is_nobodys_session(store: Store, key: object) -> None:
    """K3: a missing name never falls back to some session."""
    for use in (store.session, store.reset, lambda key: store.turn(key, "hello")):
        with pytest.raises(BadArgument):
            use(key)  # type: ignore[operator]


def test_a_key_that_is_not_unicode_text_is_refused(store: Store) -> None:
    with pytest.raises(BadArgument):
        store.session("lone \udcff")


@pytest.mark.parametrize("tenant", ["", None])
def test_no_tenant_is_refused_at_open(path: Path, tenant: object) -> None:
    with pytest.raises(HoldfastError):
        holdfast.open(path, tenant=tenant)  # type: ignore[arg-type]


def test_a_session_that_is_not_to_be_made_is_not_found(store: Store) -> None:
    """C12: new only on request."""
    with pytest.raises(NotFound, match="nobody"):
        store.session("nobody", create=False)
    made = store.session("nobody")
    assert store.session("nobody", create=False).id == made.id
    assert made.epoch == 1


def test_looking_for_a_key_whose_session_has_ended_finds_that_and_makes_nothing(
    store: Store,
) -> None:
    """I-18: it can be read; the next one is made by whoever wants to speak."""
    old = store.session("k")
    old.end("over")
    assert store.session("k", create=False).id == old.id
    assert store.session("k").epoch == old.epoch + 1


def test_a_beginning_that_fits_several_ids_names_them(store: Store) -> None:
    ids = sorted(store.session(f"key {number}").id for number in range(17))
    first = next(id[0] for id in ids if sum(other[0] == id[0] for other in ids) > 1)
    with pytest.raises(NotFound) as caught:
        store.get(first)
    assert caught.value.candidates == tuple(id for id in ids if id[0] == first)


# Ids
# -----------------------------------------------------------------------------------------------------------------


def test_a_session_is_found_by_its_id_and_by_the_beginning_of_it(store: Store) -> None:
    session = store.session("k")
    for name in (session.id, session.id[:8], session.id[:13]):
        found = store.get(name)
        assert (found.id, found.key, found.epoch) == (session.id, "k", 1)


@pytest.mark.parametrize("name", ["", "zzzz", "%", "_", "0" * 36, "🦀", "\udcff"])
def test_an_unknown_id_is_not_found(store: Store, name: str) -> None:
    store.session("k")
    with pytest.raises(NotFound) as caught:
        store.get(name)
    assert caught.value.code == "not_found"


def test_a_beginning_that_several_ids_share_names_none_of_them(store: Store) -> None:
    """C3: a named id is used or the call fails. Seventeen ids must share one of sixteen first
    digits.
    """
    ids = [store.session(f"k{n}").id for n in range(17)]
    shared = next(id[0] for id in ids if sum(other[0] == id[0] for other in ids) > 1)
    with pytest.raises(NotFound, match="several"):
        store.get(shared)
    assert store.get(ids[3]).key == "k3"


def test_an_ended_session_can_still_be_read_by_its_id(store: Store) -> None:
    old = store.get(say(store, "k", "hello"))
    store.reset("k")
    assert said(store.get(old.id)) == ["hello", "re: hello"]
    assert store.get(old.id).info().state == "ended"


# Resets
# --------------------------------------------------------------------------------------------------------------


def test_new_is_a_reset_and_the_epoch_rises(store: Store) -> None:
    """The command /new: another session, the next epoch, and nothing of the old one in
    its context.
    """
    epochs = []
    for n in range(4):
        say(store, "k", f"in {n}")
        epochs.append(store.session("k").epoch)
        fresh = store.reset("k")
        assert list(fresh.context()) == []
        assert store.session("k").id == fresh.id
    assert epochs == [1, 2, 3, 4]


def test_a_reset_of_a_key_that_has_no_session_makes_one(store: Store) -> None:
    assert store.reset("k").epoch == 1


def test_a_reset_ends_the_running_turn_and_tells_its_writer(store: Store) -> None:
    """I-6, I-7: one end, what was said is kept, nothing more is delivered."""
    turn = store.turn("k", "hello")
    stream = turn.deliver(iter(["one ", "two"]))
    assert next(stream)
    old = store.session("k")
    new = store.reset("k")
    with pytest.raises(TurnInterrupted):
        turn.say("too late")
    assert said(new) == []
    assert [entry.kind for entry in old.entries()].count("end") == 1
    assert said(old)[0] == "hello"
    assert "too late" not in said(old)


def test_a_stale_handle_can_not_start_a_turn_and_is_told_where_to_go_on(store: Store) -> None:
    """C1, I-8."""
    stale = store.session("k")
    say(store, "k", "hello")
    current = store.reset("k")
    head = stale.info().head
    for _ in range(2):
        with pytest.raises(SessionEnded) as caught:
            stale.turn("to nowhere")
        assert caught.value.session_id == stale.id
        assert caught.value.current_id == current.id
        assert current.id in str(caught.value)
    for write in (lambda: stale.append("x"), lambda: stale.record([{"role": "user", "content": "x"}]),
                  lambda: stale.instructions("x")):  # fmt: skip
        with pytest.raises(SessionEnded):
            write()
    assert stale.info().head == head
    assert said(current) == []


def test_an_ended_key_without_a_current_session_says_so(store: Store) -> None:
    session = store.session("k")
    session.end("done")
    with pytest.raises(SessionEnded) as caught:
        session.turn("more")
    assert caught.value.current_id is None
    assert say(store, "k", "more") != session.id
    assert store.session("k").epoch == 2


def test_a_turn_by_key_always_lands_in_the_current_session(store: Store) -> None:
    """I-8."""
    for n in range(5):
        current = store.reset("k")
        assert say(store, "k", f"turn {n}") == current.id
        assert said(current) == [f"turn {n}", f"re: turn {n}"]


WAITER = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        say("ready")
        with store.turn("k", "second", event_id="e2") as turn:
            say("context", turn.context()[-1]["content"])
            turn.say("re: second")
        say("landed", turn.id.rpartition(":")[0])
"""


def test_a_message_that_waited_while_its_key_was_reset_is_answered_in_the_new_session(
    path: Path,
) -> None:
    """I-4, I-8: accepted means it will be answered, where its key is now. The waiter stands still
    during the reset.
    """
    with holdfast.open(path, durability="process") as store:
        running = store.turn("k", "first")
        old = store.session("k")
        with procs.child(WAITER, path) as other:
            other.wait_for("ready")
            for _ in old.follow():
                if [message.text for message in old.pending()] == ["second"]:
                    break
            other.freeze()
            new = store.reset("k")
            other.thaw()
            assert other.wait_for("context") == "second"
            assert other.wait_for("landed") == new.id
        assert said(new) == ["second", "re: second"]
        with pytest.raises(holdfast.errors.AlreadyAccepted):
            store.turn("k", "second", event_id="e2")
        with pytest.raises(TurnInterrupted):
            running.say("late")


def test_who_waits_with_a_handle_of_a_session_that_is_reset_is_told_where_its_message_waits(
    path: Path,
) -> None:
    """Else it would say it again in the new session, which has it."""
    with holdfast.open(path, durability="process") as store, ThreadPoolExecutor(1) as another:
        old = store.session("k")
        with pytest.raises(TurnInterrupted), old.turn("first"):
            waiting = another.submit(old.turn, "second")
            while not store.pending():
                pass
            new = store.reset("k")
            error = waiting.exception(LIMIT_S)
        assert isinstance(error, SessionEnded)
        assert error.current_id == new.id
        assert error.message_id == store.pending()[0].id
        with new.turn() as turn:
            assert [message["content"] for message in turn.context()] == ["second"]
        # One that nobody waited with is not named.
        with pytest.raises(SessionEnded) as caught:
            old.turn("third")
        assert caught.value.message_id is None


def waiting_turn(store: Store, key: str, *, reset_before: int) -> tuple[str, str | None]:
    """A turn that waits with its message, driven by hand; the key is reset before the so-manieth
    thing that it does after the turn it waited for has ended. Where it landed, and the session that
    the reset made, if it came to that.
    """
    with ThreadPoolExecutor(1) as another:  # nobody waits for a turn of its own
        running = another.submit(store.turn, key, "first").result()
    request = TurnRequest(
        store._work.world,
        "second",
        format="openai.chat",
        event_id=None,
        on_busy="wait",
        reply_to=None,
        lease_s=30,
    )
    plan, made = start_turn(store._work, key, request, reset=None), None
    request = next(plan)
    while not isinstance(request, Pause):
        request = plan.send(_wait(request))
    running.say("re: first")
    running.__exit__(None, None, None)
    try:
        for count in itertools.count():
            if count == reset_before:
                made = store.reset(key).id
            request = plan.send(None if isinstance(request, Pause) else _wait(request))
    except StopIteration as stop:
        return stop.value.session.id, made


def test_a_reset_between_any_two_looks_of_a_waiter_takes_its_message_along(store: Store) -> None:
    """I-4: it is never told that its own message was accepted before."""
    for place in range(100):
        landed, made = waiting_turn(store, f"reset before {place}", reset_before=place)
        if made is None:
            break
        assert said(store.get(made)) == (["second"] if landed == made else []), (
            "its turn may have begun just before"
        )
        assert "second" in said(store.get(landed))
    assert 2 < place < 99


@pytest.mark.slow
def test_a_reset_that_races_turns_loses_none_and_leaves_none_behind(path: Path) -> None:
    """C1, I-8: from threads. Every turn is whole, in exactly one session, and epochs are dense."""
    with holdfast.open(path, durability="process") as store:
        errors: list[BaseException] = []

        def turns(name: int) -> None:
            try:
                for n in range(25):
                    try:
                        with store.turn("k", f"{name}/{n}") as turn:
                            turn.say(f"re {name}/{n}")
                    except TurnInterrupted:
                        continue  # a reset took the session away under it, and it was told
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=turns, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(15):
            store.reset("k")
        for thread in threads:
            thread.join(LIMIT_S)
        assert errors == []
        told = everything_taken(store)
        for name in range(4):
            for n in range(25):
                assert told.count(f"{name}/{n}") == 1, f"the message {name}/{n}"


RESETTER = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        say("ready")
        hear()
        for _ in range(30):
            store.reset("k")
            say("reset")
"""


@pytest.mark.slow
def test_a_reset_from_another_process_never_makes_a_turn_land_in_an_ended_session(
    path: Path,
) -> None:
    """C1, I-8: whatever the timing, a turn that was started belongs to the session that was current
    then.
    """
    with holdfast.open(path, durability="process") as store, procs.child(RESETTER, path) as other:
        other.wait_for("ready")
        other.tell()
        messages = [f"m{n}" for n in range(60)]
        for text in messages:
            turn = store.turn("k", text)
            try:
                turn.say(f"re {text}")
                turn.__exit__(None, None, None)
            except TurnInterrupted:
                pass
        other.end()
        told = everything_taken(store)
        assert [text for text in told if text.startswith("m")] == messages
        for session in sessions_of(store):
            entries = list(session.entries())
            closed = [entry.seq for entry in entries if entry.kind == "closed"]
            assert not [
                entry
                for entry in entries
                if closed and entry.seq > closed[0] and entry.kind == "turn"
            ]


def sessions_of(store: Store, key: str = "k") -> list[Session]:
    """All sessions the key has had, oldest first."""
    session = store.session(key)
    chain = [session]
    while True:
        opened = next(entry for entry in chain[-1].entries() if entry.kind == "opened")
        previous = holdfast.domain.entry.note_of("opened", opened.note).previous  # type: ignore[attr-defined]
        if previous is None:
            break
        chain.append(store.get(previous))
    assert [one.epoch for one in chain] == list(range(len(chain), 0, -1))
    return chain[::-1]


def everything_taken(store: Store) -> list[str]:
    """What was said in turns, over all sessions. A message that waits in a session when it is reset
    goes on waiting in the next: it is in both transcripts, and only one turn takes it.
    """
    messages = [message for session in sessions_of(store) for message in session.transcript()]
    return [message.text for message in messages if message.turn is not None]


# Policies
# ------------------------------------------------------------------------------------------------------------


def test_idle_gives_a_new_session_after_that_long_without_activity(
    store: Store, world: HandWorld
) -> None:
    policy = Idle(hours=2)
    first = say(store, "k", "hello", reset=policy)
    world.advance(hours=1, minutes=59)
    assert say(store, "k", "still here", reset=policy) == first
    world.advance(hours=2)
    second = say(store, "k", "good morning", reset=policy)
    assert second != first
    assert said(store.get(second)) == ["good morning", "re: good morning"]
    assert store.session("k").epoch == 2
    assert store.session("k", reset=policy).id == second


def test_a_policy_is_applied_when_a_session_is_asked_for_and_not_when_it_is_not_named(
    store: Store, world: HandWorld
) -> None:
    first = store.session("k")
    world.advance(hours=100)
    assert store.session("k").id == first.id
    assert store.session("k", reset=Idle(hours=1)).id != first.id
    with pytest.raises(SessionEnded):
        first.turn("hello")


def test_a_clock_that_stepped_back_resets_nothing(store: Store, world: HandWorld) -> None:
    """F3: times are data; a clock that runs backwards is no activity in the future."""
    first = say(store, "k", "hello")
    world.at -= 10 * 24 * 3_600_000
    assert say(store, "k", "again", reset=Idle(hours=1) | Daily(at="04:00")) == first


def test_a_reset_is_never_made_under_a_running_turn(store: Store, world: HandWorld) -> None:
    policy = Idle(minutes=1) | Daily(at="04:00")
    running = store.turn("k", "a long one", reset=policy, lease_s=30e6)
    world.advance(hours=48)
    session = store.session("k", reset=policy)
    assert running.id.startswith(session.id)
    running.say("done at last")
    running.__exit__(None, None, None)
    assert said(session) == ["a long one", "done at last"]


@pytest.mark.parametrize(
    ("tz", "before", "after"),
    [
        ("UTC", "2025-01-15T03:59:59", "2025-01-15T04:00:00"),
        ("Europe/Berlin", "2025-01-15T03:59:59", "2025-01-15T04:00:00"),
        ("America/New_York", "2025-07-04T03:59:59", "2025-07-04T04:00:00"),
        ("Asia/Kathmandu", "2025-07-04T03:59:59", "2025-07-04T04:00:00"),
    ],
)
def test_daily_gives_a_new_session_at_that_time_of_day_there(
    store: Store, world: HandWorld, tz: str, before: str, after: str
) -> None:
    policy = Daily(at="04:00", tz=tz)
    world.set_local(
        "2025-01-14T22:00:00" if before.startswith("2025-01") else "2025-07-03T22:00:00", tz
    )
    first = say(store, "k", "good night", reset=policy)
    world.set_local(before, tz)
    assert say(store, "k", "up late", reset=policy) == first
    world.set_local(after, tz)
    second = say(store, "k", "good morning", reset=policy)
    assert second != first
    world.advance(hours=23)
    assert say(store, "k", "same day", reset=policy) == second


@pytest.mark.parametrize(
    ("tz", "gap_day", "at"),
    [("Europe/Berlin", "2025-03-30", "02:30"), ("America/New_York", "2025-03-09", "02:30")],
)
def test_a_time_of_day_that_the_clocks_skip_still_resets_once_that_day(
    store: Store, world: HandWorld, tz: str, gap_day: str, at: str
) -> None:
    policy = Daily(at=at, tz=tz)
    world.set_local(f"{gap_day}T01:59:59", tz)
    first = say(store, "k", "before the gap", reset=policy)
    world.set_local(f"{gap_day}T04:00:00", tz)
    second = say(store, "k", "after the gap", reset=policy)
    assert second != first
    world.set_local(f"{gap_day}T23:59:59", tz)
    assert say(store, "k", "same day", reset=policy) == second


@pytest.mark.parametrize(
    ("tz", "fold_day", "at"),
    [("Europe/Berlin", "2025-10-26", "02:30"), ("America/New_York", "2025-11-02", "01:30")],
)
def test_a_time_of_day_that_comes_twice_resets_once_at_the_first(
    store: Store, world: HandWorld, tz: str, fold_day: str, at: str
) -> None:
    policy = Daily(at=at, tz=tz)
    world.at = local_ms(f"{fold_day}T{at}:00", tz) - 60_000
    first = say(store, "k", "before", reset=policy)
    world.at = local_ms(f"{fold_day}T{at}:00", tz)
    second = say(store, "k", "the first time", reset=policy)
    assert second != first
    world.set_local(f"{fold_day}T{at}:00", tz, fold=1)
    assert say(store, "k", "the second time", reset=policy) == second
    world.set_local(f"{fold_day}T23:00:00", tz)
    assert say(store, "k", "same day", reset=policy) == second


def test_policies_combined_are_due_when_either_is(store: Store, world: HandWorld) -> None:
    policy = Idle(hours=1) | Daily(at="04:00", tz="Europe/Berlin")
    world.set_local("2025-01-15T03:30:00", "Europe/Berlin")
    first = say(store, "k", "a", reset=policy)
    world.advance(minutes=31)
    second = say(store, "k", "after four", reset=policy)
    world.advance(minutes=61)
    third = say(store, "k", "after an hour", reset=policy)
    world.advance(minutes=59)
    assert say(store, "k", "soon after", reset=policy) == third
    assert len({first, second, third}) == 3


def test_a_policy_does_not_reset_twice_for_one_boundary(store: Store, world: HandWorld) -> None:
    policy = Daily(at="04:00")
    store.session("k", reset=policy)
    world.advance(hours=72)
    epochs = {store.session("k", reset=policy).epoch for _ in range(3)}
    assert epochs == {2}
