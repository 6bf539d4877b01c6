"""What must hold of any store, whatever was done to it: the laws of one session, and those of all
together.

A law takes what was read and yields a sentence for everything that is not so, with the number of
its invariant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.doctor.holdfast.laws import LAWS
from holdfast.domain.chunk import shown, unpack
from holdfast.domain.entry import note_of
from holdfast.domain.turn import TurnRecord, addresses
from holdfast.engine.protocol import Engine, SessionState
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.message import parts_of, shown_text_of
from holdfast.runtime.turns.outbox import owed as owed_by
from holdfast.runtime.turns.outbox import said_in
from holdfast.testing.oracle.look import SESSIONS_MAX, Look
from holdfast.testing.providers import check

_PAGE = 2000

# Of one session.


def log_is_dense(look: Look) -> Iterator[str]:
    seqs = [entry.seq for entry in look.entries]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"its seqs are not dense: {_gaps(seqs)} (I-1)"
    if look.state.head != len(seqs):
        yield f"its head is {look.state.head}, its log has {len(seqs)} entries (I-1)"
    closed = [entry for entry in look.own if entry.kind in ("closed", "erased")]
    if bool(closed) != look.state.ended:
        yield (
            f"it has {len(closed)} ends of its own, and is "
            f"{'' if look.state.ended else 'not '}ended (I-8)"
        )
    for again in closed[1:]:
        if again.kind == "closed" and not note_of("closed", again.note).moved:
            yield f"entry {again.seq} ends it once more (I-8)"


def _gaps(seqs: list[int]) -> list[tuple[int, int]]:
    return [
        (one, two) for one, two in zip([0, *seqs], seqs, strict=False) if two != one + 1
    ][:3]


def identities_are_single(look: Look) -> Iterator[str]:
    for what, ids in (
        ("an entry", [entry.id for entry in look.entries]),
        ("a message", [message.id for message in look.messages]),
    ):
        twice = [id for id, times in Counter(ids).items() if times > 1]
        if twice:
            yield f"{what} is there twice: {twice[:3]} (I-2)"
    if [message.seq for message in look.messages] != [
        e.seq for e in look.entries if e.kind == "message"
    ]:
        yield "its transcript leaves out or repeats a message of its log (I-1)"


def inbox_is_what_waits(look: Look) -> Iterator[str]:
    waiting = look.engine.inbox(look.session.id)
    kept = [row.message.hex() for row in waiting]
    if set(kept) != look.log.waiting or len(kept) != len(set(kept)):
        yield f"its inbox holds {kept}, its log says that {sorted(look.log.waiting)} wait (I-4)"
    seq_of = {message.id: message.seq for message in look.messages}
    seqs = [seq_of.get(id, 0) for id in kept]
    if seqs != sorted(seqs) or seqs != [row.seq for row in waiting]:
        yield f"its inbox is out of order: {seqs} (I-4)"
    if [message.id for message in look.session.pending()] != kept:
        yield "pending() does not tell what is in its inbox (I-4)"


def turns_end_once(look: Look) -> Iterator[str]:
    started = [entry.turn or 0 for entry in look.entries if entry.kind == "turn"]
    ends = Counter(entry.turn or 0 for entry in look.own if entry.kind == "end")
    if started != sorted(set(started)):
        yield f"its turns did not start one after the other: {started} (I-6)"
    own = {entry.turn or 0 for entry in look.own if entry.kind == "turn"}
    for number in sorted(own | ends.keys()):
        due = 0 if number == look.state.turn and look.state.fence == number else 1
        settling = (
            number == look.state.turn
            and look.state.fence != number
            and ends[number] == 0
        )
        if (ends[number] != due and not settling) or number not in started:
            yield f"turn {number} has {ends[number]} ends, {due} due (I-6)"
    if look.state.turn is not None and look.state.turn not in own:
        yield f"turn {look.state.turn} runs and never started (I-6)"
    if started and max(started) > look.state.fence:
        yield f"turn {max(started)} is above the fence {look.state.fence} (I-7)"


def entries_keep_their_laws(look: Look) -> Iterator[str]:
    """What the entries tell by themselves; the doctor asks the same of a store that nobody can
    open.
    """
    for _, invariant, law in LAWS:
        for seq, sentence in law(look.entries):
            yield f"entry {seq}: {sentence} ({invariant})"


def stored_begins_with_what_was_journaled(look: Look) -> Iterator[str]:
    """What was handed on lies in the journal; once its turn is over it is in a message, whole or
    cut (I-5).
    """
    said: dict[str, str] = {}
    for row in _journal(look):
        # The first rows of a message that is told may be gone already, with the generation they lay
        # in.
        if row.turn != look.state.turn and (
            row.index == 0 or row.message.hex() in said
        ):
            deltas = [delta for delta in unpack(row.body) if delta[0] != "open"]
            said[row.message.hex()] = said.get(row.message.hex(), "") + shown(deltas)
    stored = {message.id: message for message in look.messages}
    for id, text in said.items():
        message = stored.get(id)
        if message is None and text:
            yield f"message {id} was spoken ({text[:40]!r}) and is not in the log (I-5)"
        elif (
            message is not None
            and message.state != "erased"
            and not message.text.startswith(text)
        ):
            yield (
                f"message {id} was spoken as {text[-40:]!r} and is stored as "
                f"{message.text[-40:]!r} (I-5)"
            )


def _journal(look: Look) -> Iterator[Any]:
    position = 0
    while page := look.engine.journal(look.session.id, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position


def payloads_can_be_read(look: Look) -> Iterator[str]:
    for message in look.messages:
        if message.state != "erased" and (
            message.payload is None or message.parts is None
        ):
            yield f"message {message.seq} has no payload (I-14)"


def contexts_are_valid_and_the_same(look: Look) -> Iterator[str]:
    for format in look.formats:
        context = look.session.context(format)
        for problem in check(format, context):
            yield f"its context in {format} is not valid: {problem} (I-9, I-10)"
        whole = Contexts().make(look.log, format)
        if list(context) != list(whole) or context.instructions != whole.instructions:
            yield f"its context in {format} is not that of its whole log (I-9)"


def calls_have_one_fate(look: Look) -> Iterator[str]:
    for call in look.session.calls():
        if call.state == "open" and look.state.turn is None:
            yield f"call {call.call_id} is open, and no turn runs (I-22)"
        if (call.state in ("done", "failed")) != (
            call.outcome is not None
        ) and call.state != "denied":
            yield f"call {call.call_id} is {call.state} with the outcome {call.outcome} (I-10)"


OF_A_SESSION: tuple[Callable[[Look], Iterator[str]], ...] = (
    log_is_dense,
    identities_are_single,
    inbox_is_what_waits,
    turns_end_once,
    entries_keep_their_laws,
    stored_begins_with_what_was_journaled,
    payloads_can_be_read,
    contexts_are_valid_and_the_same,
    calls_have_one_fate,
)
"""Every law of one session, in the order they are asked."""


# Of all sessions together.


def keys_mean_one_session(
    engine: Engine, tenant: str, looks: Iterable[Look]
) -> Iterator[str]:
    by_key: dict[str, list[SessionState]] = {}
    for look in looks:
        if look.state.key is not None:
            by_key.setdefault(look.state.key, []).append(look.state)
    for key, states in by_key.items():
        states.sort(key=lambda state: state.epoch)
        if [state.epoch for state in states] != list(range(1, len(states) + 1)):
            yield f"key {key!r} has the epochs {[state.epoch for state in states]} (I-8)"
        if any(not state.ended for state in states[:-1]):
            yield f"key {key!r} has an earlier session that has not ended (I-8)"
        current = engine.current(tenant, key)
        if current is None or current.id != states[-1].id:
            yield f"key {key!r} does not mean its last session (I-8)"


def events_are_one_message(
    engine: Engine, tenant: str, looks: Iterable[Look]
) -> Iterator[str]:
    became: dict[tuple[str, str], set[str]] = {}
    for look in looks:
        for entry in look.own:
            event = (
                note_of("message", entry.note).event
                if entry.kind == "message"
                else None
            )
            if event is not None:
                became.setdefault((look.session_log.scope, event), set()).add(
                    entry.id.hex()
                )
    for (scope, event), ids in became.items():
        if len(ids) > 1:
            yield f"event {event!r} is {len(ids)} messages (I-2)"
        known = engine.accepted(scope, event)
        if known is None or known.message.hex() not in ids:
            yield f"event {event!r} is not known as what it became (I-2)"


def replies_are_owed_until_sent(
    engine: Engine, tenant: str, looks: Iterable[Look]
) -> Iterator[str]:
    """Each address of a completed turn that left something said is owed its reply or was sent it;
    nothing else is owed, and what is owed is handed out whole (I-23).
    """
    debts: dict[str, list[Any]] = {}
    for debt in engine.outbox(tenant, limit=SESSIONS_MAX):
        debts.setdefault(debt.session, []).append(debt)
    for look in looks:
        owed = debts.pop(look.session.id, [])
        posts = [
            note
            for entry, note in look.notes("post")
            if entry.seq > look.session_log.origin and entry.turn is None
        ]
        sent = {note.owed for note in posts if note.end == "sent"}
        ours = {entry.turn for entry in look.own if entry.kind == "turn"}
        turns = [
            turn
            for turn in look.log.turns.values()
            if turn.number in ours and _owes(look, turn)
        ]
        due = Counter(
            turn.number
            for turn in turns
            for _ in addresses(look.log.of_turn(turn.number), turn.reply_to)
        )
        if any(debt.id.hex() in sent for debt in owed):
            yield f"session {look.session.id[:8]} still owes a reply that was sent (I-23)"
        if any(debt.turn not in due for debt in owed):
            yield f"session {look.session.id[:8]} owes a reply that nobody asked for (I-23)"
        if len(owed) + len(sent) != sum(due.values()) and not look.erased:
            yield (
                f"session {look.session.id[:8]} owes {len(owed)} and sent {len(sent)} of "
                f"{sum(due.values())} (I-23)"
            )
        for debt in owed:
            if owed_by(look.session_log, debt).text != said_in(
                look.session_log, look.log, debt.turn
            ):
                yield (
                    f"session {look.session.id[:8]} owes a reply that is not handed out as it "
                    "was said (I-23)"
                )
    for session in debts:
        yield f"a reply is owed by session {session[:8]}, which is not there (I-23)"


def _owes(look: Look, turn: TurnRecord) -> bool:
    """Whether this turn has left something said: not retracted, not confirmed by itself, nor stored
    after its end.
    """
    if turn.end != "completed":
        return False
    for seen in look.log.of_turn(turn.number):
        stands = (
            seen.seq > turn.sent_seq
            and seen.id not in look.log.retracted
            and not seen.note.late
        )
        if stands and seen.note.role == "assistant":
            whole = look.session_log.told(seen)
            if shown_text_of(parts_of(whole.note, whole.body)).strip():
                return True
    return False


OF_A_STORE: tuple[Callable[[Engine, str, list[Look]], Iterator[str]], ...] = (
    keys_mean_one_session,
    events_are_one_message,
    replies_are_owed_until_sent,
)
"""Every law of a store as a whole."""
