"""A private copy of somebody's store, and whether it is in use: the original is never opened by
anything that writes.

Even a read-only connection to a SQLite file in WAL mode writes a `-shm` file beside it, and the
file without its `-wal` lacks the last turns. So files are copied, the log with them, into a folder
of our own; the original keeps its bytes, its times and its neighbours. A store that is written
meanwhile is copied again until a copy is of one moment. A log that is damaged is told, and in the
copy it is made readable behind the damage. Links inside a store are not followed: what they point
to is somebody else's.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import StoreUnavailable
from holdfast.importers.own_folder import OwnFolder
from holdfast.importers.reader import UnreadableRecord
from holdfast.importers.values import StrPath
from holdfast.write_ahead_log import (
    HEADER_BYTES,
    PAGE_BYTES_MAX,
    bring_back,
    log_damage,
)

TRIES = 20
GRAIN_NS = 200_000_000
"""Longer than a tick of any kernel. File systems tell the time by it at best: two changes within
one tick have the same time.
"""
_BLOCK = 1 << 20
INDEX_BYTES = 64 << 10
_DEPTH_MAX = 64
# Bytes in the name of a copy: file systems take 255, and SQLite puts files beside it
# with longer names.
_NAME_MAX = 240
SQLITE_MAGIC = b"SQLite format 3\x00"
PREFIX = "holdfast-private-"
STILL_WRITTEN = "it is written without a pause, and no copy of one moment could be made"
"""What is told of a store of which nothing is known: it may well be sound."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Device and inode of a file, which are its identity, and behind them its size and its time.
Stamp = tuple[int, ...]


class NoRoom(OSError):
    """There is no room for a private copy. Nothing is wrong with the store."""

    def __init__(
        self,
        folder: str,
        problem: str,
        remedy: str = "free some, or set TMPDIR to another folder",
    ) -> None:
        sentence = f"There is no room for a private copy ({problem}); {remedy}"
        super().__init__(errno.ENOSPC, sentence, folder)


class PrivateCopy:
    """A folder of our own with a copy of a store in it; `path` is the copy. Of a source that is a
    folder, only these `folders` of it are copied, or all if there are none. `left_out` tells what
    lies beside a file, belongs to it, and is none itself: the store is read without it.
    """

    def __init__(
        self,
        source: StrPath,
        *,
        beside: tuple[str, ...] = ("-wal",),
        folders: tuple[Path, ...] = (),
    ) -> None:
        self.source = Path(source)
        self.left_out: list[UnreadableRecord] = []
        try:
            self._folder = OwnFolder(PREFIX)
        except OSError as error:
            if error.errno in _FULL:
                raise _no_room(error) from error
            raise StoreUnavailable(
                where=tempfile.gettempdir(),
                problem=f"a private copy can't be made ({error.strerror})",
                remedy="Set TMPDIR to a folder of yours",
            ) from error
        self.path = self._folder.path / _name_of(self.source)
        try:
            self._copy(beside, folders)
        except BaseException as error:
            # Nobody else closes what could not be made, and it may hold half a conversation.
            self.close()
            if not isinstance(error, OSError) or isinstance(error, NoRoom):
                raise
            # The disk may fill up while the copy is made: that says nothing of the store.
            if error.errno in _FULL:
                raise _no_room(error) from error
            problem = f"it can't be read ({error.strerror or error})"
            remedy = "Check the path and its rights"
            raise StoreUnavailable(
                where=str(source), problem=problem, remedy=remedy
            ) from error

    def _pairs(self, beside: tuple[str, ...]) -> list[tuple[Path, Path]]:
        """The files of a database, each with the name that its copy gets."""
        # Its log lies beside the file, not beside a link to it.
        real = Path(os.path.realpath(self.source))
        pairs = [(real, self.path)]
        for tail in beside:
            if self._takes(real, tail):
                pairs.append((Path(f"{real}{tail}"), Path(f"{self.path}{tail}")))
        return pairs

    def _copy_folders(self, folders: tuple[Path, ...]) -> None:
        files: list[Path] = []
        for folder in folders:
            files += _files_below(folder)
        self._insist_on_room(files)
        for folder in folders:
            target = self.path / folder.relative_to(self.source)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy_folder(folder, target)

    def _copy(self, beside: tuple[str, ...], folders: tuple[Path, ...]) -> None:
        if self.source.is_dir():
            self._copy_folders(folders or (self.source,))
            return
        pairs = self._pairs(beside)
        self._insist_on_room(source for source, _ in pairs)
        # Made a moment ago, by the clock that files have their times from.
        began = os.stat(self._folder.path).st_mtime_ns
        for _ in range(TRIES):
            # A file and its log of different moments are no store: one that changed meanwhile is
            # copied again.
            before = [_stamp(source) for source, _ in pairs]
            is_quiet = _are_old(before, began)
            use = _use_of_log(pairs)
            for source, target in pairs:
                target.unlink(missing_ok=True)
                if source.exists():
                    _copy_file(source, target)
            is_same = before == [_stamp(source) for source, _ in pairs]
            if (is_same and (is_quiet or _are_as_copied(pairs))) or (
                use and _cut_to_one_moment(pairs, use)
            ):
                self._look_at_log()
                return
        raise StoreUnavailable(
            where=str(self.source),
            problem=STILL_WRITTEN,
            remedy="Stop the program that writes it",
        )

    def _look_at_log(self) -> None:
        """SQLite would read a damaged log up to the damage, and say nothing."""
        log = f"{self.path}-wal"
        start = read_start(self.path, 18)
        # SQLite writes 65536 as 1
        page_bytes = int.from_bytes(start[16:18], "big")
        page_bytes = PAGE_BYTES_MAX if page_bytes == 1 else page_bytes
        damage = log_damage(log, page_bytes=page_bytes)
        if damage is not None:
            read = bring_back(log, damage, page_bytes=page_bytes)
            problem = (
                f"{damage.place} of this log is damaged; the {damage.behind} frames behind it, "
                "which SQLite drops without a word, "
            )
            problem += "were read" if read else "are in the database already"
            if damage.lost or damage.cut:
                problem += (
                    ". What was stored in the part that is damaged, and was not written again "
                    "later, is lost"
                )
            place = f"{self.source.name}-wal"
            self.left_out.append(UnreadableRecord(None, place, problem))

    def _takes(self, real: Path, tail: str) -> bool:
        """Whether a file's neighbour is one: a link leads to what is somebody else's, and a pipe
        says nothing.
        """
        try:
            mode = os.lstat(f"{real}{tail}").st_mode
        except OSError as error:
            # There is none now, and there may be one when it is copied; unless no file can have
            # such a name.
            return error.errno != errno.ENAMETOOLONG
        if stat.S_ISREG(mode):
            return True
        what = "no regular file"
        if stat.S_ISLNK(mode):
            what = "a link"
        elif stat.S_ISDIR(mode):
            what = "a folder"
        problem = f"it is {what}, which is not followed: the store was read without it"
        self.left_out.append(
            UnreadableRecord(None, f"{self.source.name}{tail}", problem)
        )
        return False

    def _insist_on_room(self, files: Iterable[Path]) -> None:
        needed = largest = 0
        for file in files:
            found = _stamp(file)
            if found is not None:
                # SQLite makes an index of the log beside the copy.
                index = INDEX_BYTES if is_sqlite(file) else 0
                needed += found[2] + index
                largest = max(largest, found[2], index)
        limit = _file_bytes_max()
        if limit is not None and largest > limit:
            raise _too_large(
                f"a file of {largest:,} bytes is needed, and this process may write {limit:,}"
            )
        free = shutil.disk_usage(self._folder.path).free
        if needed > free:
            raise NoRoom(
                tempfile.gettempdir(),
                f"{needed:,} bytes are needed and {free:,} are free",
            )

    def close(self) -> None:
        self._folder.close()

    def __enter__(self) -> "PrivateCopy":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _no_room(error: OSError) -> NoRoom:
    if error.errno == errno.EFBIG:
        return _too_large("this process may not write a file of that size")
    return NoRoom(tempfile.gettempdir(), "it is full")


def _too_large(problem: str) -> NoRoom:
    return NoRoom(
        tempfile.gettempdir(), problem, "raise the limit of files, `ulimit -f`"
    )


def _file_bytes_max() -> int | None:
    """How large a file this process may write; None where nobody has set a limit."""
    try:
        import resource
    except ImportError:
        return None  # not on this system
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _name_of(source: Path) -> str:
    """What the copy is called: as its source, if the files beside it can be called after it too."""
    # Names of files are counted in bytes, not in characters.
    fits = len(os.fsencode(source.name)) <= _NAME_MAX
    return source.name if source.name and fits else f"store{source.suffix[:16]}"


def is_live(*paths: StrPath) -> bool:
    """Whether some process of this machine has one of these files, or a file of one of these
    folders, open.
    """
    wanted: set[Stamp] = set()
    for path in paths:
        wanted |= _identities(Path(path))
    if not wanted or not os.path.isdir("/proc"):
        return False
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            if not wanted.isdisjoint(_opened_by(process)):
                return True
    return False


def _opened_by(process: str) -> Iterator[Stamp]:
    """The files that a process has open; none when it is gone, or somebody else's."""
    folder = f"/proc/{process}/fd"
    try:
        numbers = os.listdir(folder)
    except OSError:
        return
    for number in numbers:
        # A machine has thousands: no more is made of each than is looked at.
        try:
            found = os.stat(f"{folder}/{number}")
        except OSError:
            continue
        yield found.st_dev, found.st_ino


def is_sqlite(path: StrPath) -> bool:
    """Whether a file begins as SQLite's files do."""
    try:
        return read_start(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def opened(path: StrPath) -> BinaryIO:
    """A regular file, opened to be read without a trace."""
    number = _open(path)
    # Of what was opened, not of the path: it may have been replaced between the two.
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return open(number, "rb")


def read_start(path: StrPath, size: int) -> bytes:
    """The first bytes of a file, read without a trace."""
    number = _open(path)
    try:
        return os.read(number, size)
    finally:
        os.close(number)


def listed(folder: StrPath) -> list[tuple[Path, bool]]:
    """What lies in a folder, by name, and whether it is a folder itself: read without a trace.
    Links, and whatever else is neither a folder nor a regular file, are left out.
    """
    number = _open(folder)
    try:
        with os.scandir(number) as items:
            found = []
            for item in items:
                is_folder = item.is_dir(follow_symlinks=False)
                if is_folder or item.is_file(follow_symlinks=False):
                    found.append((Path(folder, item.name), is_folder))
    finally:
        os.close(number)
    return sorted(found)


def _files_below(folder: Path, depth: int = 0) -> list[Path]:
    """All files of a folder. No store is nested as deep as a folder can be made to be."""
    if depth > _DEPTH_MAX:
        return []
    found = []
    for path, is_folder in listed(folder):
        if is_folder:
            found += _files_below(path, depth + 1)
        else:
            found.append(path)
    return found


def _identities(path: Path) -> set[Stamp]:
    if path.is_dir():
        names = _files_below(path)
    else:
        # SQLite may hold the log open and the database not.
        names = [path, Path(f"{path}-wal")]
    stamps = map(_stamp, names)
    return {stamp[:2] for stamp in stamps if stamp is not None}


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _copy_folder(source: Path, target: Path, depth: int = 0) -> None:
    """Regular files only: what a link points to is not part of the store. What a running program
    takes away meanwhile, a lock file say, is not there.
    """
    target.mkdir(mode=0o700)
    for path, is_folder in listed(source):
        try:
            if not is_folder:
                _copy_file(path, target / path.name)
            elif depth < _DEPTH_MAX:
                _copy_folder(path, target / path.name, depth + 1)
        # What is gone by now is not part of the store as it is now.
        except FileNotFoundError:
            continue


def _are_old(stamps: list[Stamp | None], began: int) -> bool:
    """Whether a change from then on has another time than these."""
    for stamp in stamps:
        if stamp is not None and began - stamp[3] < GRAIN_NS:
            return False
    return True


def _are_as_copied(pairs: list[tuple[Path, Path]]) -> bool:
    for source, target in pairs:
        if source.exists() != target.exists():
            return False
        if source.exists() and not _is_same(source, target):
            return False
    return True


def _use_of_log(pairs: list[tuple[Path, Path]]) -> bytes:
    """The header of a database's write-ahead log: another one each time that SQLite begins it anew.
    Empty if there is none.
    """
    for source, _ in pairs:
        if source.name.endswith("-wal") and source.exists():
            return read_start(source, HEADER_BYTES)
    return b""


def _cut_to_one_moment(pairs: list[tuple[Path, Path]], use: bytes) -> bool:
    """Makes the copies of a database and of its log, which was copied after it, a store of one
    moment. False if the log was begun anew since.

    Until then it only grows. What a checkpoint has brought into the database meanwhile is in the log,
    too, and is read from there. What was in the log both times that it was read was whole the first
    time: the copy is cut behind that.
    """
    [(log, copy)] = [pair for pair in pairs if pair[0].name.endswith("-wal")]
    if len(use) < HEADER_BYTES or not (log.exists() and copy.exists()):
        return False
    stays = 0
    number = _open(log, os.O_NOFOLLOW)
    try:
        with open(copy, "rb") as copied:
            while block := copied.read(_BLOCK):
                now = os.read(number, len(block))
                if now != block:
                    stays += len(os.path.commonprefix([block, now]))
                    break
                stays += len(block)
    finally:
        os.close(number)
    os.truncate(copy, stays)
    return read_start(copy, HEADER_BYTES) == use


def _is_same(source: Path, target: Path) -> bool:
    number = _open(source, os.O_NOFOLLOW)
    try:
        with open(target, "rb") as copy:
            while block := os.read(number, _BLOCK):
                if block != copy.read(len(block)):
                    return False
            return not copy.read(1)
    finally:
        os.close(number)


def _copy_file(source: Path, target: Path) -> None:
    number = _open(source, os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(source))
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as copy:
            while block := os.read(number, _BLOCK):
                copy.write(block)
    finally:
        os.close(number)


def _open(path: StrPath, more: int = 0) -> int:
    """For reading, without a mark on the time it was last read where the system allows that."""
    # Not to be blocked by a pipe that somebody put where a file should be.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | more
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    # Only its owner may read a file without a mark on its time.
    except PermissionError:
        return os.open(path, flags)
