"""Sending a session: load, decide, send, store.

    position ─ in doubt, or a new connection? ─► look ─► compared ─┐
       ▲                                                           ▼
       └── store ◄── answered ◄── send ◄── store "about to send" ◄─ next batch, or the next commit

What was acknowledged is compared with what is there whenever the server may be another process than
before: on a new connection, and when its counters are not what they should be. A server that was
killed may have lost all that it had acknowledged.
"""

from msgspec.structs import replace

from holdfast.adapters.openviking.client.arrived import NotNow, counted, look
from holdfast.adapters.openviking.client.commits import (
    begin_commit,
    follow_tasks,
    resolve_commit,
)
from holdfast.adapters.openviking.client.outgoing import (
    BATCH_MAX,
    OutgoingBatch,
    next_batch,
    outgoing,
)
from holdfast.adapters.openviking.client.position import advanced, compared
from holdfast.adapters.openviking.client.visit import Visit

PAGE = 4 * BATCH_MAX


def send_session(visit: Visit) -> float | None:
    """Sends all there is to send. Gives the seconds after which to look at its tasks; None when
    there is nothing to wait for. Raises `NotNow`.
    """
    try:
        while _step(visit):
            pass
        return follow_tasks(visit)
    except NotNow:
        # What arrived before is not to be looked for again.
        visit.store()
        raise


def _step(visit: Visit) -> bool:
    """Does the next thing; False when there is nothing to do."""
    # First: whether it happened decides which messages are to be live.
    if visit.position.committing:
        resolve_commit(visit)
        return True
    if not visit.is_checked():
        _check(visit)
    request = visit.log.next_request(visit.position.requests)
    if isinstance(request, int):
        visit.position = replace(visit.position, requests=request)
        is_sent = _send_messages(visit, None)
        if not is_sent:
            _rest(visit)
        return is_sent
    logged, wish = request
    return _send_messages(visit, wish.after) or begin_commit(visit, logged, wish)


def _rest(visit: Visit) -> None:
    """Stores the position when there is nothing to send."""
    # What is there of later messages matters only while there are any; kept for longer, it would
    # be in every record.
    if visit.position.known and not visit.messages(visit.position.sent.seq, 1):
        visit.position = replace(visit.position, known=())
    visit.store()


def _send_messages(visit: Visit, upto: int | None) -> bool:
    """Sends the next batch; False when no message up to this seq can go now."""
    # Asked first: if its turn is over by now, all it has said is in the messages read after this.
    running = visit.running_turn()
    messages = visit.messages(visit.position.sent.seq, PAGE)
    if len(messages) == PAGE:
        # The end of a page is only there to find results of calls before it.
        last = messages[-BATCH_MAX].seq
        upto = last if upto is None else min(last, upto)
    items = outgoing(
        messages,
        running=running,
        carried=visit.position.carried,
    )
    batch = next_batch(
        items,
        visit.position,
        most=visit.memory.width,
        upto=upto,
    )
    if batch.upto == visit.position.sent:
        return False
    # Messages that are not sent, as a system prompt, are passed over without a request.
    if batch.bodies:
        _send_batch(visit, batch)
    else:
        _advance(visit, batch)
    return True


def _send_batch(visit: Visit, batch: OutgoingBatch) -> None:
    visit.about_to_send()
    answer = visit.send_messages(batch.bodies)
    if answer.ok:
        visit.count(answer.fields, len(batch.bodies))
        # After a refusal: soon as many as before.
        visit.memory.width = min(BATCH_MAX, 2 * visit.memory.width)
        _advance(visit, batch)
    elif answer.refused:
        visit.narrow(batch.bodies, answer)
    else:
        raise NotNow(answer)


def _advance(visit: Visit, batch: OutgoingBatch) -> None:
    visit.position = advanced(
        visit.position, batch.upto, carried=batch.carried, known=batch.known
    )


def _check(visit: Visit) -> None:
    """Compares what was acknowledged with what is there, where the two may differ."""
    position = visit.position
    counts = counted(visit.http, visit.viking_id)
    is_new = position.live is None
    expected = (position.live or 0, position.archives)
    is_unsure = position.doubt_at is not None or visit.is_elsewhere()
    if is_unsure or (counts or (0, 0)) != expected:
        _look(visit)
    elif is_new:
        visit.position = replace(position, live=0)
    visit.position = replace(visit.position, address=visit.http.address)
    visit.checked()


def _look(visit: Visit) -> None:
    position = visit.position
    ours = visit.acknowledged()
    coming = _coming(visit)
    wanted = [place.id for place in ours] + coming
    seen = look(
        visit.http,
        visit.viking_id,
        wanted,
        position.archives,
    )
    after, lost = compared(position, ours, seen)
    has_arrived = bool(coming) and coming[0] in after.known
    # Nothing is stored then: the next visit looks again.
    if position.doubt_at is not None and not has_arrived and not visit.is_doubt_over():
        raise NotNow("a request whose outcome is unknown may still arrive")
    if lost is not None:
        lost = visit.make_sure_of(lost, after.known)
    visit.position = replace(after, doubt_at=None, address=visit.http.address)
    if lost is not None:
        visit.store(lost)


def _coming(visit: Visit) -> list[str]:
    """The ids of the messages that come next: those that a request in doubt may have had."""
    messages = visit.messages(visit.position.sent.seq, PAGE)
    items = outgoing(
        messages,
        running=None,
        carried=visit.position.carried,
    )
    ids = [item.ids[0] for item in items if item.body is not None]
    return [id for id in ids if id not in visit.position.refused][:BATCH_MAX]
