"""`HoldfastStorage`: Strands' storage of bytes under keys, which its `SnapshotSessionManager` writes to.

A snapshot is all of an agent, its messages included, and is written anew after each invocation. Here
it is taken apart: each message is stored once, in the session of Holdfast's that the agent's
messages are in, and the rest beside it with the places of the messages. What is read has the bytes
that were written. Other values are kept as they are.
"""

import asyncio
import base64
import builtins
import copy
import re
import threading
from typing import Any
from urllib.parse import unquote

from strands.storage import Storage
from strands.storage.storage import _NAMESPACED
from strands.types.exceptions import StorageError

from holdfast.adapters.framework import GivenStore, key_of, store_of
from holdfast.adapters.strands.records import Handles, Records, last_record
from holdfast.adapters.strands.snapshots import (
    SnapshotScope,
    StoredMessages,
    reassembled,
    taken_apart,
)
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument, InvalidMessage
from holdfast.runtime.store import Store

VALUES = "strands.storage"
PAGE = 200
STORED_MAX = 256
"""Of so many agents it is remembered which messages are stored."""


class HoldfastStorage(Storage):
    """Values under keys in a Holdfast store: one that is open, a path or an address. Safe to use from
    many threads and event loops.
    """

    def __init__(self, store: GivenStore) -> None:
        self.store: Store = store_of(store)
        self._handles = Handles(self.store)
        self._records = Records(self._handles)
        self._prefix = ""
        self._lock = threading.Lock()
        self._stored: dict[str, StoredMessages] = {}

    async def write(self, key: str, data: bytes) -> None:
        """Stores a value; it is durable when this returns."""
        name = self._prefix + _normal(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BadArgument(parameter="data", takes="bytes", given=kind_of(data))
        await asyncio.to_thread(self._write, name, bytes(data))

    async def read(self, key: str) -> bytes | None:
        """The value of a key; None when there is none."""
        return await asyncio.to_thread(self._read, self._prefix + _normal(key))

    async def delete(self, key: str) -> None:
        """Takes a value out of the store, and the messages of an agent with the last snapshot of
        it.
        """
        await asyncio.to_thread(self._delete, self._prefix + _normal(key))

    async def list(self, query: str = "") -> "builtins.list[str]":
        """The keys that begin so, in order."""
        given = _normal(query, is_prefix=True)
        found = await asyncio.to_thread(self._under, self._prefix + given)
        return sorted(key[len(self._prefix) :] for key in found)

    def namespace(self, prefix: str) -> "HoldfastStorage":
        """The same storage, as far as its keys begin so."""
        normal = _normal(prefix, is_prefix=True).rstrip("/")
        # A copy: what a class of somebody's own has added is there as well.
        scoped = copy.copy(self)
        scoped._prefix = f"{self._prefix}{normal}/" if normal else self._prefix
        scoped._namespaced = _NAMESPACED
        return scoped

    def _write(self, name: str, data: bytes) -> None:
        key = key_of(VALUES, name)
        snapshot = taken_apart(data)
        scope = SnapshotScope.of(name)
        if snapshot is None or scope is None:
            self._records.update(key, "value", _worded(data))
            return
        record = self._handles.open(key)
        try:
            self._messages(scope.messages_key).write(record, snapshot)
        except InvalidMessage:
            # What Strands would not send to a model either: it is kept as it is.
            self._records.update(key, "value", _worded(data))

    def _messages(self, key: str) -> StoredMessages:
        session = self._handles.open(key)
        with self._lock:
            # They are only a memory: what is dropped is read again.
            if len(self._stored) > STORED_MAX:
                self._stored.clear()
            known = self._stored.get(session.id)
            if known is None:
                known = self._stored[session.id] = StoredMessages(session)
        return known

    def _read(self, name: str) -> bytes | None:
        key = key_of(VALUES, name)
        value = self._found(key)
        if value is None:
            return None
        scope = SnapshotScope.of(name)
        if "snapshot" in value and scope is not None:
            self._handles.refresh(scope.messages_key)
            return reassembled(self._handles.find(scope.messages_key), value)
        if "base64" in value:
            return base64.b64decode(value["base64"])
        words: str = value["text"]
        return words.encode()

    def _found(self, key: str) -> dict[str, Any] | None:
        self._handles.refresh(key)
        session = self._handles.find(key)
        return None if session is None else last_record(session)

    def _delete(self, name: str) -> None:
        self._erase(key_of(VALUES, name))
        scope = SnapshotScope.of(name)
        if scope is not None and not self._under(scope.prefix):
            self._erase(scope.messages_key)

    def _erase(self, key: str) -> None:
        self._handles.refresh(key)
        session = self._handles.find(key)
        if session is not None:
            self.store.erase(session.id)
            self._handles.forget(key)

    def _under(self, prefix: str) -> "builtins.list[str]":
        # Quoted character by character: the beginning of a name is that of its key.
        first, after = key_of(VALUES, prefix), ""
        work, found = self.store._work, []
        while page := work.engine.under(work.tenant, first, after=after, limit=PAGE):
            for state in page:
                after = state.key or ""
                # With its first entry alone, a session was opened and nothing written
                # to it.
                if state.head > 1:
                    found.append(unquote(after.split(":", 1)[1]))
        return found


def _worded(data: bytes) -> dict[str, Any]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _normal(key: Any, *, is_prefix: bool = False) -> str:
    """A key as Strands' own storages read it."""
    if not isinstance(key, str):
        raise BadArgument(parameter="key", takes="a text", given=kind_of(key))
    normal = re.sub(r"/+", "/", key).lstrip("/")
    if not is_prefix:
        normal = normal.rstrip("/")
    if "\\" in key or ".." in normal.split("/") or not (normal or is_prefix):
        problem = "has a backslash or a '..' in it" if normal else "must not be empty"
        raise StorageError(f"Invalid storage key '{key}': it {problem}")
    return normal
