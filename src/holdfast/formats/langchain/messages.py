"""`langchain`: messages as LangChain's `message_to_dict` words them.

A payload is `{"type": "ai", "data": {"content": …, "id": …, "tool_calls": […]}}`; what a field says
by default is left out of `data`. A field that JSON can't hold (the artifact of a tool) stands in
`typed` as its serialiser wrote it. Nothing of LangChain is needed to read one.
"""

from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from holdfast.domain.message import (
    Call,
    Image,
    MessageNote,
    Other,
    Payload,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
    Usage,
)
from holdfast.domain.repair import Piece, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas
from holdfast.formats.format import BuiltInFormat
from holdfast.formats.notes import is_words, note_of
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    dumped,
    fields,
    image,
    is_blank,
    parsed,
    text,
    text_block,
    texts_of,
)
from holdfast.formats.shaping import DialogueWriter, output_text, stand_in

NAME = "langchain"
_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "user",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "tool",
    "ChatMessageChunk": "user",
}
_TYPES = {"user": "human", "assistant": "ai", "system": "system", "tool": "tool"}
_SAID_BY = {"assistant": "assistant", "ai": "assistant", "system": "system"}
# Providers repeat the calls of a message among its blocks; `tool_calls` has them all.
_REPEATED = frozenset({"tool_use", "tool_call", "function_call", "input_json_delta"})
_PLAIN = frozenset({"content", "id"})


class _Writer(DialogueWriter):
    """Writes one dialogue: results by the ids of their calls, neighbours unmerged."""

    name = NAME
    sides: dict[str, str | None] = dict.fromkeys(
        ("user", "assistant", "tool", "system")
    )
    id_length_max = 256

    def write(self, step: Step, *, joined: bool) -> Block | None:
        base = fields(self._own_payload(step))
        data = dict(fields(base.get("data")))
        calls = []
        for piece in self._pieces(step):
            part = piece.part
            if isinstance(part, Call):
                calls.append(self._call(part))
            elif isinstance(part, Result):
                data["tool_call_id"] = self._pending.popleft()
                data.setdefault("content", output_text(part.content))
                if part.error:
                    data["status"] = "error"
        if calls:
            data["tool_calls"] = calls
            data.pop("invalid_tool_calls", None)
        if "content" not in data:
            content = self._blocks(step)
            if not content and not calls:
                return None
            data["content"] = content
        return {**base, "type": base.get("type", _TYPES[step.role]), "data": data}

    def _call(self, call: Call) -> Block:
        said = parsed(call.arguments)
        if not isinstance(said, dict):
            # LangChain takes an object; what is none is handed on in words.
            said = {"arguments": call.arguments if said is NOT_JSON else said}
        given = self._open_call(call.id)
        return {"name": call.name, "args": said, "id": given, "type": "tool_call"}

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        part = piece.part
        if own and piece.raw is not None and not isinstance(part, Call):
            return piece.raw
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else text_block(part.text)
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": part.url}}
        if isinstance(part, Other):
            return text_block(stand_in(piece))
        return None


class _Assembly(Assembling):
    """A message put together from the payloads of chunks; `{"final": payload}` is its end."""

    def take(self, chunk: Any) -> Deltas:
        said = fields(chunk)
        if "final" in said:
            return _closing(said["final"])
        data = fields(said.get("data"))
        deltas: Deltas = []
        if data.get("id") is not None:
            deltas.append(("meta", 0, {"id": text(data["id"])}))
        words = _chunk_text(data.get("content"))
        if words:
            deltas.append(("text", 0, words))
        for piece in _listed(data.get("tool_call_chunks")):
            deltas += self._call_deltas(fields(piece))
        return deltas

    def _call_deltas(self, piece: Block) -> Deltas:
        index = piece.get("index")
        place = 1 + (index if isinstance(index, int) else 0)
        deltas: Deltas = []
        if piece.get("id") or piece.get("name"):
            named = {"id": text(piece.get("id")), "name": text(piece.get("name"))}
            deltas.append(("call", place, named))
        if piece.get("args"):
            deltas.append(("arguments", place, text(piece["args"])))
        return deltas

    def _payload(self) -> Payload | None:
        if self._final is not None:
            return self._final
        words = self._joined(0, "text") or ""
        calls = []
        for index, call in sorted(self._calls.items()):
            args = parsed(self._arguments(index))
            # One that was cut off can't be run, and no provider takes it back.
            if isinstance(args, dict):
                calls.append({**call, "args": args, "type": "tool_call"})
        if not words and not calls:
            return None
        data: Block = {"content": words}
        if self._meta.get("id"):
            data["id"] = self._meta["id"]
        if calls:
            data["tool_calls"] = calls
        return {"type": "ai", "data": data}


class LangChain(BuiltInFormat):
    """Messages of LangChain and LangGraph."""

    name = NAME
    _writer: Any = _Writer
    _assembly: Any = _Assembly

    def say(self, role: Role, text: str) -> Payload:
        return {"type": _TYPES[role], "data": {"content": text}}

    def note(self, payload: Payload) -> MessageNote:
        said = fields(payload)
        role = _role(said)
        data = said.get("data")
        if role is None or not isinstance(data, dict):
            problem = f"a message has `data` and one of the types {', '.join(_ROLES)}"
            raise InvalidMessage(problem=problem, place="type")
        usage = _usage(fields(data.get("usage_metadata")))
        words = ("text",)
        if data.keys() <= _PLAIN and role in ("user", "assistant"):
            if is_words(data.get("content"), words):
                return MessageNote(role=role, format=NAME)
        note = note_of(NAME, role, self.read(payload))
        finish = fields(data.get("response_metadata")).get("finish_reason")
        return replace(note, usage=usage, finish=text(finish) or None)

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        data = fields(said.get("data"))
        content = data.get("content")
        if _role(said) == "tool":
            # A function's message is named after the call that it answers.
            call_id = text(data.get("tool_call_id")) or text(data.get("name"))
            failed = data.get("status") == "error"
            return [Piece(Result(call_id, texts_of(content), error=failed), said)]
        pieces: list[Piece] = []
        if isinstance(content, str):
            if content:
                pieces.append(Piece(Text(content), text_block(content)))
        else:
            for block in _listed(content):
                pieces += _pieces(block)
        for call in _listed(data.get("tool_calls")):
            pieces.append(_call(fields(call), dumped(fields(call).get("args"))))
        for call in _listed(data.get("invalid_tool_calls")):
            pieces.append(_call(fields(call), text(fields(call).get("args"))))
        return pieces


def _role(payload: Block) -> Role | None:
    kind = text(payload.get("type"))
    role = _ROLES.get(kind)
    if kind.lower().startswith("chat"):
        said_by = text(fields(payload.get("data")).get("role")).lower()
        return _SAID_BY.get(said_by, role)  # type: ignore[return-value]
    return role


def _pieces(block: Any) -> list[Piece]:
    if isinstance(block, str):
        return [Piece(Text(block), text_block(block))]
    said = fields(block)
    kind = text(said.get("type")) or "block"
    if kind in _REPEATED:
        return []
    if kind == "text":
        return [Piece(Text(text(said.get("text"))), said)]
    if kind == "image_url":
        url = said.get("image_url")
        return [Piece(image(fields(url).get("url") or url), said)]
    if kind == "image" and said.get("url"):
        return [Piece(image(said["url"]), said)]
    if kind in ("thinking", "reasoning"):
        words = text(said.get(kind)) or text(said.get("text"))
        return [Piece(Thinking(words, signed="signature" in said), said)]
    if kind == "refusal":
        return [Piece(Refusal(text(said.get("refusal"))), said)]
    return [Piece(Other(kind), said)]


def _call(call: Block, arguments: str) -> Piece:
    return Piece(Call(text(call.get("id")), text(call.get("name")), arguments), call)


def _chunk_text(content: Any) -> str:
    """The words of a chunk, as they are shown: its blocks are one text cut up."""
    if isinstance(content, str):
        return content
    words = []
    for block in _listed(content):
        if isinstance(block, str):
            words.append(block)
        elif fields(block).get("type") == "text":
            words.append(text(fields(block).get("text")))
    return "".join(words)


def _closing(payload: Any) -> Deltas:
    """The whole message, as its source says it in the end."""
    data = fields(fields(payload).get("data"))
    facts: Block = {}
    usage = _usage(fields(data.get("usage_metadata")))
    if usage is not None:
        facts["usage"] = to_builtins(usage)
    about = fields(data.get("response_metadata"))
    if text(about.get("finish_reason")):
        facts["finish"] = text(about["finish_reason"])
    if text(about.get("model_name")):
        facts["model"] = text(about["model_name"])
    return [("meta", 0, facts), ("done", 0, payload)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _usage(counted: Block) -> Usage | None:
    if not counted:
        return None
    of_input = fields(counted.get("input_token_details"))
    of_output = fields(counted.get("output_token_details"))
    return Usage(
        input=_count(counted.get("input_tokens")),
        output=_count(counted.get("output_tokens")),
        cached=_count(of_input.get("cache_read")),
        reasoning=_count(of_output.get("reasoning")),
    )


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return 0
