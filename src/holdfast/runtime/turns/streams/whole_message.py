"""A message that a framework hands over whole, after it was streamed piece by piece.

It stands in the log under the id of its stream: so what the journal has of the pieces is known to be
in it, and storing it ends the stream, in one transaction with whatever goes along.
"""

from holdfast.domain.entry import Draft
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import Commit, Outcome, Refused, Write
from holdfast.runtime.plans.plan import Plan, wait_for
from holdfast.runtime.turns.end_turn import COMPLETED
from holdfast.runtime.turns.message_stream import Stream
from holdfast.runtime.turns.running_turn import RunningTurn


def store_whole(
    turn: RunningTurn,
    spoken: Spoken,
    *,
    stream: Stream | None = None,
    event: tuple[str, str] | None = None,
    also: Commit = (),
) -> Plan[Outcome]:
    """Stores a whole message of a turn, in the place of what was streamed of it if there is such a
    stream, and `also`, in one commit. A refusal is given back, for its caller to deal with; then
    nothing was written, and the stream is as it was.
    """
    yield from turn.close_left(but=stream)
    session = turn.session
    id = None if stream is None else stream.id
    draft = session.message(spoken, turn=turn.number, id=id)
    write = Write(session.id, (draft,), fence=turn.number, event=event)
    if stream is None:
        outcome = yield from wait_for(session.engine.submit((*also, write)))
    else:
        outcome = yield from _in_place_of(turn, stream, draft, (*also, write))
    if not isinstance(outcome, Refused):
        session.note_stored(write.drafts, outcome)
        turn.spoke_last = COMPLETED
        turn.calls.note(draft.id.hex(), spoken.note)
    return outcome


def _in_place_of(
    turn: RunningTurn, stream: Stream, draft: Draft, commit: Commit
) -> Plan[Outcome]:
    # Waits for a chunk that is being submitted; every later one is refused.
    with stream.lock:
        stream.shut = stream.closed = True
    with turn._lock:
        # In this order: cut off anywhere, it is taken up again by the turn's end.
        stream.draft, stream.submitted = draft, True
        stream.stored_with = (draft,)
        stream.ticket = turn.session.engine.submit(commit)
    outcome = yield from wait_for(stream.ticket)
    if isinstance(outcome, Refused):
        stream.draft, stream.submitted, stream.ticket = None, False, None
    else:
        turn._forget(stream)
    return outcome
