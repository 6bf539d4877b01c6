"""What must hold of any store, whatever was done to it: the laws of one session, and those of all
together.

A law takes what was read and yields a sentence for everything that is not so, with the number of
its invariant.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from holdfast.doctor.holdfast.laws import LAWS
from holdfast.domain.chunk import shown, unpack
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.turn import TurnRecord, addresses
from holdfast.engine.protocol import Engine, OwedReply, SessionState
from holdfast.runtime.live.context import Contexts
from holdfast.runtime.live.message import Message, parts_of, shown_text_of
from holdfast.runtime.turns.outbox import owed as owed_by
from holdfast.runtime.turns.said_text import said_in
from holdfast.testing.oracle.look import SESSIONS_MAX, Look
from holdfast.testing.providers import check

# A journal may be long, and a page of it is read at a time.
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
        state = "ended" if look.state.ended else "not ended"
        yield f"it has {len(closed)} ends of its own, and is {state} (I-8)"
    # A session whose messages were carried on is closed once more, and says so.
    for again in closed[1:]:
        if again.kind == "closed" and not note_of("closed", again.note).moved:
            yield f"entry {again.seq} ends it once more (I-8)"


def _gaps(seqs: list[int]) -> list[tuple[int, int]]:
    gaps = []
    for one, two in zip([0, *seqs], seqs, strict=False):
        if two != one + 1:
            gaps.append((one, two))
    return gaps[:3]


def identities_are_single(look: Look) -> Iterator[str]:
    yield from _twice("an entry", look.entries)
    yield from _twice("a message", look.messages)
    spoken = [entry.seq for entry in look.entries if entry.kind == "message"]
    if [message.seq for message in look.messages] != spoken:
        yield "its transcript leaves out or repeats a message of its log (I-1)"


def _twice(what: str, things: Sequence[Entry | Message]) -> Iterator[str]:
    times = Counter(thing.id for thing in things)
    twice = [id for id in times if times[id] > 1]
    if twice:
        yield f"{what} is there twice: {twice[:3]} (I-2)"


def inbox_is_what_waits(look: Look) -> Iterator[str]:
    waiting = look.engine.inbox(look.session.id)
    kept = [row.message.hex() for row in waiting]
    if set(kept) != look.log.waiting or len(kept) != len(set(kept)):
        yield f"its inbox holds {kept}, its log says that {sorted(look.log.waiting)} wait (I-4)"
    seqs = []
    for id in kept:
        message = look.by_id.get(id)
        seqs.append(0 if message is None else message.seq)
    if seqs != sorted(seqs) or seqs != [row.seq for row in waiting]:
        yield f"its inbox is out of order: {seqs} (I-4)"
    # What callers are told must be what the engine has.
    if [message.id for message in look.session.pending()] != kept:
        yield "pending() does not tell what is in its inbox (I-4)"


def turns_end_once(look: Look) -> Iterator[str]:
    state = look.state
    started = [entry.turn or 0 for entry in look.entries if entry.kind == "turn"]
    if started != sorted(set(started)):
        yield f"its turns did not start one after the other: {started} (I-6)"
    if max(started, default=0) > state.fence:
        yield f"turn {max(started)} is above the fence {state.fence} (I-7)"
    for number, entries in sorted(look.ends().items()):
        ends = len(entries)
        runs = number == state.turn
        due = 0 if runs and number == state.fence else 1
        # A turn that was seized runs on, under a fence above its number, until it is settled.
        is_settling = runs and ends == 0
        if number not in started or (ends != due and not is_settling):
            yield f"turn {number} has {ends} ends, {due} due (I-6)"
    own = [entry.turn for entry in look.of_kind("turn")]
    if state.turn not in (None, *own):
        yield f"turn {state.turn} runs and never started (I-6)"


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
    for id, text in _journaled(look).items():
        message = look.by_id.get(id)
        if message is None:
            if text:
                yield f"message {id} was spoken ({text[:40]!r}) and is not in the log (I-5)"
        elif message.state != "erased" and not message.text.startswith(text):
            yield (
                f"message {id} was spoken as {text[-40:]!r} and is stored as "
                f"{message.text[-40:]!r} (I-5)"
            )


def _journaled(look: Look) -> dict[str, str]:
    """What the journal has of messages of turns that are over, by their ids."""
    said: dict[str, str] = {}
    for row in _journal(look):
        id = row.message.hex()
        # The first rows of a message that is stored may be gone already, with the generation they
        # lay in.
        if row.turn != look.state.turn and (row.index == 0 or id in said):
            deltas = [delta for delta in unpack(row.body) if delta[0] != "open"]
            said[id] = said.get(id, "") + shown(deltas)
    return said


def _journal(look: Look) -> Iterator[Any]:
    position = 0
    while page := look.engine.journal(look.session.id, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position


def payloads_can_be_read(look: Look) -> Iterator[str]:
    for message in look.messages:
        if message.state == "erased":
            continue
        if message.payload is None or message.parts is None:
            yield f"message {message.seq} has no payload (I-14)"


def contexts_are_valid_and_the_same(look: Look) -> Iterator[str]:
    for format in look.formats:
        context = look.session.context(format)
        for problem in check(format, context):
            yield f"its context in {format} is not valid: {problem} (I-9, I-10)"
        # From the first entry, without what a handle keeps: the two must agree.
        whole = Contexts().make(look.log, format)
        if list(context) != list(whole) or context.instructions != whole.instructions:
            yield f"its context in {format} is not that of its whole log (I-9)"


def calls_have_one_fate(look: Look) -> Iterator[str]:
    for call in look.session.calls():
        # When a turn ends, no call of it stays open.
        if call.state == "open" and look.state.turn is None:
            yield f"call {call.call_id} is open, and no turn runs (I-22)"
        is_over = call.state in ("done", "failed")
        # A call that was denied has an outcome, which says so, and was never done.
        if is_over != (call.outcome is not None) and call.state != "denied":
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
        epochs = [state.epoch for state in states]
        if epochs != list(range(1, len(states) + 1)):
            yield f"key {key!r} has the epochs {epochs} (I-8)"
        if any(not state.ended for state in states[:-1]):
            yield f"key {key!r} has an earlier session that has not ended (I-8)"
        # By the engine's own way to it, which is not the way of lists.
        current = engine.current(tenant, key)
        if current is None or current.id != states[-1].id:
            yield f"key {key!r} does not mean its last session (I-8)"


def events_are_one_message(
    engine: Engine, tenant: str, looks: Iterable[Look]
) -> Iterator[str]:
    became: dict[tuple[str, str], set[str]] = {}
    for look in looks:
        # Before its own beginning there may be a copy of what it shared: events of its parent.
        begins = max((entry.seq for entry in look.of_kind("opened")), default=0)
        for entry in look.of_kind("message"):
            event = note_of("message", entry.note).event
            if event is not None and entry.seq > begins:
                ids = became.setdefault((look.session_log.scope, event), set())
                ids.add(entry.id.hex())
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
    debts: dict[str, list[OwedReply]] = {}
    for debt in engine.outbox(tenant, limit=SESSIONS_MAX):
        debts.setdefault(debt.session, []).append(debt)
    for look in looks:
        for sentence in _owed_by_a_session(look, debts.pop(look.session.id, [])):
            yield f"session {look.session.id[:8]} {sentence} (I-23)"
    for session in debts:
        yield f"a reply is owed by session {session[:8]}, which is not there (I-23)"


def _owed_by_a_session(look: Look, owed: list[OwedReply]) -> Iterator[str]:
    sent = set()
    for entry in look.of_kind("post"):
        note = note_of("post", entry.note)
        if entry.turn is None and note.end == "sent":
            sent.add(note.owed)
    due = _due(look)
    if any(debt.id.hex() in sent for debt in owed):
        yield "still owes a reply that was sent"
    if any(debt.turn not in due for debt in owed):
        yield "owes a reply that nobody asked for"
    # What is erased takes its debts and its words along; there is nothing left to count.
    if len(owed) + len(sent) != due.total() and not look.erased:
        yield f"owes {len(owed)} and sent {len(sent)} of {due.total()}"
    log = look.session_log
    for debt in owed:
        if owed_by(log, debt).text != said_in(log, look.log, debt.turn):
            yield "owes a reply that is not handed out as it was said"


def _due(look: Look) -> Counter[int]:
    """How many replies each of its own turns has to give."""
    due: Counter[int] = Counter()
    for entry in look.of_kind("turn"):
        turn = look.log.turns.get(entry.turn or 0)
        # A start that can't be read, or was erased, is no turn of the log.
        if turn is None:
            continue
        asked_by = addresses(look.log.of_turn(turn.number), turn.reply_to)
        if asked_by and _owes(look, turn):
            due[turn.number] = len(asked_by)
    return due


def _owes(look: Look, turn: TurnRecord) -> bool:
    """Whether this turn has left something said: not retracted, not confirmed by itself, nor stored
    after its end.
    """
    if turn.end != "completed":
        return False
    for seen in look.log.of_turn(turn.number):
        if seen.note.role != "assistant" or seen.note.late:
            continue
        if seen.seq <= turn.sent_seq or seen.id in look.log.retracted:
            continue
        whole = look.session_log.with_payload(seen)
        text = shown_text_of(parts_of(whole.note, whole.body))
        if turn.not_arrived(seen.id, text).strip():
            return True
    return False


OF_A_STORE: tuple[Callable[[Engine, str, list[Look]], Iterator[str]], ...] = (
    keys_mean_one_session,
    events_are_one_message,
    replies_are_owed_until_sent,
)
"""Every law of a store as a whole."""
