"""What callers were told, held against the store: everything acknowledged is there, once and in order.

It knows nothing of how a store works. Callers tell it what they were told, in the order they were told it, by name:

    said(session, id, text)            this message is stored; id or text may be unknown, the text is like no other
    shown(session, turn, id, text)     this much more of the message was handed on to be shown
    began(session, turn)               this turn, by its number, was started
    ended(session, turn, end)          this turn was ended so
    called(session, turn, call_id)     this call was stored
    event(scope, event_id, id)         this event became this message
    labelled(…), instructed(…)         these labels, these instructions hold, until the next
    may(what, …)                       a label, instructions or a payment are under way, and may hold or not
    at(session, seq, kind)             there is an entry of this kind at this place
    over(session)                      the session has ended
    owed(id, session), paid(id)        a reply is owed, and then no longer
    erased(session), bereft(session)   nothing of it is to be told any more; the past that it shared is gone
    blanked(session)                   copies of messages that were answered in a session that was erased are gone

What was acknowledged while other calls were under way is told with `ordered=False`: nothing follows for its place. A
killed process writes the same names to a pipe, and `hear` takes them from there. What was under way when it was killed
was not acknowledged: it may be there or not, and either is right. `judge` looks, and gives a sentence for everything
that does not hold.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.domain.entry import note_of
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store


class Of:
    """What was acknowledged of one session."""

    def __init__(self) -> None:
        self.said: list[tuple[str | None, str | None, bool]] = []
        self.shown: dict[str, tuple[int, str]] = {}
        self.began: list[int] = []
        self.ended: dict[int, str] = {}
        self.calls: list[tuple[int, str]] = []
        self.labels: dict[tuple[str, str], list[Any]] = {}
        self.prompts: list[str] = []
        self.places: dict[int, str] = {}
        self.over = False
        self.blanked = False


class Acknowledged:
    """All that the callers of one store were told."""

    def __init__(self) -> None:
        self._of: dict[str, Of] = {}
        self._events: dict[tuple[str, str], str] = {}
        self._owed: dict[str, str] = {}
        self._paid: set[str] = set()
        self._may_be_paid: set[str] = set()
        self._gone: set[str] = set()
        self.count = 0

    def hear(self, acts: Iterable[list[Any]]) -> None:
        """What a process has reported."""
        for kind, *rest in acts:
            getattr(self, kind)(*rest)

    def of(self, session: str) -> Of:
        return self._of.setdefault(session, Of()) if session not in self._gone else Of()

    def said(self, session: str, id: str | None, text: str | None, *, ordered: bool = True) -> None:
        self.count += 1
        self.of(session).said.append((id, text, ordered))

    def shown(self, session: str, turn: int, id: str, text: str) -> None:
        self.count += 1
        before = self.of(session).shown.get(id, (turn, ""))[1]
        self.of(session).shown[id] = (turn, before + text)

    def began(self, session: str, turn: int) -> None:
        self.of(session).began.append(turn)

    def ended(self, session: str, turn: int, end: str) -> None:
        self.count += 1
        self.of(session).ended[turn] = end

    def called(self, session: str, turn: int, call_id: str) -> None:
        self.count += 1
        self.of(session).calls.append((turn, call_id))

    def event(self, scope: str, event_id: str, id: str) -> str | None:
        """What is wrong with this, if anything: an event is one message (I-2)."""
        before = self._events.setdefault((scope, event_id), id)
        return None if before == id else f"event {event_id!r} was message {before} and is {id} now (I-2)"

    def may(self, what: str, session: str, *fact: Any) -> None:
        """A label, instructions or a payment are under way."""
        if what == "paid":
            self._may_be_paid.add(fact[0])
        elif what == "labelled":
            message, name, value = fact
            self.of(session).labels.setdefault((message, name), [None]).append(value)
        else:
            self.of(session).prompts = [*(self.of(session).prompts or [""]), fact[0]]

    def labelled(self, session: str, message: str, name: str, value: Any) -> None:
        self.count += 1
        self.of(session).labels[message, name] = [value]

    def instructed(self, session: str, text: str) -> None:
        self.count += 1
        self.of(session).prompts = [text]

    def at(self, session: str, seq: int, kind: str) -> None:
        self.count += 1
        self.of(session).places[seq] = kind

    def over(self, session: str) -> None:
        self.of(session).over = True

    def owed(self, id: str, session: str) -> None:
        self._owed.setdefault(id, session)

    def paid(self, id: str) -> None:
        self.count += 1
        self._paid.add(id)

    def erased(self, session: str) -> None:
        self._gone.add(session)
        self._of.pop(session, None)
        self._owed = {id: place for id, place in self._owed.items() if place != session}

    def blanked(self, session: str) -> None:
        """Messages that waited here were carried on, and went with the session that answered them."""
        self.of(session).blanked = True

    def bereft(self, session: str) -> None:
        self.of(session).prompts = []

    def judge(self, store: Store) -> Iterator[str]:
        """Looks at everything that was acknowledged; a sentence for each thing that does not hold."""
        for id, known in self._of.items():
            for sentence in _judged(store.get(id), known):
                yield f"session {id[:8]}: {sentence}"
        owed = {owed.id for owed in store.outbox(1_000_000)}
        for id, session in self._owed.items():
            if id in self._paid and id in owed:
                yield f"session {session[:8]}: reply {id} was sent and is owed again (I-23)"
            if id not in self._paid | self._may_be_paid | owed:
                yield f"session {session[:8]}: reply {id} is owed to nobody any more, and was not sent (I-23)"


def _judged(session: Session, known: Of) -> Iterator[str]:
    messages = list(session.transcript())
    yield from _words(messages, known)
    yield from _streams(session, messages, known)
    yield from _turns(session, known)
    yield from _marks(session, messages, known)


def _words(messages: list[Any], known: Of) -> Iterator[str]:
    """I-2, I-3, I-4: there, once, with its words, in the order of the acknowledgements."""
    by_id = {message.id: message for message in messages}
    texts = Counter(message.text for message in messages)
    of_text = {message.text: message for message in messages}
    last = 0
    blank = sum(message.state == "erased" for message in messages) if known.blanked else 0
    for id, text, ordered in known.said:
        found = by_id.get(id) if id is not None else of_text.get(text or "")
        if blank and (found is None or found.state == "erased"):
            blank -= 1
        elif found is None:
            yield f"{text or id!r} was acknowledged and is not there (I-3)"
        elif text is not None and (found.text != text or texts[text] != 1):
            yield f"{text!r} is there {texts[text]} times, as {found.text!r} (I-2)"
        elif ordered and found.seq < last:
            yield f"{text or id!r} stands at {found.seq}, before what was acknowledged before it (I-1)"
        elif ordered:
            last = found.seq
    if len(by_id) != len(messages):
        yield "a message is there twice (I-2)"


def _streams(session: Session, messages: list[Any], known: Of) -> Iterator[str]:
    """I-5: what was handed on is the beginning of what is stored, once its turn is over."""
    by_id = {message.id: message for message in messages}
    running = session.info().running
    for id, (turn, text) in known.shown.items():
        message = by_id.get(id)
        if message is None and running != f"{session.id}:{turn}":
            yield f"{text[-40:]!r} was handed on in turn {turn} and is not there (I-5)"
        elif message is not None and not message.text.startswith(text):
            yield f"{text[-40:]!r} was handed on, and {message.text[-40:]!r} is stored (I-5)"


def _turns(session: Session, known: Of) -> Iterator[str]:
    """I-6, I-8, I-22: turns that began have one end, the acknowledged one; calls are there; an end stays."""
    entries = list(session.entries())
    ends: dict[int, list[str]] = {}
    for entry in entries[session._work.room.origin :]:  # a fork may part from a turn before its end
        if entry.kind == "turn":
            ends.setdefault(entry.turn or 0, [])
        elif entry.kind == "end":
            ends.setdefault(entry.turn or 0, []).append(note_of("end", entry.note).end)
    info = session.info()
    for turn in known.began:
        if turn not in ends:
            yield f"turn {turn} was started and is not there (I-4)"
    for turn, found in ends.items():
        if len(found) > 1 or not found and info.running != f"{session.id}:{turn}":
            yield f"turn {turn} has the ends {found} (I-6)"
    for turn, end in known.ended.items():
        if ends.get(turn) != [end]:
            yield f"turn {turn} was ended as {end} and has the ends {ends.get(turn)} (I-6)"
    calls = {(call.turn, call.call_id) for call in session.calls()}
    for call in known.calls:
        if call not in calls:
            yield f"call {call[1]} of turn {call[0]} is gone (I-22)"
    if known.over and info.state != "ended":
        yield f"it was ended and is {info.state} (I-8)"
    kinds = {entry.seq: entry.kind for entry in entries}
    for seq, kind in known.places.items():
        if kinds.get(seq) != kind:
            yield f"its entry {seq} was a {kind} and is a {kinds.get(seq)} (I-1)"


def _marks(session: Session, messages: list[Any], known: Of) -> Iterator[str]:
    """I-13: the last label of each name holds, and so do the last instructions."""
    labels = {message.id: message.labels for message in messages if message.state != "erased"}
    for (id, name), allowed in known.labels.items():
        if id in labels and labels[id].get(name) not in allowed:
            yield f"label {name} of {id} is {labels[id].get(name)!r}, not {allowed} (I-13)"
    if known.prompts and (session.instructions() or "") not in known.prompts:
        yield f"the instructions are {session.instructions()!r}, not {known.prompts} (I-13)"
