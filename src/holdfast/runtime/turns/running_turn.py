"""A turn that runs: what it writes under its fence, its streams, and its one end.

Everything a turn stores carries its fence, judged inside the transaction: once another has taken
over, nothing more of it is delivered and no state of it changes (I-7). These three are one object,
for the keeper, the streams and the end act on the same list under the same lock; what a turn can be
asked to do is written as functions of it, in `turn_messages` and `turn_tools`.

A stream is on its turn's list from its first chunk until its entry is known to be in the log (I-5).
What stores it can be cut off at any point and is done again: by whatever the turn stores next, by
the turn's end, or by the keeper when nobody reads the stream any more. It is submitted once, under
the turn's lock; one whose submission was interrupted is looked for in the log, behind a commit that
comes after it.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from holdfast.domain.entry import Draft, TurnEnded, note_of
from holdfast.domain.ids import turn_id
from holdfast.domain.turn import addresses
from holdfast.engine.protocol import ChunkWrite, Owing, Refused, Ticket, Write, Written
from holdfast.engine.wake_signal import alone, is_mine
from holdfast.errors import HoldfastError, OperatorNeeded, TurnInterrupted
from holdfast.runtime.clock import mint
from holdfast.runtime.live.lease_keeper import WeakTurn
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.deadline import Deadline, deadline_for
from holdfast.runtime.plans.plan import Plan, has_failed, read, run, wait_for
from holdfast.runtime.turns.call_book import CallBook
from holdfast.runtime.turns.end_turn import (
    COMPLETED,
    UNLEFT,
    Ending,
    cut_off,
    ending_of,
    why_over,
)
from holdfast.runtime.turns.message_stream import (
    Stream,
    UnreadableStream,
    as_shown,
    rebuilt,
)
from holdfast.runtime.turns.recovery import TurnClaim, journal
from holdfast.runtime.turns.said_text import said_in
from holdfast.runtime.turns.turn_owner import DESERTED, Hold, current_loop


class RunningTurn:
    """One turn, from the moment it is asked for. `Turn` and `AsyncTurn` are its faces."""

    def __init__(
        self,
        session: SessionLog,
        *,
        holder: str,
        format: str,
        lease_s: float,
        reply_to: str | None = None,
        took: bool = False,
    ) -> None:
        self.session = session
        self.format = format
        self.lease_s = lease_s
        self.number = 0
        self.id = ""
        self.ended = False
        self.owner_knows = False
        self.reply_to = reply_to
        self.took = took
        """Whether it has taken anything from the inbox: the answer may be owed to its sender."""
        self.calls = CallBook(session.engine.where)
        self.heard: dict[str, int] = {}
        """How many characters of messages that are being spoken have arrived, as it said itself."""
        self.spoke_last: Ending = COMPLETED
        """How it would end by what was stored of it last."""
        self._lock = threading.RLock()
        self._streams: list[Stream] = []
        self._leaving: Ending | None = None
        self._block: WeakTurn | None = None
        self._asked_on = current_loop()
        self.claim = TurnClaim(session, holder)
        # Before it is started: from then on it may be running, and whoever has asked for it may be
        # interrupted.
        session.keeper.hold(self, self.claim.release)

    def begin(self, number: int) -> None:
        """It is running, under this number."""
        self.hold = Hold(self.session.id, number)
        self.id = turn_id(self.session.id, number)
        # Last: the keeper's thread takes a turn that has a number for one that is held.
        self.number = self.claim.number = number

    # What it writes.

    def write(
        self,
        *drafts: Draft,
        event: tuple[str, str] | None = None,
        undo: Callable[[], None] | None = None,
    ) -> Plan[Written]:
        """Stores under this turn's fence, after what its left streams have said; or tells that the
        turn is over. With an `event`, the last draft is what it was accepted as. `undo` is called
        if the store could not do it, though it is an interrupt that the caller gets.
        """
        if self._streams:
            yield from self.close_left()
        write = Write(
            self.session.id,
            drafts,
            fence=self.number,
            event=event,
            event_draft=len(drafts) - 1,
        )
        return (yield from self._store(write, undo))

    def _store(
        self, write: Write, undo: Callable[[], None] | None = None
    ) -> Plan[Written]:
        """Stores what is guarded by this turn's fence, or tells that the turn is over."""
        if self.ended:
            raise (yield from self.interrupted())
        ticket = self.session.engine.submit((write,))
        try:
            outcome = yield from wait_for(ticket)
        except BaseException:
            if undo is not None and has_failed(ticket):
                undo()
            raise
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        self.session.note_stored(write.drafts, outcome)
        return outcome

    def interrupted(self) -> Plan[TurnInterrupted]:
        """The error that says why this turn is over, as it is from now on. Whoever raises it tells
        the turn's owner; see `untold`.
        """
        self.close()
        # With its store: the log can't be read any more.
        reason = self.claim.ended_because
        if reason is None:
            reason = why_over((yield from read(self.session.log)), self.number)
        # Not before: if the reading raises something else, the owner has not been told.
        self.tell_owner()
        return TurnInterrupted(turn_id=self.id, reason=reason)

    def tell_owner(self) -> None:
        """The caller is told that the turn is over. Another thread or task than the turn's own may
        keep that to itself: then it is told again when the block is left.
        """
        self.owner_knows |= not self.number or self.hold.is_here()

    @contextlib.contextmanager
    def untold(self) -> Iterator[None]:
        """Swallows what goes wrong in here. That the turn is over then is told when its block is
        left: nobody who has lost a turn takes it for completed.
        """
        knew = self.owner_knows
        try:
            yield
        except HoldfastError:
            self.owner_knows = knew

    def refuse(self) -> Plan[None]:
        """Tells that this turn is over."""
        raise (yield from self.interrupted())

    def close(self) -> None:
        """It is over: nothing more is written under its fence, and the keeper lets go of it."""
        self.ended = True
        for stream in self._streams:
            stream.tie = None
        self.session.keeper.drop(self)
        self._block = None

    def renew(self) -> bool:
        """Asks for more time; the keeper calls this and does not wait."""
        # One that is being started has no lease yet, and stays on the keeper's list.
        if not self.ended and self.number:
            ticket = self.session.submit(self._renewal())
            ticket.then(lambda _: self._renewed(ticket))
        return not self.ended

    def _renewal(self) -> Write:
        return Write(
            self.session.id, fence=self.number, renew_s=self.lease_s, fleeting=True
        )

    def _renewed(self, ticket: Any) -> None:
        try:
            if isinstance(ticket.result(), Refused):
                self.close()
        except Exception:
            return  # the store could not say; the next round asks again

    # Its streams.

    def open_stream(self, format: str) -> Stream:
        """A message that is about to be spoken; its id is minted before its first chunk."""
        world = self.session.world
        return Stream(mint(world, world.now()), format=format, into=self.format)

    def attend(self, stream: Stream, reader: Any, let_go: Callable[[], None]) -> None:
        """The stream begins. When its reader is dropped, `let_go` is called and the stream is
        closed.
        """
        stream.let_go = let_go
        with self._lock:
            self._streams.append(stream)
        # A weak reference to the turn: it holds its streams and these their ties, and
        # in a circle it would not be dropped before garbage is collected.
        stream.tie = self.session.keeper.tie(
            reader, partial(_left, weakref.ref(self), stream)
        )

    def store_chunks(self, stream: Stream, chunks: Iterable[Any]) -> Plan[str]:
        """Stores what a stream says next; the text to show, now that it is durable (I-5)."""
        if self.ended:
            raise (yield from self.interrupted())
        with alone(stream.lock, self.session.engine.where):
            if not stream.goes_on(self.id):
                stream.texts = []
                return ""
            chunk, text = stream.take(chunks)
            if chunk is None:
                return text
            # Under the lock: rows are in the journal in the order of their numbers.
            write = ChunkWrite(self.session.id, fence=self.number, chunk=chunk)
            ticket = self.session.submit(write)
            # By a signal handler, since this has the lock: it may be in the message or not.
            if stream.shut and not stream.goes_on(self.id):
                stream.texts = []
                return ""
        try:
            # Without `wait_for`, which is one more generator for each chunk.
            outcome = yield ticket
        except BaseException:
            # It is in the message as it was read; the caller is told that it is not.
            if has_failed(ticket):
                stream.in_doubt = True
            raise
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        return text

    def close_stream(self, stream: Stream) -> Plan[None]:
        """The stream's message becomes an entry, once. If the turn is over, whoever ended it has
        made it already.

        The stream is on the turn's list until its entry is known to be stored: cut off at any
        point, this is done again by whatever the turn stores next, and by its end at the latest.
        """
        stream.closed = True
        # Those that were left earlier stand before it in the log.
        yield from self.close_left(but=stream)
        if self.ended or stream not in self._streams:
            return
        yield from self.enter(stream)
        if stream.ticket is not None:
            yield from wait_for(stream.ticket)
        yield from self._is_entered(stream)

    def take_back_streams(self) -> Plan[None]:
        """Closes the streams that are being spoken as they are: nothing more can be said in them."""
        for stream in list(self._streams):
            stream.taken_back = True
            yield from self.close_stream(stream)
            stream.let_go()

    def close_left(self, but: Stream | None = None) -> Plan[None]:
        """Closes the streams that nobody reads any more, so that what is said next stands after
        them.
        """
        if self.ended:
            return
        for stream in list(self._streams):
            if stream is not but and stream.is_left:
                yield from self.enter(stream)
                yield from self._is_entered(stream)

    def enter(self, stream: Stream) -> Plan[None]:
        """Submits the stream's message, if it has one and was not submitted yet; does not wait for
        it.
        """
        if (yield from self._is_entered(stream)):
            return
        yield from self._drafted(stream)
        with self._lock:
            if stream not in self._streams or stream.submitted:
                return
            if stream.draft is not None:
                stream.submitted = True
                drafts = stream.stored_with = (stream.draft,)
                stream.ticket = self.session.submit(
                    Write(self.session.id, fence=self.number, drafts=drafts)
                )

    def _drafted(self, stream: Stream) -> Plan[None]:
        """Puts the stream's message together; as it was shown, where it can't be. One that has
        nothing to store is off the list.
        """
        if stream.draft is not None:
            return
        # Waits for a chunk that is being submitted; every later one is refused.
        with stream.lock:
            stream.shut = True
        if is_mine(stream.lock):  # a signal handler has interrupted a push
            stream.in_doubt = True
            yield from self.session.commit(self._renewal())
        try:
            if stream.in_doubt:
                raise UnreadableStream
            spoken = stream.message()
        except Exception:
            # What was handed on is in the journal; what was made of it in memory may be
            # what is broken, or more than was stored.
            rows = yield from read(partial(journal, self.session))
            own = [row for row in rows if row.message == stream.id]
            if stream.in_doubt:
                spoken = rebuilt(own)
            else:
                stream.unread = True
                spoken = as_shown(own)
        self.spoke_last = cut_off(stream)
        if spoken is None:
            self._forget(stream)
        else:
            stream.draft = self.session.message(spoken, turn=self.number, id=stream.id)

    def _is_entered(self, stream: Stream) -> Plan[bool]:
        """Whether the stream's message is in the log, if it was submitted at all. Takes it off the
        list then.
        """
        with self._lock:
            if stream not in self._streams:
                return True
            submitted, ticket = stream.submitted, stream.ticket
        if not submitted:
            return False
        # behind it, if it is on its way: a ticket is waited for by one alone
        if ticket is None or not ticket.done:
            yield from self.session.commit(self._renewal())
        outcome = None
        if ticket is not None:
            # The store could not say whether it was done: the log does.
            with contextlib.suppress(OperatorNeeded):
                outcome = ticket.result()
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        if outcome is not None:
            self.session.note_stored(stream.stored_with, outcome)
        elif not (yield from self._is_in_log(stream.id)):
            with self._lock:
                # Unless somebody else has submitted it again meanwhile.
                if stream.ticket is ticket:
                    stream.submitted, stream.ticket = False, None
            return False
        if stream.draft is not None:
            self.calls.note(stream.id.hex(), note_of("message", stream.draft.note))
        self._forget(stream)
        return True

    def _is_in_log(self, id: bytes) -> Plan[bool]:
        log = yield from read(self.session.log)
        with self.session.lock:
            return any(message.id == id.hex() for message in log.of_turn(self.number))

    def _forget(self, stream: Stream) -> None:
        stream.tie = None
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)

    # Its end.

    @property
    def clean_end(self) -> Ending:
        """How this turn ends if nothing went wrong: a stream left before its end, with nothing said
        after, cuts it off.
        """
        for ending in (self.spoke_last, *map(cut_off, self._streams)):
            if ending is not COMPLETED:
                return ending
        return COMPLETED

    def finish(self, ending: Ending) -> Plan[None]:
        """The turn's one end, with what its open streams had said. Raises `TurnInterrupted` if it
        was over before and its owner does not know: then what it was asked for may not have been
        done, and nothing is owed for it (I-23).
        """
        if not self.number or (self.ended and self.owner_knows):
            return
        if self.ended:
            raise (yield from self.interrupted())
        owes: tuple[Owing, ...] = ()
        try:
            # Only a message that came in with an address, or a turn asked for with one, is owed to.
            if ending.end == "completed" and (self.reply_to is not None or self.took):
                owes = yield from read(self._debts)
        except BaseException as cut:
            if not isinstance(cut, Exception | GeneratorExit):
                with contextlib.suppress(HoldfastError):
                    # its caller is leaving: nobody else would end it
                    yield from self._finish(ending_of(cut), ())
            raise
        yield from self._finish(ending, owes)

    def _finish(self, ending: Ending, owes: tuple[Owing, ...]) -> Plan[None]:
        if self.ended:
            raise (yield from self.interrupted())
        note = TurnEnded(ending.end, reason=ending.reason, error=ending.error)
        last = self.session.draft("end", note, turn=self.number)
        submitted = None
        while submitted is None:
            for stream in list(self._streams):
                if not (yield from self._is_entered(stream)):
                    yield from self._drafted(stream)
            submitted = self._submit_end(last, owes)
        drafts, ticket = submitted
        outcome = yield from wait_for(ticket)
        open_streams = [stream for stream in self._streams if not stream.closed]
        self.close()
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        self.session.note_stored(drafts, outcome)
        self.owner_knows = True
        # After `close`: a reader whose source ends now sees that the turn is over, and
        # does not take it for the end of the stream.
        for stream in open_streams:
            stream.let_go()

    def _submit_end(
        self, last: Draft, owes: tuple[Owing, ...]
    ) -> tuple[list[Draft], Ticket] | None:
        """Submits the turn's end with what its open streams have said; None when somebody else is
        storing one of them: the end waits for that.
        """
        with self._lock:
            streams = []
            drafts = []
            for stream in self._streams:
                if stream.draft is not None:
                    streams.append(stream)
                    drafts.append(stream.draft)
            if any(stream.submitted for stream in streams):
                return None
            drafts.append(last)
            # Marked before it is submitted: an interrupt may come between any two steps, and one
            # that is marked is looked for in the log.
            for stream in streams:
                stream.submitted = True
                stream.stored_with = tuple(drafts)
            ticket = self.session.submit(
                Write(
                    self.session.id,
                    fence=self.number,
                    drafts=tuple(drafts),
                    finish=True,
                    owes=owes,
                )
            )
            for stream in streams:
                stream.ticket = ticket
        return drafts, ticket

    def _debts(self) -> tuple[Owing, ...]:
        """Whom this turn's answer is owed to: those who asked for it with an address."""
        log = self.session.log()
        # What open streams have said is stored with the end, and not in the log yet.
        if not self._is_to_be_heard() and not said_in(self.session, log, self.number):
            return ()
        with self.session.lock:
            asked = addresses(log.of_turn(self.number), self.reply_to)
        now = self.session.world.now()
        # they are sent in the order of their ids
        ids = sorted(mint(self.session.world, now) for _ in asked)
        return tuple(map(Owing, ids, asked))

    def shown(self) -> dict[str, int]:
        """By message that is being spoken, how many characters of it were shown."""
        spoken = [stream for stream in self._streams if stream.shown]
        return {stream.id.hex(): stream.shown for stream in spoken}

    def _is_to_be_heard(self) -> bool:
        """Whether its open streams have said something that has not arrived."""
        for message, characters in self.shown().items():
            if characters > self.heard.get(message, 0):
                return True
        return False

    # How its block is left.

    def watch_block(self, block: Any) -> None:
        """When this is dropped while the turn runs, the turn is left."""
        self.hold.in_block = True
        self._block = self.session.keeper.tie(
            block, partial(_unblocked, weakref.ref(self))
        )

    def leave(self, ending: Ending) -> Plan[None]:
        """The block is left: `finish`. If the store can't take the turn's end now, it is stored as
        soon as it can, by whoever looks next or by the keeper: nobody works on the turn any more,
        so nobody should wait for it.
        """
        # Before anything can fail: if it has to be left again, it ends like this.
        self._leaving = ending
        try:
            yield from self.finish(ending)
        except HoldfastError:
            if not self.ended:
                self._leave_to_keeper()
            raise
        except BaseException:
            self.hand_over()
            raise

    def leave_block(self, error: BaseException | None) -> Plan[None]:
        """The turn's block is left, by this exception or cleanly."""
        return self.leave(self._ending_by(error))

    def deadline(self, error: BaseException | None) -> Deadline | None:
        """How long somebody who leaves by this error waits for the store; None for as long as that
        takes.
        """
        return deadline_for(error, self.session.engine.where)

    def leave_again(self) -> Plan[None]:
        """Leaves as it was left."""
        return self.leave(self._leaving or UNLEFT)

    def leave_later(self, error: BaseException | None) -> None:
        """The turn's block is left, and nobody can wait for its end: the keeper sees to it."""
        self._leaving = self._ending_by(error)
        self.hand_over()

    def _ending_by(self, error: BaseException | None) -> Ending:
        return self.clean_end if error is None else ending_of(error)

    def hand_over(self) -> None:
        """Whoever ends this turn was interrupted: the keeper does it, and at once, for the store is
        well.
        """
        keeper = self.session.keeper
        if not self.number:
            # Whether it was started at all is not known.
            keeper.forsake(self)
        elif not self.ended:
            self._leave_to_keeper()
            keeper.wake()

    def _leave_to_keeper(self) -> None:
        # On the keeper's list first: an interrupt may come between the two.
        self.session.keeper.leave((self.session.id, self.number), self)
        self._block = None

    @property
    def is_deserted(self) -> bool:
        """Whether the task that asks for this turn, or is in its block, will never go on; see
        `turn_owner`.
        """
        if self.number:
            return self.hold.is_deserted
        return self._asked_on is not None and self._asked_on.is_closed()

    def desert(self) -> None:
        """Nobody will ever go on with this turn: the keeper ends it, as it was being left if it
        was.
        """
        if self._leaving is None:
            self._leaving = Ending("interrupted", DESERTED)
        self.hand_over()

    def is_cut_loose(self, error: BaseException | None) -> bool:
        """Whether the block is left because its coroutine is dropped, wherever Python happens to
        be: nothing can be waited for there. A generator that is closed on its own event loop can
        wait.
        """
        return isinstance(error, GeneratorExit) and not self.hold.is_on_its_loop


def _left(turn: "weakref.ref[RunningTurn]", stream: Stream) -> None:
    """Nobody reads this stream any more."""
    stream.let_go()
    work = turn()
    if work is not None and not work.ended:
        with work.untold():
            run(work.enter(stream))


def _unblocked(turn: "weakref.ref[RunningTurn]") -> None:
    """The turn's block was left without an end."""
    work = turn()
    if work is not None and not work.ended:
        run(work.leave(UNLEFT))
