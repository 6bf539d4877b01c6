"""Erasing sessions: nothing of their words is left in any table.

PostgreSQL keeps old rows until it has vacuumed, and its log until that is recycled: they are out of
every reader's reach, and the server's own care removes them. Erasures have transactions of their
own, so that these have only what was there before; many share one, up to a number that keeps it
short for those who wait for its rows.
"""

from collections.abc import Iterable, Iterator

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.batch import StampedSession
from holdfast.engine.postgres.batch_sql import PLACE, Statement, columns, statements
from holdfast.engine.postgres.server.binary_arrays import Blobs, Ids, Ints
from holdfast.engine.protocol import Commit, Commits, Notes, Write
from holdfast.engine.session_row import is_erasure

SESSIONS_MAX, NOTES_MAX = 200, 5_000
"""What one transaction erases at most, unless one commit alone has more."""


def apart(commits: Commits) -> Iterator[Commits]:
    """These commits in their order, erasures apart from all else. Those that share a transaction have no
    session in common.
    """
    together: list[Commit] = []
    met: set[str] = set()
    notes = 0
    for commit in commits:
        sessions = {write.session for write in commit}
        own = sum(map(_notes_in, commit))
        erases = _is_erasure(commit)
        # of a session that was met nothing is left to blank: the next erasure looks
        # again
        is_full = erases and (
            not met.isdisjoint(sessions)
            or len(met | sessions) > SESSIONS_MAX
            or notes + own > NOTES_MAX
        )
        if together and (is_full or erases != _is_erasure(together[0])):
            yield together
            together, met, notes = [], set(), 0
        together.append(commit)
        met |= sessions
        notes += own
    if together:
        yield together


def _is_erasure(commit: Commit) -> bool:
    return any(map(is_erasure, commit))


def _notes_in(write: Write) -> int:
    return len(write.erase or ()) + len(write.blank)


def erasures(
    writes: Iterable[Write], sessions: dict[str, StampedSession]
) -> list[Statement]:
    """What these writes, to sessions all of which are others, take out of them."""
    found: list[Statement] = []
    whole: list[tuple[StampedSession, Write]] = []
    forgetful: list[str] = []
    # in one order everywhere, so that no two batches lock rows crosswise
    for write in sorted(writes, key=lambda write: write.session):
        known = sessions[write.session]
        if write.blank:
            found += _some(write.blank, known)
        if write.erase is not None:
            whole.append((known, write))
        if write.forget_events:
            forgetful.append(known.id)
    if whole:
        found += _whole(whole)
    if forgetful:
        found.append(("forget_events", {"session": Ids(forgetful)}))
    return found


def _some(notes: Notes, known: StampedSession) -> list[Statement]:
    """What is left of these entries are these notes. Their words are read again, but for those that
    are gone.
    """
    place = {"tenant": known.tenant, "session": known.id}
    given = place | columns({"seq": Ints, "note": Blobs}, notes)
    return [
        ("blank_some", given),
        ("remove_unused_blobs", place),
        ("turn_mark_back", place),
        ("forget_some_words", place | {"seq": Ints([seq for seq, _ in notes])}),
    ]


def _whole(erased: list[tuple[StampedSession, Write]]) -> list[Statement]:
    """What is left of these sessions are the notes of these writes, by seq. Their journals are not
    asked about: a turn that ends, or whose session is closed, has its own swept.
    """
    places: Rows = []
    untold: Rows = []
    notes: Rows = []
    heads: Rows = []
    for known, write in erased:
        place = (known.tenant, known.id)
        places.append(place)
        heads.append((*place, known.head))
        for note in write.erase or ():
            notes.append((*place, *note))
        if not _tells_all(known, write):
            untold.append(place)
    return statements(
        (
            ("blank_entries", PLACE, untold),
            ("save_note", PLACE | {"seq": Ints, "note": Blobs}, notes),
            ("empty_blobs", PLACE, places),
            ("remove_all_waiting", PLACE, places),
            ("remove_all_debts", PLACE, places),
            ("hold_mark", PLACE | {"seq": Ints}, heads),
            ("forget_words", PLACE, places),
        )
    )


def _tells_all(known: StampedSession, write: Write) -> bool:
    """Whether there is a note for each entry that was there before this write."""
    before = known.head - len(write.drafts)
    return {seq for seq, _ in write.erase or ()} == set(
        range(known.origin + 1, before + 1)
    )
