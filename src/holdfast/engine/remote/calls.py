"""Asking a server: connections that are kept, tries, and answers back to values or errors.

A read is asked again until it is answered or patience is over: it changes nothing. What writes is
asked again by the engine, which knows how (`again`); here it is only told apart whether it may have
been done.
"""

import os
import ssl
import threading
from collections import deque
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import SplitResult

import msgspec

from holdfast.engine.closed_engine import closed, forked
from holdfast.engine.protocol import Chance
from holdfast.engine.remote.http_connection import RawAnswer, RawConnection
from holdfast.engine.remote.told_errors import (
    error_of_status,
    too_large,
    untrusted,
    unusable,
)
from holdfast.engine.remote.verbs import (
    LIMIT_MAX,
    PATH,
    PROTOCOL,
    PROTOCOL_HEADER,
    Verb,
)
from holdfast.engine.remote.wire import PACKED, read, written
from holdfast.errors import HoldfastError, StoreUnavailable

ANSWER_S = 60.0
"""How long an answer is waited for. A commit waits for locks and disks at the server."""
SLOW_S = 900.0
"""The same, for what reads a whole store."""
PATIENCE_S = 30.0
"""How long is tried again when a server does not answer: it may be being started."""
OPENING_S = 3.0
"""The same while a store is opened, and once somebody has given a server up that has not answered
since: whoever cleans up after that would wait as long again for each thing that is left to do.
"""
PAUSE_S, PAUSE_MAX_S = 0.02, 1.0
KEPT_MAX = 16
"""So many connections that nobody uses are kept."""

T = TypeVar("T")


class Unanswered(Exception):
    """A request came to no answer. `maybe_done`: it was sent, and may have been done; `is_late`: as
    long as any answer is waited for, none came.
    """

    def __init__(
        self, problem: str, *, maybe_done: bool, is_late: bool = False
    ) -> None:
        super().__init__(problem)
        self.problem, self.maybe_done, self.is_late = problem, maybe_done, is_late


class Tries:
    """Pauses between the tries of one thing, ever longer and not all alike, until `limit_s` have
    been waited, or no answer came in time twice: a connection may be dead, the next one shows
    whether the server is. It looks at no clock: one may stand still.
    """

    def __init__(self, limit_s: float, chance: Chance) -> None:
        self._limit_s, self._chance = limit_s, chance
        self._waited_s, self._pause_s = 0.0, PAUSE_S

    def pause(self, error: Unanswered | None = None) -> bool:
        """Waits before the next try; False when there is to be none."""
        if error is not None and error.is_late:
            self._waited_s += self._limit_s / 2
        if self._waited_s >= self._limit_s:
            return False
        # Not all alike, or the clients of a server that was started again would all
        # come at once.
        seconds = self._pause_s * (0.5 + self._chance(1)[0] / 255)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        self._waited_s += seconds
        # Nobody else knows it: it can be interrupted, and by nothing else.
        threading.Event().wait(seconds)
        return True


class ServerCalls:
    """Requests to one server, from many threads. The token is in the headers of its connections
    and nowhere else.
    """

    def __init__(
        self,
        where: str,
        parts: SplitResult,
        token: str | None,
        chance: Chance,
        trusts: ssl.SSLContext | None = None,
    ) -> None:
        self.where, self.chance = where, chance
        self._trusts = trusts
        self._parts = parts
        self._headers = {"accept": PACKED, PROTOCOL_HEADER: str(PROTOCOL)}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        # No lock: taking from a deque and putting into it are one step each.
        self._free: deque[RawConnection] = deque()
        self._process = os.getpid()
        self._closed = False
        self._is_given_up = False
        self.answered_by = ""
        """The name of the process that has answered last."""
        self.body_max: int | None = None
        """So many bytes a request may have, as the server has said."""

    def tries(self) -> Tries:
        """As often as a server that does not answer is asked."""
        return Tries(OPENING_S if self._is_given_up else PATIENCE_S, self.chance)

    def ask(
        self, verb: Verb[T], /, *, timeout_s: float | None = None, **fields: Any
    ) -> T:
        """The answer to a question, asked again as long as there is none."""
        tries = self.tries()
        if "limit" in fields:
            # "At most so many" holds of a shorter page, too.
            fields["limit"] = min(fields["limit"], LIMIT_MAX)
        asked = verb.asked(**fields)
        while True:
            try:
                found: T = self.post(verb.name, asked, verb.gives, timeout_s=timeout_s)
                return found
            except Unanswered as error:
                if not tries.pause(error):
                    raise self.given_up(error) from None

    def post(
        self, name: str, value: Any, gives: Any, *, timeout_s: float | None = None
    ) -> Any:
        """One try: the answer, an error that the server told, or `Unanswered`."""
        self.check()
        media, body = written(value)
        if self.body_max is not None and len(body) > self.body_max:
            # Said here: a server closes the connection on what is too large, and that looks like
            # any other loss.
            raise too_large(self.body_max)
        connection = self._taken()
        try:
            answer = connection.ask(
                "POST", PATH + name, body, media=media, timeout_s=timeout_s
            )
        finally:
            # One that was interrupted has been closed, and is opened again when it is used.
            self._keep(connection)
        return self.value_of(answer, gives)

    def value_of(self, answer: RawAnswer, gives: Any) -> Any:
        """What an answer says."""
        if answer.fate == "untrusted":
            raise untrusted(self.where, answer.problem)
        if answer.fate != "answered":
            raise Unanswered(
                answer.problem,
                maybe_done=answer.fate != "unreached",
                is_late=answer.fate == "late",
            )
        self._is_given_up = False
        # An answer of something in between, such as a proxy, names no process.
        self.answered_by = answer.process or self.answered_by
        if answer.status != 200:
            error = error_of_status(answer, self.where)
            if error is None:
                problem = f"the server answered {answer.status}"
                raise Unanswered(problem, maybe_done=True)
            raise error
        try:
            return read(answer.media, answer.content, gives)
        # Somebody else has answered, or it was cut: what was done is not known.
        except (ValueError, msgspec.MsgspecError):
            problem = "the answer is not that of a Holdfast"
            raise Unanswered(problem, maybe_done=True) from None

    def connection(self) -> RawConnection:
        """A new connection, for one thread."""
        return RawConnection(
            self._parts, self._headers, timeout_s=ANSWER_S, trusts=self._trusts
        )

    def check(self) -> None:
        """Raises when there is nobody to ask any more."""
        if os.getpid() != self._process:
            raise forked(self.where)
        if self._closed:
            raise closed(self.where)

    def given_up(self, error: Unanswered, *, in_doubt: bool = False) -> HoldfastError:
        """What is told when patience is over."""
        self._is_given_up = True
        remedy = "Check that the server runs and can be reached, then try again"
        if in_doubt:
            remedy = f"It is not known whether it was stored. {remedy}"
        told: StoreUnavailable = unusable(self.where, error.problem, remedy)
        return told

    def close(self) -> None:
        """Lets go of all connections that are not in use; those are when they come back."""
        if os.getpid() != self._process:
            return  # they are the parent's
        self._closed = True
        while self._free:
            self._free.pop().close()

    def _taken(self) -> RawConnection:
        try:
            return (
                self._free.pop()
            )  # the last one used: the server has not closed it yet
        except IndexError:
            return self.connection()

    def _keep(self, connection: RawConnection) -> None:
        self._free.append(connection)
        if self._closed or len(self._free) > KEPT_MAX:
            with suppress(IndexError):  # another thread was quicker
                self._free.popleft().close()
