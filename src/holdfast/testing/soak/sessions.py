"""What callers of a soak do with sessions and with the store, turns aside; see `turns` for what
an act is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.runtime.changes import append as append_plans
from holdfast.runtime.changes import approve, end_session, fork_rewind, receive
from holdfast.runtime.changes import compact as compact_plans
from holdfast.runtime.changes.open_session import find_session, open_session, reset_key
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.store import Store
from holdfast.testing.oracle import FORMATS
from holdfast.testing.soak.differential import Answer
from holdfast.testing.soak.turns import KEYS, LATE, known_as, one_event, one_friend
from holdfast.testing.soak.world import Desk, HeldSession, SoakWorld

# A handle that is dropped and opened anew remembers nothing: both must work.
SESSIONS_HELD_MAX = 6


def open_a_session(world: SoakWorld, desk: Desk) -> bool:
    """The current one of a key, or any by its id or the beginning of it."""
    hold = partial(_hold, world, desk)
    # A set has another order in each process, and one seed is one world.
    known = sorted(world.known)
    if known and world.dice.happens(0.4):
        # Two characters may match several ids, which must be refused.
        prefix = world.dice.pick(known)[: world.dice.pick([36, 12, 2])]
        world.call(desk, hold, lambda work: find_session(work, prefix), desk.works)
    else:
        key = world.dice.pick(KEYS)
        create = world.dice.happens(0.9)
        world.call(
            desk, hold, lambda work: open_session(work, key, create=create), desk.works
        )
    return True


def _hold(world: SoakWorld, desk: Desk, answer: Answer) -> None:
    """A session that was opened is in this desk's hands."""
    if answer.values is not None:
        held = HeldSession(answer.values)
        world.known.add(held.id)
        desk.sessions.append(held)
        if len(desk.sessions) > SESSIONS_HELD_MAX:
            desk.sessions.pop(0)


def accept(world: SoakWorld, desk: Desk) -> bool:
    key = world.dice.pick(KEYS)
    text = world.word("accept")
    event_id = one_event(world, 0.5)
    reply_to = one_friend(world)

    def plan(work: Any) -> Plan[Any]:
        return receive.accept(
            work,
            key,
            text,
            format="openai.chat",
            event_id=event_id,
            reply_to=reply_to,
        )

    def accepted(answer: Answer) -> None:
        receipt = answer.value
        if receipt is not None:
            known_as(world, key, event_id, receipt.message_id)
            if not receipt.again:
                world.acknowledged.said(
                    receipt.session_id,
                    receipt.message_id,
                    text,
                    ordered=answer.at_once,
                )

    world.call(desk, accepted, plan, desk.works, flies=LATE)
    return True


def append(world: SoakWorld, desk: Desk) -> bool:
    text = world.word("append")
    event_id = one_event(world, 0.2)
    payload = {"role": world.dice.pick(["user", "assistant"]), "content": text}

    def appended(held: HeldSession, answer: Answer) -> None:
        if answer.error == "AlreadyAccepted":
            known_as(world, held.scope, event_id, answer.plain[1]["message_id"])
        if answer.error is None:
            known_as(world, held.scope, event_id, answer.value)
            world.acknowledged.said(held.id, answer.value, text, ordered=answer.at_once)

    def plan(log: SessionLog) -> Plan[str]:
        return append_plans.append(
            log, payload, format="openai.chat", event_id=event_id
        )

    return _with(world, desk, plan, appended, flies=LATE)


def instruct(world: SoakWorld, desk: Desk) -> bool:
    text = world.word("Be kind")

    def instructed(held: HeldSession, answer: Answer) -> None:
        if answer.error is None:
            world.acknowledged.instructed(held.id, text)

    return _with(
        world, desk, lambda log: append_plans.instructions(log, text), instructed
    )


def label(world: SoakWorld, desk: Desk) -> bool:
    """A label that anybody reads, or the one that hides a message from the model."""
    message = _message(world, desk)
    if message is None:
        return False
    held, id = message
    name = world.dice.pick(["mark", "visible_to_model"])
    value: Any = world.word("mark") if name == "mark" else world.dice.happens(0.5)

    def labelled(held: HeldSession, answer: Answer) -> None:
        if answer.error is None:
            world.acknowledged.labelled(held.id, id, name, value)

    def plan(log: SessionLog) -> Plan[None]:
        return append_plans.label(log, id, {name: value})

    return _with(world, desk, plan, labelled, held)


def decide(world: SoakWorld, desk: Desk) -> bool:
    # Nobody has asked, or there is nobody here to answer.
    if not world.asked or not desk.sessions:
        return False
    call_id = world.dice.pick(world.asked)[1]
    approved = world.dice.happens(0.6)

    def plan(log: SessionLog) -> Plan[None]:
        return approve.decide(log, call_id, approved, "ann")

    return _with(world, desk, plan, _nothing, flies=LATE)


def compact(world: SoakWorld, desk: Desk) -> bool:
    text = world.word("summary")
    keep = world.dice.below(4)

    def counted(messages: list[Message]) -> str:
        return f"{text}: {len(messages)}"

    def compacted(held: HeldSession, answer: Answer) -> None:
        if answer.value is not None:
            world.acknowledged.at(held.id, answer.value.seq, "compaction")

    def plan(log: SessionLog) -> Plan[Any]:
        # A summary that is there, or a summariser that is asked in the middle of the plan.
        summary = counted if keep % 2 else text
        return compact_plans.compact(log, summary, keep_turns=keep)

    return _with(world, desk, plan, compacted, flies=LATE)


def rewind(world: SoakWorld, desk: Desk) -> bool:
    message = _message(world, desk)
    if message is None:
        return False
    held, id = message

    def rewound(held: HeldSession, answer: Answer) -> None:
        # Whoever presents copies of what was rewound away may mean to say it again: nobody
        # can tell.
        for desk in world.desks:
            for other in desk.sessions:
                if other.id == held.id:
                    other.lists = None

    return _with(world, desk, lambda log: fork_rewind.rewind(log, id), rewound, held)


def fork(world: SoakWorld, desk: Desk) -> bool:
    """At a message or at the end; without a key, or with one that may be taken."""
    message = _message(world, desk) if world.dice.happens(0.6) else None
    held, at = message if message is not None else (None, None)
    key = world.dice.pick(KEYS) if world.dice.happens(0.3) else None

    def forked(held: HeldSession, answer: Answer) -> None:
        _hold(world, desk, answer)
        if answer.error is None:
            world.parents[answer.value.id] = held.id

    def plan(log: SessionLog) -> Plan[SessionLog]:
        return fork_rewind.fork(log, at=at, key=key)

    return _with(world, desk, plan, forked, held, flies=LATE)


def stop(world: SoakWorld, desk: Desk) -> bool:
    return _with(
        world, desk, lambda log: end_session.stop(log, "somebody"), _nothing, flies=LATE
    )


def end(world: SoakWorld, desk: Desk) -> bool:
    def ended(held: HeldSession, answer: Answer) -> None:
        if answer.error is None:
            world.acknowledged.over(held.id)

    return _with(
        world, desk, lambda log: end_session.end(log, "enough"), ended, flies=LATE
    )


def reset(world: SoakWorld, desk: Desk) -> bool:
    key = world.dice.pick(KEYS)
    hold = partial(_hold, world, desk)

    def plan(work: Any) -> Plan[Any]:
        return reset_key(work, key, reason="command")

    world.call(desk, hold, plan, desk.works, flies=LATE)
    return True


def post(world: SoakWorld, desk: Desk) -> bool:
    """Somebody looks what is owed, and tries to send one."""
    answer = world.ask(
        lambda store: [owed._work for owed in store.outbox()], desk.stores
    )
    assert answer.values is not None
    if not answer.value:
        return False
    # Entered when it is seen: who ended the turn was not told the ids of its debts.
    for owed in answer.value:
        world.acknowledged.owed(owed.debt.id.hex(), owed.session.id)
    place = world.dice.below(len(answer.value))
    arrives = world.dice.happens(0.7)
    disk, reference = (works[place] for works in answer.values)

    def plan(work: Any) -> Plan[None]:
        posting: Plan[None] = work.sent("p-1") if arrives else work.failed("no line")
        return posting

    def posted(answer: Answer) -> None:
        if answer.error is None and arrives:
            world.acknowledged.paid(reference.debt.id.hex())

    world.call(desk, posted, plan, (disk, reference))
    return True


def look_at_a_session(world: SoakWorld, desk: Desk) -> bool:
    """All that can be read of it."""
    if not desk.sessions:
        return False
    held = world.dice.pick(desk.sessions)
    format = world.dice.pick(FORMATS)
    world.ask(lambda session: session.info(), held.faces)
    world.ask(lambda session: list(session.transcript()), held.faces)
    world.ask(lambda session: session.pending(), held.faces)
    world.ask(lambda session: session.calls(), held.faces)
    world.ask(lambda session: session.turns(), held.faces)
    world.ask(lambda session: session.context(format), held.faces)
    return True


def look_around(world: SoakWorld, desk: Desk) -> bool:
    """A list of sessions, page by page, and a search."""
    dice = world.dice
    key = dice.pick([None, *KEYS])
    state = dice.pick([None, "open", "running", "ended"])
    limit = 1 + dice.below(9)
    options: dict[str, Any] = {"key": key, "state": state, "limit": limit}
    after = None
    for _ in range(4):
        page = partial(Store.sessions, after=after, **options)
        answer = world.ask(page, desk.stores)
        after = answer.value.next if answer.error is None else None
        if after is None:
            break
    said = f"say {dice.below(world.words + 1)}"
    words = dice.pick(["ask", "say", said, '"tell 1"', "found 漢"])
    role = dice.pick([None, "user", "assistant", "tool"])
    search = partial(Store.search, text=words, limit=limit, role=role, key=key)
    world.ask(search, desk.stores)
    return True


def erase(world: SoakWorld, desk: Desk) -> bool:
    """A session that has ended is taken out of the store, and nobody speaks of it any more."""
    over = [id for id in sorted(world.known) if world.acknowledged.of(id).over]
    if not over:
        return False
    id = world.dice.pick(over)
    # A preview must not change anything; the comparison that follows would show it.
    if world.dice.happens(0.5):
        world.ask(lambda store: store.erase(id, preview=True), desk.stores)
        return True
    answer = world.ask(lambda store: store.erase(id), desk.stores)
    if answer.values is not None:
        _forget(world, id, copies=answer.values[0].copies)
    return True


def _forget(world: SoakWorld, id: str, copies: list[str]) -> None:
    """Nobody holds anything against the store that was said there, or in what shares its past."""
    world.acknowledged.erased(id)
    for other in copies:
        world.acknowledged.blanked(other)
    world.lost.add(id)
    for fork in sorted(world.known):
        if world.is_lost(fork):
            world.acknowledged.bereft(fork)
    left = [reader for reader in world.readers if not world.is_lost(reader.session)]
    world.readers = left


def _nothing(held: HeldSession, answer: Answer) -> None:
    """There is nothing to hold against the store but what the two sides and the invariants say."""


def _message(world: SoakWorld, desk: Desk) -> tuple[HeldSession, str] | None:
    """A session and the id of one of its messages."""
    if not desk.sessions:
        return None
    held = world.dice.pick(desk.sessions)
    answer = world.ask(
        lambda session: [message.id for message in session.transcript()], held.faces
    )
    ids = answer.plain if answer.error is None else []
    return (held, world.dice.pick(ids)) if ids else None


def _with(
    world: SoakWorld,
    desk: Desk,
    plan: Callable[[SessionLog], Plan[Any]],
    then: Callable[[HeldSession, Answer], None],
    held: HeldSession | None = None,
    *,
    flies: float = 0.0,
) -> bool:
    """Something is done with a session in this desk's hands."""
    if held is None:
        if not desk.sessions:
            return False
        held = world.dice.pick(desk.sessions)
    world.call(desk, partial(then, held), plan, held.logs, flies=flies)
    return True
