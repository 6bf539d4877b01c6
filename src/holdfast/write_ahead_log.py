"""What SQLite's write-ahead log holds behind a place that is damaged.

SQLite reads a log up to the first frame whose checksum is wrong, and takes what follows for the
rest of a write that was cut off. After a crash that is so. A bit that a disk has changed looks the
same to it: all that was committed behind it is dropped without a word, and with a damaged header
the whole log.

The two can be told apart. Each checksum goes on from the one before it, so a frame shows by itself
that it was written behind its neighbour; and what is committed is finished before the next commit
begins. So where, behind a frame that is wrong, a commit ends and the next one begins, the frame is
damaged, not cut off. The last commit of a log is the exception: of that one nobody can tell.

A header is on the disk before a frame is written. So frames that follow each other behind a beginning
that can't be read are a damaged log: a new one is empty, and one that is all zeros has no frames.
How they lie, and their salts, is seen from the frames themselves. What a log was used for before lies
behind what it holds now, so the first frames that follow each other are taken for the newest. Only
where one of the next use is left before them, with the next salt, they are old: the database holds
them already, and they are not read.

    header   magic, version, page size, checkpoint, 2 salts, 2 checksums        4 bytes each
    frame    page, pages of the database after a commit or 0, 2 salts, 2 checksums, the page itself
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

HEADER_BYTES, FRAME_BYTES = 32, 24
MAGIC = 0x377F0682
"""The last bit says in which order the bytes of a word are summed: 1 for the highest first."""
VERSION = 3_007_000
PAGE_BYTES_MIN, PAGE_BYTES_MAX = 512, 65536
CUT_FRAMES = 8
"""So many frames are looked at to see where those of a file begin whose start was cut off."""
_WORD = 0xFFFFFFFF

Checksum = tuple[int, int]


class LogDamage(NamedTuple):
    """Frame `first` of a log can't be read, or its header where that is 0, and with the header so many
    frames are `lost`, or nobody knows how many, if the file was `cut`; up to frame `last` the frames
    behind it are of the same log.
    """

    first: int
    last: int
    lost: int = 0
    cut: bool = False

    @property
    def place(self) -> str:
        """Where the damage is, for people."""
        if self.lost or self.cut:
            return "the beginning"
        return f"frame {self.first}" if self.first else "the header"

    @property
    def behind(self) -> int:
        """How many frames SQLite drops, because they lie behind the damage."""
        return self.last - self.first - self.lost


class _Shape(NamedTuple):
    """How the frames of a log are to be read."""

    page_bytes: int
    order: str
    salts: bytes
    start: int = HEADER_BYTES
    """Where the first frame lies: elsewhere, if the beginning of the file was cut off."""


class _Frame(NamedTuple):
    number: int
    page: int
    pages: int
    salts: bytes
    checksum: Checksum
    summed: bytes
    """What the checksum is of: the first two numbers, and the page."""


def log_damage(path: str, *, page_bytes: int, good: int = 0) -> LogDamage | None:
    """What is wrong with the log at this path, whose database has pages of this size; None when
    nothing is, as far as it shows. So many frames are known to be `good`, and are not read again.
    """
    with _opened(path) as log:
        return None if log is None else log.damage(page_bytes, good)


def bring_back(path: str, damage: LogDamage, *, page_bytes: int) -> int:
    """Gives the frames of a log new checksums, so that SQLite reads all of them up to the last; a
    frame that can't be of this database is left out. How many lay behind the damage and are read
    now: none, if they are of an older use of the log. For a private copy alone.
    """
    with _opened(path) as log:
        assert log is not None
        shape = log.shape(page_bytes)
        assert shape is not None
        is_past = log.is_past(shape, damage)
        made = b"" if is_past else b"".join(log.summed_anew(shape, damage))
    with open(path, "r+b") as file:
        file.write(made)
        file.truncate(len(made))
    return damage.behind if made else 0


class _Log:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._header = file.read(HEADER_BYTES)

    def damage(self, page_bytes: int, good: int) -> LogDamage | None:
        shape = self._told_shape()
        if shape is None:
            return self._damage_of_start(page_bytes)
        bad = self._first_bad(shape, good)
        if bad > self._count(shape) or not self._goes_on(shape, bad):
            return None
        return LogDamage(bad, self._last(shape, bad))

    def shape(self, page_bytes: int) -> _Shape | None:
        """How the frames are to be read: as the header says, or, where that is damaged, as they
        show it themselves; None when they show nothing.
        """
        told = self._told_shape()
        if told is not None:
            return told
        found = self._shown_shape(page_bytes)
        return found[0] if found else None

    def is_past(self, shape: _Shape, damage: LogDamage) -> bool:
        """Whether the log has been used anew since these frames were written: the first salt is
        counted up then.
        """
        salt = int.from_bytes(shape.salts[:4], "big")
        after = ((salt + 1) & _WORD).to_bytes(4, "big")
        for number in range(1, damage.lost + 1):
            if self._salts(shape, number)[:4] == after:
                return True
        return False

    def summed_anew(self, shape: _Shape, damage: LogDamage) -> Iterator[bytes]:
        """The log from its first byte to the last frame, with checksums that are right."""
        order = int(shape.order == ">")
        reused = int.from_bytes(self._header[12:16], "big")
        numbers = (MAGIC | order, VERSION, shape.page_bytes, reused)
        start = struct.pack(">4I", *numbers) + shape.salts
        checksum = _summed(start, (0, 0), shape.order)
        yield start + struct.pack(">2I", *checksum)
        pages = self._pages_max(shape, damage)
        for number in range(damage.lost + 1, damage.last + 1):
            frame = self._frame(shape, number)
            assert frame is not None
            if not 1 <= frame.page <= pages:
                continue
            summed = frame.summed
            checksum = _summed(summed, checksum, shape.order)
            sums = struct.pack(">2I", *checksum)
            yield summed[:8] + shape.salts + sums + summed[8:]

    def _told_shape(self) -> _Shape | None:
        """What the header says, if it is whole."""
        # Another process may have emptied the log since its size was looked at.
        if len(self._header) < HEADER_BYTES:
            return None
        magic, _, page_bytes, _ = struct.unpack(">4I", self._header[:16])
        order = ">" if magic & 1 else "<"
        if magic | 1 != MAGIC | 1 or not _is_page_size(page_bytes):
            return None
        if _summed(self._header[:24], (0, 0), order) != _pair(self._header[24:]):
            return None
        return _Shape(page_bytes, order, self._header[16:24])

    def _damage_of_start(self, page_bytes: int) -> LogDamage | None:
        found = self._shown_shape(page_bytes)
        if found is None:
            return None
        shape, first = found
        cut = shape.start != HEADER_BYTES
        return LogDamage(0, self._last(shape, first), first - 1, cut)

    def _shown_shape(self, page_bytes: int) -> tuple[_Shape, int] | None:
        """How frames without a header are to be read, and the first that belongs to the others: one
        follows from it, or it follows itself from what is left of the header.
        """
        if not _is_page_size(page_bytes):
            return None
        for order in "<>":
            shape = _Shape(page_bytes, order, b"")
            frame = self._frame(shape, 1)
            seeds = [
                _pair(self._header[24:].ljust(8, b"\0")),
                _summed(self._header[:24].ljust(24, b"\0"), (0, 0), order),
            ]
            if frame is not None and frame.page:
                if any(_follows(seed, frame, shape) for seed in seeds):
                    return shape._replace(salts=frame.salts), 1
        count = self._size // (FRAME_BYTES + page_bytes)
        shown = self._first_pair(page_bytes, HEADER_BYTES, count)
        if shown is not None:
            return shown
        # The first frames of a file that was cut are whole; they begin anywhere.
        for start in range(FRAME_BYTES + page_bytes):
            shown = self._first_pair(page_bytes, start, min(count, CUT_FRAMES))
            if shown is not None:
                return shown
        return None

    def _first_pair(
        self, page_bytes: int, start: int, count: int
    ) -> tuple[_Shape, int] | None:
        """The first of these frames that one follows from, if they begin there."""
        before = b""
        size = FRAME_BYTES + page_bytes
        for number in range(1, count + 1):
            self._file.seek(start + (number - 1) * size)
            told = self._file.read(16)
            # nobody has page 0; a salt of zeros is a place that nothing was written to
            is_one = any(told[:4]) and any(told[8:16])
            if is_one and told[8:] == before[8:]:
                for order in "<>":
                    shape = _Shape(page_bytes, order, told[8:], start)
                    one, two = (self._frame(shape, at) for at in (number - 1, number))
                    if one and two and _follows(one.checksum, two, shape):
                        return shape, number - 1
            before = told if is_one else b""
        return None

    def _first_bad(self, shape: _Shape, good: int) -> int:
        """The first frame that SQLite does not read."""
        known = self._frame(shape, good) if good else None
        before = known.checksum if known else _pair(self._header[24:])
        number = good + 1
        while (frame := self._frame(shape, number)) is not None:
            if frame.salts != shape.salts or not frame.page:
                break
            if not _follows(before, frame, shape):
                break
            before = frame.checksum
            number += 1
        return number

    def _goes_on(self, shape: _Shape, bad: int) -> bool:
        """Whether behind this frame, or with it, a commit ends and the next one begins."""
        before = self._frame(shape, bad - 1) if bad > 1 else None
        seed = before.checksum if before else _pair(self._header[24:])
        ended = self._frame(shape, bad)
        for number in range(bad + 1, self._count(shape) + 1):
            salts = self._salts(shape, number)
            if ended is not None and ended.pages and salts == shape.salts:
                frame = self._frame(shape, number)
                assert frame is not None
                # its own checksum may be what is damaged
                should = _summed(ended.summed, seed, shape.order)
                if any(_follows(one, frame, shape) for one in (ended.checksum, should)):
                    return True
            if salts != shape.salts:
                ended = None
                continue
            seed = ended.checksum if ended is not None else seed
            ended = self._frame(shape, number)
        return False

    def _last(self, shape: _Shape, bad: int) -> int:
        """The last frame behind this one that is of the same log."""
        last = bad
        for number in range(bad + 1, self._count(shape) + 1):
            if self._salts(shape, number) == shape.salts:
                last = number
        return last

    def _pages_max(self, shape: _Shape, damage: LogDamage) -> int:
        """How many pages the database has at most, as the commits behind the damage say."""
        most = 0
        for number in range(1, damage.last + 1):
            frame = self._frame(shape, number)
            if frame is None or number == damage.first:
                continue
            if damage.first or frame.salts == shape.salts:
                most = max(most, frame.pages)
        return most

    def _count(self, shape: _Shape) -> int:
        return (self._size - shape.start) // (FRAME_BYTES + shape.page_bytes)

    def _salts(self, shape: _Shape, number: int) -> bytes:
        place = shape.start + (number - 1) * (FRAME_BYTES + shape.page_bytes)
        self._file.seek(place + 8)
        return self._file.read(8)

    def _frame(self, shape: _Shape, number: int) -> _Frame | None:
        """A frame as it is; None behind the last one that is there whole."""
        size = FRAME_BYTES + shape.page_bytes
        self._file.seek(shape.start + (number - 1) * size)
        raw = self._file.read(size)
        if len(raw) < size:
            return None
        page, pages = _pair(raw)
        summed = raw[:8] + raw[FRAME_BYTES:]
        return _Frame(number, page, pages, raw[8:16], _pair(raw[16:]), summed)


@contextmanager
def _opened(path: str) -> Iterator[_Log | None]:
    """The log, opened to be read; None when there is none that holds anything."""
    try:
        file = open(path, "rb")  # noqa: SIM115, closed below
    except FileNotFoundError:
        yield None
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        least = HEADER_BYTES + FRAME_BYTES + PAGE_BYTES_MIN
        yield _Log(file, size) if size >= least else None


def _is_page_size(size: int) -> bool:
    return PAGE_BYTES_MIN <= size <= PAGE_BYTES_MAX and not size & (size - 1)


def _pair(raw: bytes) -> Checksum:
    first, second = struct.unpack(">2I", raw[:8])
    return first, second


def _follows(before: Checksum, frame: _Frame, shape: _Shape) -> bool:
    return _summed(frame.summed, before, shape.order) == frame.checksum


def _summed(data: bytes, seed: Checksum, order: str) -> Checksum:
    """The checksum of these bytes, as SQLite counts it on from another one."""
    one, two = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
