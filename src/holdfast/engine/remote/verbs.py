"""What an engine is asked over HTTP and what it answers: one table, read by both sides.

Each reading verb of `protocol.Engine` is a `Verb` of the same name and the same arguments, posted
to `/v1/engine/<verb>`; a commit, a watch and the first question, `hello`, have structs of their
own. `docs/PROTOCOL.md` says what both sides promise.
"""

from typing import Any, Generic, TypeVar

import msgspec

from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchScope
from holdfast.engine.protocol import (
    Accepted,
    Commit,
    JournalRow,
    OwedReply,
    Pending,
    Refused,
    SessionState,
    State,
    Waiting,
    Weight,
    Written,
)
from holdfast.engine.store_info import Problem, StoreInfo

PROTOCOL = 1
"""Raised with every guard or effect that a `Write` gets: whoever does not know one must not do the
write without it.
"""
PROTOCOL_HEADER = "holdfast-protocol"
PROCESS_HEADER = "holdfast-process"
"""With each answer: a name of the process that has given it."""
PATH = "/v1/engine/"
LIMIT_MAX = 100_000
"""No page may be asked to be longer."""
COMMIT_ID_BYTES = 16
WAIT_MAX_S = 30.0
"""A watch is answered after this long, whether there are news or not."""
WATCHED_MAX = 10_000

T = TypeVar("T")


class Verb(Generic[T]):
    """A question: its arguments by name, the kind of its answer, and what is answered about what
    is not there. One about the `whole` store is answered to those who may see all tenants.
    A token `needs` this scope.
    """

    def __init__(
        self,
        name: str,
        gives: Any,
        none: Any,
        /,
        *,
        whole: bool = False,
        needs: str = "read",
        **fields: Any,
    ) -> None:
        self.name, self.gives, self.none, self.whole = name, gives, none, whole
        self.needs = "admin" if whole else needs
        self.asked: Any = msgspec.defstruct(
            f"Asked_{name}",
            list(fields.items()),
            frozen=True,
            forbid_unknown_fields=True,
        )


States = list[SessionState]
Before = tuple[int, str]

STATE: Verb[SessionState | None] = Verb("state", SessionState | None, None, session=str)
CURRENT: Verb[SessionState | None] = Verb(
    "current", SessionState | None, None, tenant=str, key=str
)
FIND: Verb[States] = Verb("find", States, [], tenant=str, prefix=str, limit=int)
ENTRIES: Verb[list[Entry]] = Verb(
    "entries", list[Entry], [], session=str, after=int, limit=int, bodies=bool
)
BEGINNINGS: Verb[dict[str, list[Entry]]] = Verb(
    "beginnings",
    dict[str, list[Entry]],
    {},
    sessions=list[str],
    limit=int,
    bodies=bool,
)
LABELS: Verb[list[Entry]] = Verb("labels", list[Entry], [], session=str, after=int)
INBOX: Verb[list[Waiting]] = Verb("inbox", list[Waiting], [], session=str)
JOURNAL: Verb[list[JournalRow]] = Verb(
    "journal", list[JournalRow], [], session=str, after=int, limit=int
)
OUTBOX: Verb[list[OwedReply]] = Verb(
    "outbox",
    list[OwedReply],
    [],
    tenant=str,
    after=OwedReply | None,
    limit=int,
    free=bool,
)
PENDING: Verb[list[Pending]] = Verb(
    "pending",
    list[Pending],
    [],
    tenant=str,
    after=tuple[bytes, str, int] | None,
    limit=int,
)
RUNNING: Verb[list[str]] = Verb("running", list[str], [], tenant=str)
DEBTS: Verb[list[OwedReply]] = Verb("debts", list[OwedReply], [], session=str)
ACCEPTED: Verb[Accepted | None] = Verb(
    "accepted", Accepted | None, None, scope=str, event=str
)
SESSIONS: Verb[States] = Verb(
    "sessions",
    States,
    [],
    tenant=str,
    key=str | None,
    state=State | None,
    before=Before | None,
    limit=int,
)
UNDER: Verb[States] = Verb(
    "under", States, [], tenant=str, prefix=str, after=str, limit=int
)
KEPT: Verb[States] = Verb("kept", States, [], tenant=str, before=Before, limit=int)
FORKS: Verb[States] = Verb("forks", States, [], tenant=str, parents=list[str])
WEIGH: Verb[dict[str, Weight]] = Verb(
    "weigh", dict[str, Weight], {}, sessions=list[str]
)
SEARCH: Verb[list[Found]] = Verb(
    "search", list[Found], [], sought=SearchScope, limit=int
)
MATCHING: Verb[list[str]] = Verb(
    "matching", list[str], [], sought=SearchScope, limit=int
)
TENANTS: Verb[list[str]] = Verb("tenants", list[str], [], whole=True)
EVENTS: Verb[list[AcceptedEvent]] = Verb(
    "events", list[AcceptedEvent], [], whole=True, after=bytes, limit=int
)
SCRUB: Verb[None] = Verb("scrub", None, None, needs="admin")
INFO: Verb[StoreInfo] = Verb("info", StoreInfo, None, whole=True)
CHECK: Verb[list[Problem]] = Verb("check", list[Problem], [], whole=True)

VERBS: dict[str, Verb[Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Verb)
}
"""All of them by name."""


class Hello(msgspec.Struct, frozen=True):
    """What a server says of itself. `tenant` is that of the token, None if it is for all of them;
    `body_max` is how many bytes a request may have.
    """

    protocol: int
    tenant: str | None
    scopes: tuple[str, ...]
    read_only: bool
    look_s: float
    body_max: int


class CommitAsked(msgspec.Struct, frozen=True):
    """A commit under an id that is minted once and sent with every try."""

    id: bytes
    writes: Commit


class CommitsAsked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Commits to be done in this order. `again`: they were sent before, and no answer came.
    `process`: the one that has answered their sender last, which remembers what it has done.
    """

    commits: tuple[CommitAsked, ...]
    again: bool = False
    process: str = ""


class ErrorTold(msgspec.Struct, frozen=True):
    """An error of `holdfast.errors` by its code, and its fields."""

    code: str
    fields: dict[str, Any]


class CommitAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a commit: one of the three."""

    written: Written | None = None
    refused: Refused | None = None
    error: ErrorTold | None = None


class WatchAsked(msgspec.Struct, frozen=True):
    """The sessions that somebody watches, each with the mark that was last told of it, and how
    long the answer may be waited for.
    """

    sessions: dict[str, str]
    wait_s: float


class WatchAnswer(msgspec.Struct, frozen=True):
    """The sessions whose mark is another one now, and that mark. It means nothing by itself."""

    sessions: dict[str, str]
