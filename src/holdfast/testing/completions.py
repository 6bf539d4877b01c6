"""Chat Completions payloads that the kit itself says: calls, and streams chunk by chunk."""

from collections.abc import Iterable, Iterator
from typing import Any

Payload = dict[str, Any]


def completions_call(id: str, name: str, arguments: str) -> Payload:
    """A call of a tool, as it stands in a finished message."""
    function = {"name": name, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def call_deltas(
    index: int, id: str, name: str, pieces: Iterable[str]
) -> Iterator[Payload]:
    """A call of a tool as it is streamed: first its name, then its arguments piece by piece."""
    # Only the first delta has id and name; later ones are known by the index.
    yield {"tool_calls": [{"index": index, **completions_call(id, name, "")}]}
    for piece in pieces:
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def completions_chunks(
    deltas: Iterable[Payload], finish: str | None, **about: str
) -> Iterator[Payload]:
    """A chunk for each delta, and one that says why the stream ends, unless it breaks off.
    `about` stands in every chunk.
    """
    for delta in deltas:
        yield _chunk(delta, None, about)
    if finish is not None:
        yield _chunk({}, finish, about)


def _chunk(delta: Payload, finish: str | None, about: dict[str, str]) -> Payload:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**about, "choices": [choice]}
