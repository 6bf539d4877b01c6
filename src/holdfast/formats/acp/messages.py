"""`acp`: messages put together from the updates of the Agent Client Protocol.

A payload is a neutral one, `{"role": …, "parts": […]}`, with what came over the wire beside its
parts, in `_acp`: whatever an agent says in fields that nobody here knows is kept. Words are kept
once, in the parts; an update is noted when it says more than that the words go on.

A stream takes `{"as": …, "updates": […]}`, the updates as they came. `as` is what they make
together: a "message" of the agent's, a "user" message of a replay, a tool's "call" or its
"outcome".
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.chunk import Delta
from holdfast.domain.message import MessageNote, Payload, Role
from holdfast.formats.acp.tool_calls import call_part, merged, result_part
from holdfast.formats.assembling import Deltas
from holdfast.formats.neutral import Neutral, NeutralAssembly, NeutralWriter
from holdfast.formats.reading import Block, fields, text, text_block

NAME = "acp"
WIRE = "_acp"
"""The key of a payload under which stands what came over the wire."""

As = Literal["message", "user", "call", "outcome"]
_SAID = ("text", "data")


class AcpWriter(NeutralWriter):
    """Writes one dialogue."""

    name = NAME


class AcpAssembly(NeutralAssembly):
    """A message put together from updates."""

    # No update says that it is a message's last.
    ends_with_source = True

    def __init__(self, note: Callable[[Payload], MessageNote]) -> None:
        super().__init__(note)
        self._updates: list[Block] = []
        # Where the next words go: used when chunks are taken, not when deltas are folded.
        self._place = -1
        self._growing = ""
        self._envelope: Block | None = None
        self._named = False

    def take(self, chunk: Any) -> Deltas:
        out: Deltas = []
        if not self._named:
            self._named = True
            out.append(("meta", 0, {"as": chunk["as"]}))
        speaks = chunk["as"] in ("message", "user")
        for update in chunk["updates"]:
            if speaks:
                out += self._spoken(update)
            else:
                out.append((NAME, 0, update))
        return out

    def _spoken(self, update: Block) -> Deltas:
        content = fields(update.get("content"))
        out: Deltas = []
        if content.get("type") == "text":
            is_thought = update.get("sessionUpdate") == "agent_thought_chunk"
            growing = "thinking" if is_thought else "text"
            if growing != self._growing:
                self._place += 1
                self._growing = growing
            words = text(content.get("text"))
            # Claude begins each text with an empty chunk.
            if words:
                out.append((growing, self._place, words))
        elif content:
            self._place += 1
            self._growing = ""
            out.append(("part", self._place, part_of(content)))
        rest = {name: content[name] for name in content if name not in _SAID}
        envelope = {**update, "content": rest}
        if envelope != self._envelope:
            self._envelope = envelope
            out.append((NAME, self._place, envelope))
        return out

    def fold(self, deltas: Sequence[Delta]) -> None:
        super().fold(deltas)
        for kind, _, value in deltas:
            if kind == NAME:
                self._updates.append(value)

    def _payload(self) -> Payload | None:
        kind = self._meta.get("as")
        role: Role = "user" if kind == "user" else "assistant"
        if kind == "call":
            return call_payload(self._updates)
        if kind == "outcome":
            return outcome_payload(self._updates)
        spoken = super()._payload()
        if spoken is None:
            return None
        assert isinstance(spoken, dict)
        wire: Block = {"updates": self._updates}
        for update in self._updates:
            if update.get("messageId") is not None:
                wire["messageId"] = update["messageId"]
        return {**spoken, "role": role, WIRE: wire}


class Acp(Neutral):
    """Messages of agents that speak the Agent Client Protocol."""

    name = NAME
    _writer = AcpWriter
    _assembly = AcpAssembly


def call_payload(updates: list[Block]) -> Payload:
    """The message of a tool call, as its updates describe it."""
    call = call_part(merged(updates))
    wire = {"toolCallId": call.id, "updates": updates}
    return {"role": "assistant", "parts": [msgspec.to_builtins(call)], WIRE: wire}


def outcome_payload(updates: list[Block]) -> Payload:
    """The message of a tool's outcome. While there is none it has no parts: what came of a tool
    that was cut off answers no call.
    """
    call_id = text(merged(updates).get("toolCallId"))
    result = result_part(call_id, updates)
    parts = [] if result is None else [msgspec.to_builtins(result)]
    return {
        "role": "tool",
        "parts": parts,
        WIRE: {"toolCallId": call_id, "updates": updates},
    }


def part_of(block: Block) -> Block:
    """A block of content as a neutral part: words, a picture, or itself."""
    kind = block.get("type")
    if kind == "image" and block.get("data"):
        media = text(block.get("mimeType")) or "image/png"
        return {"type": "image", "url": f"data:{media};base64,{text(block['data'])}"}
    if kind == "resource_link":
        name = text(block.get("name")) or text(block.get("uri"))
        return text_block(f"[{name}]({text(block.get('uri'))})")
    resource = fields(block.get("resource"))
    if kind == "resource" and isinstance(resource.get("text"), str):
        return text_block(f"{text(resource.get('uri'))}\n{resource['text']}")
    if not isinstance(kind, str):
        return {"type": "content", "content": block}
    return block


def prompt_payload(params: Block) -> Payload:
    """The user's message of a `session/prompt`."""
    parts = []
    prompt = params.get("prompt")
    is_plain = True
    for block in prompt if isinstance(prompt, list) else ():
        part = part_of(fields(block))
        is_plain = is_plain and part is block
        parts.append(part)
    said = {name: params[name] for name in params if name != "sessionId"}
    # Blocks that are parts as they came are not kept twice.
    if is_plain:
        said.pop("prompt", None)
    return {"role": "user", "parts": parts, WIRE: said}


def record_payload(facts: Block) -> Payload:
    """A message that says nothing, to anybody: it keeps what came over the wire in its place."""
    return {"role": "system", "parts": [], WIRE: facts}
