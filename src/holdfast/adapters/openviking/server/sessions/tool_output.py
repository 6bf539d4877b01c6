"""Long outputs of tools: a message shows a beginning and an end, and names the whole; pure.

The whole output stays in the stored message. Its name has the message's place in the log in it, so
it is found without a list of outputs.
"""

import hashlib
import re

import msgspec

from holdfast.adapters.openviking.server.sessions.archive import Json

LONG = 20_000
"""Outputs with more letters than this are shown in part."""
SHOWN = 900
_NAME = re.compile(r"tr_(\d{1,18})_(\d{1,6})")


class ToolOutput(msgspec.Struct, frozen=True):
    """A long output: where it is, what it is of, and how long it is."""

    seq: int
    index: int
    tool_id: str
    tool_name: str
    chars: int
    sha256: str

    @property
    def name(self) -> str:
        return f"tr_{self.seq}_{self.index}"


def place_of(name: str) -> tuple[int, int] | None:
    """The seq of the message and the place of the part that a name means; None when it is none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return int(found[1]), int(found[2])


def output_at(payload: Json, index: int) -> str | None:
    """The whole output of the tool in this part."""
    parts = payload.get("parts")
    if not isinstance(parts, list) or index >= len(parts):
        return None
    output = parts[index].get("tool_output") if isinstance(parts[index], dict) else None
    return output if isinstance(output, str) and len(output) > LONG else None


def long_outputs(payload: Json, seq: int) -> list[ToolOutput]:
    """The long outputs in a message."""
    found = []
    parts = payload.get("parts")
    for index in range(len(parts) if isinstance(parts, list) else 0):
        output = output_at(payload, index)
        if output is not None:
            part = payload["parts"][index]
            # Half of a surrogate pair can be stored, and must not keep a session from being read.
            digest = hashlib.sha256(output.encode("utf-8", "surrogatepass"))
            found.append(
                ToolOutput(
                    seq=seq,
                    index=index,
                    tool_id=str(part.get("tool_id", "")),
                    tool_name=str(part.get("tool_name", "")),
                    chars=len(output),
                    sha256=digest.hexdigest(),
                )
            )
    return found


def shortened(payload: Json, outputs: list[ToolOutput], uri: str) -> Json:
    """The message as it is shown, with each of these outputs in part. `uri` is its session's."""
    if not outputs:
        return payload
    parts = list(payload["parts"])
    for output in outputs:
        # A copy: what is stored is what the whole output is read from.
        part = dict(parts[output.index])
        whole = part["tool_output"]
        ref = f"{uri}/tool-results/{output.name}"
        preview = (
            f"[{output.chars} characters, shown in part; the whole is at {ref}]\n"
            f"{whole[:SHOWN]}\n[…]\n{whole[-SHOWN:]}"
        )
        part["tool_output"] = preview
        part["tool_output_ref"] = ref
        part["tool_output_truncated"] = True
        part["tool_output_original_chars"] = output.chars
        part["tool_output_preview_chars"] = len(preview)
        part["tool_output_sha256"] = output.sha256
        part["tool_output_storage_uri"] = ref
        parts[output.index] = part
    return {**payload, "parts": parts}


def matches(
    output: str,
    sought: str,
    *,
    limit: int,
    around: int,
) -> list[Json]:
    """Where a text occurs in an output, with what stands around it."""
    found: list[Json] = []
    at = output.find(sought)
    while at >= 0 and len(found) < limit:
        snippet = output[max(at - around, 0) : at + len(sought) + around]
        place = {
            "offset": at,
            "offset_unit": "unicode_code_point",
            "snippet": snippet,
        }
        found.append(place)
        at = output.find(sought, at + len(sought))
    return found
