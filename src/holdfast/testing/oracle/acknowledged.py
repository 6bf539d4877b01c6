"""What callers of a store were answered, and what of it is not so in the store.

It knows nothing of how a store works. A fact is entered after the call has returned, in the order
of the answers. A turn goes by its public id.

    said(session, id, text)          this message is stored; what is unknown is None: without a
                                     session it may be in any, and its text is like no other
    shown(turn, id, text)            this much more of a message was handed on; without an id, of
                                     all that the turn says, which is over when it is judged
    opened(session)                  the session is there
    began(turn), ended(turn, end)    the turn was started; it has this one end
    called(turn, call_id)            the call is stored
    answered(turn, call_id, words)   its result is stored, with these words in it
    event(scope, event_id, id)       the event became this message, and no other
    labelled(session, id, name, value), instructed(session, text)     hold until the next
    at(session, seq, kind)           there is an entry of this kind at this place
    wrote(session, kind, words)      one entry of this kind has these words in it
    over(session)                    the session has ended
    owed(id, session), paid(id)      a reply is owed, and then no longer
    may(what, session, …)            labels, instructions or a payment are under way, and may hold
    erased(session)                  nothing of it is left but the entry that says so
    bereft(session)                  the past that it shared is gone
    blanked(session)                 copies of messages that an erased session answered are gone

What was answered while other calls were under way is entered with `ordered=False`: nothing follows
for its place. A process that may be killed writes the same names as acts, `[name, *facts]`, and
`hear` takes them from there. What was under way at that moment was not acknowledged: it may be
there or not, and either is right.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from holdfast.domain.entry import note_of
from holdfast.runtime.live.message import Message
from holdfast.testing.oracle.look import Look

Act = Sequence[Any]
"""A fact on its way from another process: the name of a method of `Acknowledged`, and its
arguments.
"""


class SessionFacts:
    """What was acknowledged of one session."""

    def __init__(self) -> None:
        self.said: list[tuple[str | None, str | None, bool]] = []
        self.shown: dict[tuple[int, str | None], str] = {}
        self.began: list[int] = []
        self.ended: list[tuple[int, str]] = []
        self.calls: list[tuple[int, str]] = []
        self.answered: list[tuple[int, str, str]] = []
        self.labels: dict[tuple[str, str], list[Any]] = {}
        self.prompts: list[str] = []
        self.places: dict[int, str] = {}
        self.wrote: list[tuple[str, str, bool]] = []
        self.over = False
        self.blanked = False


class Acknowledged:
    """All that the callers of one store were answered. Texts that were `tried` may be there or not,
    but not twice.
    """

    def __init__(self, acts: Iterable[Act] = (), *, tried: Iterable[str] = ()) -> None:
        self._of: dict[str, SessionFacts] = {}
        self._anywhere: list[str] = []
        # Texts that were sent without an answer: there or not, and at most once.
        self._tried = list(tried)
        # By scope and event id: the message that it became.
        self._events: dict[tuple[str, str], str] = {}
        self._torn_events: list[str] = []
        self._owed: dict[str, str] = {}
        self._paid: set[str] = set()
        self._may_be_paid: set[str] = set()
        self._gone: set[str] = set()
        # How much there is to hold against the store: a run with little proves little.
        self.count = 0
        self.hear(acts)

    def hear(self, acts: Iterable[Act]) -> None:
        """Enters what a process has reported."""
        for name, *facts in acts:
            getattr(self, name)(*facts)

    def of(self, session: str) -> SessionFacts:
        """What is known of this session. What is entered of an erased one goes nowhere."""
        if session in self._gone:
            return SessionFacts()
        return self._of.setdefault(session, SessionFacts())

    def _of_turn(self, turn: str) -> tuple[SessionFacts, int]:
        session, _, number = turn.rpartition(":")
        return self.of(session), int(number)

    # Facts, as they are acknowledged.

    def said(
        self,
        session: str | None,
        id: str | None,
        text: str | None,
        *,
        ordered: bool = True,
    ) -> None:
        self.count += 1
        if session is not None:
            self.of(session).said.append((id, text, ordered))
        else:
            # A message that may be anywhere is known by its text.
            assert text is not None
            self._anywhere.append(text)

    def shown(self, turn: str, id: str | None, text: str) -> None:
        self.count += 1
        known, number = self._of_turn(turn)
        known.shown[number, id] = known.shown.get((number, id), "") + text

    def opened(self, session: str) -> None:
        self.of(session)

    def began(self, turn: str) -> None:
        known, number = self._of_turn(turn)
        known.began.append(number)

    def ended(self, turn: str, end: str) -> None:
        self.count += 1
        known, number = self._of_turn(turn)
        known.ended.append((number, end))

    def called(self, turn: str, call_id: str) -> None:
        self.count += 1
        known, number = self._of_turn(turn)
        known.calls.append((number, call_id))

    def answered(self, turn: str, call_id: str, words: str = "") -> None:
        self.count += 1
        known, number = self._of_turn(turn)
        known.answered.append((number, call_id, words))

    def event(self, scope: str, event_id: str, id: str) -> None:
        before = self._events.setdefault((scope, event_id), id)
        if before != id:
            self._torn_events.append(
                f"event {event_id!r} was message {before} and is {id} now (I-2)"
            )

    def may(self, what: str, session: str, *fact: Any) -> None:
        if what == "paid":
            self._may_be_paid.add(fact[0])
        elif what == "labelled":
            message, name, value = fact
            # None among them: without the label under way there may be none.
            self.of(session).labels.setdefault((message, name), [None]).append(value)
        else:
            known = self.of(session)
            known.prompts = [*(known.prompts or [""]), *fact]

    def labelled(self, session: str, message: str, name: str, value: Any) -> None:
        self.count += 1
        self.of(session).labels[message, name] = [value]

    def instructed(self, session: str, text: str) -> None:
        self.count += 1
        self.of(session).prompts = [text]

    def at(self, session: str, seq: int, kind: str) -> None:
        self.count += 1
        self.of(session).places[seq] = kind

    def wrote(
        self, session: str, kind: str, words: str = "", once: bool = True
    ) -> None:
        """One entry; at least one, if it may have been written by an earlier try as well."""
        self.count += 1
        self.of(session).wrote.append((kind, words, once))

    def over(self, session: str) -> None:
        self.of(session).over = True

    def owed(self, id: str, session: str) -> None:
        self._owed.setdefault(id, session)

    def paid(self, id: str) -> None:
        self.count += 1
        self._paid.add(id)

    def erased(self, session: str) -> None:
        self._gone.add(session)
        # Nothing that was acknowledged of it is owed to anybody now (I-21).
        self._of.pop(session, None)
        self._owed = {id: place for id, place in self._owed.items() if place != session}

    def bereft(self, session: str) -> None:
        self.of(session).prompts = []

    def blanked(self, session: str) -> None:
        """Messages that waited here were carried on, and went with the session that
        answered them.
        """
        self.of(session).blanked = True

    # What of it is not so.

    def contradictions(
        self, looks: Collection[Look], owed: Collection[str]
    ) -> Iterator[str]:
        """A sentence for every fact that is not so in these sessions, when these replies
        are owed.
        """
        by_id = {look.session.id: look for look in looks}
        for id, known in self._of.items():
            if id not in by_id:
                yield f"session {id[:8]} is not there (I-3)"
                continue
            for law in _OF_A_SESSION:
                for sentence in law(by_id[id], known):
                    yield f"session {id[:8]}: {sentence}"
        for id in sorted(self._gone):
            audits = len(by_id[id].of_kind("erased")) if id in by_id else 0
            if audits != 1:
                yield f"session {id[:8]} was erased, and {audits} entries say so (I-21)"
        # Noticed when they were entered: no store is needed to see them.
        yield from self._torn_events
        yield from self._words_anywhere(looks)
        yield from self._replies(owed)

    def _words_anywhere(self, looks: Iterable[Look]) -> Iterator[str]:
        # A message that a reset carried on is in two transcripts, and is one message: it keeps its
        # id.
        single: dict[str, Message] = {}
        for look in looks:
            single |= look.by_id
        texts = Counter(message.text for message in single.values())
        for text in self._anywhere:
            if texts[text] != 1:
                yield f"{text!r} was acknowledged and is there {texts[text]} times (I-3)"
        for text in self._tried:
            if texts[text] > 1:
                yield f"{text!r} is there {texts[text]} times (I-2)"

    def _replies(self, owed: Collection[str]) -> Iterator[str]:
        for id, session in self._owed.items():
            reply = f"session {session[:8]}: reply {id}"
            if id in self._paid and id in owed:
                yield f"{reply} was sent and is owed again (I-23)"
            if id not in {*owed, *self._paid, *self._may_be_paid}:
                yield f"{reply} is owed to nobody any more, and was not sent (I-23)"


def _words(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-2, I-3, I-4: there, once, with its words, in the order of the acknowledgements."""
    last = 0
    blank = _blanks(look) if known.blanked else 0
    for id, text, ordered in known.said:
        name = text or id
        found = look.by_id.get(id) if id is not None else look.by_text.get(str(text))
        if blank and (found is None or found.state == "erased"):
            blank -= 1
        elif found is None:
            yield f"{name!r} was acknowledged and is not there (I-3)"
        elif text is not None and (found.text != text or look.texts[text] != 1):
            yield f"{text!r} is there {look.texts[text]} times, as {found.text!r} (I-2)"
        elif ordered and found.seq < last:
            yield (
                f"{name!r} stands at {found.seq}, before what was acknowledged before it "
                "(I-1)"
            )
        elif ordered:
            last = found.seq


def _blanks(look: Look) -> int:
    """How many messages may be gone: those that were carried on go with the session that answered
    them.
    """
    return [message.state for message in look.messages].count("erased")


def _streams(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-5: what was handed on is the beginning of what is stored, once its turn is over."""
    by_turn: dict[str | None, str] = {}
    for message in look.messages:
        # For what was shown without a message's id: all that its turn says, in one.
        if message.role == "assistant":
            by_turn[message.turn] = by_turn.get(message.turn, "") + message.text
    for (number, id), text in known.shown.items():
        turn = f"{look.session.id}:{number}"
        if id is None:
            stored = by_turn.get(turn, "")
        elif id in look.by_id:
            stored = look.by_id[id].text
        elif look.info.running == turn:
            # It is still being spoken, and has no entry yet.
            continue
        else:
            yield f"{text[-40:]!r} was handed on in turn {number} and is not there (I-5)"
            continue
        if not stored.startswith(text):
            yield f"{text[-40:]!r} was handed on, and {stored[-40:]!r} is stored (I-5)"


def _turns(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-4, I-6, I-8: turns that began are there and have one end, the acknowledged one; an end
    stays.
    """
    ends = {}
    for turn, entries in look.ends().items():
        ends[turn] = [note_of("end", entry.note).end for entry in entries]
    for turn in known.began:
        if turn not in ends:
            yield f"turn {turn} was started and is not there (I-4)"
    for turn, found in ends.items():
        runs = look.info.running == f"{look.session.id}:{turn}"
        if len(found) > 1 or (not found and not runs):
            yield f"turn {turn} has the ends {found} (I-6)"
    for turn, end in known.ended:
        if ends.get(turn) != [end]:
            yield f"turn {turn} was ended as {end} and has the ends {ends.get(turn)} (I-6)"
    # An end is for good: a session that has ended is never open again.
    if known.over and look.info.state != "ended":
        yield f"it was ended and is {look.info.state} (I-8)"


def _calls(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-10, I-22: calls are there, and so are their results."""
    calls = {(call.turn, call.call_id): call for call in look.session.calls()}
    for turn, call_id in known.calls:
        if (turn, call_id) not in calls:
            yield f"call {call_id} of turn {turn} is gone (I-22)"
    for turn, call_id, words in known.answered:
        call = calls.get((turn, call_id))
        if call is None or call.state != "done":
            yield f"call {call_id} of turn {turn} was answered and has no result (I-10)"
            continue
        outcome = look.by_id.get(call.outcome or "")
        if words and (outcome is None or words not in str(outcome.payload)):
            yield f"result {words!r} is not with call {call_id} of turn {turn} (I-10)"


def _notes(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-1, I-3: entries are where they were, with the words that they had."""
    kinds = {entry.seq: entry.kind for entry in look.entries}
    for seq, kind in known.places.items():
        if kinds.get(seq) != kind:
            yield f"its entry {seq} was a {kind} and is a {kinds.get(seq)} (I-1)"
    for kind, words, once in known.wrote:
        times = _entries_with(look, kind, words)
        if times == 0 or (once and times > 1):
            yield f"{times} entries are a {kind} with {words!r} (I-3)"


def _marks(look: Look, known: SessionFacts) -> Iterator[str]:
    """I-13: the last label of each name holds, and so do the last instructions."""
    for (id, name), allowed in known.labels.items():
        message = look.by_id.get(id)
        if message is None or message.state == "erased":
            continue
        label = message.labels.get(name)
        if label not in allowed:
            yield f"label {name} of {id} is {label!r}, not {allowed} (I-13)"
    instructions = look.session.instructions() or ""
    if known.prompts and instructions not in known.prompts:
        yield f"the instructions are {instructions!r}, not {known.prompts} (I-13)"


_OF_A_SESSION = (_words, _streams, _turns, _calls, _notes, _marks)


def _entries_with(look: Look, kind: str, words: str) -> int:
    """How many entries of this kind have these words in them."""
    times = 0
    for entry in look.entries:
        if entry.kind == kind and words.encode() in entry.note + entry.body:
            times += 1
    return times
