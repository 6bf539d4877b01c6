"""Recording a caller's own list: what is new goes into the transcript, the list's shape becomes the
view (I-12).

    load      the log, what its view shows, what the handle remembers
    decide    what is new (`domain.record.evidence`), and the view that shows the list (`shape`)
    commit    guarded by the head it was decided from: if anybody has written meanwhile, all three
              are done again
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import Draft
from holdfast.domain.log.fold import Log
from holdfast.domain.message import (
    Payload,
    all_flat,
    changed_meanwhile,
    check,
    freeze,
    is_changing,
    is_flat,
    thaw,
    too_deep,
)
from holdfast.domain.record.evidence import Echo, Evidence
from holdfast.domain.record.fingerprint import snapshot
from holdfast.domain.record.grouping import Shown, gather_shown
from holdfast.domain.record.memory import (
    NOWHERE,
    EqualStretch,
    LastList,
    Memory,
    Remembered,
    gathered,
    rebound,
)
from holdfast.domain.record.reconcile import Reconciled
from holdfast.domain.record.shape import ListShape, NewView
from holdfast.domain.repair import CONTINUE
from holdfast.engine.protocol import Write
from holdfast.engine.wake_signal import in_the_middle, is_mine
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.runtime.live.session_log import PAGE, SessionLog, speak
from holdfast.runtime.plans.plan import Plan, is_within_call, read


class Recorded(msgspec.Struct, frozen=True):
    """What a recording stored: `new` are the ids of the messages that were new, `head` is the seq
    of the last entry now.
    """

    new: tuple[str, ...]
    head: int


class Within(NamedTuple):
    """Where what is new is stored: in this turn, and behind so many other drafts of its commit."""

    turn: int | None = None
    ahead: int = 0


OUTSIDE = Within()


class Decision(NamedTuple):
    """What recording a list means for a log with this head. `leading` and `remembered` are the list
    as it was then: instructions, and messages. `shows_past`: the view needs what a load from the
    last compaction would not read. `is_late`: what was written after that head was looked at, too.
    """

    head: int
    drafts: tuple[Draft, ...]
    new: tuple[str, ...]
    leading: list[Payload]
    remembered: list[Remembered]
    shows_past: bool
    is_late: bool

    def list_then(self) -> list[Payload]:
        return [*self.leading, *(entry.snapshot for entry in self.remembered)]


def record(
    session: SessionLog, memory: Memory, messages: Sequence[Any], *, format: str
) -> Plan[Recorded]:
    """Stores what is new in this list and keeps its shape; see `Session.record`."""
    payloads, first = decided(session, memory, messages, format=format)
    return _commit(session, memory, payloads, format, first)


def decided(
    session: SessionLog,
    memory: Memory,
    messages: Sequence[Any],
    *,
    format: str,
    within: Within = OUTSIDE,
) -> tuple[list[Any], Decision]:
    """The caller's list as plain data, and what recording it means now. The caller may change its
    list from then on.
    """
    # What the other one compares is the handle's, and is changed by this one.
    if is_mine(session.lock) and is_within_call():
        raise in_the_middle(session.engine.where)
    # A list of our own: the caller may append to its list while the plan waits.
    payloads = list(messages)
    try:
        # What equals a snapshot is plain, as that is, and somebody has said it: only the rest is
        # looked at.
        equal = memory.equal_in(payloads, format)
        before = plain_list(payloads[: equal.first], format)
        after = plain_list(payloads[equal.stop :], format, first=equal.stop)
        payloads = [*before, *payloads[equal.first : equal.stop], *after]
        # Decided here, not in the plan: the list is the caller's, and may change while a
        # plan waits.
        first = session.reading(
            partial(_decide, session, memory, payloads, format, equal, within)
        )
    except RecursionError:
        raise too_deep("messages") from None
    except RuntimeError as error:
        if not is_changing(error):
            raise
        raise changed_meanwhile("messages") from error
    return payloads, first


def decided_again(
    session: SessionLog,
    memory: Memory,
    first: Decision,
    *,
    format: str,
    within: Within = OUTSIDE,
) -> Plan[Decision]:
    """What recording a list means for the log as it has become since it was first decided."""
    # The list as it was at the call: its messages are the caller's, who may have
    # changed them since. What equalled the last list then is compared anew.
    again = partial(
        _decide, session, memory, first.list_then(), format, NOWHERE, within
    )
    return (yield from read(partial(session.reading, again)))


def keep(
    session: SessionLog,
    memory: Memory,
    decision: Decision,
    first: Decision,
    payloads: list[Any],
    *,
    format: str,
    head: int,
) -> None:
    """The list is stored: the next one is compared with it."""
    remembered = decision.remembered
    # It was decided from copies; the next list is recognised by the caller's own
    # objects.
    if decision is not first:
        remembered = rebound(remembered, payloads)
    memory.keep(format, LastList(remembered, len(decision.leading), head))
    # Only once it is stored: a recording that fails is repeated with what it knew.
    session.contexts.forget_given(format)


def plain_list(messages: Sequence[Any], format: str, *, first: int = 0) -> list[Any]:
    """What these messages say as plain data; the first of them is at this index of the caller's
    list.
    """
    # A dict of strings can be stored as it is, and most messages are one.
    payloads = messages = list(messages)
    if not all_flat(messages):
        payloads = [
            message if is_flat(message) else _plain(message, at)
            for at, message in enumerate(messages, first)
        ]
    continuation = registry.get(format).say("user", CONTINUE)
    if continuation in payloads:
        # nobody has said it
        payloads = [payload for payload in payloads if payload != continuation]
    return payloads


def _plain(message: Any, index: int) -> Any:
    payload = registry.plain(message)
    if type(payload) not in (dict, list):
        raise InvalidMessage(
            problem=f"{kind_of(payload)} is not a message", place=f"messages[{index}]"
        )
    check(payload, f"messages[{index}]")
    return payload


def _commit(
    session: SessionLog,
    memory: Memory,
    payloads: list[Any],
    format: str,
    first: Decision,
) -> Plan[Recorded]:
    decision = first
    # A list with nothing new and the shape it had needs no commit at all. But then no guard tells
    # that it is so only with what another has stored meanwhile: the head that is told has to have it.
    while decision.drafts or decision.is_late:
        if decision.drafts:
            written = yield from session.commit_or_retry(
                Write(
                    session.id,
                    drafts=decision.drafts,
                    head=decision.head,
                    unbase=decision.shows_past,
                )
            )
            if written is not None:
                break
        decision = yield from decided_again(session, memory, first, format=format)
    head = decision.head + len(decision.drafts)
    keep(session, memory, decision, first, payloads, format=format, head=head)
    return Recorded(decision.new, head)


def _decide(
    session: SessionLog,
    memory: Memory,
    payloads: list[Any],
    format: str,
    equal: EqualStretch,
    within: Within,
) -> Decision:
    """What recording this list means for the log as it is now. `equal`: where the list equals the
    last one.
    """
    log = session.log()
    with session.lock:
        # first: to look into the past brings the log up to date, beyond what is compared
        head = log.head
        last = memory.last(format)
        shown = gather_shown(session.contexts.shown(log, registry.get(format)))
        given = [gather_shown(view) for view in session.contexts.given(log, format)]
        evidence = Evidence(
            log,
            shown,
            last.messages,
            given=given,
            heard=last.head,
            learned=session.learned,
            went_back=session.went_back,
            format=format,
        )
        known = [*shown, *chain(*given)]
        items = gathered(payloads, last, known, equal, evidence.wording.get)
        equal_from = None
        # Places count only while they mean the same: nothing was gathered, nothing shown since.
        if equal.held is last.messages and len(items) == len(payloads) and not given:
            equal_from = equal.first
        found = _found(session, evidence, items, equal_from)
        messages = [
            session.message(speak(payload, format), turn=within.turn)
            for payload in found.new
        ]
        new = tuple(draft.id.hex() for draft in messages)
        order, remembered = found.settle(new)
        leading = [
            snapshot(payload) for payload in items[: len(items) - len(remembered)]
        ]

        drafts = _instructions(session, log, found)
        # A view names messages by seq, also those that are not stored yet: the guard by
        # the head makes sure that they get these.
        first_seq = head + 1 + within.ahead + len(drafts)
        drafts += messages
        shape = ListShape(log, order, new=new, edits=found.edits)
        view = _view(session, shape, shown, first_seq, format)
        if view is not None:
            drafts.append(session.draft("view", view.shape))
        shows_past = view is not None and view.shows_past
        is_late = session.looked_upto > head
        return Decision(
            head, tuple(drafts), new, leading, remembered, shows_past, is_late
        )


def _instructions(session: SessionLog, log: Log, found: Reconciled) -> list[Draft]:
    if found.instructions is None or found.instructions == log.instructions:
        return []
    return [session.draft("instructions", body=freeze(found.instructions))]


def _found(
    session: SessionLog,
    evidence: Evidence,
    payloads: list[Payload],
    equal_from: int | None,
) -> Reconciled:
    """What the list says: beside what the handle remembers and the view shows; and, where that
    leaves something open, beside more of the past.
    """
    found, left_open = evidence.compare(payloads, equal_from=equal_from)
    if left_open == "nothing":
        return found
    if left_open == "news":
        return evidence.compare_with(payloads, evidence.news())
    echo = Echo(payloads, found.new)
    history = session.history()
    older: dict[int, Payload] = {}
    # They are one and the same where nothing was compacted: all payloads are in memory.
    if history is not evidence.log:
        older = _older(session, echo, before=evidence.log.since)
    return evidence.compare_with(payloads, evidence.past(history, older, echo))


def _older(session: SessionLog, echo: Echo, *, before: int) -> dict[int, Payload]:
    """What was said before this seq and may be in the list, by seq; read page by page (I-24)."""
    payloads: dict[int, Payload] = {}
    after = 0
    # From `before` on, payloads are in memory. Of those before it, what does not
    # resemble anything in the list is dropped again at once.
    while after < before - 1:
        page = session.page(after, min(PAGE, before - 1 - after))
        if not page:
            break
        for entry in page:
            if entry.kind in ("message", "compaction") and entry.body:
                payload = thaw(entry.body)
                if echo(payload):
                    payloads[entry.seq] = payload
        after = page[-1].seq
    return payloads


def _view(
    session: SessionLog,
    shape: ListShape,
    shown: list[Shown],
    first_seq: int,
    format: str,
) -> NewView | None:
    """The view entry that the list needs, if its shape is not the natural one."""
    if shape.is_natural:
        return None
    # Only a list that names what lies before the last compaction has the whole history
    # folded.
    whole = session.history() if shape.names_the_past else shape.log
    visible = {id for _, ids in shown for id in ids}
    return shape.view(
        whole, visible=visible, first=first_seq, speak=partial(speak, format=format)
    )
