"""Vetting: what comes out of somebody's file is looked at as if a stranger had written it, before
any of it is stored.

An export or a store that is copied says of itself what it holds, and whoever can write a file can
make it say anything. So each entry is read here once by the decoders that will read it later: one
that they can't read, that names what can't be a name or counts beyond what can be counted is
refused, with its place, and nothing is written.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import KINDS, NOTES, Edit, Entry, note_of
from holdfast.domain.ids import is_session_id
from holdfast.domain.log.fold import Log
from holdfast.domain.log.references import messages_named
from holdfast.domain.message import USUAL_FORMAT, freeze, thaw
from holdfast.engine.protocol import OwedReply, SessionState
from holdfast.errors import Damaged, HoldfastError
from holdfast.formats import registry

# More of anything there is not; beyond it a number is not exact in JSON everywhere.
COUNT_MAX = 2**53
# In milliseconds: an id begins with its time, in six bytes.
TIME_MAX = 2**48 - 1
# Characters of a key or an address.
NAME_MAX = 100_000
_MESSAGE = re.compile(r"[0-9a-f]{32}")
_TURN = re.compile(r"[0-9a-f-]{36}:[1-9][0-9]{0,18}")
_UNCOUNTABLE = "it counts beyond what can be counted"
_WORDS = ("message", "compaction")


def vet_entry(entry: Entry) -> None:
    """`Damaged`, with what is wrong, unless this entry could have been written by Holdfast."""
    _insist(entry.kind in KINDS, f"there are no entries of the kind {entry.kind!r:.40}")
    _insist(_is_count(entry.seq, 1), "its seq is not a number that counts")
    _insist(
        entry.turn is None or _is_count(entry.turn, 1),
        "its turn is not a number that counts",
    )
    _insist(
        type(entry.id) is bytes and len(entry.id) == 16,
        "its id is not one of sixteen bytes",
    )
    _insist(
        type(entry.at) is int and 0 <= entry.at <= TIME_MAX, "its time is not a time"
    )
    _insist(
        type(entry.note) is bytes and type(entry.body) is bytes,
        "its note or its body is not bytes",
    )
    note = None
    if entry.kind in NOTES:
        note = _read(lambda: note_of(entry.kind, entry.note), "its note")
    else:
        _insist(not entry.note, "its kind has no note")
    if note is not None:
        _vet_names(entry.kind, note)
        _vet_places(entry, note)
    _vet_body(entry, note)


def vet_state(state: SessionState) -> None:
    """`Damaged` unless a store could say this of a session beside its log."""
    vet_session_id(state.id)
    vet_key(state.key)
    if state.parent is not None:
        vet_session_id(state.parent)
    _insist(_is_count(state.epoch, 1), _UNCOUNTABLE)
    for number in (state.head, state.fence, state.base, state.origin):
        _insist(_is_count(number, 0), _UNCOUNTABLE)
    _insist(
        state.origin <= state.head and state.base <= state.head,
        "it begins behind its own end",
    )
    _insist(
        state.fence <= 2 * state.head + 1000,
        "its fence is beyond all turns that it can have had",
    )


def vet_debt(debt: OwedReply) -> None:
    """`Damaged` unless a reply could be owed like this."""
    _insist(
        type(debt.id) is bytes and len(debt.id) == 16,
        "a reply that is owed has no id of sixteen bytes",
    )
    _insist(_is_name(debt.reply_to), "a reply is owed to nobody that can be named")
    _insist(
        _is_count(debt.turn, 1) and type(debt.at) is int and 0 <= debt.at <= TIME_MAX,
        "a reply is owed of no turn",
    )


def vet_session_id(id: Any) -> None:
    _insist(
        is_session_id(id),
        f"{id!r:.60} is not the id of a session",
    )


def vet_key(key: Any) -> None:
    _insist(
        key is None or (_is_name(key) and _is_text(key)), f"{key!r:.60} is not a key"
    )


def _vet_names(kind: str, note: Any) -> None:
    """Ids of messages are 32 hex digits, wherever a note names one."""
    names = messages_named(kind, note)
    if kind == "post":
        # A reply is named by its id; one that its own turn confirmed, by the turn.
        names = () if _TURN.fullmatch(note.owed) else (note.owed,)
    elif kind == "opened":
        vet_key(note.key)
        names = () if note.at is None else (note.at,)
        for session in filter(None, (note.previous, note.parent)):
            vet_session_id(session)
    elif kind in ("turn", "take"):
        names = (*names, *note.brought)
        for session in note.brought.values():
            vet_session_id(session)
    if kind in ("take", "closed") and note.session is not None:
        vet_session_id(note.session)
    _insist(
        all(_MESSAGE.fullmatch(name) for name in names),
        "it names a message by what is no id of one",
    )


def _vet_places(entry: Entry, note: Any) -> None:
    """Where a note tells of places in the log, they are places before it."""
    upto = entry.seq
    if entry.kind == "opened" and upto == 1:
        _insist(note.parent is None, "it shares a past that is not here")
    for name in ("ranges", "covers", "gone", "turns"):
        problem = f"its {name} are not places before it"
        for first, last in getattr(note, name, ()):
            _insist(0 <= first <= upto and 0 <= last <= upto, problem)
            # Ranges and covers go by the order of the messages: what waited in the inbox stands
            # behind what was said meanwhile.
            if name in ("gone", "turns"):
                _insist(first <= last, problem)
    for name in ("restored", "aside", "cut", "edits", "seqs"):
        for seq in getattr(note, name, ()):
            _insist(0 <= seq <= upto, f"its {name} are not places before it")
    for name in ("index", "epoch", "parent_seq", "instructions", "since", "seq"):
        number = getattr(note, name, 0)
        _insist(
            number is None or _is_count(number, 0),
            f"its {name} is not a number that counts",
        )
    for edit in getattr(note, "edits", {}).values():
        _read(partial(_read_edit, edit), "an edit in it")


def _read_edit(edit: Edit) -> None:
    # As a view will read it, and as it will be stored again.
    registry.get(edit.note.format).note(edit.payload)
    registry.get(edit.note.format).read(edit.payload)
    freeze(edit.payload)


def _vet_body(entry: Entry, note: Any) -> None:
    if entry.kind == "instructions":
        if entry.body:
            text = _read(lambda: thaw(entry.body), "its body")
            _insist(isinstance(text, str), "its body is no text")
    elif entry.kind not in _WORDS:
        _insist(not entry.body, "its kind has no body")
    elif entry.body:
        payload = _read(lambda: thaw(entry.body), "its body")
        # What can be read and not be written again would fail a later fork or copy.
        _read(lambda: freeze(payload), "its body")
        if entry.kind == "message" and not note.erased:
            registry.insist_on(note, entry.body)
        elif entry.kind == "compaction":
            _read(lambda: registry.get(USUAL_FORMAT).note(payload), "its summary")
            _read(lambda: registry.read(USUAL_FORMAT, entry.body), "its summary")
    else:
        _insist(entry.kind == "compaction" or note.erased, "it has no body")


def vet_log(log: Log, page: Sequence[Entry], *, is_last: bool) -> None:
    """Folds a page of a log that is vetted entry by entry, so that what its entries say together
    can be read too. What they arrange is looked at once, after the last page: arranging takes as
    long as the log is.
    """
    # Bodies are vetted by themselves; instructions are nothing but a body.
    entries = [
        replace(entry, body=b"") for entry in page if entry.kind != "instructions"
    ]
    _vet_ends(log, page)
    _read(lambda: log.add(entries), "the log")
    if is_last:
        _read(lambda: log.visible, "the log")


def _vet_ends(log: Log, page: Sequence[Entry]) -> None:
    """A turn ends once, after its start (I-6)."""
    running = {number for number, turn in log.turns.items() if turn.end is None}
    for entry in page:
        if entry.kind == "turn":
            running.add(entry.turn or 0)
        elif entry.kind == "end":
            problem = f"entry {entry.seq} ends turn {entry.turn}, which does not run"
            _insist(entry.turn in running, problem)
            running.discard(entry.turn or 0)


def _read(work: Callable[[], Any], what: str) -> Any:
    """What a decoder makes of something. Whatever it raises means that the thing can't be read."""
    try:
        return work()
    except (
        HoldfastError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        ArithmeticError,
    ) as error:
        raise Damaged(
            where="an entry", problem=f"{what} can't be read ({error})"
        ) from error
    # Python's own limit is met before any of ours, in a decoder or in the fold.
    except RecursionError as error:
        raise Damaged(where="an entry", problem=f"{what} is nested too deep") from error


def _insist(is_so: bool, problem: str) -> None:
    if not is_so:
        raise Damaged(where="an entry", problem=problem)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= COUNT_MAX


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_MAX


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
