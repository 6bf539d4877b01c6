"""Erasing sessions: nothing of their words is left in any table.

PostgreSQL keeps old rows until it has vacuumed, and its log until that is recycled: they are out of
every reader's reach, and the server's own care removes them. Erasures have transactions of their
own, so that these have only what was there before; many share one, up to a number that keeps it
short for those who wait for its rows.
"""

from collections.abc import Iterable, Iterator

from holdfast.engine.postgres.batch import SessionRow
from holdfast.engine.postgres.batch_sql import PLACE, Statement, columns
from holdfast.engine.postgres.server.binary_arrays import Blobs, Ids, Ints
from holdfast.engine.protocol import Commit, Commits, Notes, Write

SESSIONS_MAX, NOTES_MAX = 200, 5_000
"""What one transaction erases at most, unless one commit alone has more."""


def apart(commits: Commits) -> Iterator[Commits]:
    """The same in their order, erasures apart from all else. Those that share a transaction have no
    session in common.
    """
    start, met, notes = 0, set[str](), 0
    for at, commit in enumerate(commits):
        sessions, own = {write.session for write in commit}, sum(map(_notes_in, commit))
        if at > start and (
            _is_erasure(commit) != _is_erasure(commits[start])
            or _is_erasure(commit)
            and (
                met & sessions
                or len(met | sessions) > SESSIONS_MAX
                or notes + own > NOTES_MAX
            )
        ):
            yield commits[start:at]
            start, met, notes = at, set(), 0
        met |= sessions
        notes += own
    if start < len(commits):
        yield commits[start:]


def _is_erasure(commit: Commit) -> bool:
    return any(
        write.erase is not None or write.blank or write.forget_events
        for write in commit
    )


def _notes_in(write: Write) -> int:
    return len(write.erase or ()) + len(write.blank)


def erasures(
    writes: Iterable[Write], sessions: dict[str, SessionRow]
) -> list[Statement]:
    """What these writes, to sessions all of which are others, take out of them."""
    found: list[Statement] = []
    whole: list[tuple[SessionRow, Write]] = []
    forgetful: list[str] = []
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


def _some(notes: Notes, known: SessionRow) -> list[Statement]:
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


def _whole(erased: list[tuple[SessionRow, Write]]) -> list[Statement]:
    """What is left of these sessions are the notes of these writes, by seq. Their journals are not
    asked about: a turn that ends, or whose session is closed, has its own swept.
    """
    places = columns(PLACE, [(known.tenant, known.id) for known, _ in erased])
    found: list[Statement] = []
    untold = [
        (known.tenant, known.id)
        for known, write in erased
        if not _tells_all(known, write)
    ]
    if untold:
        found.append(("blank_entries", columns(PLACE, untold)))
    notes = [
        (known.tenant, known.id, *note)
        for known, write in erased
        for note in write.erase or ()
    ]
    if notes:
        found.append(
            ("save_note", columns(PLACE | {"seq": Ints, "note": Blobs}, notes))
        )
    found += [
        (name, places)
        for name in ("empty_blobs", "remove_all_waiting", "remove_all_debts")
    ]
    heads = [(known.tenant, known.id, known.head) for known, _ in erased]
    found += [
        ("hold_mark", columns(PLACE | {"seq": Ints}, heads)),
        ("forget_words", places),
    ]
    return found


def _tells_all(known: SessionRow, write: Write) -> bool:
    """Whether there is a note for each entry that was there before this write."""
    before = known.head - len(write.drafts)
    return {seq for seq, _ in write.erase or ()} == set(
        range(known.origin + 1, before + 1)
    )
