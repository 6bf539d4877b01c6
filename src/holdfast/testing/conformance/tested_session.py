"""A session of the engine under test, with the few things that laws do to it and ask of it.

A law reads as a short story of one or two sessions: `session.append()` must be done,
`session.refuses("moved", head=9)` must not be, and then must leave no trace.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

from holdfast.domain.entry import Draft, Entry
from holdfast.engine.protocol import (
    Chunk,
    Engine,
    JournalRow,
    Laid,
    Opening,
    OutboxClaim,
    OwedReply,
    Owing,
    SessionState,
    Start,
    Ticket,
    Waiting,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import (
    as_entries,
    did,
    drafts,
    mint,
    named,
    opened,
    refusal,
    started,
    state,
)

T = TypeVar("T")


class WriteWithoutDrafts(TypedDict, total=False):
    """Guards and effects of a `Write`, by name, so that a misspelt one is an error of types."""

    fence: int | None
    idle: bool
    head: int | None
    position: int | None
    ended_too: bool
    event: tuple[str, str] | None
    event_draft: int
    open: Opening | None
    start: Start | None
    renew_s: float | None
    seize: bool
    finish: bool
    close: bool
    admits: tuple[Waiting, ...]
    takes: tuple[bytes, ...]
    chunk: Chunk | None
    owes: tuple[Owing, ...]
    pays: bytes | None
    claim: OutboxClaim | None
    base: bool
    unbase: bool
    erase: tuple[tuple[int, bytes], ...] | None
    blank: tuple[tuple[int, bytes], ...]
    forget_events: bool
    lay: Laid | None


class WriteFields(WriteWithoutDrafts, total=False):
    """All that a `Write` may have but its session."""

    drafts: tuple[Draft, ...]


class TestedSession:
    """One session of an engine, whether it is there yet or not."""

    # pytest takes classes whose name begins with "Test" for tests, unless they say this.
    __test__ = False

    def __init__(self, engine: Engine, number: int) -> None:
        self.engine = engine
        self.id = named(number)

    @property
    def state(self) -> SessionState:
        """What the engine knows of it; it must be there."""
        return state(self.engine, self.id)

    @property
    def lease_left_s(self) -> float:
        """What is left of the lease of its turn; one must be running."""
        left = self.state.lease_left_s
        assert left is not None
        return left

    def entries(self, *, after: int = 0) -> list[Entry]:
        """Its log, after this seq."""
        return self.engine.entries(self.id, after=after)

    def inbox(self) -> list[Waiting]:
        """The messages that wait in it."""
        return self.engine.inbox(self.id)

    def journal(self, *, after: int = 0) -> list[JournalRow]:
        """The chunks that are stored of its turns, after this position."""
        return self.engine.journal(self.id, after=after)

    def write(self, **fields: Unpack[WriteFields]) -> Written:
        """A commit of one write, which must be done."""
        return did(self.engine, Write(self.id, **fields))

    def append(self, count: int = 1, **fields: Unpack[WriteWithoutDrafts]) -> Written:
        """So many messages in one write, which must be done."""
        return self.write(drafts=drafts(count), **fields)

    def submit(self, **fields: Unpack[WriteFields]) -> Ticket:
        """A commit of one write that is not waited for."""
        return self.engine.submit((Write(self.id, **fields),))

    def refuses(self, why: str, **fields: Unpack[WriteFields]) -> None:
        """A write that must be refused for this reason, and must change nothing."""
        assert refusal(self.engine, Write(self.id, **fields)) == why

    def refuses_append(self, why: str, **fields: Unpack[WriteWithoutDrafts]) -> None:
        """A message that must be refused for this reason, and must change nothing."""
        self.refuses(why, drafts=drafts(), **fields)

    def start(self, *, holder: str = "me", lease_s: float = 600.0, at: int = 2) -> int:
        """A turn is started, with one entry; its number."""
        return started(self.engine, self.id, holder=holder, lease_s=lease_s, at=at)

    def speak(
        self,
        turn: int,
        index: int = 0,
        body: bytes = b"word",
        *,
        message: bytes | None = None,
    ) -> int:
        """A chunk of this message, or of a new one, is stored; its place in the journal."""
        chunk = Chunk(message or mint(), index, body)
        return self.write(fence=turn, chunk=chunk).position

    def finish(self, turn: int) -> None:
        """The turn ends, without a word."""
        self.write(fence=turn, finish=True)

    def owe(self, turn: int, *owing: Owing, at: int = 7) -> list[OwedReply]:
        """The turn ends with an entry of this time, and owes these replies."""
        end = Draft("end", turn, mint(), at, b'{"end":"completed"}')
        self.write(drafts=(end,), fence=turn, finish=True, owes=owing)
        return [OwedReply(one.id, self.id, turn, one.reply_to, at) for one in owing]

    def admit(self, *given: Draft) -> None:
        """These messages are stored and wait in the inbox."""
        waiting = tuple(Waiting(draft.id) for draft in given)
        self.write(drafts=given, admits=waiting)

    def erasing(self, notes: Iterable[tuple[int, bytes]]) -> Write:
        """The write that closes and erases it, as the runtime does: the notes are what is
        left of its entries, and one more entry says that it was erased.
        """
        audit = Draft("erased", None, mint(), 9, b"{}")
        return Write(
            self.id, drafts=(audit,), ended_too=True, close=True, erase=tuple(notes)
        )

    def holds(
        self, given: tuple[Draft, ...], *, first: int = 2, turn: int | None = None
    ) -> None:
        """From seq `first` on its log must be these drafts, `turn` where they said STARTING."""
        assert self.entries(after=first - 1) == as_entries(
            given, first=first, turn=turn
        )


def new_session(
    engine: Engine,
    number: int = 1,
    *,
    tenant: str = "t",
    key: str | None = None,
    epoch: int = 1,
    at: int = 1,
) -> TestedSession:
    """A session is opened, with one entry in its log."""
    opened(engine, number, tenant=tenant, key=key, epoch=epoch, at=at)
    return TestedSession(engine, number)


def are(states: Iterable[SessionState], *sessions: TestedSession) -> bool:
    """Whether these are the states of exactly these sessions, in this order."""
    return [known.id for known in states] == [session.id for session in sessions]


def pages_join(
    whole: Sequence[T], read: Callable[[Any, int], list[T]], mark: Callable[[T], Any]
) -> None:
    """Pages of any size, each read from the mark of the last thing seen, must join to the whole."""
    # One more than there is: the last page may be short, and the only one too.
    for size in range(1, len(whole) + 2):
        joined: list[T] = []
        after = None
        while page := read(after, size):
            assert len(page) <= size
            joined += page
            after = mark(page[-1])
        assert joined == whole
