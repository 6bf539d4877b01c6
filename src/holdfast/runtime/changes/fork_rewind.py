"""Going back and going elsewhere: rewinding the view, and forking a session.

Neither touches what happened. A rewind is one entry, which says what is gone from the view; a fork
is a new session whose log begins with its parent's, up to the point where they part, without a copy
of it.
"""

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.domain.entry import Entry, Opened, Rewound, legible_note, note_of
from holdfast.domain.log.fold import Log
from holdfast.domain.log.path import back_to
from holdfast.domain.reset_policy import doing_scope
from holdfast.engine.protocol import Opening, Refused, Write, state_after
from holdfast.errors import Conflict, NotFound, SessionBusy
from holdfast.runtime.changes.open_session import (
    NamedRequest,
    digest_of,
    made_before,
)
from holdfast.runtime.clock import mint_session
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.transcript import find, no_message
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.turns.recovery import settle_if_dead

TRIES_MAX = 5
"""So often a rewind is refused because something was said meanwhile. Then it is written behind
whatever comes: that is said after it, or gone with the rest.
"""
HIDES = "visible_to_model"


class RewindDecision(NamedTuple):
    """What a rewind means for a log with this head."""

    head: int
    note: Rewound


def rewind(session: SessionLog, to_message: str) -> Plan[None]:
    """The view ends with this message from now on, and is what led to it. Rewinding to a message
    that was rewound away brings it back; rewinding to one that a summary covers, or that a list has
    dropped, shows what was said up to it.
    """
    decided: RewindDecision | None = None
    tries = 0
    while True:
        state = yield from settle_if_dead(session)
        if state.turn is not None:
            raise SessionBusy(
                session_id=session.id, turn_id=session.turn_name(state.turn)
            )
        # A refused one is carried on, which costs what has come since and not the history.
        if decided is not None:
            decided = yield from read(partial(_carried_on, session, decided))
        if decided is None:
            decided = yield from _decide(session, to_message)
        tries += 1
        is_guarded = tries <= TRIES_MAX
        note = decided.note
        # With ranges it shows what lies before the last summary: loads begin earlier again.
        written = yield from session.commit_or_retry(
            Write(
                session.id,
                drafts=(session.draft("rewind", note),),
                head=decided.head if is_guarded else None,
                idle=True,
                unbase=bool(note.ranges),
            )
        )
        if written is None:
            continue
        # `record` has to know that this handle went back itself: what it says again
        # after that, in the same words, is new.
        session.went_back = max(session.went_back, written.seq)
        if is_guarded:
            return
        upto = written.seq - 1
        if (yield from read(partial(_carried_on, session, decided, upto))) is not None:
            return
        # Somebody has changed the view just before: a second rewind makes up for it.
        decided = None


def _decide(session: SessionLog, to_message: str) -> Plan[RewindDecision]:
    # From the first entry on: it may go back to what lies before the last summary.
    log = yield from read(session.history)
    with session.lock:
        head, note = log.head, _back_to(session, log, to_message)
    if note is None:
        raise (yield from read(partial(_not_in_view, session, to_message)))
    return RewindDecision(head, note)


def _carried_on(
    session: SessionLog, decided: RewindDecision, upto: int | None = None
) -> RewindDecision | None:
    """The same rewind after what has come since it was decided, up to this seq. What was said
    outside of turns is gone then; what came in waits, wherever the view goes. None if anything else
    has come: that may change what the rewind means.
    """
    head, note = decided
    gone = list(note.gone)
    while page := session.page(head, bodies=False):
        for entry in page:
            if upto is not None and entry.seq > upto:
                return RewindDecision(head, replace(note, gone=tuple(gone)))
            head = entry.seq
            told = legible_note(entry)
            if entry.kind == "message" and entry.turn is None and told is not None:
                if not told.inbox:
                    gone.append((head, head))
            elif entry.kind != "label" or told is None or HIDES in told.labels:
                return None
    return RewindDecision(head, replace(note, gone=tuple(gone)))


def _back_to(session: SessionLog, log: Log, to_message: str) -> Rewound | None:
    if to_message in log.waiting:
        problem = (
            f"message `{to_message}` waits in its inbox, and no view has it before a turn "
            "has taken it"
        )
        raise Conflict(session_id=session.id, problem=problem)
    note = back_to(log, to_message)
    if note is not None:
        return note
    if to_message in log.elsewhere:
        hint = "it waited when this session was forked, and is answered in the one it comes from"
        raise NotFound(what="message to go back to", name=to_message, hint=hint)
    return None


def _not_in_view(session: SessionLog, to_message: str) -> NotFound:
    """The error for a message that no view of this session ever had."""
    if find(session, to_message) is None:
        return no_message(to_message)
    hint = (
        "it waited here and went on to another session before a turn of this one took it: no view "
        "of this session had it; Session.fork(at=) begins with it"
    )
    return NotFound(what="message to go back to", name=to_message, hint=hint)


def _before_waiting(session: SessionLog, head: int) -> int:
    """The seq up to which a fork shares the log. Messages at its end that still wait are left out:
    they are answered in this session, and not in the fork as well.
    """
    while True:
        last = session.page(head - 1, 1)[0]
        if last.kind != "message" or not note_of("message", last.note).inbox:
            return head
        head -= 1


def _with_its_labels(session: SessionLog, message: Entry) -> int:
    """The seq of the last of the labels that a message was stored with; its own if there are
    none.
    """
    seq = message.seq
    while page := session.page(seq, 1):
        if _labelled_at_once(page[0]) != message.id.hex():
            break
        seq += 1
    return seq


def _labelled_at_once(entry: Entry) -> str | None:
    """The message that these labels were stored with; None if it is something else."""
    note = legible_note(entry) if entry.kind == "label" else None
    return None if note is None or note.seq else str(note.message)


def _next_epoch(session: SessionLog, key: str) -> Plan[int]:
    # The key may be taken before the commit: then this epoch is not the next one any
    # more, and the engine refuses it.
    taken = yield from read(lambda: session.engine.current(session.tenant, key))
    if taken is None:
        return 1
    if not taken.ended:
        problem = f"the key `{key}` is bound to it; end it first, or fork without a key"
        raise Conflict(session_id=taken.id, problem=problem)
    return taken.epoch + 1


def _request(
    session: SessionLog, at: str | None, key: str | None, name: str | None
) -> NamedRequest | None:
    if name is None:
        return None
    event = (doing_scope(session.scope), f"fork {session.id} {name}")
    return NamedRequest(event, digest_of(at, key))


def fork(
    session: SessionLog, *, at: str | None, key: str | None, name: str | None = None
) -> Plan[SessionLog]:
    """A new session that shares this one's past up to message `at`, with the labels that it came
    with, or all of it. A fork with a name is made once: the same one again gives that session, and
    another one under its name is refused with `NameReused`.
    """
    request = _request(session, at, key, name)
    event, asked = request or (None, None)
    known = yield from made_before(session.engine, request)
    if known is not None:
        return session.other(known)
    state = yield from settle_if_dead(session)
    parts_at = None
    if at is None:
        head = yield from read(lambda: _before_waiting(session, state.head))
    else:
        found = yield from read(partial(find, session, at))
        if found is None:
            raise no_message(at)
        head = yield from read(partial(_with_its_labels, session, found))
        # Nearly always it is the last that they share, which tells it all the same.
        parts_at = at if head > found.seq else None
    epoch = 1
    if key is not None:
        try:
            epoch = yield from _next_epoch(session, key)
        except Conflict:
            # It may have been bound by this fork itself, asked for a moment ago.
            known = yield from made_before(session.engine, request)
            if known is None:
                raise
            return session.other(known)
    # The parent is not guarded: its log only grows, so what lies before `head` stays as
    # it is (I-1). The fence goes on from the parent's, so that no turn of the fork gets
    # the number of one that it shares.
    opening = Opening(
        session.tenant, key, epoch, head=head, fence=state.fence, parent=session.id
    )
    branch = session.other(state_after(mint_session(session.world), opening))
    opened = branch.draft(
        "opened",
        Opened(
            key, epoch, parent=session.id, parent_seq=head, at=parts_at, asked=asked
        ),
    )
    outcome = yield from wait_for(
        session.engine.submit((Write(branch.id, (opened,), open=opening, event=event),))
    )
    # Of what guards it only the key can refuse: its id is drawn by chance.
    if isinstance(outcome, Refused):
        known = yield from made_before(session.engine, request)
        if known is not None:
            return session.other(known)
        problem = (
            f"the key `{key}` was bound to another session meanwhile; use another key, "
            "or none"
        )
        raise Conflict(session_id=session.id, problem=problem)
    return branch
