"""A foreign session: one that another program kept, in Holdfast's words.

Every reader of a foreign store gives these; importing, exporting and healing know no other shape.
Its lines stand in the order in which they happened. Each has an
origin, its identity in the store it comes from, which must be the same whenever that store is read
again, however much it has grown: that is how a session is brought over twice and comes in once.
Payloads are carried as they were found.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from holdfast.domain.message import Usage
from holdfast.importers.values import JsonObject

# The label of what is kept for readers and not shown to the model.
HIDDEN = {"visible_to_model": False}

# How a session follows from its parent: its history went on here after a compaction,
# was copied up to a point, or gave this one a task.
Lineage = Literal["continues", "branch", "delegate"]


class ForeignMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something somebody said. `at` is in milliseconds, None where the store does not tell.
    `labels` say what the store or a healer knows of it: `visible_to_model`, `incomplete`,
    `recovered` and the like.
    """

    origin: str
    place: str
    role: str
    payload: Any
    format: str
    at: int | None = None
    labels: JsonObject = {}
    usage: Usage | None = None
    model: str | None = None


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compaction: from here on `text` stands for all that came before, but for the lines with the
    origins `keeps`. The model sees it first and then those lines; or all of them in the order of
    `shows`, where its own origin is. `is_shown`: these are the words that the program's own model
    sees, and they say what they are.
    """

    origin: str
    place: str
    text: str
    keeps: tuple[str, ...] = ()
    at: int | None = None
    shows: tuple[str, ...] = ()
    is_shown: bool = False


ForeignLine = ForeignMessage | Summary


class ForeignLines(msgspec.Struct, frozen=True):
    """Lines that are read anew whenever somebody goes through them."""

    read: Callable[[], Iterator[ForeignLine]]

    def __iter__(self) -> Iterator[ForeignLine]:
        return self.read()


class ForeignSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session of a foreign store. `lines` can be gone through again and again, and need not be in
    memory.

    `key` is the stable name its users know it by, and `current` tells whether that key means this
    session now. With a `parent` of the same store, the lines begin after what it shares with it,
    which ends with the parent's line `parent_origin` (None: with its last one). `facts` is all else
    that the store knows of the session, as found.
    """

    kind: str
    id: str
    place: str
    lines: Iterable[ForeignLine]
    key: str | None = None
    current: bool = True
    title: str | None = None
    opened_at: int | None = None
    ended: str | None = None
    ended_at: int | None = None
    instructions: str | None = None
    parent: str | None = None
    lineage: Lineage | None = None
    parent_origin: str | None = None
    facts: JsonObject = {}
