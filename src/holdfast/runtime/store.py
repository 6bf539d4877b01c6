"""A store: all sessions of one tenant in one place."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.domain.arguments import Durability, OnBusy, State
from holdfast.domain.reset_policy import Policy
from holdfast.engine.late_import import loading
from holdfast.runtime.border import bordered, checked
from holdfast.runtime.changes.open_session import (
    find_session,
    open_session,
    reset_key,
)
from holdfast.runtime.changes.receive import accept, start_turn
from holdfast.runtime.clock import World
from holdfast.runtime.live.message import Message
from holdfast.runtime.open_store import OpenStore, open_at
from holdfast.runtime.plans.deadline import deadline_for
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.outbox import Owed, Receipt, outbox
from holdfast.runtime.turns.start_turn import TurnRequest

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.engine.store_info import Backup, Problem, StoreInfo
    from holdfast.runtime.catalog.list_sessions import Listed
    from holdfast.runtime.catalog.page import Page
    from holdfast.runtime.catalog.pending import PendingMessage
    from holdfast.runtime.catalog.search import Hit
    from holdfast.runtime.changes.erase import Erasure
    from holdfast.runtime.tracing.tracing import Tracing


@bordered
class Store:
    """All sessions of one tenant in one place. A context manager that closes it, safe to use from
    many threads.
    """

    tenant: str

    def __init__(self, work: OpenStore) -> None:
        self._work = work
        self.tenant = work.tenant

    def session(
        self, key: str, *, reset: Policy | None = None, create: bool = True
    ) -> Session:
        """The key's current session, made if there is none; a `reset` policy is applied in the same
        transaction.
        """
        return Session(run(open_session(self._work, key, reset=reset, create=create)))

    def turn(
        self,
        key: str,
        message: Any = None,
        *,
        reset: Policy | None = None,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
        take: Sequence[str | Message | Receipt] | None = None,
    ) -> Turn:
        """Starts a turn in the key's current session, which is made if there is none and reset if
        that is due: what a gateway calls for each inbound message. All is one transaction;
        otherwise as `Session.turn`.
        """
        request = TurnRequest(
            self._work.world,
            message,
            format=format,
            event_id=event_id,
            on_busy=on_busy,
            reply_to=reply_to,
            lease_s=lease_s,
            take=take,
        )
        return Turn(run(start_turn(self._work, key, request, reset=reset)))

    def accept(
        self,
        key: str,
        message: Any,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        reply_to: str | int | None = None,
        labels: dict[str, Any] | None = None,
    ) -> Receipt:
        """Stores a message in the inbox of the key's current session, and nothing more: what a
        webhook calls before it answers. The next turn takes it. An `event_id` that came before
        gives the receipt of that time. `labels` are put on the message: what belongs to it and is
        not for the model.
        """
        return run(
            accept(
                self._work,
                key,
                message,
                format=format,
                event_id=event_id,
                reply_to=reply_to,
                labels=labels,
            )
        )

    def outbox(self, limit: int = 50, *, claim_s: float | None = None) -> list[Owed]:
        """Replies to send, oldest first: those asked for with `reply_to`, until their sending is
        confirmed.

        With `claim_s`, those that no other sender has: each is this caller's alone for so many
        seconds, among all threads, processes and machines. It is given back by `Owed.failed`, or
        when the time is over.
        """
        works = run(outbox(self._work, limit=limit, claim_s=claim_s))
        return [Owed(work) for work in works]

    def pending(
        self, *, after: str | None = None, limit: int = 50
    ) -> "Page[PendingMessage]":
        """What waits in the inboxes of all sessions, oldest first, each message with its `key` and
        `session_id`; what a gateway asks after a restart. What callers of `turn` wait with is among
        it. A page has 1,000 at most; `after` is the `next` of the page before.
        """
        # Here and below, what only some programs ask for is loaded when it is asked
        # for: one that only takes turns starts sooner.
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.pending import pending

        return run(pending(self._work, after=after, limit=limit))

    def for_tenant(self, name: str) -> "Store":
        """The store of another tenant on the same engine: the same connections and threads, other
        sessions. Closing it ends the turns that were begun with it, and nothing else; closing the
        store that was opened closes all.
        """
        return Store(self._work.for_tenant(name))

    def get(self, session_id: str) -> Session:
        """A session by its id, or by an unambiguous beginning of it."""
        return Session(run(find_session(self._work, session_id)))

    def reset(self, key: str, *, reason: str = "command") -> Session:
        """Ends the key's current session, what runs in it included, and gives the key a new one,
        whose epoch is one higher. What waits in the inbox goes on in the new session.
        """
        return Session(run(reset_key(self._work, key, reason=reason)))

    def sessions(
        self,
        *,
        key: str | None = None,
        state: State | None = None,
        text: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> "Page[Listed]":
        """A page of sessions, newest activity first: those of a key, in a state ("open", "running"
        or "ended"), in which a text was said. `after` is the `next` of the page before.
        """
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.list_sessions import sessions

        return run(
            sessions(
                self._work, key=key, state=state, text=text, after=after, limit=limit
            )
        )

    def search(
        self,
        text: str,
        *,
        limit: int = 20,
        role: str | None = None,
        tool: str | None = None,
        state: str | None = None,
        key: str | None = None,
        session: str | None = None,
        since: "int | datetime | None" = None,
        until: "int | datetime | None" = None,
    ) -> "list[Hit]":
        """Messages of all sessions that have all of these words, the last stored first; "words in
        quotes" next to each other; the last word, from two letters on, also as the beginning of
        one. Of a word 64 letters count. An empty text finds all messages, punctuation alone none.
        All that was said is looked through, calls and results too, also if it is hidden, retracted
        or waits; not summaries. What a fork shares with its parent is found there. `state` is that
        of the session ("open", "running", "ended") or of the message ("partial", or "complete",
        which all others are); `tool` is one that the message calls or answers for; `limit` is 1,000
        at most. Complete as of the call; in a PostgreSQL store that was opened read-only, as of the
        last time that a store open for writing has searched.
        """
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.search import search

        return run(
            search(
                self._work,
                text,
                limit=limit,
                role=role,
                tool=tool,
                state=state,
                key=key,
                session=session,
                since=since,
                until=until,
            )
        )

    def erase(self, session_id: str, *, preview: bool = False) -> "Erasure":
        """Takes all words of a session out of the store, its blobs and the search index included;
        an audit entry stays. With `preview`, tells what that would take.
        """
        with loading(self._work.engine.where):
            from holdfast.runtime.changes.erase import erase

        return run(erase(self._work, session_id, preview=preview))

    def retain(self, days: float, *, preview: bool = True) -> "list[Erasure]":
        """Erases the sessions that had no news for so many days, more than 0, and forgets the events that they
        accepted; with `preview` it only tells which ones. Called again, it goes on where it was
        interrupted.
        """
        with loading(self._work.engine.where):
            from holdfast.runtime.changes.erase import retain

        return run(retain(self._work, days, preview=preview))

    def info(self) -> "StoreInfo":
        """What is in this store and how large it is, all tenants together; cheap."""
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.maintenance import info

        return run(info(self._work.engine))

    def check(self) -> "list[Problem]":
        """Looks for damage and broken promises in the whole store, and changes nothing."""
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.maintenance import check

        return run(check(self._work.engine))

    def backup(self, to: str | os.PathLike[str]) -> "Backup":
        """Copies the whole store, as of one moment, to a new file while others write, and verifies
        the copy.
        """
        with loading(self._work.engine.where):
            from holdfast.runtime.catalog.maintenance import backup

        return run(backup(self._work.engine, to))

    def close(self) -> None:
        """Ends the turns that this process still runs, as interrupted, and closes the store once
        all is written. What could not be written in thirty seconds is told, `StoreUnavailable`,
        and the store is closed all the same.
        """
        self._work.close()

    def __repr__(self) -> str:
        return f"<Store {self._work.engine.where} tenant={self.tenant!r}>"

    def __enter__(self) -> "Store":
        self._work.refuse_closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._work.close(deadline_for(error, self._work.engine.where))


@checked
def open_store(
    where: str | os.PathLike[str] = "holdfast.db",
    *,
    durability: Durability = "power",
    tenant: str = "default",
    read_only: bool = False,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    tracing: "Tracing | None" = None,
    world: World | None = None,
) -> Store:
    """Opens a store, made if there is none: a path, `sqlite:///…` or `postgresql://…`; or one that a
    server has, `http://…` or `https://…`, with the `token` for it. There, durability is the
    server's, and the tenant is that of the token. `ca` is a file with the certificates of the
    authorities that are believed for `https://…`, instead of those of this machine.

    `durability="process"` survives a killed process but not a power cut, and is faster. With
    `read_only` nothing is made, locked or changed, and every call that would write raises
    `ReadOnlyStore`: for a disk, a folder or a database server that can only be read. With `tracing`,
    what happens is told to OpenTelemetry.
    """
    return Store(
        open_at(
            where,
            durability=durability,
            tenant=tenant,
            read_only=read_only,
            token=token,
            ca=ca,
            tracing=tracing,
            world=world,
        )
    )
