"""The sessions that an entry names, under the ids that they have elsewhere."""

import pytest

from holdfast.domain.entry import Closed, Entry, Opened, Posted, Taken, TurnStarted, note_of, noted
from holdfast.domain.log.relatives import renamed
from holdfast.domain.message import Note

A = "a0000000-0000-4000-8000-000000000000"
B = "b0000000-0000-4000-8000-000000000000"
C = "c0000000-0000-4000-8000-000000000000"
MESSAGE, OTHER = "1" * 32, "2" * 32
ELSEWHERE = {A: "aa", B: "bb"}

NAMING = {
    "key and past": (
        "opened",
        Opened(A, 2, previous=B, parent=A, parent_seq=3),
        Opened(A, 2, previous="bb", parent="aa", parent_seq=3),
    ),
    "messages that a turn began with": (
        "turn",
        TurnStarted((MESSAGE, OTHER), reply_to=A, event=B, brought={MESSAGE: A, OTHER: C}),
        TurnStarted((MESSAGE, OTHER), reply_to=A, event=B, brought={MESSAGE: "aa", OTHER: C}),
    ),
    "messages that a turn took": (
        "take",
        Taken((MESSAGE,), brought={MESSAGE: B}),
        Taken((MESSAGE,), brought={MESSAGE: "bb"}),
    ),
    "messages that another took": (
        "take",
        Taken((MESSAGE,), session=A),
        Taken((MESSAGE,), session="aa"),
    ),
    "messages that went on": (
        "closed",
        Closed(A, (MESSAGE,), B),
        Closed(A, (MESSAGE,), "bb"),
    ),
    "a reply that its turn confirmed": (
        "post",
        Posted(f"{A}:12", "sent", platform_id=f"{A}:12"),
        Posted("aa:12", "sent", platform_id=f"{A}:12"),
    ),
}


def entry(kind: str, note: Note) -> Entry:
    return Entry(5, kind, None, b"1" * 16, 7, noted(note), b"")


@pytest.mark.parametrize("case", NAMING)
def test_what_names_a_session_is_renamed_and_nothing_else(case: str) -> None:
    kind, before, after = NAMING[case]
    told = renamed(entry(kind, before), lambda id: ELSEWHERE.get(id, id))
    assert told == entry(kind, after)
    assert note_of(kind, told.note) == after


@pytest.mark.parametrize("case", NAMING)
def test_an_entry_whose_sessions_keep_their_ids_stays_as_it_is(case: str) -> None:
    kind, note, _ = NAMING[case]
    # As another writer may have put it.
    spaced = entry(kind, note).note.replace(b",", b" , ")
    given = Entry(5, kind, None, b"1" * 16, 7, spaced, b"")
    assert renamed(given, lambda id: id) is given


@pytest.mark.parametrize(
    "given",
    [
        Entry(5, "message", None, b"1" * 16, 7, b"", f'{{"text":"{A}"}}'.encode()),
        Entry(5, "turn", 1, b"1" * 16, 7, b"", b""),
        entry("post", Posted("1" * 32, "sent")),
        entry("closed", Closed(A)),
    ],
    ids=lambda given: given.kind,
)
def test_an_entry_that_names_no_session_stays_as_it_is(given: Entry) -> None:
    assert renamed(given, lambda id: "aa") is given
