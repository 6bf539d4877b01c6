"""Arrays on their way to the server, in its own binary form.

The driver would look at every element to find out what it is, and send text. Here it is known: each array is of one
type, and one statement is the same statement whatever the values are.
"""

import struct
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">iiIii")
_size = struct.Struct(">i").pack
_NULL = _size(-1)


class Array(list[Any]):
    """Values of one type, or None."""

    oid: int
    element: int

    def packed(self) -> bytes:
        """All elements, each behind its length."""
        parts = [part for value in self for part in self._element(value)]
        return b"".join(parts)

    def _element(self, value: Any) -> tuple[bytes, ...]:
        if value is None:
            return (_NULL,)
        raw = self._raw(value)
        return _size(len(raw)), raw

    def _raw(self, value: Any) -> bytes:
        raise NotImplementedError


class Ints(Array):
    oid, element = 1016, 20

    def packed(self) -> bytes:
        if None in self:
            return super().packed()
        flat = [8] * (2 * len(self))
        flat[1::2] = self
        return struct.pack(">" + "iq" * len(self), *flat)

    def _raw(self, value: int) -> bytes:
        return struct.pack(">q", value)


class Floats(Array):
    oid, element = 1022, 701

    def _raw(self, value: float) -> bytes:
        return struct.pack(">d", value)


class Flags(Array):
    oid, element = 1000, 16

    def _raw(self, value: bool) -> bytes:
        return b"\1" if value else b"\0"


class Blobs(Array):
    oid, element = 1001, 17

    def packed(self) -> bytes:
        if None in self:
            return super().packed()
        return b"".join([part for value in self for part in (_size(len(value)), value)])

    def _raw(self, value: bytes) -> bytes:
        return value


class Texts(Array):
    oid, element = 1009, 25

    def _raw(self, value: str) -> bytes:
        return value.encode()


class Ids(Array):
    """Ids of sessions."""

    oid, element = 2951, 2950

    def packed(self) -> bytes:
        return bytes.fromhex("".join(["00000010" + id for id in self]).replace("-", ""))


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        if not obj:
            return _HEAD.pack(0, 0, obj.element, 0, 0)[:12]
        return _HEAD.pack(1, None in obj, obj.element, len(obj), 1) + obj.packed()


def register(connection: psycopg.Connection[Any]) -> None:
    """Lets a connection send these."""
    for kind in (Ints, Floats, Flags, Blobs, Texts, Ids):
        connection.adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.oid}))
