"""`strands`: messages of Strands Agents, which words them as Bedrock's Converse API does.

A payload is a message, `{"role": …, "content": [{"text": …}, {"toolUse": …}]}`, or the record that
its session managers keep of one, `{"message": …, "message_id": …, "redact_message": …}`. What they
keep beside messages (an agent's state) is `{"record": …}`, and says nothing to a model.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.domain.message import (
    Call,
    MessageNote,
    Other,
    Part,
    Payload,
    Result,
    Role,
    Text,
    Thinking,
    Usage,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.errors import InvalidMessage
from holdfast.formats.assembling import Assembling, Deltas, counts
from holdfast.formats.format import Assembly
from holdfast.formats.frameworks.framework_format import (
    FrameworkFormat,
    FrameworkWriter,
)
from holdfast.formats.notes import check_role, note_of
from holdfast.formats.reading import (
    NOT_JSON,
    Block,
    dumped,
    fields,
    is_blank,
    parsed,
    text,
    without_nulls,
)

NAME = "strands"


class Strands(FrameworkFormat):
    """Strands' messages, and the records that it keeps of them."""

    name = NAME
    roles: dict[str, Role] = {"user": "user", "assistant": "assistant"}

    def _made_writer(self, read: Read, used: set[str]) -> "StrandsWriter":
        return StrandsWriter(self, read, used)

    def assembly(self) -> Assembly:
        return StrandsAssembly(self.note)

    def note(self, payload: Payload) -> MessageNote:
        if is_record(payload):
            return note_of(self.name, "system", self.read(payload))
        message = message_of(payload)
        role = check_role(message, self.roles)
        content = message.get("content")
        blocks = content if isinstance(content, list) else [None]
        for block in blocks:
            if not isinstance(block, dict):
                problem = "a message has a list of objects"
                raise InvalidMessage(problem=problem, place="content")
        note = note_of(self.name, role, self.read(payload))
        return replace(note, usage=usage_of(message))

    def read(self, payload: Payload) -> list[Piece]:
        if is_record(payload):
            return [Piece(Other(text(fields(payload)["record"])), payload)]
        content = message_of(payload).get("content")
        pieces = []
        for block in content if isinstance(content, list) else ():
            pieces.append(Piece(_part(fields(block)), fields(block)))
        return pieces

    def word(self, role: Role, blocks: list[Any]) -> Block:
        return {
            "role": "assistant" if role == "assistant" else "user",
            "content": blocks,
        }

    def text(self, words: str) -> Block:
        return {"text": words}

    def call(self, id: str, name: str, arguments: Any) -> Block:
        return {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        status = "error" if error else "success"
        said = {"toolUseId": call_id, "status": status, "content": [{"text": words}]}
        return self.word("user", [{"toolResult": said}])


class StrandsWriter(FrameworkWriter):
    """Writes one dialogue: user and assistant take turns, and the results of all calls of a message
    stand in the one that follows it.
    """

    sides = {"user": "user", "tool": "user", "system": "user", "assistant": "assistant"}

    def write(self, step: Step, *, joined: bool) -> Block | None:
        if is_record(self._own_payload(step)):
            return None
        written = super().write(step, joined=joined)
        return None if written is None else message_of(written)

    def join(self, payloads: Sequence[Any]) -> Block:
        blocks: list[Block] = []
        for payload in payloads:
            blocks += payload["content"]
        return {"role": payloads[0]["role"], "content": blocks}


def is_record(payload: Any) -> bool:
    """Whether this is something that a session manager keeps beside messages."""
    return isinstance(payload, dict) and isinstance(payload.get("record"), str)


def message_of(payload: Any) -> Block:
    """The message that a payload is, or is the record of: as it was redacted, if it was."""
    said = fields(payload)
    if "message" not in said:
        return said
    return fields(said.get("redact_message")) or fields(said["message"])


def _part(block: Block) -> Part:
    if isinstance(block.get("text"), str):
        return Text(block["text"])
    if "toolUse" in block:
        call = fields(block["toolUse"])
        said = call.get("input", {})
        words = said if isinstance(said, str) else dumped(said)
        return Call(text(call.get("toolUseId")), text(call.get("name")), words)
    if "toolResult" in block:
        answer = fields(block["toolResult"])
        failed = answer.get("status") == "error"
        words = _words(answer.get("content"))
        return Result(text(answer.get("toolUseId")), words, error=failed)
    if "reasoningContent" in block:
        thought = fields(fields(block["reasoningContent"]).get("reasoningText"))
        signed = not is_blank(thought.get("signature"))
        return Thinking(text(thought.get("text")), signed=signed)
    if "citationsContent" in block:
        return Text(_words(fields(block["citationsContent"]).get("content")))
    return Other(next(iter(block), "block"))


def _words(content: Any) -> str:
    """The words of these blocks; one of another kind stands in their midst by its name."""
    words = []
    for each in content if isinstance(content, list) else ():
        block = fields(each)
        if "text" in block:
            words.append(text(block["text"]))
        elif "json" in block:
            words.append(dumped(block["json"]))
        else:
            words.append(f"[{next(iter(block), 'block')}]")
    return "\n".join(words)


class StrandsAssembly(Assembling):
    """A message put together from the events of a model's stream; `{"final": payload}` is its end.

    Blocks of these streams have no numbers: each event that ends one makes the next begin.
    """

    def __init__(self, note: Any) -> None:
        super().__init__(note)
        self._place = 0

    def take(self, chunk: Any) -> Deltas:
        said = fields(chunk)
        if "final" in said:
            return [("done", 0, said["final"])]
        if "contentBlockStart" in said:
            start = fields(fields(said["contentBlockStart"]).get("start"))
            return self._named(fields(start.get("toolUse")))
        if "contentBlockDelta" in said:
            return self._growing(fields(fields(said["contentBlockDelta"]).get("delta")))
        if "contentBlockStop" in said:
            self._place += 1
            return []
        if "messageStop" in said:
            finish = fields(said["messageStop"]).get("stopReason")
            return [("meta", 0, {"finish": text(finish)})]
        if "metadata" in said:
            return [("meta", 0, {"usage": _usage(fields(said["metadata"]))})]
        return []

    def _named(self, call: Block) -> Deltas:
        if not call:
            return []
        named = {"id": text(call.get("toolUseId")), "name": text(call.get("name"))}
        return [("call", self._place, named)]

    def _growing(self, delta: Block) -> Deltas:
        place = self._place
        if "toolUse" in delta:
            call = fields(delta["toolUse"])
            # Some models name a call here.
            deltas = self._named(call) if call.get("toolUseId") else []
            words = text(call.get("input"))
            return [*deltas, ("arguments", place, words)] if words else deltas
        if "text" in delta:
            return [("text", place, text(delta["text"]))] if delta["text"] else []
        thought = fields(delta.get("reasoningContent"))
        for name, kind in (("text", "thinking"), ("signature", "signature")):
            if thought.get(name):
                return [(kind, place, text(thought[name]))]
        return []

    def _payload(self) -> Payload | None:
        if self._final is not None:
            return self._final
        blocks: list[Block] = []
        for index in self._indexes():
            blocks += self._blocks(index)
        return {"role": "assistant", "content": blocks} if blocks else None

    def _blocks(self, index: int) -> list[Block]:
        blocks: list[Block] = []
        thought = self._joined(index, "thinking")
        if thought is not None:
            signature = self._joined(index, "signature")
            said = without_nulls({"text": thought, "signature": signature})
            blocks.append({"reasoningContent": {"reasoningText": said}})
        call = self._calls.get(index)
        if call is not None:
            words = self._arguments(index)
            arguments = parsed(words or "{}")
            given: Any = words if arguments is NOT_JSON else arguments
            named = {"toolUseId": call["id"], "name": call["name"], "input": given}
            blocks.append({"toolUse": named})
        words = self._joined(index, "text") or ""
        if words:
            blocks.append({"text": words})
        return blocks


def _usage(metadata: Block) -> dict[str, int]:
    return counts(
        metadata.get("usage"),
        input="inputTokens",
        output="outputTokens",
        cached="cacheReadInputTokens",
    )


def usage_of(message: Block) -> Usage | None:
    """The tokens that a message says it has cost."""
    found = _usage(fields(message.get("metadata")))
    return Usage(**found) if any(found.values()) else None
