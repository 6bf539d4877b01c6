"""Calls of the Responses API and what answers them: functions, custom tools, and the tools that
OpenAI defines and the caller runs (a computer, shells, patches).

A tool that the server ran itself (web search, code interpreter, a shell in a container) has its
outcome in the same response; nobody else answers it, and it is passed on as it came.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import Call, Result
from holdfast.formats.shaping import dumped, is_blank

Item = dict[str, Any]

SAID = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls that name their tool, and the key of what it is called with."""

RUN = {
    "computer_call": ("computer", ("action", "actions")),
    "local_shell_call": ("local_shell", ("action",)),
    "shell_call": ("shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
}
"""Calls of tools that OpenAI defines, by their kind: the tool's name, and where it is said what to
do.
"""

OUTPUTS = frozenset(f"{kind}_output" for kind in (*SAID, *RUN))

_WORDS = ("input_text", "output_text", "text")


def answered_within(items: Sequence[Any]) -> set[str]:
    """Ids of calls that OpenAI's own tools made and answered in one response: the server
    ran them.
    """
    made = {_call_id(item) for item in items if item.get("type") in RUN}
    given = {_call_id(item) for item in items if item.get("type") in OUTPUTS}
    return made & given - {""}


def call_of(item: Item) -> Call:
    """A call item as a call."""
    kind = item["type"]
    if kind in SAID:
        return Call(
            _text(item.get("call_id")),
            _text(item.get("name")),
            _text(item.get(SAID[kind])),
        )
    name, keys = RUN[kind]
    said = [dumped(item[key]) for key in keys if item.get(key) is not None]
    return Call(_call_id(item), name, said[0] if said else "")


def result_of(item: Item) -> Result:
    """An output item as a result."""
    output = item.get("output")
    failed = (
        item.get("type") == "apply_patch_call_output" and item.get("status") == "failed"
    )
    return Result(_call_id(item), _output_text(output), error=failed)


def made_output(kind: str, call_id: str, text: str, *, error: bool) -> Item | None:
    """The item that answers a call of this kind with these words; None where words are no
    answer.
    """
    item: Item = {"type": f"{kind}_output", "call_id": call_id}
    if kind == "computer_call":
        if not text.startswith(("data:image/", "http://", "https://")):
            return None
        return {**item, "output": {"type": "computer_screenshot", "image_url": text}}
    if kind == "local_shell_call":
        return {"type": f"{kind}_output", "id": call_id, "output": text}
    if kind == "shell_call":
        outcome = {"type": "exit", "exit_code": 1 if error else 0}
        return {**item, "output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
    if kind == "apply_patch_call":
        return {**item, "status": "failed" if error else "completed", "output": text}
    return {**item, "output": text}


def own_output(kind: str, call_id: str, item: Item) -> Item | None:
    """The caller's own answer under the id that its call has now; None where it answers nothing."""
    if item.get("type") != f"{kind}_output":
        result = result_of(item)
        return made_output(kind, call_id, result.content, error=result.error)
    if kind in RUN and not item.get("output") and kind != "apply_patch_call":
        return None
    key = "id" if kind == "local_shell_call" and not item.get("call_id") else "call_id"
    return {**item, key: call_id}


def _call_id(item: Item) -> str:
    return _text(item.get("call_id")) or (
        _text(item.get("id")) if item.get("type", "").startswith("local_") else ""
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _output_text(output: Any) -> str:
    if isinstance(output, list):
        return "\n".join(
            _block_text(block) for block in output if isinstance(block, dict)
        )
    if isinstance(output, dict):
        return f"[{_text(output.get('type')) or 'output'}]"
    return _text(output)


def _block_text(block: Item) -> str:
    kind = _text(block.get("type"))
    if kind in _WORDS:
        return _text(block.get("text"))
    if "stdout" in block or "stderr" in block:
        said = (_text(block.get("stdout")), _text(block.get("stderr")))
        return "\n".join(text for text in said if not is_blank(text))
    return f"[{kind.removeprefix('input_')}]"
