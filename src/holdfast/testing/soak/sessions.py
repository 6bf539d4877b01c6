"""What callers of a soak do with sessions and with the store, turns aside; see `acts_of_turns` for
what an act is.
"""

from collections.abc import Callable
from typing import Any

from holdfast.runtime.changes import append as append_plans
from holdfast.runtime.changes import approve, end_session, fork_rewind, receive
from holdfast.runtime.changes import compact as compact_plans
from holdfast.runtime.changes.open_session import find_session, open_session, reset_key
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan
from holdfast.testing.oracle import FORMATS
from holdfast.testing.soak.differential import Answer, Pair, Side
from holdfast.testing.soak.turns import EVENTS, KEYS, LATE, known_as
from holdfast.testing.soak.world import Desk, HeldSession, SoakWorld

SESSIONS_HELD_MAX = 6


def open_a_session(stage: SoakWorld, desk: Desk) -> bool:
    """The current one of a key, or any by its id or the beginning of it."""
    known = sorted(stage.known)
    if known and stage.dice.happens(0.4):
        prefix = stage.dice.pick(known)[: stage.dice.pick([36, 12, 2])]
        stage.call(
            desk,
            lambda side: find_session(desk.stores.of(side)._work, prefix),
            _hold(stage, desk),
        )
    else:
        key, create = stage.dice.pick(KEYS), stage.dice.happens(0.9)

        def plan(side: Side) -> Plan[Any]:
            work = desk.stores.of(side)._work
            opened: Plan[Any] = open_session(work, key, create=create)
            return opened

        stage.call(desk, plan, _hold(stage, desk))
    return True


def _hold(stage: SoakWorld, desk: Desk) -> Callable[[Answer, bool], None]:
    def hold(answer: Answer, at_once: bool) -> None:
        if answer.values is not None:
            held = HeldSession(answer.values)
            stage.known.add(held.id)
            desk.sessions.append(held)
            if len(desk.sessions) > SESSIONS_HELD_MAX:
                desk.sessions.pop(0)

    return hold


def accept(stage: SoakWorld, desk: Desk) -> bool:
    dice, key, text = stage.dice, stage.dice.pick(KEYS), stage.word("accept")
    event_id = f"event {dice.below(EVENTS)}" if dice.happens(0.5) else None
    reply_to = f"friend {dice.below(3)}" if dice.happens(0.3) else None

    def plan(side: Side) -> Plan[Any]:
        work = desk.stores.of(side)._work
        accepting: Plan[Any] = receive.accept(
            work,
            key,
            text,
            format="openai.chat",
            event_id=event_id,
            reply_to=reply_to,
        )
        return accepting

    def accepted(answer: Answer, at_once: bool) -> None:
        if answer.values is not None:
            receipt = answer.values[1]
            known_as(stage, key, event_id, receipt.message_id)
            if not receipt.again:
                stage.ledger.said(
                    receipt.session_id, receipt.message_id, text, ordered=at_once
                )

    stage.call(desk, plan, accepted, flies=LATE)
    return True


def append(stage: SoakWorld, desk: Desk) -> bool:
    text = stage.word("append")
    event_id = f"event {stage.dice.below(EVENTS)}" if stage.dice.happens(0.2) else None
    role = stage.dice.pick(["user", "assistant"])

    def appended(held: HeldSession, answer: Answer, at_once: bool) -> None:
        if answer.error == "AlreadyAccepted":
            known_as(stage, held.scope, event_id, answer.plain[1]["message_id"])
        if answer.values is not None:
            known_as(stage, held.scope, event_id, answer.values[1])
            stage.ledger.said(held.id, answer.values[1], text, ordered=at_once)

    def plan(log: SessionLog) -> Plan[str]:
        payload = {"role": role, "content": text}
        return append_plans.append(
            log, payload, format="openai.chat", event_id=event_id
        )

    return _with(stage, desk, plan, appended, flies=LATE)


def instruct(stage: SoakWorld, desk: Desk) -> bool:
    text = stage.word("Be kind")

    def instructed(held: HeldSession, answer: Answer, at_once: bool) -> None:
        if answer.values is not None:
            stage.ledger.instructed(held.id, text)

    return _with(
        stage, desk, lambda log: append_plans.instructions(log, text), instructed
    )


def label(stage: SoakWorld, desk: Desk) -> bool:
    """A label that anybody reads, or the one that hides a message from the model."""
    message = _message(stage, desk)
    if message is None:
        return False
    held, id = message
    name = stage.dice.pick(["mark", "visible_to_model"])
    value: Any = stage.word("mark") if name == "mark" else stage.dice.happens(0.5)

    def labelled(held: HeldSession, answer: Answer, at_once: bool) -> None:
        if answer.values is not None:
            stage.ledger.labelled(held.id, id, name, value)

    def plan(log: SessionLog) -> Plan[None]:
        return append_plans.label(log, id, {name: value})

    return _with(stage, desk, plan, labelled, held)


def decide(stage: SoakWorld, desk: Desk) -> bool:
    if not stage.asked or not desk.sessions:
        return False
    call_id, approved = stage.dice.pick(stage.asked)[1], stage.dice.happens(0.6)

    def plan(log: SessionLog) -> Plan[None]:
        return approve.decide(log, call_id, approved, "ann")

    return _with(stage, desk, plan, _nothing, flies=LATE)


def compact(stage: SoakWorld, desk: Desk) -> bool:
    text, keep = stage.word("summary"), stage.dice.below(4)

    def counted(messages: list[Message]) -> str:
        return f"{text}: {len(messages)}"

    def compacted(held: HeldSession, answer: Answer, at_once: bool) -> None:
        if answer.values is not None and answer.values[1] is not None:
            stage.ledger.at(held.id, answer.values[1].seq, "compaction")

    def plan(log: SessionLog) -> Plan[Any]:
        summary = counted if keep % 2 else text
        return compact_plans.compact(log, summary, keep_turns=keep)

    return _with(stage, desk, plan, compacted, flies=LATE)


def rewind(stage: SoakWorld, desk: Desk) -> bool:
    message = _message(stage, desk)
    if message is None:
        return False
    held, id = message

    def rewound(held: HeldSession, answer: Answer, at_once: bool) -> None:
        # Whoever presents copies of what was rewound away may mean to say it again: nobody can
        # tell.
        for other in (
            other
            for desk in stage.desks
            for other in desk.sessions
            if other.id == held.id
        ):
            other.lists = None

    return _with(stage, desk, lambda log: fork_rewind.rewind(log, id), rewound, held)


def fork(stage: SoakWorld, desk: Desk) -> bool:
    """At a message or at the end; without a key, or with one that may be taken."""
    message = _message(stage, desk) if stage.dice.happens(0.6) else None
    held, at = message if message is not None else (None, None)
    key = stage.dice.pick(KEYS) if stage.dice.happens(0.3) else None
    hold = _hold(stage, desk)

    def forked(held: HeldSession, answer: Answer, at_once: bool) -> None:
        hold(answer, at_once)
        if answer.values is not None:
            stage.parents[answer.values[1].id] = held.id

    def plan(log: SessionLog) -> Plan[SessionLog]:
        return fork_rewind.fork(log, at=at, key=key)

    return _with(stage, desk, plan, forked, held, flies=LATE)


def stop(stage: SoakWorld, desk: Desk) -> bool:
    return _with(
        stage, desk, lambda log: end_session.stop(log, "somebody"), _nothing, flies=LATE
    )


def end(stage: SoakWorld, desk: Desk) -> bool:
    def ended(held: HeldSession, answer: Answer, at_once: bool) -> None:
        if answer.error is None:
            stage.ledger.over(held.id)

    return _with(
        stage, desk, lambda log: end_session.end(log, "enough"), ended, flies=LATE
    )


def reset(stage: SoakWorld, desk: Desk) -> bool:
    key = stage.dice.pick(KEYS)
    hold = _hold(stage, desk)
    stage.call(
        desk,
        lambda side: reset_key(desk.stores.of(side)._work, key, reason="command"),
        hold,
        flies=LATE,
    )
    return True


def post(stage: SoakWorld, desk: Desk) -> bool:
    """Somebody looks what is owed, and tries to send one."""
    answer = stage.ask(
        lambda side: [owed._work for owed in desk.stores.of(side).outbox()]
    )
    assert answer.values is not None
    if not answer.values[1]:
        return False
    for owed in answer.values[1]:
        stage.ledger.owed(owed.debt.id.hex(), owed.session.id)
    place, arrives = stage.dice.below(len(answer.values[1])), stage.dice.happens(0.7)
    debts = Pair([works[place] for works in answer.values])

    def plan(side: Side) -> Plan[None]:
        debt = debts.of(side)
        posting: Plan[None] = debt.sent("p-1") if arrives else debt.failed("no line")
        return posting

    def posted(answer: Answer, at_once: bool) -> None:
        if answer.error is None and arrives:
            stage.ledger.paid(debts[1].debt.id.hex())

    stage.call(desk, plan, posted)
    return True


def look_at_a_session(stage: SoakWorld, desk: Desk) -> bool:
    """All that can be read of it."""
    if not desk.sessions:
        return False
    held, format = stage.dice.pick(desk.sessions), stage.dice.pick(FORMATS)
    for read in (
        lambda session: session.info(),
        lambda session: list(session.transcript()),
        lambda session: session.pending(),
        lambda session: session.calls(),
        lambda session: session.turns(),
        lambda session: session.context(format),
    ):
        stage.ask(lambda side, read=read: read(held.faces.of(side)))  # type: ignore[misc]
    return True


def look_around(stage: SoakWorld, desk: Desk) -> bool:
    """A list of sessions, page by page, and a search."""
    key = stage.dice.pick([None, *KEYS])
    state = stage.dice.pick([None, "open", "running", "ended"])
    limit, after = 1 + stage.dice.below(9), None
    for _ in range(4):
        answer = stage.ask(
            lambda side, after=after: desk.stores.of(side).sessions(
                key=key, state=state, limit=limit, after=after
            )  # type: ignore[misc]
        )
        after = answer.values[1].next if answer.values is not None else None
        if after is None:
            break
    words = stage.dice.pick(
        [
            "ask",
            "say",
            f"say {stage.dice.below(stage.words + 1)}",
            '"tell 1"',
            "found 漢",
        ]
    )
    role = stage.dice.pick([None, "user", "assistant", "tool"])
    stage.ask(
        lambda side: desk.stores.of(side).search(words, limit=limit, role=role, key=key)
    )
    return True


def erase(stage: SoakWorld, desk: Desk) -> bool:
    """A session that has ended is taken out of the store, and nobody speaks of it any more."""
    over = [id for id in sorted(stage.known) if stage.ledger.of(id).over]
    if not over:
        return False
    id = stage.dice.pick(over)
    if stage.dice.happens(0.5):
        stage.ask(lambda side: desk.stores.of(side).erase(id, preview=True))
        return True
    answer = stage.ask(lambda side: desk.stores.of(side).erase(id))
    if answer.error is None:
        stage.ledger.erased(id)
        for other in answer.values[0].copies if answer.values is not None else ():
            stage.ledger.blanked(other)
        stage.lost.add(id)
        for fork in sorted(stage.known):
            if stage.is_lost(fork):
                stage.ledger.bereft(fork)
        stage.readers = [
            reader for reader in stage.readers if not stage.is_lost(reader.session)
        ]
    return True


def _nothing(held: HeldSession, answer: Answer, at_once: bool) -> None:
    """There is nothing to hold against the store but what the twins and the invariants say."""


def _message(stage: SoakWorld, desk: Desk) -> tuple[HeldSession, str] | None:
    """A session and the id of one of its messages."""
    if not desk.sessions:
        return None
    held = stage.dice.pick(desk.sessions)
    answer = stage.ask(
        lambda side: [message.id for message in held.faces.of(side).transcript()]
    )
    ids = answer.plain if answer.error is None else []
    return (held, stage.dice.pick(ids)) if ids else None


def _with(
    stage: SoakWorld,
    desk: Desk,
    plan: Callable[[SessionLog], Plan[Any]],
    then: Callable[[HeldSession, Answer, bool], None],
    held: HeldSession | None = None,
    *,
    flies: float = 0.0,
) -> bool:
    """Something is done with a session in this desk's hands."""
    if held is None:
        if not desk.sessions:
            return False
        held = stage.dice.pick(desk.sessions)
    one = held

    def done(answer: Answer, at_once: bool) -> None:
        then(one, answer, at_once)

    stage.call(desk, lambda side: plan(one.logs.of(side)), done, flies=flies)
    return True
