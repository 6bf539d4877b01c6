"""Laws that the entries of one session show to hold or not, whoever keeps them.

Each law takes the log from its first entry on and tells the places where it is broken: the seq of
an entry, and what is so there. The doctor asks them of a damaged store, the test kit of a store
under torture.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.log.fold import Log
from holdfast.domain.log.references import References

Broken = Iterator[tuple[int, str]]
# The message that a call was made in, and its index there.
CallPlace = tuple[str, int]


def labels_are_of_messages(entries: Sequence[Entry]) -> Broken:
    """I-13."""
    known = {entry.id.hex() for entry in entries if entry.kind == "message"}
    for entry, note in _notes(entries, "label"):
        if note.message not in known:
            yield entry.seq, f"it labels message {note.message}, which is not there"


def turns_speak_while_they_run(entries: Sequence[Entry]) -> Broken:
    """After its end a turn has only what is marked: late, or partial and written by whoever settled
    it (I-7).
    """
    over: set[int | None] = set()
    # What stands outside any turn needs no turn to have started.
    known: set[int | None] = {None}
    for entry in entries:
        if entry.kind == "turn":
            known.add(entry.turn)
        elif entry.turn not in known:
            yield entry.seq, f"it is of turn {entry.turn}, which had not started"
        elif entry.turn in over:
            note = note_of("message", entry.note) if entry.kind == "message" else None
            if note is None or not (note.late or note.partial or note.erased):
                sentence = (
                    f"it is a {entry.kind}, and came after the end of turn {entry.turn}"
                )
                yield entry.seq, sentence
        if entry.kind == "end":
            over.add(entry.turn)


def summaries_cover_once(entries: Sequence[Entry]) -> Broken:
    """Where nothing but compactions has shaped the view, a message is shown or covered, once
    (I-11).
    """
    log, covered = Log(), Counter[int]()
    hidden: set[str] = set()
    for entry in entries:
        if entry.kind in ("view", "rewind", "erased"):
            return
        if entry.kind == "message" and note_of("message", entry.note).erased:
            return
        if entry.kind == "compaction":
            natural = [seen.seq for seen in log.natural]
            for first, last in note_of("compaction", entry.note).covers:
                covered.update(natural[natural.index(first) : natural.index(last) + 1])
        log.add([entry])
        hidden |= log.hidden
    placed = Counter(seen.seq for seen in log.in_view)
    for seen in log.natural:
        times = placed[seen.seq] + covered[seen.seq]
        if times != 1 and seen.id not in hidden:
            shown = f"shown {placed[seen.seq]} and covered {covered[seen.seq]} times"
            yield seen.seq, f"this message is {shown}"


def calls_are_decided_once(entries: Sequence[Entry]) -> Broken:
    """I-22."""
    asked = {(note.message, note.index) for _, note in _notes(entries, "ask")}
    fates: Counter[CallPlace] = Counter()
    starts: Counter[CallPlace] = Counter()
    denied: set[CallPlace] = set()
    for entry in entries:
        if entry.kind not in ("decision", "call"):
            continue
        note = note_of(entry.kind, entry.note)
        place = (note.message, note.index)
        if entry.kind == "decision":
            fates[place] += 1
            if not note.approved:
                denied.add(place)
            was = "asked for" if place in asked else "never asked for"
            if fates[place] > 1 or place not in asked:
                sentence = (
                    f"call {place} is decided {fates[place]} times, and was {was}"
                )
                yield entry.seq, sentence
        else:
            starts[place] += 1
            if starts[place] > 1:
                yield entry.seq, f"call {place} is started {starts[place]} times"
            if place in denied:
                yield entry.seq, f"call {place} was denied, and is started"


def notes_name_messages(entries: Sequence[Entry]) -> Broken:
    """What a note names was there before it (I-1). What labels name is a law of its own."""
    labels = {entry.seq for entry in entries if entry.kind == "label"}
    references = References()
    references.add(entries, unreadable=labels)
    return references.dangling()


def _notes(entries: Sequence[Entry], kind: str) -> Iterator[tuple[Entry, Any]]:
    for entry in entries:
        if entry.kind == kind:
            yield entry, note_of(kind, entry.note)


# Each law, with the rule that is broken where it does not hold, and its invariant.
LAWS = (
    ("label-of-nothing", "I-13", labels_are_of_messages),
    ("words-after-the-end", "I-7", turns_speak_while_they_run),
    ("covered-twice", "I-11", summaries_cover_once),
    ("call-decided-twice", "I-22", calls_are_decided_once),
)

# Not among the laws that the test kit asks: a healed copy has tombstones, which have ids of their
# own, in the place of messages that its notes still name.
REFERENCES = ("names-no-message", "I-1", notes_name_messages)
