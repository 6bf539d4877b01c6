"""LlamaIndex's chat store on Holdfast.

Each key is a session. What LlamaIndex takes out of a key's list leaves the view, and stays in the
transcript.
"""

import contextvars
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from holdfast.adapters.framework import (
    GivenStore,
    KnownSessions,
    asynchronous,
    current_of,
    key_of,
    missing,
    names_of,
    session_of,
    sessions_under,
    standing,
    store_of,
    stored,
)
from holdfast.domain.arguments import INTEGER_MAX, kind_of, whole
from holdfast.domain.message import Call, Result
from holdfast.errors import BadArgument, SessionEnded
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.storage.chat_store.base import BaseChatStore
    from pydantic_core import PydanticSerializationError

    from holdfast.adapters.llama_index.agent_run import (
        ClaimedRun,
        EventPump,
        running,
        with_stored_calls,
    )
    from holdfast.adapters.llama_index.whole_lists import in_one_go
except ImportError as error:
    raise missing("llama_index", "llama-index") from error

FORMAT = "llama_index"
_INDEX = whole(-INTEGER_MAX)
WHOLE = "the chat engine stores the whole answer"
UNKNOWN = "The run was cut off. Whether this was done is not known."


class HoldfastChatStore(BaseChatStore):
    """LlamaIndex's chat store on a Holdfast store, which is given open, by its path or by its
    address. Safe to use from many threads and event loops.
    """

    _store: Store = PrivateAttr()
    _known: KnownSessions = PrivateAttr(default_factory=KnownSessions)

    def __init__(self, store: GivenStore, **fields: Any) -> None:
        opened = store_of(store)
        super().__init__(**fields)
        self._store = opened

    @classmethod
    def class_name(cls) -> str:
        return "HoldfastChatStore"

    def session(self, key: str) -> Session:
        """The session that holds this key's messages, made if there is none."""
        return self._known.remember(self._store.session(_key(key)))

    def stream(self, key: str, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces of a streamed answer, each handed on once it is durable: for
        `engine.stream_chat(…).response_gen`. When all were read, the engine stores the answer
        itself, and our copy leaves the list; if the stream is cut, what was shown stays in it.
        """
        with self.session(key).turn(take=[]) as turn:
            yield from turn.deliver(pieces)
            # Only if all pieces were read: this line is not reached by a stream that is
            # cut.
            turn.retract(WHOLE)

    async def astream(self, key: str, pieces: AsyncIterable[str]) -> AsyncIterator[str]:
        """As `stream`, for `(await engine.astream_chat(…)).async_response_gen()`."""
        session = asynchronous(self.session(key))
        async with session.turn(take=[]) as turn:
            async for text in turn.deliver(pieces):
                yield text
            await turn.retract(WHOLE)

    async def run(
        self,
        key: str,
        agent: Any,
        user_msg: str | ChatMessage,
        *,
        request_id: str | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """`agent.run(user_msg, memory=…, **options)` with this key's messages as its memory, as its
        events. The prompt is durable before the agent begins, and each event before it is yielded.
        Another run of the key waits until this one is over. The same `request_id` again raises
        `AlreadyAccepted`.
        """
        if not callable(getattr(agent, "run", None)):
            takes = "an agent of LlamaIndex, or a workflow of agents"
            raise BadArgument(parameter="agent", takes=takes, given=kind_of(agent))
        asked = user_msg
        if isinstance(asked, str):
            asked = ChatMessage(role="user", content=asked)
        [prompt] = _payloads([asked])
        memory = self._memory(key, agent, options.pop("memory", None))
        session = self.session(key)
        starting = asynchronous(session).turn(
            prompt, format=FORMAT, event_id=request_id, take=[]
        )
        async with starting as turn:
            run = ClaimedRun(key, session, turn, prompt)
            # Its tasks and threads inherit the context that it is begun in.
            inside = contextvars.copy_context()
            inside.run(running.set, run)
            begin = with_stored_calls(agent, run).run
            handler = inside.run(begin, user_msg=asked, memory=memory, **options)
            async with aclosing(EventPump(run, handler).events()) as events:
                async for event in events:
                    yield event
            await run.end()

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """The key's messages are these. Those that stand there already stay as they are stored; those
        that are new come after them in one commit.
        """
        payloads = _payloads(messages)
        session = self.session(key)
        gone, rest = _difference(_standing(session), payloads)
        if _has_moved(gone, rest) or any(map(_is_summary, gone)):
            # Something was put between what is there, or has another place, or a summary
            # is not wanted any more, which is no message: that is a shape.
            _show_again(session, payloads)
            session.record(payloads, format=FORMAT)
            # What a shape can't say of equal messages is said by what is shown.
            gone, rest = _difference(_standing(session), payloads)
        if any(map(_is_summary, gone)):
            # It stands as long as nothing but what it covers is to be there.
            session.record([], format=FORMAT)
            session.record(payloads, format=FORMAT)
            gone, rest = _difference(_standing(session), payloads)
        for message in gone:
            session.label(message.id, visible_to_model=False)
        if rest:
            session.append_all(rest, format=FORMAT)

    def get_messages(self, key: str) -> list[ChatMessage]:
        run = _run_of(key)
        if run is None:
            return self._said(self._found(key))
        found = _standing(run.session)
        return _closed([each for each in found if not run.leaves_out(each)])

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """As `get_messages`, on a thread of ours: it has a connection open."""
        # Another thread does not know for whom it works.
        if _run_of(key) is not None:
            said: list[ChatMessage] = await super().aget_messages(key)
            return said
        return await arun(read(partial(self.get_messages, key)))

    def add_message(self, key: str, message: ChatMessage) -> None:
        [payload] = _payloads([message])
        run = _run_of(key)
        if run is not None and run.claims(payload):
            return
        known = self._known.last_of(_key(key)) if run is None else None
        if known is not None:
            with suppress(SessionEnded):
                known.append(payload, format=FORMAT)
                return
        # A run's own session: its key may have been begun anew.
        session = self.session(key) if run is None else run.session
        session.append(payload, format=FORMAT)

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """As `add_message`, on the event loop: of many at once, all wait for the same sync."""
        [payload] = _payloads([message])
        run = _run_of(key)
        if run is not None and run.claims(payload):
            return
        known = self._known.last_of(_key(key)) if run is None else None
        if known is not None:
            with suppress(SessionEnded):
                await asynchronous(known).append(payload, format=FORMAT)
                return
        if run is not None:
            session = run.session
        else:
            opened = await session_of(self._store, _key(key))
            session = self._known.remember(opened)
        await asynchronous(session).append(payload, format=FORMAT)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Ends the key's session; the next message begins another. Its words are in the store until
        `Store.erase`.
        """
        session = self._found(key)
        if session is None:
            return None
        said = self._said(session)
        session.end("deleted")
        return said

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        idx = _INDEX("idx", idx)
        session = self._found(key)
        said = _standing(session) if session is not None else []
        if session is None or not -len(said) <= idx < len(said):
            return None
        taken = said[idx]
        if _is_summary(taken):
            left = [_shown(each) for each in said if each is not taken]
            session.record(left, format=FORMAT)
        else:
            session.label(taken.id, visible_to_model=False)
        return _message(taken)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        keys = []
        for state in sessions_under(self._store, FORMAT):
            assert state.key is not None
            keys.append(names_of(state.key)[1])
        return keys

    def _found(self, key: str) -> Session | None:
        """The key's session, if it has one that has not ended."""
        found = current_of(self._store, _key(key))
        return None if found is None else self._known.remember(found)

    def _memory(self, key: str, agent: Any, given: Any) -> Any:
        """The memory of a run: one on this key's list."""
        if given is None:
            llm = getattr(agent, "llm", None)
            return ChatMemoryBuffer.from_defaults(
                llm=llm, chat_store=self, chat_store_key=key
            )
        is_ours = getattr(given, "chat_store", None) is self
        if not is_ours or getattr(given, "chat_store_key", None) != key:
            takes = "a memory with this chat store and this key"
            raise BadArgument(parameter="memory", takes=takes, given=kind_of(given))
        return given

    def _said(self, session: Session | None) -> list[ChatMessage]:
        if session is None:
            return []
        said = in_one_go(stored(session))
        return _closed(_standing(session)) if said is None else said


def _standing(session: Session) -> list[Message]:
    """What stands in the list. A chat engine may have stored an answer whose stream was cut here:
    then that is the answer, and what was shown is a part of it.
    """
    found = standing(session)
    kept = []
    for at, message in enumerate(found):
        before, after = found[max(at - 1, 0) : at], found[at + 1 : at + 2]
        if message.state == "partial" and message.format != FORMAT:
            if any(_begins_with(other, message) for other in (*before, *after)):
                continue
        # A run was killed when the whole message was stored, and its streamed words not hidden yet.
        if message.turn is not None and message.role == "assistant":
            whole = [other for other in after if other.turn == message.turn]
            if any(_begins_with(other, message) for other in whole):
                continue
        kept.append(message)
    return kept


def _closed(found: list[Message]) -> list[ChatMessage]:
    """These messages, with an outcome for each call of a run that was cut off before it had one: no
    provider takes a call without.
    """
    said: list[ChatMessage] = []
    waiting: list[str] = []
    for message in found:
        # Most lists have none, and to read the parts of all messages takes longer than all else.
        if waiting:
            results = [
                each.call_id for each in message.parts if isinstance(each, Result)
            ]
            if not results:
                said += map(_unanswered, waiting)
                waiting = []
            waiting = [id for id in waiting if id not in results]
        said.append(_message(message))
        # What was added by itself may be answered yet.
        if message.turn is not None:
            waiting += [part.id for part in message.parts if isinstance(part, Call)]
    said += map(_unanswered, waiting)
    return said


def _unanswered(call_id: str) -> ChatMessage:
    beside = {"tool_call_id": call_id}
    return ChatMessage(role="tool", content=UNKNOWN, additional_kwargs=beside)


def _run_of(key: str) -> ClaimedRun | None:
    """The run that the calling task works for, if this is its list."""
    run = running.get()
    return run if run is not None and run.key == key else None


def _begins_with(answer: Message, part: Message) -> bool:
    # Engines strip what they store.
    return answer.role == "assistant" and answer.text.strip().startswith(
        part.text.strip()
    )


def _message(stored: Message) -> ChatMessage:
    payload = stored.payload if stored.format == FORMAT else None
    if payload is not None:
        with suppress(ValueError):
            return ChatMessage.model_validate(payload)
    # Said by another program, erased or damaged: its words are what is left.
    role = stored.role if stored.role != "tool" else "user"
    return ChatMessage(role=role, content=stored.text)


def _difference(
    stored: list[Message], payloads: list[Any]
) -> tuple[list[Message], list[Any]]:
    """What of the stored messages is not in the list any more, and what stands behind the others in
    it.
    """
    gone = []
    at = 0
    for message in stored:
        if at < len(payloads) and _shown(message) == payloads[at]:
            at += 1
        else:
            gone.append(message)
    return gone, payloads[at:]


def _has_moved(gone: list[Message], rest: list[Any]) -> bool:
    """Whether something comes later in the list that stood earlier: then it is not new."""
    known = [_shown(message) for message in gone]
    return any(payload in known for payload in rest)


def _shown(message: Message) -> Any:
    """A stored message as the list has it."""
    return message.payload if message.format == FORMAT else _payload(_message(message))


def _is_summary(message: Message) -> bool:
    """Whether this stands for what was compacted."""
    return message._seen.note.origin == "summary"


def _show_again(session: Session, payloads: list[Any]) -> None:
    """What was taken out of the list and is in it again is shown again: `record` knows it, and leaves
    it out of the view as long as its label says so.
    """
    stood = [_shown(message) for message in _standing(session)]
    missing = []
    for payload in payloads:
        if payload in stood:
            stood.remove(payload)
        else:
            missing.append(payload)
    for message in reversed([*session.transcript()]):
        hidden = message.labels.get("visible_to_model") is False
        if hidden and message.payload in missing:
            missing.remove(message.payload)
            session.label(message.id, visible_to_model=True)


def _key(key: str) -> str:
    if not isinstance(key, str) or not key:
        raise BadArgument(parameter="key", takes="a name", given=kind_of(key))
    return key_of(FORMAT, key)


def _payloads(messages: Sequence[ChatMessage]) -> list[Any]:
    takes = "messages of LlamaIndex"
    if not isinstance(messages, Sequence):
        given = kind_of(messages)
        raise BadArgument(parameter="messages", takes=takes, given=given)
    found = []
    for message in messages:
        if not isinstance(message, ChatMessage):
            given = kind_of(message)
            raise BadArgument(parameter="messages", takes=takes, given=given)
        found.append(_payload(message))
    return found


def _payload(message: ChatMessage) -> Any:
    try:
        return message.model_dump(mode="json")
    except PydanticSerializationError as error:
        takes = "messages that JSON can hold"
        given = f"one with {error}"
        raise BadArgument(parameter="message", takes=takes, given=given) from error
