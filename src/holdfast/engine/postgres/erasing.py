"""Erasing a session: nothing of its words is left in any table.

PostgreSQL keeps old rows until it has vacuumed, and its log until that is recycled: they are out of every reader's
reach, and the server's own care removes them. An erasure is a transaction of its own, so it has only what was there
before.
"""

from holdfast.engine.postgres.arrays import Blobs, Ints
from holdfast.engine.postgres.effects import PLACE, Statement, columns
from holdfast.engine.postgres.ledger import Known
from holdfast.engine.protocol import Commit, Write


def is_erasure(commit: Commit) -> bool:
    return any(write.erase is not None or write.blank for write in commit)


def erasures(write: Write, known: Known) -> list[Statement]:
    """What this write takes out of its session."""
    found = _whole(write.erase, known) if write.erase is not None else []
    return found + (_some(write.blank, known) if write.blank else [])


def _some(notes: tuple[tuple[int, bytes], ...], known: Known) -> list[Statement]:
    """What is left of these entries are these notes. Their words are read again, but for those that are gone."""
    place = {"tenant": known.tenant, "session": known.id}
    given = place | columns({"seq": Ints, "note": Blobs}, notes)
    return [
        ("blank_some", given),
        ("remove_unused_blobs", place),
        ("turn_mark_back", place),
        ("forget_some_words", place | {"seq": Ints([seq for seq, _ in notes])}),
    ]


def _whole(notes: tuple[tuple[int, bytes], ...], known: Known) -> list[Statement]:
    """What is left of the session are these notes, by seq."""
    place = {"tenant": known.tenant, "session": known.id}
    names = ("blank_entries", "empty_blobs", "remove_all_waiting", "remove_all_debts")
    found: list[Statement] = [(name, place) for name in names]
    found += [("hold_mark", place | {"seq": known.head}), ("forget_words", place)]
    found.append(("sweep", columns(PLACE | {"position": Ints}, [(known.tenant, known.id, known.position)])))
    kept = [(seq, note) for seq, note in notes if note]
    if kept:
        found.append(("save_note", place | columns({"seq": Ints, "note": Blobs}, kept)))
    return found
