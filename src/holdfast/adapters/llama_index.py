"""Holdfast under LlamaIndex: a chat store whose messages outlive whatever happens to the process.

    from holdfast.adapters.llama_index import HoldfastChatStore

    memory = Memory.from_defaults(…)                       # or
    memory = ChatMemoryBuffer.from_defaults(
        chat_store=HoldfastChatStore("agent.db"), chat_store_key="user-1")

Each key is a session. What LlamaIndex takes out of a key's list leaves the view, and stays in the
transcript.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from holdfast.adapters.framework import (
    GivenStore,
    KnownSessions,
    asynchronous,
    key_of,
    missing,
    names_of,
    sessions_under,
    standing,
    store_of,
)
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument, NotFound
from holdfast.runtime.live.message import Message
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise missing("llama_index", "llama-index") from error

FORMAT = "llama_index"
WHOLE = "the chat engine stores the whole answer"


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
            turn.retract(WHOLE)

    async def astream(self, key: str, pieces: AsyncIterable[str]) -> AsyncIterator[str]:
        """As `stream`, for `(await engine.astream_chat(…)).async_response_gen()`."""
        session = asynchronous(self.session(key))
        async with session.turn(take=[]) as turn:
            async for text in turn.deliver(pieces):
                yield text
            await turn.retract(WHOLE)

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """The key's messages are these. Those that stand there already stay as they are stored; those
        that are new come after them in one commit.
        """
        payloads = _payloads(messages)
        session = self.session(key)
        gone, new = _difference(_standing(session), payloads)
        if new is None:
            # Something was put between what is there, or has another place: that is a shape.
            session.record(payloads, format=FORMAT)
            return
        for message in gone:
            session.label(message.id, visible_to_model=False)
        if new:
            session.append_all(new, format=FORMAT)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return self._said(self._found(key))

    def add_message(self, key: str, message: ChatMessage) -> None:
        [payload] = _payloads([message])
        self.session(key).append(payload, format=FORMAT)

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
        session = self._found(key)
        said = _standing(session) if session is not None else []
        if session is None or not -len(said) <= idx < len(said):
            return None
        session.label(said[idx].id, visible_to_model=False)
        return _message(said[idx])

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
        try:
            found = self._store.session(_key(key), create=False)
        except NotFound:
            return None
        has_ended = found.info().state == "ended"
        return None if has_ended else self._known.remember(found)

    def _said(self, session: Session | None) -> list[ChatMessage]:
        found = _standing(session) if session is not None else []
        return [_message(each) for each in found]


def _standing(session: Session) -> list[Message]:
    """What stands in the list. A chat engine may have stored an answer whose stream was cut here:
    then that is the answer, and what was shown is a part of it.
    """
    found = standing(session)
    kept = []
    for at, message in enumerate(found):
        if message.state == "partial" and message.format != FORMAT:
            beside = [*found[max(at - 1, 0) : at], *found[at + 1 : at + 2]]
            if any(_begins_with(other, message) for other in beside):
                continue
        kept.append(message)
    return kept


def _begins_with(answer: Message, part: Message) -> bool:
    # Engines strip what they store.
    return answer.role == "assistant" and answer.text.strip().startswith(
        part.text.strip()
    )


def _message(stored: Message) -> ChatMessage:
    if stored.format == FORMAT and stored.payload is not None:
        return ChatMessage.model_validate(stored.payload)
    # Said by another program, erased or damaged: its words are what is left.
    role = stored.role if stored.role != "tool" else "user"
    return ChatMessage(role=role, content=stored.text)


def _difference(
    stored: list[Message], payloads: list[Any]
) -> tuple[list[Message], list[Any] | None]:
    """What of the stored messages is not in the list any more, and what stands behind them in it;
    None when the list is not made in this way.
    """
    gone = []
    at = 0
    for message in stored:
        if at < len(payloads) and message.payload == payloads[at]:
            at += 1
        else:
            gone.append(message)
    rest = payloads[at:]
    known = [message.payload for message in gone]
    return gone, None if any(payload in known for payload in rest) else rest


def _key(key: str) -> str:
    if not isinstance(key, str) or not key:
        raise BadArgument(parameter="key", takes="a name", given=kind_of(key))
    return key_of(FORMAT, key)


def _payloads(messages: Sequence[ChatMessage]) -> list[Any]:
    found = []
    for message in messages:
        if not isinstance(message, ChatMessage):
            takes = "messages of LlamaIndex"
            given = kind_of(message)
            raise BadArgument(parameter="messages", takes=takes, given=given)
        found.append(message.model_dump(mode="json"))
    return found
