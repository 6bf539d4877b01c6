"""A platform for Hermes' gateway, as a plug-in of its own: what comes in and all that is sent and edited
goes over one connection to the test, which plays the platform and its user.

Loaded by Hermes, in its own environment, without Holdfast and with it. A message that begins with "!"
is for this file: faults that only happen inside the process.
"""

import asyncio
import itertools
import json
import os
import resource
import sqlite3
import time

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult
from gateway.session import build_session_key

TARGET = "20990101_000000_target"


class Stub(BasePlatformAdapter):
    def __init__(self, config, **kwargs):
        super().__init__(config=config, platform=Platform("stub"))
        self._ids = itertools.count(1)

    @property
    def name(self):
        return "Stub"

    def _tell(self, **fields):
        self._writer.write(json.dumps(fields).encode() + b"\n")

    async def connect(self, *, is_reconnect=False):
        host, port = os.environ["STUB_AT"].split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=2**24)
        self._mark_connected()
        self._task = asyncio.create_task(self._read())
        self._tell(what="connected")
        return True

    async def disconnect(self):
        self._task.cancel()
        self._writer.close()

    async def _read(self):
        while line := await self._reader.readline():
            message = json.loads(line)
            if message["text"].startswith("!"):
                self._fault(message)
                continue
            source = self.build_source(
                chat_id=message.get("chat", "c1"),
                chat_name="c",
                chat_type="dm",
                user_id="u1",
                user_name="ada",
            )
            event = MessageEvent(
                text=message["text"],
                message_type=MessageType.TEXT,
                source=source,
                message_id=message["id"],
            )
            if message.get("early"):
                # As the webhook adapters do: answered, and then a task is made of it.
                self._tell(what="accepted", id=message["id"])
                self._late = asyncio.create_task(self._later(event))
                continue
            self._tell(what="in", id=message["id"])
            await self.handle_message(event)
            self._tell(what="accepted", id=message["id"])

    async def _later(self, event):
        await asyncio.sleep(1)
        await self.handle_message(event)

    def _fault(self, message):
        name, _, value = message["text"][1:].partition(" ")
        getattr(self, f"_fault_{name}")(value)
        self._tell(what="fault", id=message["id"], name=name)

    def _fault_switch(self, value):
        """Moves the chat to another session as topics do, where the end of the first is not stored."""
        runner = self._busy_session_handler.__self__
        db = runner._session_db._db
        type(db).promote_to_session_reset = lambda self, *given, **named: False
        source = self.build_source(chat_id="c1", chat_type="dm", user_id="u1", user_name="ada")
        db.create_session(session_id=TARGET, source="stub", user_id="u1")
        runner.session_store.switch_session(build_session_key(source), TARGET)

    def _fault_teardown(self, value):
        """What a turn has used takes so long to be torn down."""
        import run_agent

        def slow(self, task_id, *more, **named):
            time.sleep(float(value))

        run_agent.AIAgent._cleanup_task_resources = slow

    def _fault_full(self, value):
        """No file can grow any more, as on a full disk; with a value, they can again."""
        limit = resource.RLIM_INFINITY if value else 1024
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def _fault_unreadable(self, value):
        """The rows of all messages can't be read any more, though written; and no agent knows them."""
        runner = self._busy_session_handler.__self__
        for db in (runner._session_db._db, runner.session_store._db):
            if not isinstance(db._conn, _Unreadable):
                db._conn = _Unreadable(db._conn)
        runner._agent_cache.clear()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        number = str(next(self._ids))
        self._tell(what="send", id=number, text=content, reply_to=reply_to)
        return SendResult(success=True, message_id=number)

    async def edit_message(self, chat_id, message_id, content, **kwargs):
        self._tell(what="edit", id=message_id, text=content)
        return SendResult(success=True, message_id=message_id)

    async def get_chat_info(self, chat_id):
        return {"name": "c", "type": "dm"}


class _Unreadable:
    """A connection to a file with a damaged page."""

    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def __setattr__(self, name, value):
        if name == "_connection":
            object.__setattr__(self, name, value)
        else:
            setattr(self._connection, name, value)

    def execute(self, statement, *given):
        if statement.lstrip().startswith("SELECT") and "FROM messages" in statement:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return self._connection.execute(statement, *given)


def _signed(response_text, **more):
    """What a plug-in may make of an answer after its row was written."""
    return f"{response_text} (signed)"


def register(ctx):
    if os.environ.get("STUB_SIGNS"):
        ctx.register_hook("transform_llm_output", _signed)
    ctx.register_platform(
        name="stub",
        label="Stub",
        adapter_factory=lambda config: Stub(config),
        check_fn=lambda: True,
        is_connected=lambda config: True,
        env_enablement_fn=lambda: {"on": True},
        allow_all_env="STUB_ALLOW_ALL_USERS",
    )
