"""What an entry from somebody's file may name, judged by itself: before its log is looked at."""

import pytest

from holdfast.domain.entry import (
    Blanked,
    Closed,
    Compacted,
    Entry,
    Labelled,
    Note,
    Opened,
    Posted,
    Retracted,
    Rewound,
    Shape,
    Taken,
    TurnEnded,
    TurnStarted,
    noted,
)
from holdfast.errors import Damaged
from holdfast.runtime.transfer.vet import vet_entry

MESSAGE = "ab" * 16
SESSION = "01234567-89ab-4cde-8f01-23456789abcd"
STRANGE = "../../etc"


def entry(kind: str, note: Note) -> Entry:
    return Entry(seq=9, kind=kind, turn=None, id=b"\1" * 16, at=1, note=noted(note), body=b"")


FINE = [
    ("label", Labelled(message=MESSAGE)),
    ("retract", Retracted(messages=(MESSAGE,))),
    ("rewind", Rewound(to=MESSAGE, gone=((3, 8),), turns=((1, 2),), cut=(4,))),
    ("view", Shape(ranges=((1, 8),), restored=(2,))),
    ("turn", TurnStarted(takes=(MESSAGE,), brought={MESSAGE: SESSION})),
    ("take", Taken(takes=(MESSAGE,), session=SESSION)),
    ("closed", Closed(moved=(MESSAGE,), session=SESSION)),
    ("post", Posted(owed=MESSAGE, end="sent")),
    ("post", Posted(owed=f"{SESSION}:3", end="sent")),
    ("opened", Opened(key="k", previous=SESSION)),
    ("blanked", Blanked(seqs=(1, 8))),
]
STRANGERS = [
    ("label", Labelled(message=STRANGE)),
    ("retract", Retracted(messages=(MESSAGE, STRANGE))),
    ("rewind", Rewound(to=STRANGE)),
    ("turn", TurnStarted(takes=(STRANGE,))),
    ("turn", TurnStarted(brought={STRANGE: SESSION})),
    ("turn", TurnStarted(brought={MESSAGE: STRANGE})),
    ("take", Taken(takes=(MESSAGE,), session=STRANGE)),
    ("end", TurnEnded(returns=(STRANGE,))),
    ("closed", Closed(moved=(STRANGE,))),
    ("closed", Closed(session=STRANGE)),
    ("post", Posted(owed=STRANGE, end="sent")),
    ("opened", Opened(key="k", previous=STRANGE)),
    ("opened", Opened(key="")),
]
ELSEWHERE = [
    ("rewind", Rewound(to=MESSAGE, gone=((3, 10),))),
    ("rewind", Rewound(to=MESSAGE, gone=((8, 3),))),
    ("rewind", Rewound(to=MESSAGE, turns=((2, 1),))),
    ("rewind", Rewound(to=MESSAGE, cut=(10,))),
    ("view", Shape(ranges=((-1, 3),))),
    ("view", Shape(restored=(10,))),
    ("compaction", Compacted(covers=((1, 10),))),
    ("compaction", Compacted(aside=(-1,))),
    ("compaction", Compacted(since=2**60)),
    ("label", Labelled(message=MESSAGE, seq=-1)),
    ("opened", Opened(key="k", epoch=-1)),
    ("blanked", Blanked(seqs=(10,))),
]


@pytest.mark.parametrize(("kind", "note"), FINE)
def test_what_names_what_can_be_there_is_taken(kind: str, note: Note) -> None:
    vet_entry(entry(kind, note))


@pytest.mark.parametrize(("kind", "note"), STRANGERS)
def test_a_name_that_is_none_is_refused(kind: str, note: Note) -> None:
    with pytest.raises(Damaged, match="is no id of one|is not the id|is not a key"):
        vet_entry(entry(kind, note))


@pytest.mark.parametrize(("kind", "note"), ELSEWHERE)
def test_a_place_that_is_not_before_it_is_refused(kind: str, note: Note) -> None:
    with pytest.raises(Damaged, match="are not places|a number that counts"):
        vet_entry(entry(kind, note))
