"""Arrays on their way to the server, in its own binary form.

The driver would look at every element to find out what it is, and send text. Here it is known: each
array is of one type, and one statement is the same statement whatever the values are. Arrays that
every append sends are packed by few calls for all of their elements: the interpreter is what a busy
writer waits for.
"""

import struct
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">iiIii")
_size = struct.Struct(">i").pack
_NULL = _size(-1)
_MEMO_MAX = 20_000


@lru_cache
def _empty(element: int) -> bytes:
    return _HEAD.pack(0, 0, element, 0, 0)[:12]


class Array(list[Any]):
    """Values of one type, or None."""

    oid: int
    element: int

    def encoded(self) -> bytes:
        """As the server takes it."""
        if not self:
            return _empty(self.element)
        # rare: most columns have a value in every row, and are packed in one call
        if None in self:
            packed = b"".join(
                _NULL if value is None else self._packed([value]) for value in self
            )
            return _HEAD.pack(1, 1, self.element, len(self), 1) + packed
        return _HEAD.pack(1, 0, self.element, len(self), 1) + self._packed(self)

    def _packed(self, values: list[Any]) -> bytes:
        """All elements, each behind its length; none is None."""
        raise NotImplementedError


class Ints(Array):
    oid, element = 1016, 20

    def _packed(self, values: list[int]) -> bytes:
        flat = [8] * (2 * len(values))
        flat[1::2] = values
        return _ints(len(values)).pack(*flat)


class Floats(Array):
    oid, element = 1022, 701

    def _packed(self, values: list[float]) -> bytes:
        return b"".join([struct.pack(">id", 8, value) for value in values])


class Flags(Array):
    oid, element = 1000, 16

    def _packed(self, values: list[bool]) -> bytes:
        return b"".join([b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values])


class Blobs(Array):
    oid, element = 1001, 17

    def _packed(self, values: list[bytes]) -> bytes:
        return b"".join(
            chain.from_iterable(zip(map(_sizes, map(len, values)), values, strict=True))
        )


class Texts(Array):
    oid, element = 1009, 25

    def _packed(self, values: list[str]) -> bytes:
        return Blobs._packed(self, [value.encode() for value in values])  # type: ignore[arg-type]


class Ids(Array):
    """Ids of sessions."""

    oid, element = 2951, 2950

    def _packed(self, values: list[str]) -> bytes:
        return b"".join(map(_ids, values))


class _Memo(dict[Any, bytes]):
    """What was packed before; it is emptied when it has grown."""

    def __init__(self, pack: Any) -> None:
        self._pack = pack

    def __missing__(self, value: Any) -> bytes:
        if len(self) >= _MEMO_MAX:
            self.clear()
        packed: bytes = self._pack(value)
        self[value] = packed
        return packed


_sizes = _Memo(_size).__getitem__
_ids = _Memo(lambda id: b"\0\0\0\x10" + bytes.fromhex(id.replace("-", ""))).__getitem__


@lru_cache(1024)
def _ints(count: int) -> struct.Struct:
    return struct.Struct(">" + "iq" * count)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.encoded()


def register(connection: psycopg.Connection[Any]) -> None:
    """Lets a connection send these."""
    for kind in (Ints, Floats, Flags, Blobs, Texts, Ids):
        connection.adapters.register_dumper(
            kind, type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.oid})
        )
