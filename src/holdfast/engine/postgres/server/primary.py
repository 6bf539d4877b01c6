"""Which server is followed: the one that leads now, not one that led before and has come back.

Every promotion begins a new timeline. A server that was the primary, died, and comes back without
having been told takes writes as before: in an address with several servers it may even be the
first. So all of them are asked, the newest timeline of the same database wins, and one that is
older than any that was seen is refused from then on, also on connections that are there already.

That can't fence a server that nobody else can reach: two primaries that each take writes are the
cluster's to prevent.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg

from holdfast.engine.protocol import Tick

_log = logging.getLogger("holdfast")

Connection = psycopg.Connection[Any]

GRACE_S = 0.5
"""How long the others have to answer after the first one that can be written."""
SURVEY_S = 1.0
"""For so long the answer to who leads is good for further connections."""

IDENTITY = (
    "SELECT system_identifier, CASE WHEN pg_is_in_recovery() THEN 0 "
    "ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END FROM "
    "pg_control_system()"
)


class ServerIdentity(NamedTuple):
    """A database, as all copies of it know it, and the timeline that a server of it is on."""

    system: int
    timeline: int


Identified = tuple[Connection, ServerIdentity | None]
"""A connection, and the server that it leads to, where that can be known."""


class Outdated(psycopg.OperationalError):
    """A server that has been replaced, or that knows less than was acknowledged."""


def identity_of(connection: Connection) -> ServerIdentity | None:
    """None where it can't be known: another database that speaks the same language, or one that only
    reads.
    """
    try:
        row = connection.execute(IDENTITY, prepare=False).fetchone()
    except (
        psycopg.ProgrammingError,
        psycopg.NotSupportedError,
        psycopg.DataError,
        psycopg.InternalError,
    ):
        return None
    return ServerIdentity(*row) if row and row[1] else None


class Primary:
    """What is known of who leads; shared by all connections of an engine."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._newest: ServerIdentity | None = None
        self._gate = threading.RLock()
        self._led: tuple[float, int] | None = None

    def admit(self, identity: ServerIdentity | None) -> None:
        """Raises unless this server is as new as any that was seen."""
        if identity is None:
            return
        with self._gate:
            # another database altogether: its timelines are not comparable
            if self._newest is None or self._newest.system != identity.system:
                self._newest = identity
            if identity.timeline > self._newest.timeline:
                _log.warning("a new primary leads, on timeline %d", identity.timeline)
            if identity.timeline < self._newest.timeline:
                _log.warning(
                    "a server on timeline %d is refused: it has been replaced",
                    identity.timeline,
                )
                raise Outdated(
                    f"it is on timeline {identity.timeline}, and its successor on timeline "
                    f"{self._newest.timeline}: "
                    "it has been replaced"
                )
            self._newest = identity

    def is_outdated(self, identity: ServerIdentity | None) -> bool:
        newest = self._newest
        return (
            identity is not None
            and newest is not None
            and identity.system == newest.system
            and identity.timeline < newest.timeline
        )

    def survey(
        self, servers: Sequence[str], connect: Callable[[int], Connection]
    ) -> Identified:
        """A connection to the server on the newest timeline. All are asked at once; one that does
        not answer soon after another is not waited for. Raises what they said when none can be
        written.
        """
        led = self._led
        if led is not None and self._tick() - led[0] < SURVEY_S:
            try:
                connection = connect(led[1])
                return self._admitted(connection, identity_of(connection))
            except psycopg.Error:
                self._led = None
        # each on a thread of its own: one that is silent must not delay the others
        answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        over = threading.Event()
        for number in range(len(servers)):
            ask = (connect, number, answers, over)
            threading.Thread(
                target=_ask, args=ask, name="holdfast-survey", daemon=True
            ).start()
        found, refusals = _gathered(answers, len(servers))
        over.set()
        if not found:
            raise _failure(servers, refusals)
        best = max(found, key=lambda number: ((found[number][1] or (0, 0))[1], -number))
        for number, (connection, _) in found.items():
            if number != best:
                connection.close()
        admitted = self._admitted(*found[best])
        self._led = (self._tick(), best)
        return admitted

    def _admitted(
        self, connection: Connection, identity: ServerIdentity | None
    ) -> Identified:
        try:
            self.admit(identity)
        except Outdated:
            connection.close()
            raise
        return connection, identity

    def only(self, connect: Callable[[], Connection]) -> Identified:
        """A connection to the one server that there is."""
        connection = connect()
        return self._admitted(connection, identity_of(connection))


def _ask(
    connect: Callable[[int], Connection],
    number: int,
    answers: "queue.SimpleQueue[Any]",
    over: threading.Event,
) -> None:
    try:
        connection = connect(number)
        answer: Any = (connection, identity_of(connection))
    except Exception as error:
        answer = error
    if over.is_set() and not isinstance(answer, Exception):
        answer[0].close()  # nobody waits for it any more
        return
    answers.put((number, answer))


def _gathered(
    answers: "queue.SimpleQueue[tuple[int, Any]]", count: int
) -> tuple[dict[int, Identified], dict[int, Exception]]:
    found: dict[int, Identified] = {}
    refusals: dict[int, Exception] = {}
    while len(found) + len(refusals) < count:
        try:
            number, answer = answers.get(timeout=GRACE_S if found else None)
        except queue.Empty:
            break
        if isinstance(answer, Exception):
            refusals[number] = answer
        else:
            found[number] = answer
    return found, refusals


def _failure(servers: Sequence[str], refusals: dict[int, Exception]) -> Exception:
    """What all of them said, in the driver's own form."""
    for error in refusals.values():
        if (
            not isinstance(error, psycopg.OperationalError)
            or error.sqlstate is not None
        ):
            return error
    tried: list[str] = []
    for number, error in sorted(refusals.items()):
        attempts = [
            line for line in str(error).splitlines() if line.startswith("- host: ")
        ]
        tried += attempts or [f"- host: {servers[number]}, hostaddr: '': {error}"]
    return psycopg.OperationalError(
        "\n".join(["no server of several can be written:", *tried])
    )
