"""What of a replayed session the store has already.

An agent that loads a session sends all of it again, as whole messages: the agent's under the ids
they had, tool calls too, the user's under ids that nobody has seen before. So ids decide where
there are any, then words, in the order in which they were said. What is new is stored; of a
message that was cut off here and is longer there, the rest is.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.formats.acp.messages import WIRE
from holdfast.formats.acp.tool_calls import is_final
from holdfast.formats.reading import Block, fields, text

USER = "user_message_chunk"
THOUGHT = "agent_thought_chunk"
SPOKEN = (USER, "agent_message_chunk", THOUGHT)
REPLAYED = (*SPOKEN, "tool_call", "tool_call_update")


class StoredPiece(msgspec.Struct, frozen=True):
    """What is compared of a stored message: who spoke, the words, and the wire's ids."""

    role: str
    words: str
    wire: dict[str, Any]
    is_partial: bool = False
    answers: tuple[str, ...] = ()


class Known:
    """What a session holds when a load of it begins; it is told what is replayed, and says what
    of that is new.
    """

    def __init__(self, stored: Iterable[StoredPiece]) -> None:
        self._asked: list[str] = []
        self._next = 0
        self._unnamed: set[str] = set()
        self._spoken: dict[str, StoredPiece] = {}
        self._heard: dict[str, str] = {}
        self.answered: set[str] = set()
        self.calls: set[str] = set()
        # All of them: an agent replays a session from its beginning.
        for piece in stored:
            self._add(piece)

    def _add(self, piece: StoredPiece) -> None:
        call, message = piece.wire.get("toolCallId"), piece.wire.get("messageId")
        if isinstance(call, str):
            self.calls.add(call)
            self.answered.update(piece.answers)
        elif isinstance(message, str):
            # A message may have been stored in two pieces: both are known.
            before = self._spoken.get(message)
            words = piece.words if before is None else before.words + piece.words
            self._spoken[message] = msgspec.structs.replace(piece, words=words)
        elif piece.role == "user":
            self._asked.append(_plain(piece.words))
        elif piece.role == "assistant":
            self._unnamed.add(_plain(piece.words))

    def news(self, update: Block) -> Block | None:
        """The update, or the part of it that is new; None when the store has it."""
        kind = update.get("sessionUpdate")
        # Their ids are the provider's, and the same in every replay.
        if kind in ("tool_call", "tool_call_update"):
            return self._tool_news(update)
        message = update.get("messageId")
        if isinstance(message, str) and message in self._spoken:
            return self._rest(
                update,
                self._spoken[message],
                message,
            )
        words = _plain(_words(update))
        if kind == USER:
            return None if self._was_asked(words) else update
        if message is None and words in self._unnamed:
            return None
        return update

    def _tool_news(self, update: Block) -> Block | None:
        call = text(update.get("toolCallId"))
        if call not in self.calls:
            return update
        # It was cut off here, and came to its end without us.
        if is_final(update) and call not in self.answered:
            self.answered.add(call)
            return update
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

    def _was_asked(self, words: str) -> bool:
        """Whether the user said these words after those that were replayed before them."""
        for place in range(self._next, len(self._asked)):
            if self._asked[place] == words:
                self._next = place + 1
                return True
        # One prompt of several blocks may come back as several messages: each is a part of the last
        # one that was met, or of the next.
        for place in (self._next - 1, self._next):
            if 0 <= place < len(self._asked) and _is_part(words, self._asked[place]):
                self._next = place + 1
                return True
        return False


def _is_part(words: str, of: str) -> bool:
    return words in of and words != of


def _words(update: Block) -> str:
    return text(fields(update.get("content")).get("text"))


def _plain(words: str) -> str:
    """Words as they are compared: agents trim them, and break lines anew."""
    return " ".join(words.split())


def wire_of(payload: Any) -> dict[str, Any]:
    """What a stored message says of the wire."""
    return fields(fields(payload).get(WIRE))
