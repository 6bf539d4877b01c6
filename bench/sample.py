"""The messages and chunks that are measured with."""

from typing import Any

MESSAGE_BYTES = 500
CHUNK_BYTES = 32
"""What a provider sends at 20 chunks a second: a few words."""

_WORDS = "the tide comes in and the kelp holds fast to the rock it grew on while the water pulls "


def text(bytes_: int, number: int) -> str:
    """So many bytes of words, different for each number."""
    start = f"{number:08d} "
    return (start + _WORDS * (bytes_ // len(_WORDS) + 1))[:bytes_]


def message(number: int, role: str | None = None) -> dict[str, Any]:
    """An `openai.chat` message of 500 bytes as JSON; user and assistant in turn unless told."""
    payload = {"role": role or ("assistant" if number % 2 else "user"), "content": ""}
    frame = len('{"role":"","content":""}') + len(payload["role"])
    payload["content"] = text(MESSAGE_BYTES - frame, number)
    return payload


def chat_chunk(words: str) -> dict[str, Any]:
    """The same words as OpenAI's chat API streams them."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": words}, "finish_reason": None}],
    }
