"""A small gateway with the names, the signatures and the weaknesses of Hermes Agent 0.19.0's.

One slot for what comes next and a list behind it; recursion that is capped, and overwrites the slot
then; a flag that interrupts an agent and outlives its turn; words that steer, joined in a buffer. The
agent answers each message with one of its own, when the test lets it.
"""

import asyncio
import contextvars
import dataclasses
import enum
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from holdfast.adapters.hermes import receipts
from holdfast.adapters.hermes.received import platform_patches, runner_patches
from holdfast.adapters.hermes.serving import serving_of, set_running_turn


class Platform(enum.Enum):
    STUB = "stub"


class MessageType(enum.Enum):
    TEXT = "text"
    PHOTO = "photo"


@dataclasses.dataclass
class SessionSource:
    platform: Platform
    chat_id: str
    user_id: str = "u1"

    def to_dict(self):
        return {"platform": self.platform.value, "chat_id": self.chat_id, "user_id": self.user_id}

    @classmethod
    def from_dict(cls, data):
        return cls(Platform(data["platform"]), data["chat_id"], data["user_id"])


@dataclasses.dataclass
class MessageEvent:
    text: str
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    platform_update_id: int | None = None
    media_urls: list = dataclasses.field(default_factory=list)
    media_types: list = dataclasses.field(default_factory=list)
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    reply_to_author_id: str | None = None
    reply_to_author_name: str | None = None
    reply_to_is_own_message: bool = False
    auto_skill: Any = None
    channel_prompt: str | None = None
    channel_context: str | None = None
    internal: bool = False
    metadata: dict = dataclasses.field(default_factory=dict)
    timestamp: Any = dataclasses.field(
        default_factory=lambda: SimpleNamespace(isoformat=lambda: "2026-01-01T00:00:00")
    )

    def get_command(self):
        return self.text.split()[0][1:] if self.text.startswith("/") else None


@dataclasses.dataclass
class TextDebounceState:
    event: MessageEvent


def build_session_key(source, group_sessions_per_user=True, thread_sessions_per_user=False):
    return f"agent:main:{source.platform.value}:dm:{source.chat_id}"


def merge_pending_message_event(pending_messages, session_key, event, *, merge_text=False):
    existing = pending_messages.get(session_key)
    if existing is not None and merge_text:
        existing.text = f"{existing.text}\n{event.text}"
        return
    pending_messages[session_key] = event


def _reply_anchor_for_event(event):
    return event.message_id


def _thread_metadata_for_source(source, reply_to_message_id=None):
    return {"anchor": reply_to_message_id}


def modules():
    """Fresh modules, unpatched."""
    base = ModuleType("gateway.platforms.base")
    run = ModuleType("gateway.run")
    agents = ModuleType("run_agent")
    for name in ("MessageEvent", "MessageType", "SessionSource", "build_session_key"):
        setattr(base, name, globals()[name])
    base.merge_pending_message_event = merge_pending_message_event
    base._reply_anchor_for_event = _reply_anchor_for_event
    base._thread_metadata_for_source = _thread_metadata_for_source
    base.BasePlatformAdapter = _adapter(base)
    run.GatewayRunner = _runner(base)
    agents.AIAgent = _agent()
    return SimpleNamespace(base=base, run=run, agents=agents)


def patched():
    """Fresh modules, as the import hook leaves them."""
    made = modules()
    platform_patches.patch_platform_base(made.base)
    runner_patches.patch_gateway_run(made.run)
    receipts.patch_run_agent(made.agents)
    return made


def _adapter(base):
    class BasePlatformAdapter:
        def __init__(self):
            self.config = SimpleNamespace(extra={})
            self._active_sessions, self._pending_messages = {}, {}
            self._session_tasks, self._text_debounce = {}, {}
            self._busy_session_handler = self._message_handler = None
            self.is_debouncing = False
            self.sent = []

        async def _send_with_retry(self, chat_id, content, reply_to=None, metadata=None):
            await asyncio.sleep(0)
            self.sent.append((chat_id, content, reply_to, metadata))

        def _text_debounce_store(self):
            return self._text_debounce

        async def handle_message(self, event):
            key = build_session_key(event.source)
            command = event.get_command()
            if key in self._active_sessions:
                if command in ("stop", "new", "status"):
                    await self._message_handler(event)
                    if command in ("stop", "new"):
                        self._session_tasks[key].cancel()
                    return
                if self._message_handler.__self__.question is not None:
                    await self._message_handler(event)
                    return
                if command is None and await self._busy_session_handler(event, key):
                    return
                if self.is_debouncing:
                    await self._queue_text_debounce(key, event)
                elif command in ("queue", "steer"):
                    await self._message_handler(event)
                else:
                    base.merge_pending_message_event(
                        self._pending_messages, key, event, merge_text=True
                    )
                return
            self._start_session_processing(event, key)

        def _start_session_processing(self, event, session_key):
            self._active_sessions[session_key] = True
            self._session_tasks[session_key] = asyncio.create_task(
                self._process_message_background(event, session_key)
            )

        async def _queue_text_debounce(self, session_key, event):
            state = self._text_debounce.get(session_key)
            if state is None:
                self._text_debounce[session_key] = TextDebounceState(event)
            else:
                state.event.text = f"{state.event.text}\n{event.text}"

        async def _flush_text_debounce_now(self, session_key):
            """Done by a timer in Hermes, a second after the last piece."""
            state = self._text_debounce.pop(session_key, None)
            if state is not None:
                base.merge_pending_message_event(
                    self._pending_messages, session_key, state.event, merge_text=True
                )

        async def _process_message_background(self, event, session_key):
            try:
                await self._message_handler(event)
            finally:
                await self._flush_text_debounce_now(session_key)
                waiting = self._pending_messages.pop(session_key, None)
                if waiting is not None:
                    self._start_session_processing(waiting, session_key)
                else:
                    self._active_sessions.pop(session_key, None)

    return BasePlatformAdapter


def batching(base, is_awaited):
    """A platform that joins the pieces of a text before anything else; Feishu's is awaited."""

    def join(self, event):
        batch = self._pending_text_batches.setdefault("c1", event)
        if batch is not event:
            batch.text, batch.message_id = f"{batch.text}\n{event.text}", event.message_id

    async def join_awaited(self, event):
        join(self, event)

    class Batching(base.BasePlatformAdapter):
        _enqueue_text_event = join_awaited if is_awaited else join

        def __init__(self):
            super().__init__()
            self._pending_text_batches = {}

        async def piece(self, event):
            """A piece comes in."""
            waited = self._enqueue_text_event(event)
            if waited is not None:
                await waited

        async def flush(self):
            """No more pieces came for a while."""
            await self.handle_message(self._pending_text_batches.pop("c1"))

    return Batching


def _runner(base):
    class GatewayRunner:
        CAP = 3
        HOLDS = 32

        def __init__(self, db, adapter, agent, mode="interrupt"):
            self._session_db = SimpleNamespace(_db=db)
            self.config = SimpleNamespace(multiplex_profiles=False)
            self._profile_adapters, self._queued_events = {}, {}
            self._startup_restore_in_progress = False
            self._startup_restore_queue = []
            self._draining, self._shutdown_event = False, threading.Event()
            self._agent, self.mode, self.adapter = agent, mode, adapter
            self.refused = ()
            self.may_queue = asyncio.Event()
            self.may_queue.set()
            self.question = None
            self.session_store = SimpleNamespace(peek_session_id=lambda key: "s1")
            adapter._message_handler = self._handle_message
            adapter._busy_session_handler = self._handle_active_session_busy_message

        def _adapter_for_source(self, source):
            return self.adapter

        def _thread_metadata_for_source(self, source, reply_to_message_id=None):
            return None

        def _is_user_authorized(self, source):
            return source.user_id not in self.refused

        async def _handle_message(self, event):
            key = build_session_key(event.source)
            if self._startup_restore_in_progress and not hasattr(
                event, "_hermes_startup_restore_replay"
            ):
                self._startup_restore_queue.append(event)
                return
            command = event.get_command()
            if event.source.user_id in self.refused:
                return
            if self.question is not None:
                self.question = self.question(event.text)
                return
            if command == "new":
                self._clear_conversation_scope(key, reason="session_reset")
            if command in ("stop", "new"):
                self._agent.interrupt("Stop requested")
                return
            if command == "queue" and self._agent.is_running:
                words = event.text.partition(" ")[2]
                copy = MessageEvent(words, source=event.source, message_id=event.message_id)
                self._enqueue_fifo(key, copy, self.adapter)
                return
            if command == "steer":
                self._agent.steer(event.text.partition(" ")[2])
                return
            if command is not None:
                return
            message = await self._prepare_profile_scoped_inbound_message_text(
                event=event, source=event.source, history=[], session_key=key
            )
            await self._run_agent(message, "", [], event.source, "s1", session_key=key)

        async def _handle_active_session_busy_message(self, event, session_key):
            if event.source.user_id in self.refused:
                return True
            if self.adapter.is_debouncing:
                return False
            if self.mode == "steer" and self._agent.steer(event.text):
                return True
            # Hermes looks for a running compaction here: the turn may end meanwhile.
            await self.may_queue.wait()
            self._queue_or_replace_pending_event(session_key, event)
            if self.mode == "interrupt":
                self._agent.interrupt(event.text)
            return True

        def _queue_or_replace_pending_event(self, session_key, event):
            depth = len(self._queued_events.get(session_key, ()))
            if depth + (session_key in self.adapter._pending_messages) < self.HOLDS:
                self._enqueue_fifo(session_key, event, self.adapter)

        def _enqueue_fifo(self, session_key, queued_event, adapter):
            if session_key in adapter._pending_messages:
                self._queued_events.setdefault(session_key, []).append(queued_event)
            else:
                adapter._pending_messages[session_key] = queued_event

        def _promote_queued_event(self, session_key, adapter, pending_event):
            overflow = self._queued_events.get(session_key)
            if not overflow:
                return pending_event
            after = overflow.pop(0)
            if not overflow:
                del self._queued_events[session_key]
            if pending_event is None:
                return after
            adapter._pending_messages[session_key] = after
            return pending_event

        async def _prepare_profile_scoped_inbound_message_text(
            self, *, event, source, history, session_key=None
        ):
            return event.text

        async def _run_agent(
            self, message, context_prompt, history, source, session_id, session_key=None, depth=0
        ):
            context = contextvars.copy_context()
            result = await asyncio.get_running_loop().run_in_executor(
                None, context.run, self._agent.run_conversation, message
            )
            event = self.adapter._pending_messages.pop(session_key, None)
            event = self._promote_queued_event(session_key, self.adapter, event)
            text = result.get("interrupt_message") if event is None else None
            text = text or (result.get("pending_steer") if event is None else None)
            if event is None and (not text or text == "Stop requested"):
                return
            if depth >= self.CAP:
                if event is not None:
                    base.merge_pending_message_event(
                        self.adapter._pending_messages, session_key, event
                    )
                return
            if event is not None:
                text = await self._prepare_profile_scoped_inbound_message_text(
                    event=event, source=source, history=[], session_key=session_key
                )
                if text is None:
                    return
            await self._run_agent(
                text, "", [], source, session_id, session_key=session_key, depth=depth + 1
            )

        async def _drain_startup_restore_queue(self):
            queue = self._startup_restore_queue
            while queue:
                event = queue.pop(0)
                event._hermes_startup_restore_replay = True
                await self.adapter.handle_message(event)
            return 0

        def _clear_conversation_scope(self, session_key, *, reason):
            self._queued_events.pop(session_key, None)

    return GatewayRunner


def _agent():
    class AIAgent:
        """Answers when it may, and stops when it is interrupted. `tools` makes it run a tool first."""

        def __init__(self, db):
            self._session_db, self.session_id = db, "s1"
            self._interrupt_requested, self._interrupt_message = False, None
            self._pending_steer = None
            self.is_running, self.tools = False, False
            self.may_answer = threading.Event()
            self.may_answer.set()
            self.started = threading.Semaphore(0)
            self.asked, self.seen = [], []
            self.is_final = lambda: None

        def run_conversation(self, user_message):
            # As `turns` does it.
            taken = receipts.claim(self, user_message)
            session = serving_of(self).conversation(self.session_id)
            wanted = [*session.pending(), *taken]
            given = {"take": wanted} if taken else {"message": user_message}
            with session.turn(**given) as turn:
                set_running_turn(self, turn)
                self.is_running = True
                self.asked.append(user_message)
                self.started.release()
                result = self._converse(turn, user_message)
                self.is_running = False
                set_running_turn(self, None)
            return result

        def _converse(self, turn, user_message):
            while not self.may_answer.wait(0.01):
                if self._interrupt_requested:
                    break
            messages = [{"role": "user", "content": user_message}]
            self.conversation_loop(messages)
            if self.tools:
                messages.append({"role": "tool", "content": "done"})
                self.conversation_loop(messages)
            is_cut = self._interrupt_requested
            if not is_cut:
                turn.say(f"Re: {user_message}")
            return self.finalize_turn(is_cut)

        def conversation_loop(self, messages):
            text = self._drain_pending_steer()
            if not text:
                return
            if messages[-1]["role"] == "tool":
                self.seen.append(text)
            else:
                self._pending_steer = text

        def finalize_turn(self, is_cut):
            result = {"pending_steer": self._drain_pending_steer()}
            if is_cut:
                result["interrupt_message"] = self._interrupt_message
            self.clear_interrupt()
            self.is_final()
            return result

        def steer(self, text):
            if not self.is_running:
                return False
            self._pending_steer = f"{self._pending_steer}\n{text}" if self._pending_steer else text
            return True

        def _drain_pending_steer(self):
            text, self._pending_steer = self._pending_steer, None
            return text

        def interrupt(self, message=None):
            self._interrupt_requested, self._interrupt_message = True, message

        def clear_interrupt(self):
            self._interrupt_requested, self._interrupt_message = False, None
            self._pending_steer = None

    return AIAgent


class World:
    """A gateway that runs, and its user."""

    def __init__(self, folder, *, mode="interrupt", hermes=None, adapter=None):
        self.hermes = hermes or patched()
        self.db = SimpleNamespace(db_path=Path(folder) / "state.db", read_only=False)
        make = adapter or (lambda base: base.BasePlatformAdapter())
        self.adapter = make(self.hermes.base)
        self.agent = self.hermes.agents.AIAgent(self.db)
        self.runner = self.hermes.run.GatewayRunner(self.db, self.adapter, self.agent, mode)
        self._count = 0

    async def say(self, text, id=None, user="u1", **more):
        event = self.event(text, id, user, **more)
        await self.adapter.handle_message(event)
        return event

    def event(self, text, id=None, user="u1", **more):
        self._count += 1
        source = SessionSource(Platform.STUB, "c1", user)
        return MessageEvent(text, source=source, message_id=id or f"m{self._count}", **more)

    async def starts(self):
        """Waits until a turn has started."""
        await asyncio.to_thread(self.agent.started.acquire, timeout=30)

    async def rests(self):
        """Waits until nothing runs and nothing is queued."""
        quiet, rounds = 0, 0
        while quiet < 5:
            rounds += 1
            assert rounds < 500, "it does not come to rest"
            await asyncio.sleep(0.02)
            book = serving_of(self.agent).inbox.book
            is_busy = self.adapter._active_sessions or self.runner._queued_events or book._inside
            quiet = 0 if is_busy else quiet + 1


async def busy(world):
    """A turn runs, and takes its time."""
    world.agent.may_answer.clear()
    await world.say("First.")
    await world.starts()


async def goes_on(world):
    """The turn may end, and so does all that waits for it."""
    world.agent.may_answer.set()
    await world.rests()
