"""One message of an agent while it is being spoken: each piece is stored, then it may be shown (I-5)."""

from typing import Any

from holdfast import Turn
from holdfast.adapters.hermes.spoken.live_list import Payload

FORMAT = "openai.chat"


class Speech:
    """A message that grows by what the callbacks of Hermes are given. `text` is what is stored of it.

    It is a stream of chat chunks, not of bare text, so that the calls that Hermes tells of at the end
    are part of the same message.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._stream = turn.stream(FORMAT)
        self._is_broken = False
        """Whether the store has failed in the middle of it: its turn then has what was stored of it,
        and makes that a message when it can.
        """
        self.text = ""
        self.is_over = False
        """Whether Hermes has said that its text is whole: what is shown next is another message."""
        self.is_given_up = False
        """Whether the model was asked again since: Hermes may have thrown it away."""
        self.is_closed = False
        self._besides: Payload = {}

    def say(self, text: str) -> None:
        """Stores the next piece; raises when that can't be done."""
        # Hermes puts a blank line before what is said after a tool, for the screen alone.
        kept = text
        if not self.text:
            kept = text.lstrip("\n")
        if kept:
            self._push({"content": kept})
            self.text += kept

    def _push(self, delta: dict[str, Any], finish: str | None = None) -> None:
        try:
            self._stream.push(_chunk(delta, finish))
        except BaseException:
            self._is_broken = True
            raise

    def close(self, said: Payload | None = None, finish: str | None = None) -> None:
        """The message is stored as one. `said` is what Hermes made of it, with its calls. Without a
        `finish` it is stored as cut off.
        """
        # It is closed where it is cut and where Hermes writes it, whichever comes first.
        if self.is_closed:
            return
        if self._is_broken:
            # Asking the turn what the model sees has it store what it still holds. Without that,
            # these words would not be known as stored, and would be stored once more.
            self._turn.context(FORMAT)
        else:
            self._close(said or {}, finish)
        self.is_closed = True

    def _close(self, said: Payload, finish: str | None) -> None:
        besides = {}
        for key, value in said.items():
            if key not in ("role", "content"):
                besides[key] = value
        if besides or finish:
            self._push(_counted(besides), finish)
        self._besides = besides
        try:
            self._stream.close()
        except BaseException:
            self._is_broken = True
            raise

    def payload(self) -> Payload:
        """What is stored of it, once it is closed."""
        return {"role": "assistant", "content": self.text, **self._besides}


def _counted(besides: Payload) -> dict[str, Any]:
    """Calls have an index in a stream: without one, the second would be taken for more of the first."""
    calls = besides.get("tool_calls")
    if not isinstance(calls, list):
        return besides
    counted = []
    for index, call in enumerate(calls):
        if isinstance(call, dict):
            call = {**call, "index": index}
        counted.append(call)
    return {**besides, "tool_calls": counted}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
