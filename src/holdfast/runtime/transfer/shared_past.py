"""Whether a past that a file tells is the one that a session here has.

A fork that comes back to where its parent is shares the past again, instead of bringing a copy. It
has to be the same past, entry by entry; words may be gone from it on either side, because an erasure
is not another history.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from holdfast.domain.entry import Entry
from holdfast.domain.erasure import tombstone
from holdfast.errors import Damaged
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.transfer.compare_logs import is_same_place


def is_past_of(
    parent: SessionLog, past: Iterable[Entry], named_here: Callable[[Entry], Entry]
) -> bool:
    """Whether these entries are a beginning of this session's log. `named_here` gives an entry with
    the names that sessions have here: those that the log was stored with may be older.
    """
    # What can't be read can't be compared: then the fork comes with its own copy.
    with suppress(Damaged):
        here: list[Entry] = []
        for told in past:
            if not here:
                here = parent.page(told.seq - 1)[::-1]
            if not here or not _is_same(told, named_here(here.pop())):
                return False
        return True
    return False


def _is_same(one: Entry, other: Entry) -> bool:
    return one == other or has_lost_words(one, other) or has_lost_words(other, one)


def has_lost_words(one: Entry, other: Entry) -> bool:
    """Whether `one` is what an erasure has left of `other`."""
    return is_same_place(one, other) and not one.body and one.note == tombstone(other)
