"""Compaction at work: a summary in place of what it covers, as one entry (I-11).

The summariser runs outside every transaction and may take its time: messages that arrive meanwhile
stay, and if it raises, says nothing or is cancelled, nothing has changed.

A running turn is waited for, unless the caller works inside it: an agent that overflows in the
middle of its work compacts and goes on. Then the commit is guarded by the turn's fence instead of
its absence.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.domain.log.compaction import covering, cut, cut_inside
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Write
from holdfast.engine.wake_signal import in_the_middle
from holdfast.errors import Conflict, InvalidMessage
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Pause, Plan, ask, is_within_call, read
from holdfast.runtime.turns.recovery import settle_if_dead
from holdfast.runtime.turns.turn_owner import is_around

HEADING = "Summary of what was said before:\n\n"
# News of other processes come by looking, as in `start_turn`.
POLL_S = 0.05

Summary = str | Callable[[list[Message]], Any]


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction did: `seq` is its entry, `covered` the ids of the messages that its summary
    stands for.
    """

    seq: int
    covered: tuple[str, ...]


def compact(
    session: SessionLog, summary: Summary, *, keep_turns: int
) -> Plan[Compaction | None]:
    """Covers all but the last turns with a summary; None when there is nothing to cover. Waits for
    a turn of others.
    """
    covered = yield from _covered(session, keep_turns)
    if not covered:
        return None
    text: Any = summary
    if not isinstance(summary, str):
        messages = [
            Message(seen, turn=session.turn_name(seen.turn)) for seen in covered
        ]
        # Nothing is held while it runs, and nothing was written: a call of a model may
        # take minutes, or fail.
        text = yield from ask(partial(summary, messages))
    # The class is asked, not the object: one of a caller's own may lie about itself.
    words = ""
    if issubclass(type(text), str):
        words = str.__str__(text).strip()
    if not words:
        raise InvalidMessage(problem="a summary must say something", place="summary")
    ids = [seen.id for seen in covered]
    return (yield from _commit(session, ids, HEADING + words))


def _covered(session: SessionLog, keep_turns: int) -> Plan[list[StoredMessage]]:
    own = yield from _until_free(session)
    log = yield from read(session.log)
    with session.lock:
        order = log.visible
        if own is None:
            end = cut(order, keep_turns=keep_turns)
        else:
            end = cut_inside(log, own, keep_turns=keep_turns)
        covered = list(order[:end])
    # A summary of summaries alone would say nothing new.
    if all(seen.note.origin == "summary" for seen in covered):
        return []
    return covered


def _until_free(session: SessionLog) -> Plan[int | None]:
    """Waits until no turn is running but the caller's own; the number of that, if there is one. A
    compaction never falls into a turn of others (FAULTS D2, D9).
    """
    while True:
        state = yield from settle_if_dead(session)
        if state.ended:
            raise (yield from read(session.ended))
        if state.turn is None:
            return None
        # A turn that was seized is not the caller's any more, though it works inside of
        # it: its end is about to be written.
        if state.fence == state.turn and is_around(session.id, state.turn):
            return state.turn
        if is_within_call():
            raise in_the_middle(session.engine.where)
        yield Pause(session.engine, session.id, POLL_S)


def _commit(session: SessionLog, covered: list[str], text: str) -> Plan[Compaction]:
    spoken = speak(text, "openai.chat", origin="summary")
    while True:
        own = yield from _until_free(session)
        log = yield from read(session.log)
        with session.lock:
            head, note = log.head, covering(log, covered)
        # Not a reason to try again: the summary tells of messages that a rewind, a
        # label or another compaction has taken away meanwhile.
        if note is None:
            raise Conflict(
                session_id=session.id,
                problem="what was summarised is no longer in the view; compact again",
            )
        draft = session.draft("compaction", note, body=spoken.body)
        # In the caller's own turn its fence is the guard; else that no turn runs.
        written = yield from session.commit_or_retry(
            Write(
                session.id,
                drafts=(draft,),
                head=head,
                idle=own is None,
                fence=own,
                base=True,
            )
        )
        if written is not None:
            return Compaction(written.seq, tuple(covered))
