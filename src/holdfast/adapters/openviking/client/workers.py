"""Threads that send, and when they try again.

A session is due when something of it may be unsent. One worker at a time visits it; where
OpenViking can't be reached, the visit is repeated, later each time. A worker has a connection of
its own, so a slow session holds up no more than one worker.
"""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from holdfast import Turn
from holdfast.adapters.openviking.client.arrived import NotNow
from holdfast.adapters.openviking.client.deliveries import DeliveryLog
from holdfast.adapters.openviking.client.http_connection import HttpConnection
from holdfast.adapters.openviking.client.sender import send_session
from holdfast.adapters.openviking.client.visit import Visit, VisitMemory
from holdfast.errors import HoldfastError, SessionBusy, TurnInterrupted
from holdfast.runtime.clock import World

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
CLOSE_S = 2.0
MARKS_MAX = 10
BUSY_PAUSE_S = 0.5
"""How long to wait where another process is the sender."""

_logger = logging.getLogger("holdfast.openviking")


class DueSession:
    """A session of which something may be unsent. `due_at` is None while a worker has it."""

    def __init__(self, log: DeliveryLog) -> None:
        self.log = log
        self.memory = VisitMemory()
        self.due_at: float | None = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.is_woken = False
        self.is_sent = False
        """Whether only the tasks of its commits are waited for."""
        self.problem = ""

    def wake(self) -> None:
        """Has it visited now, or once more after the visit that it has."""
        self.is_sent = False
        if self.due_at is None:
            self.is_woken = True
        else:
            self.due_at, self.pause_s = 0.0, FIRST_PAUSE_S

    def longer_pause(self) -> float:
        """The pause before the next try: twice as long each time."""
        pause_s = self.pause_s
        self.pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
        return pause_s


class VisitEnd(NamedTuple):
    """How a visit went: what stands in the way, and in how many seconds the next one is due; None
    when none is.
    """

    problem: str
    pause_s: float | None
    is_sent: bool = False


def _few_marks(log: DeliveryLog, turn: Turn) -> list[str]:
    """The marks of what is to be sent now: what is marked later than this may not be seen."""
    marks = log.marks()
    # While OpenViking is away each message leaves one, and each try would read them all.
    if len(marks) > MARKS_MAX:
        log.unmark(turn, marks[:-1])
        marks = marks[-1:]
    return marks


class Workers:
    """The sessions that are due, and the threads that visit them."""

    def __init__(
        self,
        connect: Callable[[], HttpConnection],
        world: World,
        *,
        threads: int,
        grace_s: float,
        on_problem: Callable[[str, str], object] | None,
    ) -> None:
        self._connect, self._world, self._grace_s = connect, world, grace_s
        self._on_problem = on_problem
        self._due: dict[str, DueSession] = {}
        self._changed = threading.Condition()
        self._most, self._threads = threads, list[threading.Thread]()
        self._is_closed = False

    def wake(self, log: DeliveryLog, *, start: bool) -> None:
        """Has this session visited now; `start` says whether by a thread of ours."""
        with self._changed:
            self._due.setdefault(log.session.id, DueSession(log)).wake()
            self._changed.notify_all()
            # Made when they are needed: a program that forks later has none of them.
            if start and len(self._threads) < min(self._most, len(self._due)):
                thread = threading.Thread(
                    target=self._work, name="holdfast-openviking", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def wake_all(self) -> None:
        """Has every session that is due visited now, however long its pause was to be."""
        with self._changed:
            for due in self._due.values():
                if due.due_at is not None and not due.is_sent:
                    due.due_at = 0.0
            self._changed.notify_all()

    def wait_until_sent(self, timeout_s: float | None) -> bool:
        """Waits until all is sent and every commit accepted; False when time is up."""
        with self._changed:
            return self._changed.wait_for(self._all_sent, timeout_s)

    def wait_for_news(self, timeout_s: float) -> None:
        """Waits until some visit is over, or for so long."""
        with self._changed:
            self._changed.wait(timeout_s)

    def problem(self, session_id: str) -> str:
        """What stands in the way of this session now; nothing when it is on its way."""
        with self._changed:
            due = self._due.get(session_id)
            return due.problem if due is not None else ""

    def close(self) -> None:
        """Ends the threads, each after the request it is in."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        # Outside the lock, which they need to end.
        for thread in self._threads:
            # One that waits for an answer is left behind: what it sent is in doubt, as after a kill.
            thread.join(CLOSE_S)

    def visit_all(self) -> float | None:
        """Visits all that is due in the caller's own thread, once; gives the seconds until the next
        is due, None when none is left.
        """
        http, taken = self._connect(), list[DueSession]()
        try:
            taken = self._take_all()
            while taken:
                self._visit(taken.pop(0), http)
        finally:
            # Left where it was interrupted, by Ctrl-C, say: others may visit the rest.
            self._give_back(taken)
            http.close()
        with self._changed:
            return self._next_s()

    def _take_all(self) -> list[DueSession]:
        """All sessions that nobody visits now; they are the caller's."""
        with self._changed:
            taken = [due for due in self._due.values() if due.due_at is not None]
            for due in taken:
                due.due_at = None
        return taken

    def _give_back(self, taken: list[DueSession]) -> None:
        with self._changed:
            for due in taken:
                due.due_at = 0.0
            self._changed.notify_all()

    def _all_sent(self) -> bool:
        return all(due.is_sent for due in self._due.values())

    def _work(self) -> None:
        # One for each thread: a connection serves one request at a time.
        http = self._connect()
        while True:
            due = self._take()
            if due is None:
                http.close()
                return
            try:
                self._visit(due, http)
            except BaseException:
                # Of the caller's own code, SystemExit, say: in a thread of ours it must end nothing.
                _logger.exception("on_problem has raised")

    def _take(self) -> DueSession | None:
        """Waits for a session to visit; None when the workers are closed."""
        with self._changed:
            while not self._is_closed:
                tick = self._world.tick()
                for due in self._due.values():
                    if due.due_at is not None and due.due_at <= tick:
                        due.due_at = None
                        return due
                self._changed.wait(self._next_s())
        return None

    def _next_s(self) -> float | None:
        times = [due.due_at for due in self._due.values() if due.due_at is not None]
        if not times:
            return None
        return max(0.0, min(times) - self._world.tick())

    def _visit(self, due: DueSession, http: HttpConnection) -> None:
        # What stands if it is interrupted: then it is visited again.
        ended = VisitEnd("", FIRST_PAUSE_S)
        try:
            ended = self._sent(due, http)
            self._tell(due, ended.problem)
        finally:
            self._settle(due, ended)

    def _sent(self, due: DueSession, http: HttpConnection) -> VisitEnd:
        """Sends a session, and says how that went."""
        # Not under the lock: a visit may wait for the network for minutes.
        try:
            with due.log.turn() as turn:
                marks = _few_marks(due.log, turn)
                visit = Visit(
                    due.log,
                    turn,
                    http,
                    due.memory,
                    grace_s=self._grace_s,
                )
                pause_s = send_session(visit)
                if visit.is_done():
                    due.log.unmark(turn, marks)
            due.pause_s = FIRST_PAUSE_S
            return VisitEnd("", pause_s, is_sent=True)
        except (SessionBusy, TurnInterrupted):
            # Another process sends this session, ours included; looked at again, for it may die.
            return VisitEnd("", BUSY_PAUSE_S)
        except (NotNow, HoldfastError) as trouble:
            return VisitEnd(str(trouble), due.longer_pause())
        except Exception as error:
            # An answer like none before it must not end the thread: other sessions go on.
            _logger.exception(
                "OpenViking session %s",
                due.log.viking_id,
            )
            return VisitEnd(repr(error), due.longer_pause())

    def _settle(self, due: DueSession, ended: VisitEnd) -> None:
        pause_s = ended.pause_s
        with self._changed:
            due.problem = ended.problem
            due.is_sent = ended.is_sent and not due.is_woken
            if due.is_woken:
                pause_s, due.is_woken = 0.0, False
            # Not forgotten: its delivery log has all that is known, and the next message brings it
            # back.
            if pause_s is None:
                del self._due[due.log.session.id]
            else:
                due.due_at = self._world.tick() + pause_s
            self._changed.notify_all()

    def _tell(self, due: DueSession, problem: str) -> None:
        """Reports a problem when it is new; the same one is not told at every try."""
        if not problem or problem == due.problem:
            return
        _logger.warning(
            "OpenViking session %s: %s",
            due.log.viking_id,
            problem,
        )
        if self._on_problem is None:
            return
        try:
            self._on_problem(due.log.viking_id, problem)
        except Exception:
            # It is the caller's, and sending must not end with it.
            _logger.exception("on_problem has raised")
