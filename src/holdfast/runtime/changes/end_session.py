"""Ending from outside: the turn that runs, in whichever process, or the whole session."""

from functools import partial

from msgspec.structs import replace

from holdfast.domain.entry import Closed
from holdfast.engine.protocol import Commit, Write
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.turns.recovery import settle, settle_if_dead


def stop(session: SessionLog, reason: str) -> Plan[bool]:
    """Ends the running turn as interrupted; False when there was none."""
    why = f"stopped: {reason}"
    while True:
        state = yield from settle_if_dead(session)
        if state.turn is None:
            return False
        # Ended by somebody else, the turn may have been followed by another one, which
        # is to be stopped then.
        if (yield from settle(session, state, end="interrupted", reason=why)):
            return True


def end(session: SessionLog, reason: str) -> Plan[None]:
    """Ends the session, and in the same commit the turn that runs: a caller that waits for that
    turn gets none that would be ended at once. Ending an ended session changes nothing.
    """
    why = f"stopped: {reason}"
    also = partial(_and_close, session, reason)
    while True:
        state = yield from settle_if_dead(session)
        if state.ended:
            return
        if state.turn is None:
            closed = session.draft("closed", Closed(reason))
            # Its outcome is not asked for: done or refused, the next round sees how the
            # session stands.
            yield from session.commit(
                Write(session.id, drafts=(closed,), idle=True, close=True)
            )
        else:
            yield from settle(session, state, end="interrupted", reason=why, also=also)


def _and_close(session: SessionLog, reason: str, last: Write) -> Plan[Commit]:
    """The turn's last write, made the session's last."""
    yield from ()  # a plan that waits for nothing
    closed = session.draft("closed", Closed(reason))
    return (replace(last, drafts=(*last.drafts, closed), close=True),)
