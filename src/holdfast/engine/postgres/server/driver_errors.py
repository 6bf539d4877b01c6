"""PostgreSQL's errors, told as Holdfast's: the one place where driver errors are translated.

What an error means for a transaction comes first. It was rolled back and may be tried again; nobody
knows what became of it (the connection was lost, perhaps after COMMIT was sent); or it makes no
sense and never will. Only then is it told to a person.
"""

import re
from typing import Literal

import psycopg
from psycopg import errors

from holdfast.engine.address import damage_remedy
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable

Verdict = Literal["again", "unknown", "senseless"]

_MEETINGS = {
    "40001",  # could not serialise
    "40P01",  # a deadlock
    "23505",  # another machine had the same id, key or event at the same time
    "22012",  # a guard in a statement: a session is not as it is remembered
}
"""Two writers met: the one who was overtaken looks again."""
_AGAIN = (
    _MEETINGS
    | {
        "55P03",  # a lock was not to be had in the time the server allows
        "57014",  # somebody has cancelled it, or the server's limit on statements
        "26000",  # a pooler has given us a connection that does not know our prepared statements
        "42P05",  # or one that knows them already
    }
)
_UNKNOWN = {
    "40003",  # statement completion unknown
    "57P01",  # the server is shutting down
    "57P02",  # it crashed
    "57P03",  # it is starting
    "57P04",
    "57P05",  # idle for too long
    "25P03",  # idle in a transaction for too long
    "25P04",  # in a transaction for too long
    "25006",  # this server only reads: it was the primary once, or will be
    "53300",  # too many connections
}
UNPREPARED = {"26000", "42P05"}

_REMEDIES: dict[str, tuple[str, str]] = {
    "08": (
        "the connection to its server was lost",
        "Check the server, then try again; what was acknowledged is safe",
    ),
    "22": (
        "PostgreSQL can't hold a value of this commit",
        "Report this; it is a defect",
    ),
    "23": (
        "its tables contradict a commit",
        "Check that only Holdfast writes its tables",
    ),
    "25P03": (
        "a transaction was cut off, idle for too long",
        "Try again; what was acknowledged is safe",
    ),
    "25P04": (
        "a transaction was cut off for taking too long",
        "Try again; what was acknowledged is safe",
    ),
    "25": (
        "its server only reads",
        "Name all servers in the address, or the one that is primary",
    ),
    "26": ("a pooler in between does not keep prepared statements", "Try again"),
    "28": ("its server does not let us in", "Check user and password in the address"),
    "3D": ("there is no such database", "Create it, or check its name in the address"),
    "3F": ("there is no such schema", "Create it, or check search_path in the address"),
    "40": ("other programs write the same rows without end", "Try again"),
    "42501": (
        "its rights forbid it",
        "Grant SELECT, INSERT, UPDATE and DELETE on its tables to this role",
    ),
    "42P05": ("a pooler in between does not keep prepared statements", "Try again"),
    "42": (
        "its tables are not as they should be",
        "Run `holdfast store migrate`, with a role that may change tables",
    ),
    "53100": (
        "the server's disk is full",
        "Make room, then try again; what was acknowledged is safe",
    ),
    "53200": ("the server has no memory left", "Free memory there, then try again"),
    "53": (
        "the server has too much to do",
        "Raise its limits (max_connections), or open fewer stores",
    ),
    "54": (
        "a value is larger than PostgreSQL can hold",
        "Store large parts elsewhere and refer to them",
    ),
    "55": ("another program holds a lock", "Let that program finish, then try again"),
    "57014": (
        "a statement was cancelled at the server",
        "Check its statement_timeout, then try again",
    ),
    "57": (
        "its server was stopped or interrupted",
        "Check the server, then try again; what was acknowledged is safe",
    ),
    "nobody": (
        "nobody listens there",
        "Check host and port in the address, and that the server runs",
    ),
    "reads": (
        "this role, or this database, only reads",
        "Use another role, set default_transaction_read_only to off, or open the store with "
        "read_only=True",
    ),
    "pooler": (
        "the pooler in between does not take a part of this address",
        "Take `options` out of it; what it sets can be set for the role: ALTER ROLE … SET "
        "search_path = …",
    ),
    "58": (
        "the server's disk answered with an error",
        "Check that disk, then try again",
    ),
}
_DAMAGE = ("XX001", "XX002")
_STANDBYS = (
    "Bring a standby back, or take the lost ones out of synchronous_standby_names; then "
    "it goes on by itself"
)

_REFUSALS = {
    "28": r"authentication failed|pg_hba\.conf|not permitted to log in"
    r"|role \"[^\"]*\" does not exist|no such user|no password supplied"
    r"|certificate verify failed|does not support SSL",
    "3D": r"database \"[^\"]*\" does not exist|no such database|permission denied for database",
    "nobody": r"Connection refused|could not translate host name|failed to resolve host",
    "pooler": r"unsupported startup parameter",
}
"""What servers and poolers say to whom they don't let in, by the code's class: libpq passes on no
code from there.
"""

_ATTEMPT = re.compile(r"^- host: (.*?), hostaddr: .*?: ", re.MULTILINE)


class OnlyReads(psycopg.OperationalError):
    """A primary that lets this role read and no more."""


class Stalled(psycopg.OperationalError):
    """Commits wait at the server for standbys that don't answer: one more would only be
    one more.
    """

    def __init__(self, commits: int, longest_s: float) -> None:
        super().__init__(
            f"its commits wait for standbys that don't answer, {commits} for up to "
            f"{longest_s:.0f} s"
        )


def verdict(error: psycopg.Error) -> Verdict:
    """What has become of the transaction in which this was met."""
    state = error.sqlstate
    if state is None:
        # The driver's own: the connection broke under it, or it was used wrongly.
        return (
            "unknown"
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            else "senseless"
        )
    if state in _AGAIN:
        return "again"
    return "unknown" if state in _UNKNOWN or state.startswith("08") else "senseless"


def refusal(error: psycopg.Error) -> str:
    """The class of the reason why we are not let in, when every server that was asked has said so:
    waiting would not help. One that lags behind, or is not yet there, does not speak for the
    others.
    """
    if error.sqlstate is not None:
        return ""
    if isinstance(error, OnlyReads):
        return "reads"
    said: dict[str, set[str]] = {}
    for server, words in _attempts(str(error)):
        reasons = [
            reason for reason, pattern in _REFUSALS.items() if re.search(pattern, words)
        ]
        # a server has several addresses; one that answers is enough
        said.setdefault(server, set()).update(reasons)
    if all(reasons == {"nobody"} for reasons in said.values()):
        return "nobody"
    if {"nobody"} in said.values():
        return ""  # a server that is down has not said anything
    return (
        "" if not all(said.values()) else min(min(reasons) for reasons in said.values())
    )


def _attempts(text: str) -> list[tuple[str, str]]:
    """Which server was asked, and what came of it."""
    _, *parts = _ATTEMPT.split(text)
    return list(zip(parts[::2], parts[1::2], strict=True)) or [("", text)]


def translate(error: psycopg.Error, where: str) -> HoldfastError:
    """What this driver error means to a person."""
    state = error.sqlstate or refusal(error)
    said = _first_line(error)
    if isinstance(error, Stalled):
        return StoreUnavailable(
            where=where, problem=f"{said}; this one was not begun", remedy=_STANDBYS
        )
    if state in _DAMAGE:
        return Damaged(where=where, problem=said, remedy=damage_remedy(where))
    problem, remedy = _remedy(state) or ("", "")
    # nobody knows the code, but the connection is gone: that is what a person can act
    # on
    if not problem and verdict(error) == "unknown":
        problem, remedy = _REMEDIES["08"]
    if not problem:
        return StoreUnavailable(
            where=where,
            problem=f"PostgreSQL says {said}",
            remedy="Report this; it is a defect",
        )
    return StoreUnavailable(where=where, problem=f"{problem} ({said})", remedy=remedy)


def out_of_patience(
    error: psycopg.Error, where: str, waited_s: float, *, in_doubt: bool
) -> HoldfastError:
    """Nothing has helped for so long; the last try met this. Of a commit in doubt nobody can say
    what became of it.
    """
    said = _first_line(error)
    if isinstance(error, Stalled) and in_doubt:
        problem = f"{said}; this one may be among them, and is kept then"
        return StoreUnavailable(where=where, problem=problem, remedy=_STANDBYS)
    if (
        isinstance(error, Stalled)
        or verdict(error) != "unknown"
        or (error.sqlstate and not in_doubt)
    ):
        return translate(error, where)
    problem = (
        f"no server that can be written has answered for {waited_s:.0f} s ({said})"
    )
    if in_doubt:
        problem += "; whether the last commit was kept is not known"
    remedy = "Check its servers, then look what is there; what was acknowledged is safe"
    return StoreUnavailable(where=where, problem=problem, remedy=remedy)


def is_meeting(error: psycopg.Error) -> bool:
    """Whether another writer was quicker, and nothing else is wrong."""
    return error.sqlstate in _MEETINGS


def in_words(error: psycopg.Error) -> str:
    """What an error means, for a log: nothing that was written, and no address."""
    if is_meeting(error):
        return "other programs write the same rows"
    if isinstance(error, Stalled):
        return str(error)
    state = error.sqlstate or refusal(error)
    problem, _ = _remedy(state) or _REMEDIES["08"]
    return problem


def _remedy(state: str) -> tuple[str, str] | None:
    # a code of its own before the class of codes that it belongs to
    return _REMEDIES.get(state) or _REMEDIES.get(state[:2])


def is_missing(error: psycopg.Error) -> bool:
    """Whether there is no store in this database yet."""
    return isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName)


def _first_line(error: psycopg.Error) -> str:
    """One line, and nothing of what was written: details of the server's errors quote rows. When
    several servers were asked, it has the words of each.
    """
    primary = error.diag.message_primary if error.sqlstate else None
    said = [
        words.strip().splitlines()[0]
        for _, words in _attempts(primary or str(error))
        if words.strip()
    ]
    return "; ".join(dict.fromkeys(said)) or type(error).__name__
