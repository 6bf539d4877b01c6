"""An entry: one immutable record in a session's log, at a dense seq from 1 (I-1).

An engine keeps entries as bytes; what they mean is written here, once. An entry has a kind, an id
minted at the edge, the number of its turn, the time it was made, a note (small, typed, decoded by
kind) and a body (a frozen payload or text, never looked into by the log).

    kind          note              body             what happened
    opened        Opened            -                the session began, for a key or as a fork
    message       MessageNote       payload          somebody said something
    turn          TurnStarted       -                a turn began, and took these messages from the inbox
    take          Taken             -                a running turn took more messages from the inbox; or, outside a
                                                     turn, that one of another session took them
    call          CallStarted       -                a call that the model made is about to be run (I-22)
    ask           Asked             -                a call waits for approval; it must not be run (I-22)
    decision      Decided           -                somebody approved it, or did not
    end           TurnEnded         -                the turn's one end (I-6)
    instructions  -                 text             the system prompt from here on
    view          Shape             -                the model's view has this shape from here on
    rewind        Rewound           -                the model's view went back to a message
    label         Labelled          -                a message got labels (I-13)
    retract       Retracted         -                messages taken out of the model's view
    compaction    Compacted         payload          a summary stands for what it covers (I-11)
    post          Posted            -                a try to send a reply that was owed (I-23)
    closed        Closed            -                the session ended: no more turns
    erased        Erased            -                its words were taken out of the store (I-21)
    blanked       Blanked           -                words that it passed on were erased where they went (I-21)
"""

from typing import Any, Literal

import msgspec

from holdfast.domain.message import MessageNote, Note, freeze, thaw
from holdfast.errors import Damaged, InvalidMessage

End = Literal["completed", "interrupted", "failed", "abandoned"]

Ids = tuple[str, ...]
Seqs = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]
"""First and last seq of each: of messages next to each other in the natural order (a shape), or of
all that have a seq in between (a rewind).
"""

STARTING = 0
"""The turn number of a draft that belongs to the turn its own commit starts: the engine puts the
real one in.
"""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One immutable record of a session's log. `seq` counts them from 1; `turn` is the number of
    the turn it belongs to, if any. `note` says in JSON what an entry of this `kind` says; `body` is
    the payload of a message, as JSON.
    """

    seq: int
    kind: str
    turn: int | None
    id: bytes
    at: int
    note: bytes
    body: bytes


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A record on its way into the log: all but its seq."""

    kind: str
    turn: int | None
    id: bytes
    at: int
    note: bytes = b""
    body: bytes = b""


def entry_of(draft: Draft, seq: int, turn: int | None) -> Entry:
    """The entry that a draft has become."""
    return Entry(seq, draft.kind, turn, draft.id, draft.at, draft.note, draft.body)


class Opened(Note, frozen=True):
    """`at`: the message that a fork parts at, where labels that it was stored with stand between
    the two. `asked`: a digest of the request that this session was made for, where its sender has
    named it: another one under the same name is told by it.
    """

    key: str | None = None
    epoch: int = 1
    previous: str | None = None
    parent: str | None = None
    parent_seq: int | None = None
    at: str | None = None
    asked: str | None = None


class TurnStarted(Note, frozen=True):
    """`brought`: those of `takes` that waited in another session, and the id of that session."""

    takes: Ids = ()
    reply_to: str | None = None
    event: str | None = None
    brought: dict[str, str] = {}


class Taken(Note, frozen=True):
    """`brought` as above. Outside a turn, `session` is the one whose turn has them now."""

    takes: Ids = ()
    brought: dict[str, str] = {}
    session: str | None = None


class CallStarted(Note, frozen=True):
    call_id: str
    message: str
    index: int = 0


class Asked(Note, frozen=True):
    """`digest` is that of the call's name and exact arguments: an approval is for these and no
    others.
    """

    call_id: str
    message: str
    digest: str
    index: int = 0


class Decided(Note, frozen=True):
    call_id: str
    message: str
    approved: bool
    by: str
    index: int = 0


class TurnEnded(Note, frozen=True):
    end: End = "completed"
    reason: str | None = None
    error: str | None = None
    returns: Ids = ()


class Edit(msgspec.Struct, frozen=True):
    """A message in another wording, noted anew."""

    note: MessageNote
    payload: Any


class Shape(Note, frozen=True):
    """The model's view as its difference from the natural one: ranges of message seqs, in the order
    shown.

    `edits` are messages shown in another wording, by seq; those of earlier shapes go on unless in
    `restored`.
    """

    ranges: Ranges = ()
    edits: dict[int, Edit] = {}
    restored: Seqs = ()


class Rewound(Note, frozen=True):
    """The view goes back to the message `to`. The last rewind says all: it takes up what still
    counts of earlier ones.

    `gone`: messages that are out of the view, as spans of seqs. `turns`: those of which nothing is
    left, as spans of the seqs at which they began: what comes of them later is gone as well. `cut`:
    turns of which a beginning is left. `ranges`: the shape from here on, where the view goes back
    to what a summary covers or a list has dropped; none when the shape stays as it was.
    """

    to: str = ""
    gone: Ranges = ()
    turns: Ranges = ()
    cut: Seqs = ()
    ranges: Ranges = ()


class Compacted(Note, frozen=True):
    """`covers`: what the summary in the body stands for. `ranges`: what is shown after it, in the
    order shown. `aside`: seqs of messages that were hidden among the covered ones; they follow the
    summary once they are shown again.

    It is all that a load needs to begin with: the edits of what is shown, the seq of the
    instructions, and `since`, the first entry that what is shown depends on.
    """

    covers: Ranges = ()
    ranges: Ranges = ()
    edits: dict[int, Edit] = {}
    instructions: int = 0
    since: int = 1
    aside: Seqs = ()


class Labelled(Note, frozen=True):
    """`seq` is the message's: a load that begins after it can tell whether it matters. It is 0 where
    both are stored together.
    """

    message: str
    labels: dict[str, Any] = {}
    seq: int = 0


class Retracted(Note, frozen=True):
    messages: Ids = ()
    reason: str | None = None


class Posted(Note, frozen=True):
    """A try to send the reply `owed`: it was sent, or it failed and is still owed. `heard`: how many
    characters had arrived of messages that were being spoken.
    """

    owed: str
    end: Literal["sent", "failed"]
    reason: str | None = None
    platform_id: str | None = None
    heard: dict[str, int] = {}


class Closed(Note, frozen=True):
    """The end of a session. `moved`: messages in its inbox that went on to the key's next session,
    which is `session`; older logs do not name it.
    """

    reason: str = ""
    moved: Ids = ()
    session: str | None = None


class Erased(Note, frozen=True):
    """What an erasure took: so many entries, messages among them, and bytes of payloads."""

    entries: int = 0
    messages: int = 0
    bytes: int = 0
    reason: str = ""


class Blanked(Note, frozen=True):
    """These entries, by seq, lost their words: what they told went on to another session, which was
    erased.
    """

    seqs: Seqs = ()


NOTES: dict[str, type[Note]] = {
    "opened": Opened,
    "message": MessageNote,
    "turn": TurnStarted,
    "take": Taken,
    "call": CallStarted,
    "ask": Asked,
    "decision": Decided,
    "end": TurnEnded,
    "view": Shape,
    "rewind": Rewound,
    "label": Labelled,
    "retract": Retracted,
    "compaction": Compacted,
    "post": Posted,
    "closed": Closed,
    "erased": Erased,
    "blanked": Blanked,
}

KINDS = frozenset({*NOTES, "instructions"})
"""All kinds of entries. Instructions are text, and have no note."""

_KIND_OF = {note: kind for kind, note in NOTES.items()}
_encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(note).decode for kind, note in NOTES.items()}
_plain_notes: dict[tuple[str, bytes], Any] = {}
_PLAIN_NOTES_MAX = 4096
_PLAIN_NOTE_BYTES = 96


def noted(note: Note) -> bytes:
    """A note as bytes; nothing at all when it says nothing but defaults. It is read back by the
    decoder that will read it from the log: a note that could not be is refused here, before it is
    written (I-25).
    """
    try:
        text = _encode(note)
    except UnicodeEncodeError:
        # Halves of characters, in a reason or an error: they are kept as escapes.
        text = freeze(msgspec.to_builtins(note, str_keys=True))
    except TypeError as error:
        problem = f"its note can't be written ({error})"
        raise InvalidMessage(problem=problem, place="note") from None
    if text == b"{}":
        return b""
    try:
        note_of(_KIND_OF[type(note)], text)
    except Damaged as error:
        raise InvalidMessage(problem=error.problem, place="note") from None
    return text


def note_of(kind: str, note: bytes) -> Any:
    """The note of an entry of this kind. Notes of messages repeat endlessly ("an assistant,
    openai.chat"), so short ones are remembered, and what says nothing but defaults.
    """
    known = _plain_notes.get((kind, note))
    if known is not None:
        return known
    try:
        # Nothing is stored for a note that says only defaults.
        value = _decoders[kind](note or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _converted(kind, thaw(note))
    # Others hold an id, a reason or an error, and hardly come again.
    if not note or (kind == "message" and len(note) <= _PLAIN_NOTE_BYTES):
        if len(_plain_notes) >= _PLAIN_NOTES_MAX:
            # All at once: those that come again are soon back, and no order has to be
            # kept.
            _plain_notes.clear()
        _plain_notes[kind, note] = value
    return value


def legible_note(entry: Entry) -> Any:
    """The note of an entry; None when it can't be read (I-25), or its kind has none."""
    if entry.kind not in NOTES:
        return None
    try:
        return note_of(entry.kind, entry.note)
    except Damaged:
        return None


def opened_of(entry: Entry) -> Opened:
    """The note of a session's first entry; one that says nothing where it can't be read (I-25)."""
    note: Opened | None = None
    if entry.kind == "opened":
        note = legible_note(entry)
    return note or Opened()


def _converted(kind: str, value: Any) -> Any:
    """A note that holds what JSON alone can't, lone surrogates; `Damaged` when it is not one."""
    try:
        return msgspec.convert(value, NOTES[kind], strict=False)
    except msgspec.ValidationError as error:
        problem = f"it is no longer that of a {kind} ({error})"
        raise Damaged(where="a note", problem=problem) from error
