"""The client: what a program calls instead of OpenViking's own."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal

import holdfast
from holdfast import AsyncSession, AsyncStore, Session, Store
from holdfast.adapters.openviking.client.deliveries import (
    DeliveryLog,
    delivery_tenant,
)
from holdfast.adapters.openviking.client.http_connection import HttpConnection
from holdfast.adapters.openviking.client.outgoing import FORMAT
from holdfast.adapters.openviking.client.position import CommitRequested
from holdfast.adapters.openviking.client.reports import (
    CommitReport,
    DeliveryReport,
    commit_reports,
    delivery_report,
)
from holdfast.adapters.openviking.client.workers import Workers
from holdfast.errors import (
    AlreadyAccepted,
    BadArgument,
    HoldfastError,
    SessionEnded,
    StoreUnavailable,
)

AnyStore = Store | AsyncStore | str | os.PathLike[str]
AnySession = Session | AsyncSession | str
Role = Literal["user", "assistant"]

_PAGE = 100


class Client:
    """Messages and commits for OpenViking, durable in Holdfast before they are sent.

    A session is named by its key, or given as a Holdfast session: its messages may come from
    `add_message` or from anything else that writes to it. What can't be sent now is sent later, by
    this process or the next, once and in order.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:1933",
        *,
        store: AnyStore = "holdfast.db",
        api_key: str | None = None,
        account: str | None = None,
        user: str | None = None,
        background: bool = True,
        timeout_s: float = 300,
        grace_s: float = 30,
        threads: int = 2,
        on_problem: Callable[[str, str], object] | None = None,
    ) -> None:
        headers = _headers(api_key, account, user)
        self._connect: Callable[[], HttpConnection] = partial(
            HttpConnection, url, headers, timeout_s
        )
        # Here, where the caller sees it, and not in a thread: an address that is none.
        self._connect().close()
        self._store, self._is_own = _opened(store)
        self._logs = self._store.for_tenant(delivery_tenant(self._store.tenant))
        self._background = background
        self._workers = Workers(
            self._connect,
            self._store._work.world,
            threads=threads,
            grace_s=grace_s,
            on_problem=on_problem,
        )
        self._is_closing = False
        self._resuming: threading.Thread | None = None
        if background:
            self._resuming = threading.Thread(
                target=self._resume_quietly, name="holdfast-openviking", daemon=True
            )
            self._resuming.start()

    def add_message(
        self,
        session: AnySession,
        role: Role,
        content: str | None = None,
        *,
        parts: Sequence[Mapping[str, Any]] | None = None,
        created_at: str | None = None,
        peer_id: str | None = None,
        turn_id: str | None = None,
        message_kind: str | None = None,
        event_id: str | int | None = None,
    ) -> str:
        """Stores a message and returns its Holdfast id; it is durable then, and on its way. The same
        `event_id` again gives the id of the first time.
        """
        payload = {
            "role": _role(role),
            "content": content,
            "parts": None if parts is None else [dict(part) for part in parts],
            "created_at": created_at,
            "peer_id": peer_id,
            "turn_id": turn_id,
            "message_kind": message_kind,
        }
        given = {name: value for name, value in payload.items() if value is not None}
        found = self._session(session)
        try:
            id = found.append(given, format=FORMAT, event_id=event_id)
        except AlreadyAccepted as known:
            id = known.message_id
        except SessionEnded:
            if not isinstance(session, str):
                raise
            # The key was reset in this very moment: what is said now belongs to its next session.
            found = self._session(session)
            id = found.append(given, format=FORMAT, event_id=event_id)
        self._wake(found)
        return id

    def add_messages(
        self, session: AnySession, messages: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Stores several messages in OpenViking's shape, all or none, and returns their ids."""
        given = [dict(message) for message in messages]
        for message in given:
            _role(message.get("role"))
        found = self._session(session)
        ids = found.append_all(given, format=FORMAT)
        self._wake(found)
        return ids

    def commit(
        self, session: AnySession, *, event_id: str | int | None = None, **options: Any
    ) -> "CommitHandle":
        """Asks for a commit of all messages that are in the session now; durable when this returns.
        `options` are OpenViking's: `keep_recent_count=…`, `enable_working_memory=…`.
        """
        found = self._session(session)
        log = DeliveryLog(self._logs, found)
        before = log.head()
        # All that is in the session by now is at or before its head.
        request = CommitRequested(found.head(), options)
        try:
            id = log.request(request, event_id)
        except TypeError as error:
            raise BadArgument(
                parameter="options", takes="JSON", given=str(error)
            ) from None
        self._workers_wake(log)
        # An event that came before was asked for earlier in the log.
        return CommitHandle(self, log, id, 0 if event_id is not None else before)

    def send(self, session: AnySession) -> None:
        """Has what is new in this session sent: for messages that did not come from `add_message`,
        after a turn of an agent.
        """
        self._wake(self._session(session))

    def flush(self, timeout_s: float | None = 30) -> bool:
        """Waits until OpenViking has all messages, and has accepted all commits; False when time is
        up. Messages that wait for the results of a running turn's tools are not waited for.
        """
        if not self._background:
            return self._flush_here(timeout_s)
        tick = self._store._work.world.tick
        began = tick()
        if self._resuming is not None:
            self._resuming.join(timeout_s)
        self._workers.wake_all()
        if timeout_s is not None:
            timeout_s = max(0.0, timeout_s - (tick() - began))
        return self._workers.wait_until_sent(timeout_s)

    def resume(self) -> int:
        """Looks for sessions of which something is unsent, in the whole store, and has it sent; gives
        their number. A client with `background` does so when it is made.
        """
        found = 0
        # Where a sender was killed, its turn still runs: these have something unsent for sure.
        for state in ("running", "open"):
            after: str | None = None
            while not self._is_closing:
                page = self._logs.sessions(state=state, after=after, limit=_PAGE)
                for listed in page:
                    found += self._resume(listed.key)
                after = page.next
                if after is None:
                    break
        return found

    def context(
        self, session: AnySession, *, token_budget: int | None = None
    ) -> dict[str, Any]:
        """What OpenViking would show a model now, as it answers it."""
        log = DeliveryLog(self._logs, self._session(session))
        http = self._connect()
        query = "" if token_budget is None else f"?token_budget={token_budget}"
        answer = http.session("GET", log.viking_id, f"/context{query}")
        http.close()
        if not answer.ok:
            raise StoreUnavailable(
                where=f"OpenViking session {log.viking_id}",
                problem=str(answer),
                remedy="Messages go on being stored here",
            )
        return answer.fields

    def report(self, session: AnySession) -> DeliveryReport:
        """How far a session has come, and what became of its commits."""
        found = self._session(session)
        log = DeliveryLog(self._logs, found)
        return delivery_report(log, self._workers.problem(found.id))

    def close(self, timeout_s: float = 5) -> None:
        """Sends what can be sent in this time, and ends the threads. What is unsent stays stored,
        and goes on with the next client.
        """
        # Nobody sends in a client without threads, so there is nothing to wait for.
        if self._background and not self._is_closing:
            self._workers.wait_until_sent(timeout_s)
        self._is_closing = True
        if self._resuming is not None:
            self._resuming.join()
        self._workers.close()
        if self._is_own:
            self._store.close()

    def _flush_here(self, timeout_s: float | None) -> bool:
        tick = self._store._work.world.tick
        until = None if timeout_s is None else tick() + timeout_s
        while True:
            pause_s = self._workers.visit_all()
            if self._workers.wait_until_sent(0):
                return True
            if until is not None and tick() + (pause_s or 0) > until:
                return False
            self._workers.wait_for_news(pause_s or 0)

    def _resume_quietly(self) -> None:
        """What `resume` does, in a thread. A store that can't be read now will be told of by the
        calls that use it.
        """
        try:
            self.resume()
        except HoldfastError:
            return

    def _resume(self, session_id: str | None) -> int:
        if session_id is None:
            return 0
        try:
            log = DeliveryLog(self._logs, self._store.get(session_id))
        except HoldfastError:
            # It was erased, or is damaged: nothing can be sent of it.
            return 0
        if not log.is_due():
            return 0
        self._workers_wake(log)
        return 1

    def _session(self, session: AnySession) -> Session:
        if isinstance(session, str):
            return self._store.session(session)
        log = session._log
        is_here = log.engine is self._store._work.engine
        if not is_here or log.tenant != self._store.tenant:
            takes = "a key, or a session of the client's own store and tenant"
            raise BadArgument(parameter="session", takes=takes, given=repr(session))
        # A face of our own: one that the caller has may be asyncio's.
        return Session(log)

    def _wake(self, session: Session) -> None:
        # Mostly it is due already: then its delivery log need not be opened.
        if not self._workers.wake_again(session.id):
            self._workers_wake(DeliveryLog(self._logs, session))

    def _workers_wake(self, log: DeliveryLog) -> None:
        self._workers.wake(log, start=self._background)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class CommitHandle:
    """A commit that was asked for."""

    def __init__(self, client: Client, log: DeliveryLog, id: str, after: int) -> None:
        self._client, self._log, self._after = client, log, after
        self.id = id

    def report(self) -> CommitReport:
        """What has become of it so far."""
        reports = commit_reports(self._log.records(self._after))
        return reports.get(self.id, CommitReport(self.id))

    def wait(self, timeout_s: float | None = None) -> CommitReport:
        """Waits until it is over or time is up, and gives what has become of it."""
        client = self._client
        tick = client._store._work.world.tick
        until = None if timeout_s is None else tick() + timeout_s
        while True:
            report = self.report()
            if report.is_over or (until is not None and tick() >= until):
                return report
            if client._background:
                client._workers.wait_for_news(0.2)
            else:
                client._flush_here(0.2)


def _headers(
    api_key: str | None, account: str | None, user: str | None
) -> dict[str, str]:
    given = {
        "X-API-Key": api_key,
        "X-OpenViking-Account": account,
        "X-OpenViking-User": user,
    }
    return {name: value for name, value in given.items() if value is not None}


def _opened(store: AnyStore) -> tuple[Store, bool]:
    """The store, and whether it is ours to close."""
    if isinstance(store, Store):
        return store, False
    if isinstance(store, AsyncStore):
        return Store(store._work), False
    return holdfast.open(store), True


def _role(role: object) -> str:
    if role in ("user", "assistant"):
        return str(role)
    raise BadArgument(
        parameter="role", takes='"user" or "assistant"', given=repr(role)[:60]
    )
