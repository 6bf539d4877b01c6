"""What of a replayed session the store has already.

An agent that loads a session sends all of it again, cut into messages and chunks as it likes: the
agent's under the ids they had, or none; tool calls under theirs; the user's under ids that nobody
has seen before. So ids decide where there are any that are known, then words, in the order in
which they were said. What is new is stored; of a message that was cut off here and is longer
there, the rest is.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.adapters.acp.loading.known_calls import KnownCalls
from holdfast.adapters.acp.loading.replayed_words import ReplayedWords, Told
from holdfast.adapters.acp.loading.stored_words import (
    MESSAGE,
    PROMPT,
    StoredTranscript,
    StoredWords,
)
from holdfast.adapters.acp.loading.stored_words import THOUGHT as THOUGHTS
from holdfast.formats.acp.messages import WIRE
from holdfast.formats.reading import Block, fields, text

USER = "user_message_chunk"
THOUGHT = "agent_thought_chunk"
SPOKEN = (USER, "agent_message_chunk", THOUGHT)
REPLAYED = (*SPOKEN, "tool_call", "tool_call_update")
_KINDS = {USER: PROMPT, "agent_message_chunk": MESSAGE, THOUGHT: THOUGHTS}


class StoredPiece(msgspec.Struct, frozen=True):
    """What is compared of a stored message: who spoke, the words, and the wire's ids. `is_loose`:
    it is in no thread, for it has no place there.
    """

    role: str
    words: str
    wire: dict[str, Any]
    shown: tuple[StoredWords, ...] = ()
    is_partial: bool = False
    is_loose: bool = False
    answers: tuple[str, ...] = ()


class Known:
    """What a session holds when a load of it begins; it is told what is replayed, and says what
    of that is new.
    """

    def __init__(self, stored: Iterable[StoredPiece]) -> None:
        self._stored = StoredTranscript()
        self._words = ReplayedWords(self._stored)
        self._spoken: dict[str, StoredPiece] = {}
        self._heard: dict[str, str] = {}
        self._calls = KnownCalls(self._stored)
        self._places: dict[str, int] = {}
        self._prompts = 0
        self._has_ids = False
        """Whether the ids that the agent gives its messages are the same in this replay."""
        # All of them: an agent replays a session from its beginning.
        for piece in stored:
            self._add(piece)

    def _add(self, piece: StoredPiece) -> None:
        call, message = piece.wire.get("toolCallId"), piece.wire.get("messageId")
        if isinstance(call, str):
            is_call = piece.role != "tool"
            is_answer = call in piece.answers
            self._calls.add(call, is_call=is_call, is_answer=is_answer)
            return
        if isinstance(message, str):
            # A message may have been stored in two pieces: both are known.
            before = self._spoken.get(message)
            words = piece.words if before is None else before.words + piece.words
            self._spoken[message] = msgspec.structs.replace(piece, words=words)
        if piece.is_loose:
            for each in piece.shown:
                self._stored.add_loose(each)
        elif piece.role == "user":
            self._stored.add_prompt("".join(each.words for each in piece.shown))
            if isinstance(message, str):
                self._places[message] = self._stored.last
        else:
            for each in piece.shown:
                self._stored.add(each)

    @property
    def unanswered(self) -> set[str]:
        """The ids of calls that are stored without an outcome."""
        return self._calls.unanswered

    def take(self, update: Block) -> Told:
        """What of this update, and of those before it, is new; None for what the store has."""
        kind = text(update.get("sessionUpdate"))
        told = self._taken(kind, update)
        self._stored.is_told = self._stored.is_told or kind != USER
        return told

    def _taken(self, kind: str, update: Block) -> Told:
        # Their ids are the provider's, and the same in every replay.
        if kind in ("tool_call", "tool_call_update"):
            told = self._words.end()
            return [*told, self._calls.news(update, self._prompts)]
        message = update.get("messageId")
        if isinstance(message, str) and message in self._spoken:
            told = self._words.end()
            return [*told, self._named_news(kind, message, update)]
        if kind == USER:
            self._prompts += 1
        elif message is not None and self._has_ids:
            return [*self._words.end(), update]
        return self._words.take(_KINDS[kind], message, update)

    def rest(self) -> Told:
        """Nothing more is replayed."""
        return self._words.end()

    def _named_news(self, kind: str, message: str, update: Block) -> Block | None:
        """What is new of an update whose message is stored under its id."""
        if kind != USER:
            self._has_ids = True
            return self._rest(update, self._spoken[message], message)
        self._prompts += 1
        if message in self._places:
            self._stored.go_to(self._places[message])
        return None

    def _rest(
        self,
        update: Block,
        stored: StoredPiece,
        message: str,
    ) -> Block | None:
        """What the agent has of a message beyond what was stored before it was cut off."""
        if not stored.is_partial or update.get("sessionUpdate") == THOUGHT:
            return None
        before = self._heard.get(message, "")
        heard = before + _words(update)
        self._heard[message] = heard
        told = max(len(before), len(stored.words))
        if len(heard) <= told or not heard.startswith(stored.words):
            return None
        content = {
            **fields(update.get("content")),
            "text": heard[told:],
        }
        return {**update, "content": content}


def _words(update: Block) -> str:
    return text(fields(update.get("content")).get("text"))


def wire_of(payload: Any) -> dict[str, Any]:
    """What a stored message says of the wire."""
    return fields(fields(payload).get(WIRE))
