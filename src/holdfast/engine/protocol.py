"""What an engine is: one verb that writes, a few that read.

A `Commit` is a set of writes that happen together or not at all; its guards are judged inside the
transaction, and a refused commit never fails its neighbours in the same batch. An engine assigns
seqs and turn numbers, keeps what a session's guards need (head, fence, running turn, inbox, known
events), and wakes followers after a commit, never before.

    turn and fence    `fence` grows with every start and every seizure. A turn may write while `turn == fence`.
                      `seize` raises the fence under a running turn: its writer is superseded from that commit on, and
                      whoever seized settles it.
    lease             judged by a clock that all who use the store share, where there is one. Told with it are how long
                      it was given for, and a mark that each renewal changes: a looker can go by its own clock, too.
    journal           chunks of messages still being spoken, in arrival order; `position` only grows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.domain.entry import Draft, Entry
from holdfast.engine.store_info import Backup, Problem, StoreInfo

if TYPE_CHECKING:  # for those who search: a turn needs nothing of it
    from holdfast.domain.search.query import Found, SearchableText, SearchScope

PAGE_BYTES_MAX = 32 << 20
"""A page of the log ends early when its bodies come to this much: memory is bounded by the page
(I-24).
"""
ACTIVE_STEP_MS = 1000
"""How exactly a session's `active_at` is kept: an append moves it no more often than this."""

State = Literal["open", "running", "ended"]
Tick = Callable[[], float]
"""Seconds of a clock that never steps back."""
Now = Callable[[], int]
"""Milliseconds since 1970."""
Chance = Callable[[int], bytes]
"""So many random bytes."""
Notes = tuple[tuple[int, bytes], ...]
"""Seqs of entries, each with the note that it is to keep."""
WordsOf = Callable[
    [str, bytes, bytes, Callable[[bytes], Iterable[bytes]]], "SearchableText | None"
]
"""What can be found in an entry of this kind, with this note and this body: an engine doesn't know.
It gives a function that tells the notes of messages just before it in its session that have certain
bytes in them, newest first.
"""


def no_words(*entry: Any) -> None:
    """Nothing can be found: the `words_of` of an engine that was opened without one."""


Refusal = Literal[
    "superseded", "busy", "ended", "accepted", "taken", "moved", "bound", "missing"
]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A journal row on its way: what message `message` said next, from delta row `index` of its
    stream on.
    """

    message: bytes
    index: int
    body: bytes


class JournalRow(msgspec.Struct, frozen=True, gc=False):
    """A journal row as it is kept."""

    position: int
    turn: int
    message: bytes
    index: int
    body: bytes


NewRows = Sequence[JournalRow] | None
"""What the journal of a session has got, where nothing else has happened in it; None where anything
may have.
"""
RowsCallback = Callable[[NewRows], None]


class Opening(msgspec.Struct, frozen=True, gc=False):
    """A session to be made. With a key it becomes the key's current one if its epoch is the next;
    else refused, `bound`. One that shares the past of another, its `parent`, begins after that
    one's `head` and `fence`.
    """

    tenant: str
    key: str | None
    epoch: int
    head: int = 0
    fence: int = 0
    parent: str | None = None


class Start(msgspec.Struct, frozen=True, gc=False):
    """A turn to be started by `holder`."""

    holder: str
    lease_s: float


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A message in the inbox. `waiter` is the live caller it waits with, if any; others leave it to
    that caller for as long as its lease runs, which was given for `lease_s`. `left_s` and `mark`
    are told as those of a turn's lease are.
    """

    message: bytes
    waiter: str | None = None
    seq: int = 0
    lease_s: float | None = None
    left_s: float | None = None
    mark: float | None = None


class Owing(msgspec.Struct, frozen=True, gc=False):
    """A reply that is owed from this commit on, under its own key."""

    id: bytes
    reply_to: str


class OwedReply(msgspec.Struct, frozen=True, gc=False):
    """A reply that is owed. `at` is the time of the draft it came with."""

    id: bytes
    session: str
    turn: int
    reply_to: str
    at: int


class OutboxClaim(msgspec.Struct, frozen=True, gc=False):
    """A sender, known by its token, has the reply `id` for so many seconds; with none, it gives the
    reply back.
    """

    id: bytes
    token: bytes
    seconds: float


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A message that waits in the inbox of a session, and the session's key."""

    session: str
    key: str | None
    entry: Entry


class Laid(msgspec.Struct, frozen=True, gc=False):
    """How a session stands that is laid down as another store keeps it: no turn is running in it,
    and its inbox and its outbox hold this and nothing else. Events that are known already stay as
    they are known.
    """

    fence: int
    active_at: int
    base: int = 0
    ended: bool = False
    erased: bool = False
    inbox: tuple[Waiting, ...] = ()
    outbox: tuple[OwedReply, ...] = ()
    events: tuple[AcceptedEvent, ...] = ()


class Weight(msgspec.Struct, frozen=True, gc=False):
    """What a session weighs: its own entries, the messages among them, the bytes of all of them,
    and how many blobs would go with it: those that no other session refers to, where they are
    shared.
    """

    entries: int
    messages: int
    bytes: int
    blobs: int


class Write(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one commit does to one session. Guards first, then effects; all optional."""

    session: str
    drafts: tuple[Draft, ...] = ()
    fence: int | None = None
    """Refused `superseded` unless this is the fence and a turn is running."""
    idle: bool = False
    """Refused `busy` while a turn is running."""
    head: int | None = None
    """Refused `moved` unless this is the head."""
    position: int | None = None
    """Refused `moved` unless the last chunk of the running turn has this position; with none, the
    one it began at.
    """
    ended_too: bool = False
    """A late outcome may still be stored in an ended session; all else is refused, `ended`."""
    event: tuple[str, str] | None = None
    """(scope, event id): refused `accepted` when it is known, else noted with the draft at
    `event_draft`.
    """
    event_draft: int = 0
    open: Opening | None = None
    start: Start | None = None
    renew_s: float | None = None
    seize: bool = False
    finish: bool = False
    close: bool = False
    admits: tuple[Waiting, ...] = ()
    takes: tuple[bytes, ...] = ()
    """Refused `taken` unless all of these are in the inbox."""
    chunk: Chunk | None = None
    owes: tuple[Owing, ...] = ()
    """Replies that this write's turn owes; the turn and the time are those of its last draft."""
    pays: bytes | None = None
    """Refused `taken` unless this reply is owed; it no longer is."""
    claim: OutboxClaim | None = None
    """Refused `taken` unless this reply is owed and no other sender has it."""
    base: bool = False
    """Loads begin with this write's first draft from now on."""
    unbase: bool = False
    """Loads begin with the first entry again."""
    fleeting: bool = False
    """Need not survive a power cut, and costs no sync: a lease that is renewed, whose holder would
    be gone too.
    """
    erase: Notes | None = None
    """Seqs and notes: these entries keep this note and no body, and nothing else of the session is
    left but its place in the store. It is refused all writes from then on, `ended`, but for another
    erasure and for what is laid down.
    """
    forget_events: bool = False
    """Goes with `erase`: the events that were accepted in this session are not known any more."""
    blank: Notes = ()
    """Seqs and notes: these entries keep this note and no body; the rest of the session stays as it
    is.
    """
    lay: Laid | None = None
    """The session stands so from now on, its log being what it was and this write's drafts, whose
    turns are given. Goes with the guards `head` and `idle`: what is laid down continues what is
    there, and nothing that runs is undone.
    """


class ChunkWrite(Write, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A write that stores a chunk of the turn with its `fence`, and does nothing else. It means the
    same as a plain `Write`; an engine need not look for more in it, and most writes are such.
    """

    chunk: Chunk


Writes = Sequence[Write]
Commit = tuple[Write, ...]
"""Done all or not at all. Each write is judged by what was there before the commit, not by the
writes beside it: what can be done once (an event, a key, the start of a turn) is in one of them.
"""
Commits = Sequence[Commit]


def writes_in(commits: Iterable[Commit]) -> Iterator[Write]:
    """All writes of these commits, in order."""
    return chain.from_iterable(commits)


class Written(msgspec.Struct, frozen=True, gc=False):
    """A commit that is durable. `seq` is that of its first draft, `turn` the number of the turn it
    started, `position` that of its chunk; all of the last write.
    """

    seq: int = 0
    turn: int = 0
    position: int = 0


class Refused(msgspec.Struct, frozen=True):
    """A commit that was not done, and why; `detail` names what stood in the way (an event's first
    acceptance).
    """

    why: Refusal
    session: str
    detail: Any = None


Outcome = Written | Refused


class Accepted(msgspec.Struct, frozen=True):
    """Where an event was accepted."""

    session: str
    seq: int
    message: bytes


class SessionState(msgspec.Struct, frozen=True):
    """What an engine knows of a session. `lease_left_s` is by the engine's clock, as far as that
    can tell; None when no turn is running.
    """

    id: str
    tenant: str
    key: str | None
    epoch: int
    ended: bool
    head: int
    fence: int
    turn: int | None
    holder: str | None
    lease_left_s: float | None
    opened_at: int
    active_at: int
    """When a turn was last started or a message appended, to the second."""
    last_at: int
    """The time of the last entry."""
    journal: int
    """The journal position at which the running turn started."""
    base: int = 0
    """The seq of the entry that a load begins with, 0 for the first one."""
    origin: int = 0
    """The seq after which its own entries begin; those up to it are another session's."""
    erased: bool = False
    lease_s: float | None = None
    """How long the running turn's lease was given for."""
    lease_mark: float | None = None
    """Another one after each renewal of that lease; by itself it means nothing."""
    parent: str | None = None
    """The session whose past it shares, or has a copy of."""

    @property
    def copied_from(self) -> str | None:
        """The session whose past its own log begins with a copy of: it was restored when that one
        was not there.
        """
        return self.parent if self.origin == 0 else None


def state_after(session: str, opening: Opening) -> SessionState:
    """A session as it is to be opened; its times are those of its first entry, which is not written
    yet.
    """
    return SessionState(
        id=session,
        tenant=opening.tenant,
        key=opening.key,
        epoch=opening.epoch,
        ended=False,
        head=opening.head,
        fence=opening.fence,
        turn=None,
        holder=None,
        lease_left_s=None,
        opened_at=0,
        active_at=0,
        last_at=0,
        journal=0,
        origin=opening.head,
        parent=opening.parent,
    )


class Ticket(Protocol):
    """A commit under way."""

    @property
    def done(self) -> bool:
        """Whether `result` would not wait."""

    def result(self, timeout: float | None = None) -> Outcome:
        """Waits for the outcome; raises an operator's error when the store could not say."""

    def then(self, callback: Callable[["Ticket"], Any]) -> None:
        """Calls back, from any thread, when `result` would not wait; in a close race twice. The
        last callback given counts. What it gives back, if anything, is called after the whole batch
        was answered, once for equal ones.
        """


class Engine(Protocol):
    """A place where sessions are kept. Safe to use from many threads."""

    where: str
    read_only: bool
    """Whether it was opened only to be read: every write raises `ReadOnlyStore`, and nothing is
    made or changed.
    """
    look_s: float
    """How long a watcher may go without looking by itself."""

    def commit(self, commits: Commits) -> list[Outcome]:
        """Does each commit or refuses it; when this returns, what is `Written` is durable. Many at
        once cost one sync.
        """

    def submit(self, commit: Commit) -> Ticket:
        """Does one commit or refuses it, without waiting. Commits submitted by one caller are done in
        their order.
        """

    def state(self, session: str) -> SessionState | None:
        """The session with exactly this id."""

    def current(self, tenant: str, key: str) -> SessionState | None:
        """The current session of a key."""

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        """Sessions of this tenant whose ids begin so."""

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        """A page of the log, in order; without `bodies`, messages come without their payloads. A
        page whose bodies come to `PAGE_BYTES_MAX` ends there.
        """

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        """The first of their own entries of each of these sessions, so many of each; without
        `bodies` as above. A session is left out if its entries would make the whole larger than
        `PAGE_BYTES_MAX`.
        """

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        """The entries of kind `label`: few, and wanted with every page of a transcript."""

    def inbox(self, session: str) -> list[Waiting]:
        """What waits, in the order it was accepted."""

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        """A page of the journal rows of this session that are still kept, in order of position."""

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        """A page of the replies that are owed, oldest first, a session's in the order of its turns.
        If `free`, without those that a sender has now.
        """

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        """A page of what waits in all inboxes, oldest first. `after` names the one to go on from:
        its id, which begins with its time, its session and its seq. A page whose bodies come to
        `PAGE_BYTES_MAX` ends there.
        """

    def running(self, tenant: str) -> list[str]:
        """The ids of the sessions in which a turn runs, or is left."""

    def debts(self, session: str) -> list[OwedReply]:
        """Replies that this session owes, oldest first."""

    def accepted(self, scope: str, event: str) -> Accepted | None:
        """Where this event was accepted, if it was."""

    def sessions(
        self,
        tenant: str,
        *,
        key: str | None = None,
        state: State | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[SessionState]:
        """Sessions by `active_at`, newest first, of one key or in one state if asked. `before` is
        the active_at and the id of the one to go on from.
        """

    def under(
        self, tenant: str, prefix: str, *, after: str = "", limit: int = 50
    ) -> list[SessionState]:
        """The current sessions of the keys that begin so, by key, without those that have ended.
        `after` is the key to go on from.
        """

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        """Sessions by `active_at`, newest first, without those that were erased: they cost nothing,
        however many there are.
        """

    def tenants(self) -> list[str]:
        """Whose sessions there are, in order."""

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        """A page of all events that were accepted, whosever they are, in the order of
        their names.
        """

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        """The sessions of this tenant that share the past of one of these, oldest first: their own
        children, not those that their children have.
        """

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        """What an erasure of each of these sessions takes, as far as they are there."""

    def search(self, sought: "SearchScope", *, limit: int = 20) -> "list[Found]":
        """The newest messages that answer, newest first; complete as of the call. What it needs for
        that is derived from the log and never stands in the way of a write (I-17).
        """

    def matching(self, sought: "SearchScope", *, limit: int) -> list[str]:
        """The sessions in which messages answer, those with the newest ones first; at
        most so many.
        """

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back, from any thread, soon after a commit to this session by this process; returns
        how to stop. It never blocks. An engine may tell of commits of other processes too; where it
        does not, or can't for a while, a watcher looks by itself every `look_s`. A call is a hint:
        there may be one too many.
        """

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        """The same, and says with each call what is new, if the engine knows all of it without
        looking: then whoever has seen what was there before need not look, either.
        """

    def scrub(self) -> None:
        """Finishes what an erasure left undone, if one was killed before its end or somebody stood
        in its way: then its words are in no entry any more, and may still be in bytes of the store.
        Raises when that can't be done yet.
        """

    def info(self) -> StoreInfo:
        """What is in the store and how large it is, without reading it through."""

    def check(self) -> list[Problem]:
        """All that is wrong with the store. It writes nothing, and goes on after what it finds
        (I-18).
        """

    def backup(self, to: str) -> Backup:
        """A verified copy of one moment of the store, in a new file, while others write."""

    def close(self) -> None:
        """Finishes what was submitted, then lets go of the store. Closing twice is fine."""
