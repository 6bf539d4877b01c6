"""LangChain on Holdfast: `HoldfastChatMessageHistory`, a chat history that is a session.

LangChain's own runner (`RunnableWithMessageHistory`) reads a history before a run and adds to it when
the run is over, so what a user was shown of a run that was cut off is not in it. `stream` and
`astream` run a chain in a turn: the prompt is durable before the model is called, each chunk before
it is given out, and one run of a session waits for another.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import AIMessageChunk, HumanMessage
    from langchain_core.messages.utils import message_chunk_to_message

    from holdfast.adapters.langchain_payloads import (
        Typed,
        body_of,
        is_message,
        message_of,
        payload_of,
        with_results,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("holdfast"):
        raise
    raise ImportError(
        "this adapter needs LangChain: pip install 'holdfast[langchain]'"
    ) from error

from holdfast.adapters.framework import GivenStore, asynchronous, store_of, stored
from holdfast.domain.arguments import kind_of
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import Refused, Write
from holdfast.errors import BadArgument
from holdfast.formats import registry
from holdfast.runtime.changes.open_session import open_session
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session

FORMAT = "langchain"
UNREADABLE = "[This message can't be read any more.]"


class HoldfastChatMessageHistory(BaseChatMessageHistory):
    """The messages of the session under `key`, in `store`: a Store, a path or an address.

    It belongs to one session of its key: after somebody else has cleared it, adding raises
    `SessionEnded`. `request_id` names what is added next: the same one again is stored once.
    """

    def __init__(
        self, key: str, store: GivenStore, *, request_id: str | None = None
    ) -> None:
        if not isinstance(key, str) or not key:
            raise BadArgument(parameter="key", takes="text", given=kind_of(key))
        if request_id is not None and not isinstance(request_id, str):
            given = kind_of(request_id)
            raise BadArgument(parameter="request_id", takes="text", given=given)
        self.key = key
        self.store = store_of(store)
        self.request_id = request_id
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The session that this history is."""
        if self._session is None:
            self._session = self.store.session(self.key)
        return self._session

    @property
    def messages(self) -> list[Any]:
        """What was said, as it was added. What a run that was cut off had said is there as far as
        it was shown; a call whose result never came has one that says so.
        """
        found = self._said()
        # A call at the very end may still be answered: its caller is about to add the
        # result.
        return with_results(found, to_the_end=False)

    @messages.setter
    def messages(self, messages: Sequence[Any]) -> None:
        takes = "add_messages and clear"
        raise BadArgument(parameter="messages", takes=takes, given="an assignment")

    async def aget_messages(self) -> list[Any]:
        """As `messages`."""
        return await arun(self._looked())

    def _looked(self) -> Plan[list[Any]]:
        yield from self._opened()
        return (yield from read(lambda: self.messages))

    def _opened(self) -> Plan[Session]:
        """As `session`, without a thread that waits: those of many histories are made in one
        commit.
        """
        if self._session is None:
            self._session = Session(
                (yield from open_session(self.store._work, self.key))
            )
        return self._session

    def add_messages(self, messages: Sequence[Any]) -> None:
        """Adds messages, all of them in one commit or none."""
        run(self._add(_spoken(messages), _name(messages, self.request_id)))

    async def aadd_messages(self, messages: Sequence[Any]) -> None:
        """As `add_messages`."""
        await arun(self._add(_spoken(messages), _name(messages, self.request_id)))

    def _add(self, spoken: list[Spoken], event_id: str | None) -> Plan[None]:
        session = (yield from self._opened())._log
        if not spoken:
            return
        drafts = tuple(session.message(each, turn=None) for each in spoken)
        event = session.event(event_id)
        write = Write(session.id, drafts, event=event)
        outcome = yield from wait_for(session.engine.submit((write,)))
        # The same messages, or the same request, came before: they are there.
        if isinstance(outcome, Refused) and outcome.why != "accepted":
            raise (yield from read(session.ended))

    def clear(self) -> None:
        """Begins anew: the session ends, and the key gets another one. The old one can still be
        read; `Store.erase` takes its words out of the store.
        """
        self._session = self.store.reset(self.key, reason="cleared")

    async def aclear(self) -> None:
        """As `clear`."""
        await arun(read(self.clear))

    def stream(
        self, chain: Any, input: Any, config: Any = None, **options: Any
    ) -> Iterator[Any]:
        """Runs `chain` on the history and `input`, a text or a message, in a turn, and gives its
        chunks, each once it is durable.
        """
        _insist_on("stream", chain)
        prompt = _prompt(input)
        payload, _ = body_of(prompt, _no_typed)
        with self.session.turn(
            payload, format=FORMAT, event_id=self.request_id
        ) as turn:
            stream, whole = turn.stream(FORMAT), None
            for chunk in chain.stream(self._context(), config, **options):
                said = _chunk(chunk)
                stream.push(payload_of(said))
                whole = said if whole is None else whole + said
                yield chunk
            if whole is not None:
                stream.push(_final(whole))
                stream.close()

    async def astream(
        self, chain: Any, input: Any, config: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        """As `stream`."""
        _insist_on("astream", chain)
        prompt = _prompt(input)
        payload, _ = body_of(prompt, _no_typed)
        session = asynchronous(await arun(read(lambda: self.session)))
        starting = session.turn(payload, format=FORMAT, event_id=self.request_id)
        async with starting as turn:
            stream, whole = turn.stream(FORMAT), None
            context = await arun(read(self._context))
            async for chunk in chain.astream(context, config, **options):
                said = _chunk(chunk)
                await stream.push(payload_of(said))
                whole = said if whole is None else whole + said
                yield chunk
            if whole is not None:
                await stream.push(_final(whole))
                await stream.close()

    def _context(self) -> list[Any]:
        return _joined(with_results(self._said(), to_the_end=True))

    def _said(self) -> list[Any]:
        # Without turns and labels, which LangChain has no place for: labels are one more
        # question to the store.
        return [_message(Message(each, turn=None)) for each in stored(self.session)]


def _joined(messages: list[Any]) -> list[Any]:
    """These messages, prompts next to each other as one: a run that was cut off before its first
    word leaves its prompt alone, and some providers take no two in a row.
    """
    found: list[Any] = []
    for message in messages:
        if found and _goes_with(found[-1], message):
            message = _as_one(found.pop(), message)
        found.append(message)
    return found


def _goes_with(before: Any, message: Any) -> bool:
    both = isinstance(before, HumanMessage) and isinstance(message, HumanMessage)
    return both and before.name == message.name


def _as_one(before: Any, message: Any) -> Any:
    """The later prompt, with the words of both."""
    contents = [before.content, message.content]
    if all(isinstance(content, str) for content in contents):
        return message.model_copy(update={"content": "\n\n".join(contents)})
    blocks: list[Any] = []
    for content in contents:
        is_text = isinstance(content, str)
        blocks += [{"type": "text", "text": content}] if is_text else content
    return message.model_copy(update={"content": blocks})


def _no_typed(value: Any) -> Typed:
    """LangChain has no serialiser of its own for what JSON can't hold; it is not pickled."""
    takes = "messages whose fields are JSON"
    raise BadArgument(parameter="messages", takes=takes, given=kind_of(value))


def _spoken(messages: Sequence[Any]) -> list[Spoken]:
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        given = kind_of(messages)
        raise BadArgument(parameter="messages", takes="a list of messages", given=given)
    found = []
    for message in messages:
        if not is_message(message):
            takes = "LangChain's own messages"
            given = kind_of(message)
            raise BadArgument(parameter="messages", takes=takes, given=given)
        payload, body = body_of(message, _no_typed)
        found.append(Spoken(registry.get(FORMAT).note(payload), body))
    return found


def _name(messages: Sequence[Any], request_id: str | None) -> str | None:
    """The name of a batch: its caller's, or that of its messages if they all have one."""
    if request_id is not None:
        return request_id
    # A retry brings the same batch again. Where one message has no id, two equal
    # batches may be two that were really said.
    names = [message.id for message in messages]
    if not names or not all(isinstance(name, str) and name for name in names):
        return None
    # An id may have half of a character in it.
    name = "\n".join(names).encode(errors="surrogatepass")
    return "messages:" + hashlib.sha256(name).hexdigest()


def _insist_on(method: str, chain: Any) -> None:
    """Before the prompt is stored."""
    if not callable(getattr(chain, method, None)):
        takes = f"a chain with `{method}`"
        raise BadArgument(parameter="chain", takes=takes, given=kind_of(chain))


def _prompt(input: Any) -> Any:
    prompt = HumanMessage(input) if isinstance(input, str) else input
    if not is_message(prompt):
        takes = "a text or one of LangChain's messages"
        raise BadArgument(parameter="input", takes=takes, given=kind_of(input))
    return prompt


def _chunk(chunk: Any) -> Any:
    if isinstance(chunk, str):
        return AIMessageChunk(chunk)
    if not isinstance(chunk, AIMessageChunk):
        takes = "a chain that streams text or AIMessageChunks"
        raise BadArgument(parameter="chain", takes=takes, given=kind_of(chunk))
    return chunk


def _final(whole: Any) -> Any:
    payload, _ = body_of(message_chunk_to_message(whole), _no_typed)
    return {"final": payload}


def _message(stored: Message) -> Any:
    """A stored message as LangChain's."""
    try:
        if stored.format == FORMAT:
            return message_of(stored.payload, partial(_no_typed))
        text = stored.text
    except Exception:  # whatever damaged bytes cause: it takes away nothing but itself
        text = UNREADABLE
    kind = {"assistant": "ai", "system": "system"}.get(stored.role, "human")
    return message_of({"type": kind, "data": {"content": text}}, _no_typed)
