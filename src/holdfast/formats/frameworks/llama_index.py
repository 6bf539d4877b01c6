"""`llama_index`: messages as LlamaIndex's `ChatMessage.model_dump(mode="json")` words them.

A payload is `{"role": …, "blocks": […], "additional_kwargs": {…}}`. A call is a block, in older
releases an entry of `additional_kwargs["tool_calls"]` as the provider shaped it; the message of a
tool names its call in `additional_kwargs["tool_call_id"]`.
"""

from typing import Any

from holdfast.domain.message import Call, Other, Payload, Result, Role, Text, Thinking
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.frameworks.framework_format import FrameworkFormat
from holdfast.formats.reading import Block, dumped, fields, image, text

NAME = "llama_index"


class LlamaIndex(FrameworkFormat):
    """LlamaIndex's chat messages."""

    name = NAME
    roles: dict[str, Role] = {
        "user": "user",
        "assistant": "assistant",
        "chatbot": "assistant",
        "model": "assistant",
        "system": "system",
        "developer": "system",
        "tool": "tool",
        "function": "tool",
    }

    def check(self, payload: Payload) -> None:
        if not isinstance(fields(payload).get("blocks"), list):
            problem = "a message has a list of `blocks`"
            raise InvalidMessage(problem=problem, place="blocks")

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        beside = fields(said.get("additional_kwargs"))
        blocks = said.get("blocks")
        pieces: list[Piece] = []
        for block in blocks if isinstance(blocks, list) else ():
            pieces.append(_piece(fields(block)))
        if self.roles.get(text(said.get("role"))) == "tool":
            words = [
                piece.part.text for piece in pieces if isinstance(piece.part, Text)
            ]
            result = Result(text(beside.get("tool_call_id")), "\n".join(words))
            return [Piece(result, said)]
        made = {piece.part.id for piece in pieces if isinstance(piece.part, Call)}
        calls = beside.get("tool_calls")
        for each in calls if isinstance(calls, list) else ():
            call = _provider_call(fields(each))
            # Newer releases word a call in both places.
            if call is not None and call.id not in made:
                pieces.append(Piece(call, each))
        return pieces

    def word(self, role: Role, blocks: list[Any]) -> Block:
        return {"role": role, "additional_kwargs": {}, "blocks": blocks}

    def text(self, words: str) -> Block:
        return {"block_type": "text", "text": words}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        return {
            "block_type": "tool_call",
            "tool_call_id": id,
            "tool_name": name,
            "tool_kwargs": arguments,
        }

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        said = self.word("tool", [self.text(words)])
        return {**said, "additional_kwargs": {"tool_call_id": call_id}}


def _piece(block: Block) -> Piece:
    kind = text(block.get("block_type")) or "block"
    if kind == "text":
        return Piece(Text(text(block.get("text"))), block)
    if kind == "thinking":
        return Piece(Thinking(text(block.get("content"))), block)
    if kind == "tool_call":
        arguments = block.get("tool_kwargs")
        words = arguments if isinstance(arguments, str) else dumped(arguments)
        call_id = text(block.get("tool_call_id"))
        return Piece(Call(call_id, text(block.get("tool_name")), words), block)
    if kind == "image" and block.get("url"):
        return Piece(image(block["url"]), block)
    return Piece(Other(kind), block)


def _provider_call(said: Block) -> Call | None:
    """A call as OpenAI's API words it."""
    function = fields(said.get("function"))
    if not function:
        return None
    arguments = function.get("arguments")
    words = arguments if isinstance(arguments, str) else dumped(arguments)
    return Call(text(said.get("id")), text(function.get("name")), words)
