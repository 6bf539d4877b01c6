"""Approving or denying a tool call that waits for somebody to decide (I-22)."""

from holdfast.domain.approval import unanswered
from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Decided, Draft
from holdfast.domain.message import target_of
from holdfast.domain.turn import Ask, Place, place_of
from holdfast.engine.protocol import Write
from holdfast.errors import BadArgument, NotFound
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.turn_calls import answered


def decide(
    session: SessionLog,
    call_id: Checked,
    approved: bool,
    by: Checked,
    message: Checked = None,
    index: int | None = None,
) -> Plan[None]:
    """Answers the call of this id that waits, or with `message` and `index` the one that this message
    makes there. A denial is also the call's outcome.
    """
    named = place_of(call_id)
    call_id = str.__str__(call_id)
    while True:
        # The whole history: the error for a call that was decided on before the last
        # compaction says so, and not that nobody knows it.
        log = yield from read(session.history)
        with session.lock:
            # Not what the view has gone back from: no approval would start it (`Turn.call`).
            asked = log.asks_of(call_id)
            is_rewound = len(asked) < len(log.asks.about(call_id))
            if message is not None:
                asked = [ask for ask in asked if ask.message == message]
            if index is not None:
                asked = [ask for ask in asked if ask.index == index]
            undecided = [ask for ask in asked if ask.approved is None]
            # A call that was answered meanwhile is done: there is nothing to decide.
            done = answered(log, call_id) if undecided else set()
            waiting = unanswered(undecided, done)
            head = log.head
        if not waiting:
            hint = _why_none_waits(asked, is_rewound=is_rewound)
            raise NotFound(what="call that waits for approval", name=call_id, hint=hint)
        ask = _one_of(waiting, call_id, named)
        drafts = _decision(session, ask, approved, by)
        # Guarded by the head: if anything was written since, another decision may have been.
        write = Write(session.id, drafts=drafts, head=head)
        if (yield from session.commit_or_retry(write)) is not None:
            return


def _one_of(waiting: list[Ask], call_id: str, named: Place | None) -> Ask:
    """The call that is meant. Models use ids again (FAULTS E4), and a decision about one call must
    not fall on another that nobody was shown.
    """
    makers = {ask.message for ask in waiting}
    for ask in waiting:
        if len(waiting) == 1 or (ask.message, ask.index) == named:
            return ask
    parameter, what = "message", "the id of the message that makes the call"
    if len(makers) == 1:
        parameter, what = "index", "the place of the call among those of its message"
    raise BadArgument(
        parameter=parameter,
        takes=f"{what} (`ToolCall.{parameter}`): several calls {call_id!r} wait for approval",
        given="None",
    )


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


def _why_none_waits(asked: list[Ask], *, is_rewound: bool) -> str:
    """The hint for somebody who wants to answer a call that does not wait."""
    if not asked and is_rewound:
        return (
            "the session was rewound to before it: rewind to a later message to bring it back, "
            "or have it asked for again"
        )
    if not asked:
        return "Session.calls() lists those that wait"
    if asked[-1].approved is None:
        return "it was answered before anybody decided"
    return "it was approved before" if asked[-1].approved else "it was denied before"
