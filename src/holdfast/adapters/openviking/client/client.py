"""The client: what a program calls instead of OpenViking's own."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from holdfast import Session
from holdfast.adapters.openviking.client.deliveries import (
    DeliveryLog,
    delivery_tenant,
)
from holdfast.adapters.openviking.client.http_connection import (
    NOT_OPENVIKINGS,
    HttpConnection,
)
from holdfast.adapters.openviking.client.options import (
    AnySession,
    ClientOptions,
    ClientSettings,
    MessageFields,
    Role,
    check,
    insist_on_json,
    opened,
    payload_of,
    payloads_of,
)
from holdfast.adapters.openviking.client.position import CommitRequested
from holdfast.adapters.openviking.client.reports import (
    CommitReport,
    DeliveryReport,
    commit_reports,
    delivery_report,
)
from holdfast.adapters.openviking.client.unsent import (
    UnsentSession,
    ever_sent,
    marked,
    what_is_left,
)
from holdfast.adapters.openviking.client.workers import Workers
from holdfast.errors import (
    BadArgument,
    HoldfastError,
    SessionEnded,
    StoreUnavailable,
)

_KEEPING = ("keep_recent_count", "retention_mode", "turn_budget")
"""Options by which a commit leaves the newest messages live."""


class Client:
    """Messages and commits for OpenViking, durable in Holdfast before they are sent.

    A session is named by its key, or given as a Holdfast session: its messages may come from
    `add_message` or from anything else that writes to it. What can't be sent now is sent later, by
    this process or the next, once and in order.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:1933", **options: Unpack[ClientOptions]
    ) -> None:
        settings = ClientSettings(**options)
        self._connect = partial(
            HttpConnection, url, settings.headers(), settings.timeout_s
        )
        # Here, where the caller sees it, and not in a thread: an address that is none.
        self._connect().close()
        self._store, self._is_own = opened(settings.store)
        self._logs = self._store.for_tenant(delivery_tenant(self._store.tenant))
        self._background = settings.background
        self._workers = Workers(
            self._connect,
            self._store._work.world,
            threads=settings.threads,
            grace_s=settings.grace_s,
            on_problem=settings.on_problem,
        )
        self._is_closing = False
        self._resuming: threading.Thread | None = None
        if settings.background:
            self._resuming = threading.Thread(
                target=self._resume_quietly, name="holdfast-openviking", daemon=True
            )
            self._resuming.start()

    def add_message(
        self,
        session: AnySession,
        role: Role,
        content: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> str:
        """Stores a message and returns its Holdfast id; it is durable then, and on its way. The same
        `event_id` again gives the id of the first time.
        """
        payload = payload_of(role, content, fields)
        event_id = fields.get("event_id")
        log = self._log(session)
        try:
            id = log.add(payload, event_id)
        except SessionEnded:
            if not isinstance(session, str):
                raise
            # The key was reset in this very moment: what is said now belongs to its next session.
            log = self._log(session)
            id = log.add(payload, event_id)
        self._wake(log)
        return id

    def add_messages(
        self, session: AnySession, messages: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Stores several messages in OpenViking's shape, all or none, and returns their ids."""
        given = payloads_of(messages)
        log = self._log(session)
        ids = log.add_all(given)
        self._wake(log)
        return ids

    def commit(
        self, session: AnySession, *, event_id: str | int | None = None, **options: Any
    ) -> "CommitHandle":
        """Asks for a commit of all messages that are in the session now; durable when this returns.
        `options` are OpenViking's: `keep_recent_count=…`, `enable_working_memory=…`.
        """
        check(event_id=event_id)
        insist_on_json(options)
        log = self._log(session)
        before = log.head()
        # All that is in the session by now is at or before its head.
        request = CommitRequested(log.session.head(), options)
        id = log.request(request, event_id)
        self._wake(log)
        # An event that came before was asked for earlier in the log.
        return CommitHandle(
            self,
            log,
            id,
            0 if event_id is not None else before,
        )

    def retry_commits(self, session: AnySession | None = None) -> "list[CommitHandle]":
        """Asks again for each commit that has failed: in this session, or in all where one has. What
        such a commit had covered is sent again before it, for OpenViking shows it nowhere.
        """
        if session is not None:
            return self._retry(self._log(session))
        handles = []
        for log in self._left():
            handles += self._retry(log)
        return handles

    def _retry(self, log: DeliveryLog) -> "list[CommitHandle]":
        handles = []
        for failed in log.position().failed:
            options = dict(failed.options)
            for name in _KEEPING:
                # What is sent again comes last there, and would be what is kept.
                options.pop(name, None)
            before = log.head()
            request = CommitRequested(
                log.session.head(),
                options,
                failed.request,
            )
            # Its own event: of two callers at once, one asks.
            id = log.request(request, f"again {failed.request}")
            handles.append(
                CommitHandle(
                    self,
                    log,
                    id,
                    0 if log.head() == before else before,
                )
            )
        if handles:
            self._wake(log)
        return handles

    def send(self, session: AnySession) -> None:
        """Has what is new in this session sent: for messages that did not come from `add_message`,
        after a turn of an agent.
        """
        log = self._log(session)
        log.mark()
        self._wake(log)

    def flush(self, timeout_s: float | None = 30) -> bool:
        """Waits until OpenViking has all messages, and has accepted all commits; False when time is
        up. Messages that wait for the results of a running turn's tools are not waited for.
        """
        check(timeout_s=timeout_s)
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

    def resume(self, *, everywhere: bool = False) -> int:
        """Has all that is left sent, of whatever session; gives their number. A client with
        `background` does so when it is made. It costs what is left. With `everywhere`, every session
        that was ever sent is looked at: for messages that no `send` was called for.
        """
        check(everywhere=everywhere)
        found = 0
        for log in self._left(everywhere=everywhere):
            if log.is_due():
                self._wake(log)
                found += 1
        return found

    def unsent(self) -> list[UnsentSession]:
        """The sessions of which something is left, the one that has waited longest first: messages
        that are not sent, commits that are not over, commits that have failed.
        """
        sessions = []
        for log in self._left():
            left = what_is_left(log)
            if left is not None:
                sessions.append(left)
        return sessions

    def _left(self, *, everywhere: bool = False) -> Iterator[DeliveryLog]:
        find = ever_sent if everywhere else marked
        for session_id in find(self._logs):
            if self._is_closing:
                return
            try:
                log = DeliveryLog(self._logs, self._store.get(session_id))
            except HoldfastError:
                # It was erased, or is damaged: nothing can be sent of it.
                continue
            yield log

    def context(
        self, session: AnySession, *, token_budget: int | None = None
    ) -> dict[str, Any]:
        """What OpenViking would show a model now, as it answers it."""
        check(token_budget=token_budget)
        log = self._log(session)
        http = self._connect()
        # Left out, it is OpenViking's own.
        query = "" if token_budget is None else f"?token_budget={token_budget}"
        answer = http.session("GET", log.viking_id, f"/context{query}")
        http.close()
        if not answer.ok or not isinstance(answer.result, dict):
            problem = str(NOT_OPENVIKINGS if answer.ok else answer)
            raise StoreUnavailable(
                where=f"OpenViking session {log.viking_id}",
                problem=problem,
                remedy="Messages go on being stored here",
            )
        return answer.fields

    def report(self, session: AnySession) -> DeliveryReport:
        """How far a session has come, and what became of its commits."""
        log = self._log(session)
        return delivery_report(
            log,
            self._workers.problem(log.session.id),
        )

    def close(self, timeout_s: float = 5) -> None:
        """Sends what can be sent in this time, and ends the threads. What is unsent stays stored,
        and goes on with the next client.
        """
        check(timeout_s=timeout_s)
        # Nobody sends in a client without threads, so there is nothing to wait for.
        if self._background and not self._is_closing:
            self._workers.wait_until_sent(timeout_s)
        # Before the threads are waited for: one that looks for what is left stops looking.
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

    def _log(self, session: AnySession) -> DeliveryLog:
        return DeliveryLog(self._logs, self._session(session))

    def _session(self, session: AnySession) -> Session:
        if isinstance(session, str):
            return self._store.session(session)
        log = getattr(session, "_log", None)
        is_here = log is not None and log.engine is self._store._work.engine
        if log is None or not is_here or log.tenant != self._store.tenant:
            takes = "a key, or a session of the client's own store and tenant"
            given = repr(session)[:60]
            raise BadArgument(
                parameter="session",
                takes=takes,
                given=given,
            )
        # A face of our own: one that the caller has may be asyncio's.
        return Session(log)

    def _wake(self, log: DeliveryLog) -> None:
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

    def __init__(
        self,
        client: Client,
        log: DeliveryLog,
        id: str,
        after: int,
    ) -> None:
        self._client, self._log, self._after = client, log, after
        self.id = id

    def report(self) -> CommitReport:
        """What has become of it so far."""
        reports = commit_reports(self._log.records(self._after))
        return reports.get(self.id, CommitReport(self.id))

    def wait(self, timeout_s: float | None = None) -> CommitReport:
        """Waits until it is over or time is up, and gives what has become of it."""
        check(timeout_s=timeout_s)
        client = self._client
        tick = client._store._work.world.tick
        until = None if timeout_s is None else tick() + timeout_s
        while True:
            report = self.report()
            # In this order: what is over is told, though time is up.
            if report.is_over or (until is not None and tick() >= until):
                return report
            if client._background:
                client._workers.wait_for_news(0.2)
            else:
                client._flush_here(0.2)
