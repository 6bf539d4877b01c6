"""A `take` that can't be had is the caller's mistake, and a mistake writes nothing: whatever is named,
whatever runs meanwhile, the logs and the inboxes are the same before and after (I-25).
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import Receipt, Session, Store
from holdfast.domain.inbox import NamedMessage
from holdfast.errors import AlreadyAccepted, BadArgument, NotFound, TurnInterrupted
from holdfast.runtime.changes.receive import start_turn
from holdfast.runtime.plans.plan import Pause, Plan, _wait
from holdfast.runtime.turns.start_turn import TurnRequest, start
from holdfast.testing.oracle import judge
from looking import ends, other_handle, raw_entries, waiters, when
from thorough import few_on_postgres

pytestmark = few_on_postgres("a `take` is judged in `runtime/turns`, before anything is written")

LIMIT_S = 60.0

Named = Callable[[Store, Session], list[Any]]


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with holdfast.open(where) as opened:
        yield opened


@contextlib.contextmanager
def running(session: Session) -> Iterator[holdfast.Turn]:
    """A turn that another thread holds: this one may wait for it."""
    made: list[holdfast.Turn] = []
    over = threading.Event()
    begun = threading.Event()
    raised: list[BaseException] = []

    def hold() -> None:
        try:
            with session.turn("running", take=[]) as turn:
                made.append(turn)
                begun.set()
                over.wait(LIMIT_S)
                turn.say("ran")
        except BaseException as error:
            raised.append(error)

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(LIMIT_S)
    try:
        yield made[0]
    finally:
        over.set()
        holder.join(LIMIT_S)
    for error in raised:
        raise error


def told(store: Store) -> dict[str, Any]:
    """All that a call could have changed: every session's log, its inbox and who waits with it, and how
    it stands.
    """
    found = {}
    for tenant in (store, store.for_tenant("else")):
        for listed in tenant.sessions():
            state = store._work.engine.state(listed.id)
            assert state is not None
            inbox = [(each.message, each.seq) for each in store._work.engine.inbox(listed.id)]
            found[listed.id] = (
                raw_entries(store, listed.id),
                inbox,
                waiters(store, listed.id),
                (state.head, state.fence, state.turn, state.ended),
            )
    return found


def waiting(session: Session) -> list[str]:
    return [message.text for message in session.pending()]


def _of_nobody(store: Store, session: Session) -> list[Any]:
    return ["0" * 32]


def _no_id(store: Store, session: Session) -> list[Any]:
    return ["no such id"]


def _strange_letters(store: Store, session: Session) -> list[Any]:
    return ["\x00\ud800"]


def _strange_session(store: Store, session: Session) -> list[Any]:
    return [Receipt("\x00\ud800", "0" * 32)]


def _of_no_session(store: Store, session: Session) -> list[Any]:
    return [Receipt("0" * 32, "0" * 32)]


def _one_of_two(store: Store, session: Session) -> list[Any]:
    return [store.accept("k", "waits"), "0" * 32]


def _one_of_two_elsewhere(store: Store, session: Session) -> list[Any]:
    here, elsewhere = store.accept("k", "here"), store.accept("elsewhere", "there")
    return [here, elsewhere, Receipt(elsewhere.session_id, "0" * 32)]


def _elsewhere_by_id(store: Store, session: Session) -> list[Any]:
    return [store.accept("elsewhere", "named without its session").message_id]


def _of_another_tenant(store: Store, session: Session) -> list[Any]:
    return [store.for_tenant("else").accept("elsewhere", "private")]


def _of_another_tenant_by_id(store: Store, session: Session) -> list[Any]:
    return [store.for_tenant("else").accept("k", "private").message_id]


def _taken(store: Store, session: Session) -> list[Any]:
    receipt = store.accept("elsewhere", "taken")
    with store.turn("elsewhere", take=[receipt]) as turn:
        turn.say("yes")
    return [receipt]


def _taken_to_another_session(store: Store, session: Session) -> list[Any]:
    receipt = store.accept("elsewhere", "taken")
    with store.turn("third", take=[receipt]) as turn:
        turn.say("yes")
    return [receipt]


def _erased(store: Store, session: Session) -> list[Any]:
    receipt = store.accept("elsewhere", "erased while it waits")
    store.erase(receipt.session_id)
    return [receipt]


def _reset_and_taken(store: Store, session: Session) -> list[Any]:
    receipt = store.accept("elsewhere", "carried on")
    store.reset("elsewhere")
    with store.turn("elsewhere") as turn:
        turn.say("yes")
    return [receipt]


def _in_the_parent_of_a_fork(store: Store, session: Session) -> list[Any]:
    receipt = store.accept("elsewhere", "waits in the parent")
    fork = store.session("elsewhere").fork(key="fork")
    return [Receipt(fork.id, receipt.message_id)]


REFUSED = [
    _of_nobody,
    _no_id,
    _strange_letters,
    _strange_session,
    _of_no_session,
    _one_of_two,
    _one_of_two_elsewhere,
    _elsewhere_by_id,
    _of_another_tenant,
    _of_another_tenant_by_id,
    _taken,
    _taken_to_another_session,
    _erased,
    _reset_and_taken,
    _in_the_parent_of_a_fork,
]


@pytest.mark.parametrize("is_busy", [False, True], ids=["free", "busy"])
def test_a_take_that_is_refused_writes_nothing(store: Store, is_busy: bool) -> None:
    """Each thing that can't be had, each way to meet a running turn, with a message and without one."""
    session = store.session("k")
    with running(session) if is_busy else contextlib.nullcontext():
        for made in REFUSED:
            named = made(store, session)
            for on_busy in ("wait", "interrupt", "refuse"):
                for message in ("mine", None):
                    before = told(store)
                    event = "an event" if message else None
                    asked: dict[str, Any] = {"take": named, "on_busy": on_busy, "event_id": event}
                    for start in (session.turn, lambda *a, **n: store.turn("k", *a, **n)):
                        with pytest.raises(NotFound):
                            start(message, **asked)
                        assert told(store) == before, f"{made.__name__}, {on_busy}, {message}"
    assert all(each == ["completed"] for each in ends(store, session.id).values())
    assert judge(store) == []


def test_a_refused_take_makes_no_session_and_resets_none(store: Store) -> None:
    with pytest.raises(NotFound):
        store.turn("new", "mine", take=["0" * 32])
    assert list(store.sessions()) == []
    old = store.session("k")
    old.append("long ago")
    before = told(store)
    with pytest.raises(NotFound):
        store.turn("k", "mine", take=["0" * 32], reset=holdfast.Idle(hours=1e-9))
    assert told(store) == before
    old.end("over")
    before = told(store)
    with pytest.raises(NotFound):
        store.turn("k", "mine", take=["0" * 32])
    assert told(store) == before


class Waiter:
    """A caller that waits for a turn, step by step: it stands still between two looks."""

    def __init__(self, plan: Plan[Any]) -> None:
        self._plan = plan
        self._asked = next(plan)
        while not isinstance(self._asked, Pause):
            self._asked = plan.send(_wait(self._asked))

    def go_on(self) -> Any:
        """Looks again, until it has its turn or its error."""
        try:
            while True:
                answer = None if isinstance(self._asked, Pause) else _wait(self._asked)
                self._asked = self._plan.send(answer)
        except StopIteration as stop:
            return stop.value


def request(store: Store, message: str, *named: Receipt, event_id: Any = None) -> TurnRequest:
    return TurnRequest(
        store._work.world,
        message,
        format="openai.chat",
        event_id=event_id,
        on_busy="wait",
        reply_to=None,
        lease_s=30,
        take=tuple(NamedMessage(each.message_id, each.session_id) for each in named),
    )


def test_a_session_that_ends_while_a_take_waits_is_not_replaced_for_nothing(store: Store) -> None:
    receipt = store.accept("elsewhere", "once")
    session = store.session("k")
    with pytest.raises(TurnInterrupted), running(session):
        waiter = Waiter(start_turn(store._work, "k", request(store, "mine", receipt), reset=None))
        with store.turn("third", take=[receipt]) as turn:
            turn.say("quicker")
        session.end("over")
        before = told(store)
        with pytest.raises(NotFound):
            waiter.go_on()
        assert told(store) == before


def test_a_session_that_ends_while_a_take_waits_is_replaced_by_its_turn(store: Store) -> None:
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    session = store.session("k")
    with pytest.raises(TurnInterrupted), running(session):
        asked = request(store, "mine", here, there)
        waiter = Waiter(start_turn(store._work, "k", asked, reset=None))
        session.end("over")
        with holdfast.Turn(waiter.go_on()) as turn:
            turn.say("all here")
    texts = [message.text for message in store.session("k").transcript()]
    assert texts == ["here", "there", "mine", "all here"]
    assert list(store.pending()) == []
    assert judge(store) == []


def test_what_another_caller_waits_with_is_refused_and_nobody_is_stopped(store: Store) -> None:
    session = store.session("k")
    waiter = threading.Thread(target=lambda: answer(session.turn("theirs")))
    with running(session):
        waiter.start()
        when(session, lambda: waiting(session))
        [theirs] = session.pending()
        before = told(store)
        for on_busy in ("wait", "interrupt", "refuse"):
            with pytest.raises(NotFound):
                session.turn("mine", take=[theirs], on_busy=on_busy)  # type: ignore[arg-type]
        assert told(store) == before
    waiter.join(LIMIT_S)
    assert waiting(session) == []
    assert all(each == ["completed"] for each in ends(store, session.id).values())


def answer(turn: holdfast.Turn) -> None:
    with turn:
        turn.say("answered")


def test_an_interrupt_has_what_it_takes_or_stops_nobody(store: Store, where: str) -> None:
    """Between the look and the interrupt, somebody else is quicker: nobody is stopped then."""
    receipt = store.accept("k", "once")
    elsewhere = store.accept("elsewhere", "once")
    session = store.session("k")
    for named in (receipt, elsewhere):
        with running(session) as turn:
            plan = started(session, take=[named], on_busy="interrupt")
            with other_handle(where) as other, pytest.raises(NotFound):
                plan(partial(take_away, other, turn, named))
            assert not turn.stopped
    assert all(each == ["completed"] for each in ends(store, session.id).values())
    assert judge(store) == []


def take_away(other: Store, turn: holdfast.Turn, named: Receipt) -> None:
    if named.session_id == turn._work.session.id:
        turn.inbox(take=[named])
    else:
        with other.turn("third", take=[named]) as taking:
            taking.say("quicker")


def started(session: Session, **asked: Any) -> Callable[[Callable[[], None]], Any]:
    """A turn that is started step by step: `meanwhile` happens just before its first commit."""
    engine = session._log.engine

    def run_it(meanwhile: Callable[[], None]) -> Any:
        submit = engine.submit
        done: list[bool] = []

        def first(commit: Any) -> Any:
            if not done and any(write.seize for write in commit):
                done.append(True)
                meanwhile()
            return submit(commit)

        engine.submit = first  # type: ignore[method-assign]
        try:
            return session.turn(**asked)
        finally:
            del engine.submit
            assert done

    return run_it


def test_nobody_has_it_between_the_interrupt_and_the_turn(store: Store, where: str) -> None:
    """What is taken is the caller's own from the commit that stops the running turn."""
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    session = store.session("k")
    engine = session._log.engine
    submit = engine.submit
    refused: list[str] = []

    with other_handle(where) as other:

        def watched(commit: Any) -> Any:
            if any(write.start for write in commit):
                for key, named in (("third", here), ("third", there), ("elsewhere", there)):
                    with pytest.raises(NotFound):
                        other.turn(key, take=[named])
                    refused.append(key)
                with other.turn("elsewhere", "not yours", on_busy="refuse") as turn:
                    turn.say("no")
            return submit(commit)

        with pytest.raises(TurnInterrupted), running(session):
            engine.submit = watched  # type: ignore[method-assign]
            try:
                turn = session.turn("mine", take=[here, there], on_busy="interrupt")
            finally:
                del engine.submit
            assert len(refused) == 3
            with turn:
                turn.say("all mine")
    assert [m.text for m in session.transcript() if m.turn == turn.id] == [
        "here",
        "there",
        "mine",
        "all mine",
    ]
    assert list(store.pending()) == []
    assert judge(store) == []


def test_what_was_kept_for_an_interrupt_is_free_when_its_caller_is_cut(store: Store) -> None:
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    session = store.session("k")
    engine = session._log.engine
    submit = engine.submit

    def cut(commit: Any) -> Any:
        if any(write.start for write in commit):
            raise KeyboardInterrupt
        return submit(commit)

    with pytest.raises(TurnInterrupted), running(session):
        engine.submit = cut  # type: ignore[method-assign]
        try:
            with pytest.raises(KeyboardInterrupt):
                session.turn("mine", take=[here, there], on_busy="interrupt")
        finally:
            del engine.submit
    assert waiters(store, session.id) == waiters(store, there.session_id) == [None]
    with session.turn(take=[here, there]) as turn:
        turn.say("both")
    assert list(store.pending()) == []


def test_what_is_taken_during_the_wait_leaves_nothing_of_the_waiter(store: Store) -> None:
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    session = store.session("k")
    with running(session) as turn:
        before = told(store)
        waiters = [
            Waiter(start(session._log, request(store, "mine", each, event_id="e")))
            for each in (here, there)
        ]
        assert told(store) == before
        assert [m.text for m in turn.inbox(take=[here, there])] == ["here", "there"]
        before = told(store)
        # They are told at once, and not when the turn is over.
        for waiter in waiters:
            with pytest.raises(NotFound):
                waiter.go_on()
        assert told(store) == before
    # The event was not accepted, either: it may come again.
    with session.turn("mine", event_id="e") as turn:
        turn.say("now")
    assert judge(store) == []


def test_of_two_that_wait_with_one_event_the_second_is_told(store: Store) -> None:
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    session = store.session("k")
    with running(session):
        first, second = (
            Waiter(start(session._log, request(store, "mine", each, event_id="e")))
            for each in (here, there)
        )
    with holdfast.Turn(first.go_on()) as turn:
        turn.say("here it is")
    with pytest.raises(AlreadyAccepted) as said:
        second.go_on()
    assert said.value.turn_id == turn.id
    assert [message.text for message in store.pending()] == ["there"]


def test_a_waiter_that_names_messages_gets_its_turn_with_them(store: Store) -> None:
    here, there = store.accept("k", "here"), store.accept("elsewhere", "there")
    left = store.accept("k", "left")
    session = store.session("k")
    waiter = threading.Thread(target=lambda: answer(session.turn("mine", take=[there, here])))
    with running(session):
        waiter.start()
    waiter.join(LIMIT_S)
    answered = list(session.transcript())[-1]
    of_turn = [m.text for m in session.transcript() if m.turn == answered.turn]
    assert of_turn == ["here", "there", "mine", "answered"]
    assert [m.id for m in session.pending()] == [left.message_id]
    assert judge(store) == []


@pytest.mark.parametrize("key", ["k", "elsewhere"])
def test_the_same_call_again_is_told_of_its_event_and_not_of_what_it_took(
    store: Store, key: str
) -> None:
    receipt = store.accept(key, "first")

    def call(**asked: Any) -> holdfast.Turn:
        return store.turn("k", "hello", event_id=2, take=[receipt], **asked)

    with call() as turn:
        turn.say("x")
    session = store.session("k")
    before = told(store)
    with pytest.raises(AlreadyAccepted) as said:
        call()
    assert said.value.turn_id == turn.id
    with pytest.raises(AlreadyAccepted):
        session.turn("hello", event_id=2, take=[receipt])
    assert told(store) == before
    with running(session):
        for on_busy in ("wait", "interrupt", "refuse"):
            with pytest.raises(AlreadyAccepted):
                call(on_busy=on_busy)
    old = store.reset("k")
    old.end("over")
    before = told(store)
    with pytest.raises(AlreadyAccepted):
        call()
    assert told(store) == before


def test_all_that_is_pending_can_be_named_at_once(store: Store) -> None:
    store.accept("k", "one")
    store.accept("elsewhere", "two")
    with store.turn("k", take=store.pending()) as turn:
        turn.say("all of it")
    assert [m.text for m in store.session("k").transcript()][-1:] == ["all of it"]
    assert len(store.pending()) == 0
    with store.turn("k", "nothing waits", take=store.pending()) as turn:
        turn.say("nothing")
    store.accept("k", "three")
    with store.turn("k", "steered") as turn:
        store.accept("elsewhere", "four")
        assert [m.text for m in turn.inbox(take=store.pending())] == ["four"]
        turn.say("there")


def test_an_error_quotes_the_beginning_of_what_is_long(store: Store) -> None:
    session = store.session("k")
    with pytest.raises(NotFound) as told:
        session.turn(take=["f" * 16_000])
    assert len(str(told.value)) < 1000
    assert told.value.name == "f" * 16_000
    with pytest.raises(BadArgument) as refused:
        session.turn(take=["f" * 10_000_000])
    assert "10,000,000 characters" in str(refused.value)
    with pytest.raises(NotFound) as told:
        store.get("f" * 10_000_000)
    assert len(str(told.value)) < 1000


def test_on_an_event_loop_too_a_refused_take_stops_nobody(where: str) -> None:
    async def scene() -> list[str]:
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            for on_busy in ("wait", "interrupt", "refuse"):
                async with session.turn("running") as turn:

                    async def other(on_busy: str = on_busy) -> None:
                        with pytest.raises(NotFound):
                            await session.turn("mine", take=["0" * 32], on_busy=on_busy)

                    await asyncio.ensure_future(other())
                    await turn.say("ran")
            return [message.text async for message in session.transcript()]

    assert asyncio.run(scene()) == ["running", "ran"] * 3
