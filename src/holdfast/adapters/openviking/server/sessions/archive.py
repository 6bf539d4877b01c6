"""Archives: what a commit says, what its extraction said, and where a session stands.

Each is a label on a message of the session (I-13), so it is one entry of the log, written in the
transaction that makes it true. A label of a session that has been committed a thousand times is
found without reading the others: each extraction names the one before it, and one further back.
"""

from typing import Any

import msgspec

ARCHIVED = "openviking_archive"
EXTRACTED = "openviking_extracted"
STANDING = "openviking_standing"
SETTINGS = "openviking_settings"

Json = dict[str, Any]


class SessionArchive(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit. `first` and `last` are seqs of messages: it holds all from the one to the other.
    `total` counts what was archived in this session up to here. `outputs` are seqs of messages with
    long outputs of tools. `working_memory`: an overview was asked for. `reset`: the context begins
    anew after it. `asked` is what the commit was asked for besides.
    """

    number: int
    first: int
    last: int
    messages: int
    total: int
    at: int
    message: str
    """The id of the last message, which the labels are on."""
    outputs: tuple[int, ...] = ()
    working_memory: bool = False
    reset: bool = False
    asked: Json = {}

    @property
    def name(self) -> str:
        return archive_name(self.number)


class Extracted(msgspec.Struct, frozen=True, omit_defaults=True):
    """An archive whose extraction is done. `previous` is the seq of the label that says so of the
    archive before it, `further` that of one further back.
    """

    archive: SessionArchive
    at: int
    overview: str = ""
    abstract: str = ""
    memories: dict[str, int] = {}
    previous: int = 0
    further: int = 0


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session stands when a compaction is made: what a load that begins there can't read
    any more.

    `last` is the last commit; `unfinished` are those whose extraction is yet to be done. `extracted`
    and `extracted_at` are the number of the last archive whose extraction is done, and the seq of
    the label that says so.
    """

    last: SessionArchive
    unfinished: tuple[SessionArchive, ...] = ()
    extracted: int = 0
    extracted_at: int = 0
    memories: dict[str, int] = {}
    settings: Json = {}
    settings_message: str = ""


def archive_name(number: int) -> str:
    """The name that clients know an archive by."""
    return f"archive_{number:03d}"


def number_of(name: str) -> int | None:
    """The number of the archive with this name; None when no archive is called so."""
    digits = name.removeprefix("archive_")
    # `int` takes more than digits, and a number of a thousand digits, too.
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return None
    number = int(digits)
    return number if number > 0 and archive_name(number) == name else None


def further_back(number: int) -> int:
    """The number of the archive that this one names besides its predecessor: with the lowest bit
    taken away, so that any other is reached in a few steps.
    """
    # As in a Fenwick tree: a thousand archives are ten steps.
    return number & (number - 1)
