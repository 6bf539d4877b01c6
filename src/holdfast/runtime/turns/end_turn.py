"""How a turn ends: by its block, by its owner, or by the lease keeper when nobody else will."""

import contextlib
import weakref
from functools import partial
from typing import Any

from holdfast.domain.entry import Draft, End, TurnEnded
from holdfast.domain.turn import addresses
from holdfast.engine.protocol import Owing, Refused, Ticket, Write
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import mint
from holdfast.runtime.live.lease_keeper import WeakTurn
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.turns.outbox import said_in
from holdfast.runtime.turns.turn_owner import DESERTED, Hold, current_loop
from holdfast.runtime.turns.turn_streams import Speaking, cut_off

UNLEFT: tuple[End, str | None, str | None] = ("interrupted", "its block was left", None)
"""How a turn ends whose block was left in a way that it was not told of."""


class EndingTurn(Speaking):
    """The ends of a turn, of which it has one."""

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
        super().__init__(session, holder=holder, format=format, lease_s=lease_s)
        self._reply_to, self._took = reply_to, took
        self._leaving: tuple[End, str | None, str | None] = UNLEFT
        self._block: WeakTurn | None = None
        self._asked_on = current_loop()
        # Before it is started: from then on it may be running, and whoever has asked for it may be
        # interrupted.
        session.keeper.hold(self, self._claim.release)

    def begin(self, number: int) -> None:
        super().begin(number)
        self.hold = Hold(self.session.id, number)

    def _over(self) -> None:
        super()._over()
        self.session.keeper.drop(self)
        self._block = None

    @property
    def clean_end(self) -> tuple[End, str | None]:
        """How this turn ends if nothing went wrong: a stream left before its end, with nothing said
        after, cuts it off.
        """
        reasons = [self._cut_off, *map(cut_off, self._streams)]
        reason = next((reason for reason in reasons if reason is not None), None)
        return ("completed", None) if reason is None else ("interrupted", reason)

    def finish(
        self, end: End, reason: str | None = None, error: str | None = None
    ) -> Plan[None]:
        """The turn's one end, with what its open streams had said. Raises `TurnInterrupted` if it
        was over before and its owner does not know: then what it was asked for may not have been
        done, and nothing is owed for it (I-23).
        """
        if not self.number or (self.ended and self.owner_knows):
            return
        if self.ended:
            raise (yield from self.interrupted())
        try:
            owes = (yield from self._owes()) if end == "completed" else ()
        except BaseException as cut:
            if not isinstance(cut, Exception | GeneratorExit):
                with contextlib.suppress(HoldfastError):
                    # its caller is leaving: nobody else would end it
                    yield from self._finish(*ending_of(cut))
            raise
        yield from self._finish(end, reason, error, owes)

    def _finish(
        self,
        end: End,
        reason: str | None,
        error: str | None,
        owes: tuple[Owing, ...] = (),
    ) -> Plan[None]:
        if self.ended:
            raise (yield from self.interrupted())
        last = self.session.draft(
            "end", TurnEnded(end, reason=reason, error=error), turn=self.number
        )
        ticket = None
        while ticket is None:
            for stream in list(self._streams):
                if not (yield from self._is_entered(stream)):
                    yield from self._drafted(stream)
            ticket = self._submit_end(last, owes)
        outcome = yield from wait_for(ticket)
        open_streams = [stream for stream in self._streams if not stream.closed]
        self._over()
        if isinstance(outcome, Refused):
            raise (yield from self.interrupted())
        self.owner_knows = True
        for stream in open_streams:
            stream.let_go()

    def _submit_end(self, last: Draft, owes: tuple[Owing, ...]) -> Ticket | None:
        """Submits the turn's end with what its open streams have said; None when somebody else is
        storing one of them: the end waits for that.
        """
        with self._lock:
            streams = [stream for stream in self._streams if stream.draft is not None]
            if any(stream.submitted for stream in streams):
                return None
            drafts = [stream.draft for stream in streams if stream.draft is not None]
            for stream in streams:
                stream.submitted = True
            ticket = self.session.submit(
                Write(
                    self.session.id,
                    fence=self.number,
                    drafts=(*drafts, last),
                    finish=True,
                    owes=owes,
                )
            )
            for stream in streams:
                stream.ticket = ticket
        return ticket

    def leave(
        self, end: End, reason: str | None = None, error: str | None = None
    ) -> Plan[None]:
        """The block is left: `finish`. If the store can't take the turn's end now, it is stored as
        soon as it can, by whoever looks next or by the keeper: nobody works on the turn any more,
        so nobody should wait for it.
        """
        self._leaving = (end, reason, error)
        try:
            yield from self.finish(end, reason, error)
        except HoldfastError:
            if not self.ended:
                self.session.keeper.leave((self.session.id, self.number), self)
                self._block = None
            raise
        except BaseException:
            self.hand_over()
            raise

    def leave_block(self, error: BaseException | None) -> Plan[None]:
        """The turn's block is left, by this exception or cleanly."""
        return (
            yield from self.leave(
                *((*self.clean_end, None) if error is None else ending_of(error))
            )
        )

    def hand_over(self) -> None:
        """Whoever ends this turn was interrupted: the keeper does it, and at once, for the store is
        well.
        """
        if not self.number:
            self.session.keeper.forsake(
                self
            )  # whether it was started at all is not known
        elif not self.ended:
            self.session.keeper.leave((self.session.id, self.number), self)
            self._block = None
            self.session.keeper.wake()

    def watch_block(self, block: Any) -> None:
        """When this is dropped while the turn runs, the turn is left."""
        self.hold.in_block = True
        self._block = self.session.keeper.tie(
            block, partial(_unblocked, weakref.ref(self))
        )

    @property
    def is_deserted(self) -> bool:
        """Whether the task that asks for this turn, or is in its block, will never go on; see
        `own_turns`.
        """
        return (
            self.hold.is_deserted
            if self.number
            else self._asked_on is not None and self._asked_on.is_closed()
        )

    def desert(self) -> None:
        """Nobody will ever go on with this turn: the keeper ends it, as it was being left if it
        was.
        """
        if self._leaving is UNLEFT:
            self._leaving = ("interrupted", DESERTED, None)
        self.hand_over()

    def is_cut_loose(self, error: BaseException | None) -> bool:
        """Whether the block is left because its coroutine is dropped, wherever Python happens to
        be: nothing can be waited for there. A generator that is closed on its own event loop can
        wait.
        """
        return isinstance(error, GeneratorExit) and not self.hold.is_on_its_loop

    def leave_later(self, error: BaseException | None) -> None:
        """The turn's block is left, and nobody can wait for its end: the keeper sees to it."""
        self._leaving = (*self.clean_end, None) if error is None else ending_of(error)
        self.hand_over()

    def leave_again(self) -> Plan[None]:
        """Leaves as it was left."""
        return self.leave(*self._leaving)

    def _owes(self) -> Plan[tuple[Owing, ...]]:
        """Whom this turn's answer is owed to: those who asked for it with an address."""
        if self._reply_to is None and not self._took:
            return ()
        return (yield from read(self._debts))

    def _debts(self) -> tuple[Owing, ...]:
        log = self.session.log()
        if not any(stream.said for stream in self._streams) and not said_in(
            self.session, log, self.number
        ):
            return ()
        with self.session.lock:
            asked = addresses(log.of_turn(self.number), self._reply_to)
        now = self.session.world.now()
        # they are sent in the order of their ids
        ids = sorted(mint(self.session.world, now) for _ in asked)
        return tuple(map(Owing, ids, asked))


def ending_of(error: BaseException) -> tuple[End, str | None, str | None]:
    """How a turn ends that is left by this exception: (end, reason, error)."""
    if isinstance(error, Exception) and not isinstance(
        error, TimeoutError | InterruptedError
    ):
        return "failed", None, words_of(error)
    return "interrupted", type(error).__name__, None


def words_of(error: BaseException | str) -> str:
    """An error as it is recorded: its class and what it says. One that can't say it keeps no turn
    from ending.
    """
    if isinstance(error, str):
        return error
    name = type(error).__name__
    try:
        said = str.__str__(str(error))
    except Exception:
        said = "(what it says can't be read)"
    return f"{name}: {said}" if said else name


def _unblocked(work: "weakref.ref[EndingTurn]") -> None:
    """The turn's block was left without an end."""
    turn = work()
    if turn is not None and not turn.ended:
        run(turn.leave("interrupted", "its block was left"))
