"""Erasing sessions from the file: not only from its tables, but from every byte of it (FAULTS K7).

SQLite leaves what was deleted in free pages, in the gaps of pages whose rows were moved about, and
in the WAL. So `blank`, inside the transaction, overwrites what goes where it lies, `take_out`
writes small tables anew, once for all sessions that the transaction erases, and `scrub`, after it,
fills the free pages with zeros and empties the WAL.

Entries of erased sessions stay as rows, tombstones. Deleting them would leave pages with room for
others, and SQLite then moves rows from one page to the next: rows of sessions that live on, whose
words would stay behind as copies in gaps that nobody knows of, and be found there after *their*
erasure. It would take the places out of the log, too (I-1). A tombstone is some fifty bytes, and
the pages that become empty as rows get short are free for what comes next.

What is erased and not scrubbed yet is noted in the same transaction, so that whoever comes after a
process that was killed in between can finish it.
"""

from collections.abc import Collection

import apsw

from holdfast.engine.blobs import names_in
from holdfast.engine.protocol import Notes
from holdfast.engine.sqlite.queries import Statements, transaction

_SCRUB_BYTES = 16 << 20


def blank(
    statements: Statements,
    session: int,
    notes: Notes,
    *,
    forget_events: bool,
) -> None:
    """What is left of the session are these notes, by seq, and until `take_out` what it owes and is
    saying.
    """
    statements.connection.execute("PRAGMA secure_delete=ON").fetchall()
    for name in (
        "blank_entries",
        "blank_blobs",
        "empty_blobs",
        "remove_blob_uses",
        "remove_all_waiting",
    ):
        statements.run(name, session)
    statements.run_many(
        "save_note", [(note or None, session, seq) for seq, note in notes]
    )
    # an erasure may tell of fewer entries than there are: the rest is zeros by now, and
    # goes too
    statements.run("empty_untold", session)
    if forget_events:
        statements.run("forget_events", session)


def take_out(statements: Statements, sessions: Collection[int]) -> None:
    """The outbox and the journal without these sessions."""
    import json  # here and below: most stores never erase

    gone = json.dumps(list(sessions))
    debts = statements.rows("debts_of_others", gone)
    chunks = statements.rows("chunks_of_others", gone)
    for name in ("empty_outbox", "empty_journal_a", "empty_journal_b"):
        statements.run(name)
    statements.run_many("add_debt", debts)
    statements.run_many("add_chunk_a", chunks)


def blank_some(statements: Statements, session: int, notes: Notes) -> None:
    """What is left of these entries are these notes. Blobs that no other entry refers to go with
    them.
    """
    statements.connection.execute("PRAGMA secure_delete=ON").fetchall()
    statements.run_many("blank_entry", [(session, seq) for seq, _ in notes])
    statements.run_many(
        "save_note", [(note or None, session, seq) for seq, note in notes]
    )
    left = {
        name
        for _, body in statements.run("skeletons", session)
        for name in names_in(body)
    }
    for (name,) in statements.run("blobs_of", session).fetchall():
        # another entry of this session may show the same picture
        if name not in left:
            for query in ("blank_blob", "empty_blob", "remove_blob_use"):
                statements.run(query, session, name)


def unscrubbed(statements: Statements) -> tuple[set[int], set[int]]:
    """The sessions that were erased, and those that have lost entries, since the files were last
    clean.
    """
    noted = statements.run("get_fact", "unscrubbed").get
    if not noted:
        return set(), set()
    import json

    gone, blanked = json.loads(noted)
    return set(gone), set(blanked)


def owe_scrubbing(
    statements: Statements, gone: Collection[int], blanked: Collection[int]
) -> None:
    """Inside the transaction that erases: these are to be scrubbed, and those that still were."""
    before = unscrubbed(statements)
    _note_unscrubbed(statements, before[0].union(gone), before[1].union(blanked))


def scrub(
    statements: Statements, gone: Collection[int], blanked: Collection[int]
) -> bool:
    """Leaves nothing of what was deleted in free pages or in the WAL; False when a reader is in the
    way of that.

    Free pages are taken into a table of zeros, which is then dropped: two transactions, because
    pages that are freed in the one that took them are not written.
    """
    connection = statements.connection
    run = connection.execute
    # of one that was killed between the two transactions
    run("DROP TABLE IF EXISTS scrub")
    left = run("PRAGMA freelist_count").get * run("PRAGMA page_size").get
    if left:
        with transaction(connection, "IMMEDIATE"):
            run("CREATE TABLE scrub (zeros BLOB)")
            while left > 0:
                run(
                    "INSERT INTO scrub VALUES (zeroblob(?))", (min(left, _SCRUB_BYTES),)
                )
                left -= _SCRUB_BYTES
        run("DROP TABLE scrub")
    run("PRAGMA secure_delete=FAST").fetchall()
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    # SQLite cuts the WAL short without a sync, and after a power cut the old one would
    # be there
    # again, words and all. The next commit syncs it.
    before = unscrubbed(statements)
    _note_unscrubbed(
        statements, before[0].difference(gone), before[1].difference(blanked)
    )
    return True


def _note_unscrubbed(statements: Statements, gone: set[int], blanked: set[int]) -> None:
    import json

    noted = json.dumps([sorted(gone), sorted(blanked)])
    statements.run("set_fact", "unscrubbed", noted)
