"""What a turn has said: the words that are owed to whoever asked for them (I-23)."""

from holdfast.domain.log.fold import Log
from holdfast.domain.turn import TurnRecord
from holdfast.runtime.live.message import parts_of, shown_text_of
from holdfast.runtime.live.session_log import SessionLog


def said_in(session: SessionLog, log: Log, turn: int) -> str:
    """What a turn has said that stands and that it has not confirmed itself."""
    with session.lock:
        record = log.turns.get(turn) or TurnRecord(turn)
        stands = []
        for seen in log.of_turn(turn):
            if seen.seq > record.sent_seq and seen.id not in log.retracted:
                stands.append(seen)
    said = [seen for seen in stands if seen.note.role == "assistant"]
    # it may have been the answer
    said = said or [seen for seen in stands if seen.note.origin == "unreadable"]
    whole = [session.with_payload(seen) for seen in said]
    texts = []
    for seen in whole:
        text = shown_text_of(parts_of(seen.note, seen.body))
        left = record.not_arrived(seen.id, text)
        if left.strip():
            texts.append(left)
    return "\n\n".join(texts)
