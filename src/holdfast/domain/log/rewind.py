"""Rewinding: which messages are gone because the view went back (FAULTS I9).

A rewind leads back to a message along the line that led to it (`line` finds that), and what was
said beside that line is gone. It can be brought back by another rewind, and by nothing else: no
recorded list, no label, no late word.

    said      a  b  c  d      back to b       e  f      back to d       back to f
    view      a  b  c  d        a  b        a  b  e  f    a  b  c  d      a  b  e  f

What is gone when the view goes back is told message by message. What comes later of a turn that is
gone is gone as well. Of the turn that the view goes back into, only the outcome of a call that is
still shown comes through: a call has one result, and a late real one takes its place (I-10).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from holdfast.domain.entry import Rewound
from holdfast.domain.repair import StoredMessage

Spans = tuple[tuple[int, int], ...]
Born = Callable[[StoredMessage], int]
"""The seq at which a message's turn began; its own, outside a turn."""


def away(
    note: Rewound, messages: Sequence[StoredMessage], *, made: int, born: Born
) -> set[int]:
    """Seqs of those of these messages that are gone after this rewind, made at the seq `made`."""
    gone = {
        message.seq
        for message in messages
        if message.seq < made and within(note.gone, message.seq)
    }
    outcomes = []
    for message in messages:
        if (
            message.seq > made
            and message.turn is not None
            and (begun := born(message)) < made
        ):
            if begun in note.cut or within(note.turns, begun):
                gone.add(message.seq)
            if begun in note.cut and message.note.answers:
                outcomes.append(message)
    return (
        gone
        - _awaited(
            outcomes, [message for message in messages if message.seq not in gone]
        )
        if outcomes
        else gone
    )


def _awaited(
    outcomes: Sequence[StoredMessage], left: Sequence[StoredMessage]
) -> set[int]:
    """Seqs of those outcomes whose calls are still there."""
    ids = {message.id for message in left}
    called = {
        (message.turn, call.id) for message in left for call in message.note.calls
    }
    return {
        outcome.seq
        for outcome in outcomes
        if (
            outcome.note.target.partition(":")[0] in ids
            if outcome.note.target
            else False
        )
        or (
            not outcome.note.target
            and any((outcome.turn, id) in called for id in outcome.note.answers)
        )
    }


def within(spans: Spans, seq: int) -> bool:
    """Whether one of these spans, in ascending order, has this seq in it."""
    index = bisect_right(spans, seq, key=lambda span: span[0])
    return index > 0 and seq <= spans[index - 1][1]


def spans(seqs: Iterable[int], *, among: Iterable[int]) -> Spans:
    """These seqs as spans that have no other of `among` in them."""
    wanted = set(seqs)
    out: list[tuple[int, int]] = []
    follows = False
    for seq in sorted(among):
        if seq in wanted:
            out[-1:] = [(out[-1][0], seq)] if follows else [*out[-1:], (seq, seq)]
        follows = seq in wanted
    return tuple(out)
