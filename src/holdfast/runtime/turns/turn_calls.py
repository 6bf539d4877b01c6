"""What a session's log tells of calls: which were asked about and answered, and which are to be run
in a turn now (I-22).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from holdfast.domain.approval import digests_of, read_arguments
from holdfast.domain.log.fold import Log
from holdfast.domain.message import Call
from holdfast.domain.repair import StoredMessage, calls_of, pair
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import CallId, CallToRun, Place
from holdfast.runtime.live.message import parts_of
from holdfast.runtime.live.session_log import SessionLog


def was_asked(session: SessionLog, call_id: str) -> bool:
    """Whether anybody was ever asked about this call id: in any session of the key, or of those it
    was forked from.
    """
    return any(
        session.engine.accepted(asking_scope(scope), call_id) is not None
        for scope in dict.fromkeys(session.scopes())
    )


def answered(log: Log, call_id: str) -> set[Place]:
    """The places of the calls of this id that have an outcome."""
    # Pairs are made within an id: the rest of the log has no say in it.
    return called_as(log, call_id).keys() & _paired(log.about_call(call_id))


def called_as(log: Log, call_id: str) -> dict[Place, int | None]:
    """The places of the calls of this id, in order, each with the number of its turn."""
    places = {}
    for seen in log.about_call(call_id):
        for index, call in enumerate(calls_of(seen)):
            if call.id == call_id:
                places[seen.id, index] = seen.turn
    return places


def _paired(messages: Sequence[StoredMessage]) -> set[Place]:
    """The places of the calls among these messages that have an outcome."""
    return {(messages[at].id, index) for at, index in pair(messages)}


def to_run(session: SessionLog, number: int, begun: set[Place]) -> list[CallToRun]:
    """The calls that are to be run now: those made in this turn, and those that were approved since
    they were made.
    """
    log = session.log()
    with session.lock:
        since = log.since_turn(number)
        approved = _approved(log)
        # What was approved may have been answered in any turn since it was made.
        done = begun | _paired(log.natural if approved else since)
        due = []
        # Each once: what was made and approved in this turn is in both.
        for place in dict.fromkeys([*approved, *_made_in(log, since, number)]):
            ask = log.asks.get(place)
            if place not in done and (ask is None or ask.may_start):
                due.append(place)
        makers = {seen.id: seen for seen in log.natural} if due else {}
        return [
            _to_run(session, makers[id], index) for id, index in due if id in makers
        ]


def _approved(log: Log) -> list[Place]:
    return [(ask.message, ask.index) for ask in log.approved()]


def _made_in(log: Log, since: Sequence[StoredMessage], number: int) -> Iterator[Place]:
    """The places of the calls that the model has made in this turn and not taken back."""
    for seen in since:
        if seen.turn != number or seen.id in log.retracted:
            continue
        for index, call in enumerate(calls_of(seen)):
            # Of a message that was cut off, the last call may be half a call.
            if call.whole or not seen.note.partial:
                yield seen.id, index


def _to_run(session: SessionLog, seen: StoredMessage, index: int) -> CallToRun:
    call = seen.note.calls[index]
    text = _arguments(session, seen, index)
    id = CallId(call.id, place=(seen.id, index))
    return CallToRun(id, call.name, read_arguments(text), seen.id, index)


def _arguments(session: SessionLog, seen: StoredMessage, index: int) -> str:
    whole = session.with_payload(seen)
    said = [part for part in parts_of(whole.note, whole.body) if isinstance(part, Call)]
    # The payload of a placeholder has none of the calls that its note still names (I-25).
    return said[index].arguments if index < len(said) else ""


def digests_at(
    session: SessionLog, log: Log, places: Collection[Place]
) -> Mapping[Place, str]:
    """What an approval of each of these calls would be bound to."""
    with session.lock:
        makers = {seen.id: seen for seen in log.natural}
        digests = {}
        for message, index in places:
            seen = makers.get(message)
            if seen is not None:
                text = _arguments(session, seen, index)
                name = seen.note.calls[index].name
                digests[message, index] = digests_of(name, text)[0]
        return digests
