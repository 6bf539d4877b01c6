"""Approving or denying a tool call that waits for somebody to decide (I-22)."""

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Decided, Draft
from holdfast.domain.message import target_of
from holdfast.domain.turn import Ask
from holdfast.engine.protocol import Write
from holdfast.errors import NotFound
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read


def decide(
    session: SessionLog, call_id: Checked, approved: bool, by: Checked
) -> Plan[None]:
    """Answers the newest call of this id that waits. A denial is also the call's outcome."""
    while True:
        # The whole history: the error for a call that was decided on before the last
        # compaction says so, and not that nobody knows it.
        log = yield from read(session.history)
        with session.lock:
            asked = log.asks.about(call_id)
            waiting = [ask for ask in asked if ask.approved is None]
            head = log.head
        if not waiting:
            hint = _why_none_waits(asked)
            raise NotFound(what="call that waits for approval", name=call_id, hint=hint)
        drafts = _decision(session, waiting[-1], approved, by)
        # Guarded by the head: if anything was written since, another decision may have been.
        write = Write(session.id, drafts=drafts, head=head)
        if (yield from session.commit_or_retry(write)) is not None:
            return


def _decision(
    session: SessionLog, ask: Ask, approved: bool, by: str
) -> tuple[Draft, ...]:
    note = Decided(ask.call_id, ask.message, approved, by, ask.index)
    decided = session.draft("decision", note)
    # An approved call is yet to be run, and whoever runs it stores its outcome. A
    # denied one gets its outcome here: nobody else would store one (I-10).
    if approved:
        return (decided,)
    part = {
        "type": "result",
        "call_id": ask.call_id,
        "content": f"Denied by {by}.",
        "error": True,
    }
    # By its place, not by its id: providers use ids of calls again (FAULTS E4).
    target = target_of(ask.message, ask.index)
    spoken = speak(
        {"role": "tool", "parts": [part]}, "holdfast", failed=True, target=target
    )
    return decided, session.message(spoken, turn=None)


def _why_none_waits(asked: list[Ask]) -> str:
    """The hint for somebody who wants to answer a call that does not wait."""
    if not asked:
        return "Session.calls() lists those that wait"
    return "it was approved before" if asked[-1].approved else "it was denied before"
