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
        self._stream = turn.stream(FORMAT)
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
            self._stream.push(_chunk({"content": kept}))
            self.text += kept

    def close(self, said: Payload | None = None, finish: str | None = None) -> None:
        """The message is stored as one. `said` is what Hermes made of it, with its calls. Without a
        `finish` it is stored as cut off.
        """
        # It is closed where it is cut and where Hermes writes it, whichever comes first.
        if self.is_closed:
            return
        self.is_closed = True
        for key, value in (said or {}).items():
            if key not in ("role", "content"):
                self._besides[key] = value
        if self._besides or finish:
            last = _counted(self._besides)
            self._stream.push(_chunk(last, finish))
        self._stream.close()

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
