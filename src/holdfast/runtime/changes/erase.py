"""Erasing sessions: previewed, whole, and with an audit entry (I-21).

All words of a session go, wherever the store keeps them; its entries stay as tombstones, and the
last one says what was taken and when. What runs in it is stopped first. A fork has its past in
common with its parent, or a copy of it: it loses what its parent loses, and keeps what is its own.
Copies of its messages go too, in all sessions that they came through.

A retention erases what has been quiet for long, many sessions at once: what is asked about them is
asked for all of them together, and an engine does their erasures in few transactions. One that was
killed is resumed by the next: each session is as it was or erased, and what is erased is not looked
at again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from holdfast.domain.entry import Entry, Erased
from holdfast.domain.erasure import tombstone
from holdfast.engine.protocol import (
    Engine,
    Refused,
    SessionState,
    Ticket,
    Write,
)
from holdfast.runtime.changes.carried_copies import Copies, blanking, copies
from holdfast.runtime.changes.copied_pasts import Forks, merged
from holdfast.runtime.changes.end_session import end
from holdfast.runtime.changes.open_session import find_session
from holdfast.runtime.live.session_batches import portions
from holdfast.runtime.live.session_log import PAGE, SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.turns.recovery import settle, settle_if_dead

DAY_MS = 86_400_000
BATCH = 500
"""So many sessions a retention erases at once,"""
ENTRIES_MAX = 20_000
"""as long as they have no more entries together: each is a note to be written, and held
until then.
"""
TRIES_MAX = 3
"""So often an erasure is refused because somebody has written meanwhile; then the session
is ended first.
"""


class Erasure(msgspec.Struct, frozen=True):
    """What erasing a session takes, or has taken when `done`. `bytes` are those of its entries;
    `blobs` counts large parts that go with it: in SQLite, where sessions share them, those that no
    other session has; in PostgreSQL each session has its own. `forks` are sessions that share its
    past and lose that, forks of forks too; `copies` are sessions that lose the messages that came
    through them to it, and nothing else.
    """

    session_id: str
    key: str | None
    entries: int
    messages: int
    bytes: int
    blobs: int
    forks: tuple[str, ...]
    copies: tuple[str, ...]
    active_at: int
    done: bool


Candidate = tuple[SessionLog, SessionState]
"""A session, and how it stood when it was looked at: what it was decided from."""


class Doomed(NamedTuple):
    """A session that is to be erased, and what that takes. `log` reads its own entries, without
    payloads.
    """

    session: SessionLog
    state: SessionState
    copies: list[Copies]
    erasure: Erasure
    log: Callable[[], Iterator[Entry]]


def erase(store: OpenStore, session_id: str, *, preview: bool) -> Plan[Erasure]:
    """Takes all words of a session out of the store. Erasing again finds nothing more, and cleans
    the file again.
    """
    session = yield from find_session(store, session_id)
    state = yield from settle_if_dead(session)
    if preview:
        [doomed] = yield from read(
            partial(_looked_up, session.engine, [(session, state)])
        )
        return doomed.erasure
    # Tried before what runs is stopped: whoever may not erase is told so, and nobody's turn has
    # ended for it. Else refused only when a turn runs or somebody has written meanwhile: then
    # there may be more to erase, and it is looked up anew.
    tries = 0
    while True:
        [(doomed, ticket)] = yield from read(
            partial(_submitted, session.engine, [(session, state)], "asked for")
        )
        outcome = yield from wait_for(ticket)
        if not isinstance(outcome, Refused):
            return msgspec.structs.replace(doomed.erasure, done=True)
        tries += 1
        if tries >= TRIES_MAX:
            # Looking takes longer than others need to write again. What waits may go on in the
            # key's next session then, as after every end.
            yield from end(session, "it is to be erased")
        state = yield from _at_rest(session)


def retain(store: OpenStore, days: float, *, preview: bool) -> Plan[list[Erasure]]:
    """Erases the sessions that had no news for so many days, and forgets the events that they have
    accepted; never one that is running, nor one whose past a younger session shares.
    """
    engine, tenant = store.engine, store.tenant
    cutoff = int(store.world.now() - days * DAY_MS)
    reason = f"no news for {days:g} days"
    if not preview:
        # A retention that was killed may have left erased words in the file.
        yield from read(engine.scrub, slow=True)
    family = _Family(engine, tenant, cutoff)
    found: list[Erasure] = []
    before = (cutoff, "")
    while states := (
        yield from read(partial(engine.kept, tenant, before=before, limit=BATCH))
    ):
        # Before anything is left out: the place of the next page is that of the last
        # session seen, erased or kept.
        before = (states[-1].active_at, states[-1].id)
        quiet = [state for state in states if _is_over(state, cutoff)]
        old = yield from read(partial(family.unneeded, quiet))
        for some in portions(old, entries_max=ENTRIES_MAX):
            doomed = [(store.session_log(state), state) for state in some]
            if preview:
                looked_up = yield from read(partial(_looked_up, engine, doomed))
                found += [each.erasure for each in looked_up]
            else:
                found += yield from _all_of(engine, doomed, cutoff, reason)
    return found


def _is_over(state: SessionState, cutoff: int) -> bool:
    if state.erased or state.turn is not None:
        return False
    # `active_at`, which the page is found by, moves with messages and turns only, and
    # once a second at most; the last entry may be a label that was set today.
    return max(state.active_at, state.last_at) < cutoff


class _Family:
    """Which sessions are needed by younger ones that share their past. What was asked once is
    known.
    """

    def __init__(self, engine: Engine, tenant: str, cutoff: int) -> None:
        self._engine, self._tenant, self._cutoff = engine, tenant, cutoff
        self._parents: dict[str, str] = {}
        self._asked: set[str] = set()
        self._needed: set[str] = set()

    def unneeded(self, states: list[SessionState]) -> list[SessionState]:
        """Those of these sessions whose past no session with news shares."""
        self._ask([state.id for state in states])
        return [state for state in states if state.id not in self._needed]

    def _ask(self, ids: list[str]) -> None:
        """Looks at all that come from these, generation by generation: an old fork may have a young
        one.
        """
        while parents := [id for id in ids if id not in self._asked]:
            self._asked.update(parents)
            forks = self._engine.forks(self._tenant, parents)
            for fork in forks:
                if fork.parent is not None:
                    self._parents[fork.id] = fork.parent
            for fork in forks:
                is_young = not fork.erased and not _is_over(fork, self._cutoff)
                # A parent may be met pages after its child was found to be needed: what
                # it shares with that child is needed as well.
                if is_young or fork.id in self._needed:
                    self._keep_ancestors(fork.id)
            ids = [fork.id for fork in forks]

    def _keep_ancestors(self, fork: str) -> None:
        ancestor = self._parents.get(fork)
        while ancestor is not None and ancestor not in self._needed:
            self._needed.add(ancestor)
            ancestor = self._parents.get(ancestor)


def _all_of(
    engine: Engine, some: list[Candidate], cutoff: int, reason: str
) -> Plan[list[Erasure]]:
    """Many at once: they share transactions, and the file is cleaned once for each. One that has
    news meanwhile is kept; that another erasure has taken copies out of it is none.
    """
    done: list[Erasure] = []
    while some:
        refused: list[SessionLog] = []
        submitted = yield from read(
            # Only a retention forgets events: one that is redelivered long after is a
            # new one, while what somebody had erased must not come in again.
            partial(_submitted, engine, some, reason, forget_events=True)
        )
        for doomed, ticket in submitted:
            if isinstance((yield from wait_for(ticket)), Refused):
                refused.append(doomed.session)
            else:
                done.append(msgspec.structs.replace(doomed.erasure, done=True))
        # Another erasure may have taken copies out of one of them: that moves its head
        # and is no news, so it is tried again.
        some = yield from read(partial(_still_over, refused, cutoff))
    return done


def _still_over(sessions: list[SessionLog], cutoff: int) -> list[Candidate]:
    """Those of the refused sessions that still have had no news, and can be tried again."""
    found = []
    for session in sessions:
        state = session.state()
        if _is_over(state, cutoff):
            found.append((session, state))
    return found


def _at_rest(session: SessionLog) -> Plan[SessionState]:
    """The session's state, once nothing runs in it."""
    while True:
        state = yield from settle_if_dead(session)
        if state.turn is None:
            return state
        yield from settle(
            session, state, end="interrupted", reason="stopped: the session is erased"
        )


def _submitted(
    engine: Engine,
    some: list[Candidate],
    reason: str,
    *,
    forget_events: bool = False,
) -> list[tuple[Doomed, Ticket]]:
    """Has these sessions erased; all are under way before any is waited for."""
    submitted = []
    for doomed in _looked_up(engine, some):
        ticket = _submit(doomed, reason, forget_events=forget_events)
        submitted.append((doomed, ticket))
    return submitted


def _looked_up(engine: Engine, some: list[Candidate]) -> list[Doomed]:
    """What has to be known of these sessions: a few questions for all of them, and some for the
    long ones.
    """
    ids = [state.id for _, state in some]
    weights = engine.weigh(ids)
    # A session of one page or less needs no question of its own after this.
    beginnings = engine.beginnings(ids, limit=PAGE, bodies=False)
    forks = Forks(engine, some[0][0].tenant, ids)
    found = []
    for session, state in some:
        log = partial(_log, engine, state, beginnings.get(state.id, []))
        carried = copies(session, state, log)
        weight = weights[state.id]
        erasure = Erasure(
            session.id,
            session.key,
            weight.entries,
            weight.messages,
            weight.bytes,
            weight.blobs,
            tuple(forks.ids(state.id)),
            tuple(sorted(each.state.id for each in carried if each.is_news)),
            state.active_at,
            done=False,
        )
        lost = merged([*carried, *forks.copies(state.id)])
        found.append(Doomed(session, state, lost, erasure, log))
    return found


def _log(
    engine: Engine, state: SessionState, beginning: list[Entry]
) -> Iterator[Entry]:
    """All own entries of a session, those of a page that is known first."""
    page, after = beginning, state.origin
    while after < state.head:
        # The first page is known, unless the engine left it out of a large answer; the
        # entries after it are read now.
        page = page or engine.entries(state.id, after=after, limit=PAGE, bodies=False)
        if not page:
            return
        yield from page
        after, page = page[-1].seq, []


def _submit(doomed: Doomed, reason: str, *, forget_events: bool) -> Ticket:
    session, state, found, erasure, log = doomed
    note = Erased(erasure.entries, erasure.messages, erasure.bytes, reason)
    # Guarded by the head and by its rest: what came in since was not looked at, and would be lost.
    erasing = Write(
        session.id,
        drafts=(session.draft("erased", note),),
        head=state.head,
        idle=True,
        ended_too=True,
        close=True,
        erase=tuple((entry.seq, tombstone(entry)) for entry in log()),
        forget_events=forget_events,
    )
    # In the same commit: erased words that live on in a copy are not erased (I-21).
    blankings = [blanking(session, each) for each in found]
    return session.engine.submit((erasing, *blankings))
