"""The part of a turn that speaks: its streams, from their first chunk until their messages are
stored (I-5).

A stream is on its turn's list from its first chunk until its entry is known to be in the log. What
stores it can be cut off at any point and is done again: by whatever the turn stores next, by the
turn's end, or by the keeper when nobody reads the stream any more. It is submitted once, under the
turn's lock; one whose submission was interrupted is looked for in the log, behind a commit that
comes after it.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.domain.entry import note_of
from holdfast.domain.ids import turn_id
from holdfast.engine.protocol import Refused, Write, Written
from holdfast.errors import HoldfastError, OperatorNeeded, TurnInterrupted
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.turns.message_stream import Stream, as_shown
from holdfast.runtime.turns.recovery import journal, settle
from holdfast.runtime.turns.turn_calls import CallBook


class Speaking:
    """A running turn: what it writes under its fence, and its streams."""

    def __init__(
        self, session: SessionLog, *, holder: str, format: str, lease_s: float
    ) -> None:
        self.session, self.format, self.lease_s = session, format, lease_s
        self.number, self.id = 0, ""
        self.ended = self.owner_knows = False
        self._lock = threading.RLock()
        self._streams: list[Stream] = []
        self._calls = CallBook()
        self._cut_off: str | None = None
        self._claim = TurnClaim(session, holder)

    def begin(self, number: int) -> None:
        """It is running, under this number."""
        self.number = self._claim.number = number
        self.id = turn_id(self.session.id, number)

    def _store(self, write: Write) -> Plan[Written]:
        """Stores what is guarded by this turn's fence, or tells that the turn is over."""
        if self.ended:
            raise (yield from self.interrupted())
        outcome = yield from wait_for(self.session.engine.submit((write,)))
        if isinstance(outcome, Refused):
            self._over()
            raise (yield from self.interrupted())
        return outcome

    def interrupted(self) -> Plan[TurnInterrupted]:
        """The error that tells why this turn is over. Who raises it tells the turn's owner; see
        `untold`.
        """
        log = yield from read(self.session.log)
        turn = log.turns.get(self.number)
        if log.closed == "erased":
            reason = "its session was erased"
        elif turn is not None and turn.end is not None:
            reason = turn.reason or turn.end
        else:
            reason = "another took over"
        self.owner_knows = True
        return TurnInterrupted(turn_id=self.id, reason=reason)

    @contextmanager
    def untold(self) -> Iterator[None]:
        """What goes wrong in here is told to nobody. That the turn is over then is told when its
        block is left: nobody who has lost a turn takes it for completed.
        """
        knew = self.owner_knows
        try:
            yield
        except HoldfastError:
            self.owner_knows = knew

    def refuse(self) -> Plan[None]:
        """Tells that this turn is over."""
        raise (yield from self.interrupted())

    def _over(self) -> None:
        self.ended = True
        for stream in self._streams:
            stream.tie = None

    def renew(self) -> bool:
        """Asks for more time; the keeper calls this and does not wait."""
        if not self.ended and self.number:
            ticket = self.session.submit(
                Write(
                    self.session.id,
                    fence=self.number,
                    renew_s=self.lease_s,
                    fleeting=True,
                )
            )
            ticket.then(lambda _: self._renewed(ticket))
        return not self.ended

    def _renewed(self, ticket: Any) -> None:
        try:
            if isinstance(ticket.result(), Refused):
                self._over()
        except Exception:
            return  # the store could not say; the next round asks again

    # Streams.

    def open_stream(self, format: str) -> Stream:
        session = self.session
        return Stream(
            mint(session.world, session.world.now()), format=format, into=self.format
        )

    def attend(self, stream: Stream, reader: Any, let_go: Callable[[], None]) -> None:
        """The stream begins. When its reader is dropped, `let_go` is called and the stream is
        closed.
        """
        stream.let_go = let_go
        with self._lock:
            self._streams.append(stream)
        stream.tie = self.session.keeper.tie(
            reader, partial(_left, weakref.ref(self), stream)
        )

    def tell(self, stream: Stream, chunks: Iterable[Any]) -> Plan[str]:
        """Stores what a stream says next; the text to show, now that it is durable (I-5)."""
        chunk, text = stream.take(chunks)
        if chunk is not None:
            yield from self._store(
                Write(self.session.id, fence=self.number, chunk=chunk)
            )
        return text

    def close_stream(self, stream: Stream) -> Plan[None]:
        """The stream's message becomes an entry, once. If the turn is over, whoever ended it has
        made it already.

        The stream is on the turn's list until its entry is known to be stored: cut off at any
        point, this is done again by whatever the turn stores next, and by its end at the latest.
        """
        stream.closed = True
        yield from self.close_left(but=stream)
        if self.ended or stream not in self._streams:
            return
        yield from self.enter(stream)
        if stream.ticket is not None:
            yield from wait_for(stream.ticket)
        yield from self._is_entered(stream)

    def close_left(self, but: Stream | None = None) -> Plan[None]:
        """Closes the streams that nobody reads any more, so that what is said next stands after
        them.
        """
        for stream in [] if self.ended else list(self._streams):
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
            if (
                stream in self._streams
                and stream.draft is not None
                and not stream.submitted
            ):
                stream.submitted = True
                stream.ticket = self.session.submit(
                    Write(self.session.id, fence=self.number, drafts=(stream.draft,))
                )

    def _drafted(self, stream: Stream) -> Plan[None]:
        """The stream's message, put together; as it was shown, where it can't be."""
        if stream.draft is None:
            try:
                spoken = stream.message()
            except Exception:
                stream.unread = True
                rows = yield from read(partial(journal, self.session))
                spoken = as_shown([row for row in rows if row.message == stream.id])
            stream.draft = (
                None
                if spoken is None
                else self.session.message(spoken, turn=self.number, id=stream.id)
            )
            self._cut_off = cut_off(stream)
            if stream.draft is None:
                self._forget(stream)

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
            yield from self.session.commit(
                Write(
                    self.session.id,
                    fence=self.number,
                    renew_s=self.lease_s,
                    fleeting=True,
                )
            )
        try:
            outcome = ticket.result() if ticket is not None else None
        except OperatorNeeded:
            outcome = None
        if isinstance(outcome, Refused):
            self._over()
            raise (yield from self.interrupted())
        if outcome is None and not (yield from self._is_in_log(stream.id)):
            with self._lock:
                if stream.ticket is ticket:
                    stream.submitted, stream.ticket = False, None
            return False
        self._entered(stream)
        return True

    def _is_in_log(self, id: bytes) -> Plan[bool]:
        log = yield from read(self.session.log)
        with self.session.lock:
            return any(message.id == id.hex() for message in log.of_turn(self.number))

    def _entered(self, stream: Stream) -> None:
        """The stream's message is stored."""
        if stream.draft is not None:
            self._calls.note(stream.id.hex(), note_of("message", stream.draft.note))
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.tie = None
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)


class TurnClaim:
    """A turn by the name under which it was asked for, so that it can be let go of though nobody
    knows its number.
    """

    def __init__(self, session: SessionLog, holder: str) -> None:
        self.session, self.holder = session, holder
        self.number = 0

    def release(self) -> None:
        """Nobody holds this turn any more: it is ended, and gives back what it has not used. Where
        it is not known whether the turn was started, that is waited for.
        """
        if not self.number:
            # Behind the commit that starts it, if that was submitted at all; what this asks for is
            # always refused.
            self.session.engine.submit(
                (Write(self.session.id, fence=-1, fleeting=True),)
            ).result()
        state = self.session.engine.state(self.session.id)
        if (
            state is None
            or state.turn is None
            or state.fence != state.turn
            or state.holder != self.holder
        ):
            return  # it was never started, or somebody else has seen to it
        if self.number:
            run(settle(self.session, state, end="abandoned", reason="it was dropped"))
        else:
            run(
                settle(
                    self.session,
                    state,
                    end="interrupted",
                    reason="its start was interrupted",
                    gives_back=True,
                )
            )


def cut_off(stream: Stream) -> str | None:
    """Why a turn is not completed whose last message is this one; None when it is whole."""
    if stream.complete:
        return None
    return (
        "its last message could not be read"
        if stream.unread
        else "its last message was cut off"
    )


def _left(work: "weakref.ref[Speaking]", stream: Stream) -> None:
    """Nobody reads this stream any more."""
    stream.let_go()
    turn = work()
    if turn is not None and not turn.ended:
        with turn.untold():
            run(turn.enter(stream))
