"""The demo's scripted model: it streams OpenAI chat chunks, and what it says depends only on the
context it is sent.

So what it says in the second turn shows what it was told of the first.
"""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from holdfast.domain.repair import INTERRUPTED

ANSWER = (
    "Casa Lola has a quiet table by the window, free at eight. I am asking them to hold it for "
    "you, and as soon as "
    "they have confirmed I will send you the address. It is ten minutes on foot from the station: "
    "cross the river by "
    "the old bridge, turn left at the chemist's, and it is the blue door behind the fig tree. "
    "They ask for a call if "
    "you are more than a quarter of an hour late, and they keep the kitchen open until eleven. "
    "Shall I put both of you "
    "down for the tasting menu, or would you rather choose when you are there?"
)
MIDDLE = "as soon as they have conf"
"""The demo kills the agent when it has said this much: in the middle of a sentence, and of a word.
Much is left to say, so that a slow machine kills in time, too.
"""

TABLE = {"place": "Casa Lola", "at": "20:00"}
PIECES = (3, 5, 2, 7, 4, 6)

Chunk = dict[str, Any]
Reply = tuple[Chunk, str | None]
"""The delta of a chunk, and why the reply ends, if it does."""


def stream(context: Sequence[Any], *, pace_s: float) -> Iterator[Chunk]:
    """What the model says to this context, a chunk every `pace_s` seconds."""
    for delta, finish in _reply(context):
        time.sleep(pace_s)
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield {
            "id": "chatcmpl-demo",
            "object": "chat.completion.chunk",
            "model": "scripted",
            "choices": [choice],
        }


def _reply(context: Sequence[Any]) -> Iterator[Reply]:
    last = context[-1]
    unknown = any(message.get("content") == INTERRUPTED for message in context)
    if last["role"] == "user":
        if unknown:
            return _call("call_3", "look_up_hold", TABLE)
        return _call("call_1", "find_table", {"people": 2, "at": "20:00"})
    if unknown:
        return _words(_resumed(context))
    if last["tool_call_id"] == "call_1":
        return _call("call_2", "hold_table", TABLE)
    return _words(ANSWER)


def _resumed(context: Sequence[Any]) -> str:
    """The second turn's answer: it quotes the last words of the first, which it can only know from
    the context.
    """
    quoted = "nothing"
    for message in context:
        spoken = message.get("content")
        if message["role"] == "assistant" and isinstance(spoken, str):
            quoted = " ".join(spoken.split()[-4:])
    return (
        f"Yes, I was cut off at “{quoted}”. I could not tell whether the table was held, so I "
        "looked it up "
        f"instead of asking for it twice: {context[-1]['content']}"
    )


def _words(text: str) -> Iterator[Reply]:
    start = 0
    for size in cycle(PIECES):
        if start >= len(text):
            break
        yield {"role": "assistant", "content": text[start : start + size]}, None
        start += size
    yield {}, "stop"


def _call(id: str, name: str, arguments: dict[str, Any]) -> Iterator[Reply]:
    """A tool call; its arguments come in two chunks, as they do in life."""
    text = json.dumps(arguments)
    opening = {
        "index": 0,
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": text[:9]},
    }
    yield {"role": "assistant", "content": None, "tool_calls": [opening]}, None
    yield {"tool_calls": [{"index": 0, "function": {"arguments": text[9:]}}]}, None
    yield {}, "tool_calls"
