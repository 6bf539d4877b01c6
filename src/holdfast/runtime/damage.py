"""Where damage lies in a session: a payload that is no longer what was stored is named by its entry (I-18).

The engine tells what it can't read. What it reads and nobody can understand, because a block of the disk was lost in
the middle of a text, is found when it is thawed; the place is looked for only then.
"""

from collections.abc import Callable

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.message import thaw
from holdfast.errors import Damaged


def located(error: Damaged, where: str, session: str, page: Callable[[int], list[Entry]]) -> Damaged:
    """The same error with its place in this session. `page` gives the log after a seq, page by page."""
    if error.where == where:
        return error
    after = 0
    while entries := page(after):
        for entry in entries:
            if not _is_readable(entry):
                problem = f"entry {entry.seq} of session `{session}` can't be read back: {error.problem}"
                return Damaged(where=where, problem=problem)
        after = entries[-1].seq
    return Damaged(where=where, problem=f"session `{session}` can't be read back: {error.problem}")


def _is_readable(entry: Entry) -> bool:
    try:
        note_of(entry.kind, entry.note) if entry.note else None
        thaw(entry.body) if entry.body else None
    except Damaged:
        return False
    return True
