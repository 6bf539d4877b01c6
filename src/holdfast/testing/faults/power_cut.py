"""A simulated power cut: what a disk may still hold when the power fails at any sync point.

    with Tape(moment=lambda: len(life.acts)) as tape:
        life.live("agent.db")
    for cut in tape.cuts(seed=7):
        cut.lay(folder)                 # the files as they are found afterwards; open a store there
        life.acts[: cut.acts]           # what callers had been told by then

A `Tape` stands between SQLite and the disk for the time of a `with` block (`seam`). It passes
everything on and writes down, in order, what was done to which file. Nothing is cut while it runs:
the cuts are computed from the tape afterwards, one before and one after every sync point, each in
several ways:

    dropped    nothing that was not synced is left: neither writes nor lengths nor names
    torn       of what was not synced, chance keeps some sectors of 512 bytes, in any order, and not others; a file may
               have its new length and zeros in it; of new, deleted and replaced names a first part is kept
    kept       everything is left, as when only the process was killed

A name is synced with its folder. SQLite syncs the folder at the first sync of a log or a journal
that it may have made, and after a deletion that asks for it; the tape takes it at that. A file that
was there before the tape began is taken to be synced, an empty one to be new. Files that are not
SQLite's are not on the tape: the store has one, the fair lock, and nothing depends on what is in
it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import apsw

from holdfast.engine.sqlite.file_guard.permissions import make_owned
from holdfast.testing.dice import Dice
from holdfast.testing.faults.seam import Seam, SeamVfs, path_of

# The smallest unit in which a disk is taken to write.
SECTOR = 512
How = Literal["dropped", "torn", "kept"]
When = Literal["before", "after"]
WAYS: tuple[How, ...] = ("dropped", "torn")

_JOURNALS = (
    apsw.SQLITE_OPEN_WAL
    | apsw.SQLITE_OPEN_MAIN_JOURNAL
    | apsw.SQLITE_OPEN_SUPER_JOURNAL
)


class DiskEvent(NamedTuple):
    """Something that was done to a file. `file` is a number like an inode's: another file of the
    same name has another one. `acts` is what `moment` said just before.
    """

    verb: Literal["find", "make", "write", "truncate", "sync", "delete"]
    path: str
    file: int
    acts: int
    offset: int = 0
    data: bytes = b""
    folder: bool = False
    """The folder was synced with it."""


class Cut(NamedTuple):
    """A cut: before or after this event of the tape, and the files by name as they are found
    afterwards.
    """

    number: int
    when: When
    how: How
    acts: int
    files: dict[str, bytes]

    def lay(self, folder: str | os.PathLike[str]) -> None:
        """Puts the files into a folder, under their own names."""
        for path, content in self.files.items():
            place = os.path.join(folder, os.path.basename(path))
            make_owned(place)
            with open(place, "wb") as file:
                file.write(content)

    def __str__(self) -> str:
        sizes = {}
        for path, content in self.files.items():
            sizes[os.path.basename(path)] = len(content)
        return f"power cut {self.when} event {self.number}, {self.how}, {self.acts} told: {sizes}"


class Tape(Seam):
    """What SQLite does to its files. `moment` is asked with every event how much callers have been
    told; `only` says which files are on the tape.
    """

    def __init__(
        self,
        *,
        moment: Callable[[], int] = lambda: 0,
        only: Callable[[str], bool] | None = None,
    ) -> None:
        self._moment = moment
        self.only = only or (lambda path: True)
        self._lock = threading.Lock()
        self._files: dict[str, int] = {}
        self.events: list[DiskEvent] = []

    def meet(self, path: str, content: bytes) -> None:
        """A file was opened. One that is new to the tape is new on the disk, too, unless there is
        something in it.
        """
        with self._lock:
            # A name that was deleted and made again is another file, with another number.
            if path not in self._files:
                self._files[path] = len(self.events) + 1
                self._add("find" if content else "make", path, data=content)

    def note(self, verb: Any, path: str, **facts: Any) -> None:
        with self._lock:
            self._add(verb, path, **facts)
            if verb == "delete":
                del self._files[path]

    def _add(self, verb: Any, path: str, **facts: Any) -> None:
        self.events.append(
            DiskEvent(verb, path, self._files.get(path, 0), self._moment(), **facts)
        )

    def cuts(
        self, *, seed: int = 0, ways: Sequence[How] = WAYS, every_act: bool = False
    ) -> Iterator[Cut]:
        """Every cut: before and after each sync point; with `every_act` also each time callers
        have been told something.
        """
        disk = Disk()
        acts = 0
        # Before all else: what was found was on the disk already.
        for event in self.events:
            disk.find(event)
        for number, event in enumerate(self.events):
            is_sync = event.verb == "sync" or event.folder
            if is_sync or (every_act and event.acts > acts):
                yield from disk.cuts(number, "before", event.acts, ways, seed)
            acts = event.acts
            disk.take(event)
            if is_sync:
                yield from disk.cuts(number, "after", event.acts, ways, seed)


class Disk:
    """A disk, fed with events: what is synced, and what is only written."""

    def __init__(self) -> None:
        self._contents: dict[int, bytes] = {}
        self._waiting: dict[int, list[DiskEvent]] = {}
        self._names: dict[str, int] = {}
        self._renaming: list[DiskEvent] = []

    def find(self, event: DiskEvent) -> None:
        """What was there before the first event."""
        if event.verb == "find":
            self._contents[event.file] = event.data
            self._names[event.path] = event.file

    def take(self, event: DiskEvent) -> None:
        """What was done next."""
        if event.verb == "find":
            return
        if event.verb in ("make", "delete"):
            self._renaming.append(event)
        # Only this file's: a sync says nothing of what was written to others.
        elif event.verb == "sync":
            content = bytearray(self._contents.get(event.file, b""))
            for waiting in self._waiting.pop(event.file, ()):
                _apply(content, waiting)
            self._contents[event.file] = bytes(content)
        else:
            self._waiting.setdefault(event.file, []).append(event)
        # Names come through together, in their order, when their folder is synced.
        if event.folder:
            self._names = self._named(len(self._renaming))
            self._renaming = []

    def cuts(
        self, number: int, when: When, acts: int, ways: Sequence[How], seed: int
    ) -> Iterator[Cut]:
        """A cut now, before or after this event, in each of these ways."""
        for how in ways:
            files = self.left(how, f"{seed}/{number}/{when}")
            yield Cut(number, when, how, acts, files)

    def left(self, how: How, seed: str) -> dict[str, bytes]:
        """The files that are found after a cut now."""
        dice = Dice(seed)
        # Of changes to names a first part has come through: they keep their order.
        count = dice.below(len(self._renaming) + 1)
        if how == "dropped":
            count = 0
        elif how == "kept":
            count = len(self._renaming)
        files = {}
        for path, file in self._named(count).items():
            files[path] = self._found(file, how, dice)
        return files

    def _named(self, count: int) -> dict[str, int]:
        """The names when the first `count` changes to them have come through: a folder's changes
        keep their order.
        """
        names = dict(self._names)
        for event in self._renaming[:count]:
            if event.verb == "make":
                names[event.path] = event.file
            else:
                names.pop(event.path, None)
        return names

    def _found(self, file: int, how: How, dice: Dice) -> bytes:
        content = bytearray(self._contents.get(file, b""))
        whole = bytearray(content)
        for event in self._waiting.get(file, ()):
            _apply(whole, event)
            if how == "kept":
                _apply(content, event)
            elif how == "torn":
                _apply_torn(content, event, dice)
        # A file may have its new length before it has what is to be there.
        if how == "torn" and len(content) < len(whole) and dice.below(2):
            content.extend(bytes(len(whole) - len(content)))
        return bytes(content)


def _apply(content: bytearray, event: DiskEvent) -> None:
    # A write beyond the end leaves a hole of zeros.
    if len(content) < event.offset:
        content.extend(bytes(event.offset - len(content)))
    if event.verb == "truncate":
        del content[event.offset :]
        return
    content[event.offset : event.offset + len(event.data)] = event.data


def _apply_torn(content: bytearray, event: DiskEvent, dice: Dice) -> None:
    if event.verb == "truncate":
        if dice.below(2):
            _apply(content, event)
        return
    end = event.offset + len(event.data)
    for start in range(event.offset - event.offset % SECTOR, end, SECTOR):
        if dice.below(2):
            first = max(start, event.offset)
            last = min(start + SECTOR, end)
            piece = event.data[first - event.offset : last - event.offset]
            _apply(content, event._replace(offset=first, data=piece))


class _RecordedFile(apsw.VFSFile):
    def __init__(
        self, base: str, name: Any, flags: list[int], tape: Tape, path: str
    ) -> None:
        super().__init__(base, name, flags)
        self._tape = tape
        self._path = path
        may_be_new = flags[0] & apsw.SQLITE_OPEN_CREATE
        self._syncs_folder = bool(flags[0] & _JOURNALS and may_be_new)
        size = super().xFileSize()
        tape.meet(path, super().xRead(size, 0) if size else b"")

    def xWrite(self, data: Any, offset: int) -> None:
        self._tape.note("write", self._path, offset=offset, data=bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._tape.note("truncate", self._path, offset=newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        # The real sync is left out: the tape knows what it means, and nothing here fails.
        self._tape.note("sync", self._path, folder=self._syncs_folder)
        self._syncs_folder = False


class _RecordingVfs(SeamVfs):
    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = path_of(name)
        # SQLite's own temporary files have no name, and nothing of them outlives a process.
        if not path or not self.seam.only(path):
            return apsw.VFSFile(self.base, name, flags)
        return _RecordedFile(self.base, name, flags, self.seam, path)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, False)
        if self.seam.only(filename):
            self.seam.note("delete", filename, folder=syncdir)


Tape.vfs = _RecordingVfs
