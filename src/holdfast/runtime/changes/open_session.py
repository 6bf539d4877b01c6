"""Which session a key or an id means; a key's session is made, and replaced when it is time (I-8).

A replacement is one commit: the old session is closed, the new one opened, and what waits in the
inbox of the old goes on in the new. Its guards repeat what it was decided from, so of several
callers one replaces, and the others look again.

Messages that keep arriving would refuse that commit again and again. So a reset whose commit was
refused ends the old session first, which depends on nothing that arrives: from then on its inbox
does not grow, and what comes in goes on in the session that follows, whoever makes it.
"""

import hashlib
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.domain.entry import Closed, Draft, Opened, opened_of
from holdfast.domain.message import freeze
from holdfast.domain.reset_policy import Policy, doing_scope, scope_of
from holdfast.engine.protocol import (
    Commit,
    Engine,
    Opening,
    Refused,
    SessionState,
    Waiting,
    Write,
    state_after,
)
from holdfast.errors import NotFound
from holdfast.runtime.clock import mint_session
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.turns.bring import labels_of, with_labels
from holdfast.runtime.turns.recovery import settle, settle_if_dead

# An id that is not unique is told with these, for a person to choose from.
CANDIDATES_MAX = 10
Event = tuple[str, str]
"""A scope, and an id in it."""


class NamedRequest(NamedTuple):
    """A request that its sender has named, so that it is done once: the event that it is, and a
    digest of what it says.
    """

    event: Event
    said: str


class NameReused(Exception):
    """A request has the name of one that was done before, and asks for something else."""


class Successor(NamedTuple):
    """The next session of a key, not yet stored. `closing` is what ends the session before, or
    nothing if there is none to end.
    """

    session: SessionLog
    closing: tuple[Write, ...]
    opening: Write


def open_session(
    store: OpenStore, key: str, *, reset: Policy | None = None, create: bool = True
) -> Plan[SessionLog]:
    """The key's current session: made if there is none, replaced if that is due."""
    while True:
        state = yield from current_state(store, key)
        if state is None and not create:
            raise NotFound(
                what="session for the key",
                name=key,
                hint="Store.session(key) makes one",
            )
        if state is not None and state.ended and not create:
            # It can be read; looking makes nothing (I-18).
            return store.session_log(state)
        session = yield from usable(store, state, reset)
        if session is None:
            reason = why_replaced(store, state, reset)
            session = yield from _replace(store, state, key, reason)
        if session is not None:
            return session


def find_session(store: OpenStore, session_id: str) -> Plan[SessionLog]:
    """The session with this id, or the only one whose id begins so."""
    found: list[SessionState] = []
    # No id has other characters, and not every engine could be asked about them.
    if session_id and session_id.isascii() and session_id.isprintable():
        found = yield from read(
            lambda: store.engine.find(store.tenant, session_id, CANDIDATES_MAX)
        )
    for state in found:
        if state.id == session_id or len(found) == 1:
            return store.session_log(state)
    hint = "ids are those of Session.id, or the beginning of one"
    if found:
        hint = "several begin so: give more of the id"
    candidates = tuple(state.id for state in found)
    raise NotFound(what="session", name=session_id, hint=hint, candidates=candidates)


def reset_key(
    store: OpenStore, key: str, *, reason: str, name: str | None = None
) -> Plan[SessionLog]:
    """Ends the key's current session, what runs in it included, and binds a new one; the epoch
    rises. A reset with a name is done once: the same one again gives the session that it made, and
    one for another reason is refused with `NameReused`.
    """
    request = None
    if name is not None:
        scope = scope_of(store.tenant, key=key, session="")
        event = (doing_scope(scope), f"reset {name}")
        request = NamedRequest(event, digest_of(reason))
    ends: list[Draft] = []
    before: SessionState | None = None
    while True:
        state = yield from current_state(store, key)
        # In this order: if it is not known now, `state` is not what it has made.
        known = yield from made_before(store.engine, request)
        if known is not None:
            return store.session_log(known)
        if before is not None and state is not None and state.id != before.id:
            if (yield from read(partial(_has_any, store.session_log(before), ends))):
                # It was ended here, and whoever came first has made the one that follows.
                return store.session_log(state)
        if state is not None and not state.ended:
            state = yield from settle_if_dead(store.session_log(state))
        if state is not None and state.turn is not None:
            made = yield from _replace_running(store, state, key, reason, ends, request)
        else:
            made = yield from _replace(store, state, key, reason, request)
        if made is not None:
            return made
        if state is not None:
            # Whether it is done or refused, the next round sees.
            end = _only_ended(store.session_log(state), Write(state.id), reason, ends)
            yield from wait_for(store.engine.submit((replace(end, idle=True),)))
        before = state


def _only_ended(
    session: SessionLog, last: Write, reason: str, ends: list[Draft]
) -> Write:
    """This write, made the session's last. What waits stays, for the key's next session to take
    along; so it is refused for nothing that comes in. Its entry is put among `ends`.
    """
    ends.append(session.draft("closed", Closed(reason)))
    return replace(last, drafts=(*last.drafts, ends[-1]), close=True)


def _has_any(session: SessionLog, drafts: list[Draft]) -> bool:
    """Whether one of these stands in this session's log."""
    ids = {draft.id for draft in drafts}
    after = session.origin
    while ids and (page := session.page(after, bodies=False)):
        if any(entry.id in ids for entry in page):
            return True
        after = page[-1].seq
    return False


def made_before(
    engine: Engine, request: NamedRequest | None
) -> Plan[SessionState | None]:
    """How the session stands that this request has made before, if it has; `NameReused` if another
    one under its name has.
    """
    if request is None:
        return None
    return (yield from read(partial(_made, engine, request)))


def _made(engine: Engine, request: NamedRequest) -> SessionState | None:
    known = engine.accepted(*request.event)
    if known is None:
        return None
    found = engine.entries(known.session, after=known.seq - 1, limit=1, bodies=False)
    for entry in found:
        # Older logs do not say what was asked for: then nobody can tell any more.
        if opened_of(entry).asked not in (None, request.said):
            raise NameReused
    return engine.state(known.session)


def digest_of(*said: str | None) -> str:
    """What a request says, so that it is known again and nothing of it can be read."""
    return hashlib.blake2b(freeze(list(said)), digest_size=16).hexdigest()


def current_state(store: OpenStore, key: str) -> Plan[SessionState | None]:
    """How the session that the key is bound to stands; None when there was never one."""
    return (yield from read(lambda: store.engine.current(store.tenant, key)))


def usable(
    store: OpenStore, state: SessionState | None, reset: Policy | None
) -> Plan[SessionLog | None]:
    """The session of this state, unless it has ended or the policy asks for a new one. While a turn
    runs in it, no policy does.
    """
    if state is None or state.ended:
        return None
    if _due(store, state, reset) is not None:
        # A turn whose process is gone must not keep a session from its reset; a living
        # one does.
        state = yield from settle_if_dead(store.session_log(state))
        if state.turn is None:
            return None
    return store.session_log(state)


def why_replaced(
    store: OpenStore, state: SessionState | None, reset: Policy | None
) -> str:
    """The reason that the log of the old session gives."""
    reason = None
    if state is not None and not state.ended:
        reason = _due(store, state, reset)
    return reason or "replaced"


def _due(store: OpenStore, state: SessionState, reset: Policy | None) -> str | None:
    if reset is None:
        return None
    return reset.due(active_at=state.last_at, now=store.world.now())


def _replace(
    store: OpenStore,
    state: SessionState | None,
    key: str,
    reason: str,
    request: NamedRequest | None = None,
) -> Plan[SessionLog | None]:
    """A new session for this key in place of `state`; None when somebody else was quicker."""
    made = yield from read(partial(successor, store, state, key, reason, request))
    if made is None:
        return None
    commit = (*made.closing, made.opening)
    outcome = yield from wait_for(store.engine.submit(commit))
    if isinstance(outcome, Refused):
        return None
    return made.session


def _replace_running(
    store: OpenStore,
    state: SessionState,
    key: str,
    reason: str,
    ends: list[Draft],
    request: NamedRequest | None,
) -> Plan[SessionLog | None]:
    """A new session in place of one in which a turn runs; None when somebody else was quicker. The
    turn's end and the session's are one transaction: whoever waits for the turn gets the next one
    in the new session, and none in the old that would be ended at once.
    """
    session = store.session_log(state)
    made: list[SessionLog] = []

    # Called again whenever the turn's last write is refused because something came in. The first
    # time with a successor, which was stored or not; then without: what waits is left for the next
    # round to take along.
    def close(last: Write) -> Plan[Commit]:
        if made:
            return (_only_ended(session, last, reason, ends),)
        found = None
        while found is None:
            found = yield from read(
                lambda: successor(store, session.state(), key, reason, request)
            )
        made.append(found.session)
        # None when somebody else has ended it by now, and then this commit is refused.
        for closing in found.closing:
            drafts = (*last.drafts, *closing.drafts)
            head = closing.head if last.head is None else last.head
            last = replace(
                last, drafts=drafts, head=head, close=True, takes=closing.takes
            )
        return last, found.opening

    yield from settle(
        session, state, end="interrupted", reason=f"reset: {reason}", also=close
    )
    # `settle` tells whether the turn was ended by this call, not whether the key was
    # bound: that is asked of the store.
    now = yield from current_state(store, key)
    for new in made:
        if now is not None and now.id == new.id:
            return new
    return None


def successor(
    store: OpenStore,
    state: SessionState | None,
    key: str,
    reason: str,
    request: NamedRequest | None = None,
) -> Successor | None:
    """The key's next session. What waits in the old one's inbox goes on in the new. None when
    somebody else has taken that along since the inbox was read.
    """
    event, asked = request or (None, None)
    epoch, previous = 1, None
    waiting: list[Waiting] = []
    if state is not None:
        epoch, previous = state.epoch + 1, state.id
        waiting = store.engine.inbox(state.id)
    opening = Opening(store.tenant, key, epoch)
    session = store.session_log(state_after(mint_session(store.world), opening))
    opened = Opened(key, epoch, previous=previous, asked=asked)
    drafts = [session.draft("opened", opened)]
    closing: tuple[Write, ...] = ()
    # What waits when a session is ended stays there, until the key's next session takes
    # it along.
    if state is not None and (waiting or not state.ended):
        old = store.session_log(state)
        messages = old.again([each.message for each in waiting])
        if messages is None:
            return None
        if waiting:
            labels = labels_of(session, state.id, waiting)
            drafts += with_labels(messages, labels)
        closing = (_closing(old, state, waiting, reason, session.id),)
    # Their seqs are those of the old log; with 0 each gets that of its draft in the new
    # one. Whoever waits with a message goes on waiting.
    admits = tuple(replace(each, seq=0) for each in waiting)
    first = Write(session.id, tuple(drafts), open=opening, admits=admits, event=event)
    return Successor(session, closing, first)


def _closing(
    old: SessionLog,
    state: SessionState,
    waiting: list[Waiting],
    reason: str,
    successor: str,
) -> Write:
    """The write that ends the old session. One that was ended before is closed once more, to say
    where what still waited in it has gone.
    """
    takes = tuple(each.message for each in waiting)
    moved = tuple(message.hex() for message in takes)
    note = Closed(reason, moved, session=successor if moved else None)
    # Guarded by the head: what came in after the state was read would be left behind in
    # a session that is over.
    return Write(
        state.id,
        (old.draft("closed", note),),
        head=state.head,
        idle=True,
        ended_too=state.ended,
        close=True,
        takes=takes,
    )
