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
from collections.abc import Callable, Iterable

from holdfast.domain.entry import Ranges, Rewound
from holdfast.domain.log.view import leaving_out
from holdfast.domain.repair import Messages, Order, StoredMessage, ids_of

Born = Callable[[StoredMessage], int]
"""The seq at which a message's turn began; its own, outside a turn."""


def away(note: Rewound, messages: Order, *, made: int, born: Born) -> set[int]:
    """Seqs of those of these messages that are gone after this rewind, made at the seq `made`."""
    gone: set[int] = set()
    outcomes = []
    for message in messages:
        if message.seq < made:
            if within(note.gone, message.seq):
                gone.add(message.seq)
            continue
        # Said since. Only a turn that had begun before the rewind can have been taken by it.
        if message.turn is None or (begun := born(message)) >= made:
            continue
        is_cut = begun in note.cut
        if is_cut or within(note.turns, begun):
            gone.add(message.seq)
        if is_cut and message.note.answers:
            outcomes.append(message)
    if not outcomes:
        return gone
    return gone - _awaited(outcomes, leaving_out(messages, gone))


def _awaited(outcomes: Messages, left: Messages) -> set[int]:
    """Seqs of those outcomes whose calls are still there."""
    ids = set(ids_of(left))
    called = {
        (message.turn, call.id) for message in left for call in message.note.calls
    }
    awaited = set()
    for outcome in outcomes:
        if outcome.note.target:
            has_call = outcome.note.target.partition(":")[0] in ids
        else:
            has_call = any((outcome.turn, id) in called for id in outcome.note.answers)
        if has_call:
            awaited.add(outcome.seq)
    return awaited


def within(spans: Ranges, seq: int) -> bool:
    """Whether one of these spans, in ascending order, has this seq in it."""
    # The last span that begins at or before it is the only one that can have it.
    index = bisect_right(spans, seq, key=lambda span: span[0])
    return index > 0 and seq <= spans[index - 1][1]


def spans(seqs: Iterable[int], *, among: Iterable[int]) -> Ranges:
    """These seqs as spans that have no other of `among` in them."""
    wanted = set(seqs)
    out: list[tuple[int, int]] = []
    follows = False
    for seq in sorted(among):
        if seq not in wanted:
            follows = False
        elif follows:
            out[-1] = (out[-1][0], seq)
        else:
            out.append((seq, seq))
            follows = True
    return tuple(out)
