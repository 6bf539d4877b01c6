"""Calls of the Responses API and what answers them: functions, custom tools, and the tools that
OpenAI defines and the caller runs (a computer, shells, patches).

A tool that the server ran itself (web search, code interpreter, a shell in a container) has its
outcome in the same response; nobody else answers it, and it is passed on as it came.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import Call, Result
from holdfast.formats.reading import Block, dumped, is_blank, text

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
    made: set[str] = set()
    given: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind in RUN:
            made.add(_call_id(item))
        elif kind in OUTPUTS:
            given.add(_call_id(item))
    # Without an id, nothing tells that a call and an output belong together.
    return made & given - {""}


def call_of(item: Block) -> Call:
    """A call item as a call."""
    kind = item["type"]
    if kind in SAID:
        call_id = text(item.get("call_id"))
        return Call(call_id, text(item.get("name")), text(item.get(SAID[kind])))
    name, keys = RUN[kind]
    for key in keys:
        if item.get(key) is not None:
            return Call(_call_id(item), name, dumped(item[key]))
    return Call(_call_id(item), name, "")


def result_of(item: Block) -> Result:
    """An output item as a result."""
    # Only a patch says of itself that it failed; of the other tools the words have to tell.
    is_patch = item.get("type") == "apply_patch_call_output"
    failed = is_patch and item.get("status") == "failed"
    return Result(_call_id(item), _output_words(item.get("output")), error=failed)


def made_output(kind: str, call_id: str, words: str, *, error: bool) -> Block | None:
    """The item that answers a call of this kind with these words; None where words are no
    answer.
    """
    item: Block = {"type": f"{kind}_output", "call_id": call_id}
    if kind == "computer_call":
        # The API takes a screenshot for an answer, and nothing else.
        if not words.startswith(("data:image/", "http://", "https://")):
            return None
        return {**item, "output": {"type": "computer_screenshot", "image_url": words}}
    if kind == "local_shell_call":
        return {"type": f"{kind}_output", "id": call_id, "output": words}
    if kind == "shell_call":
        # The API asks for an exit code, and words have none: 1 stands for any failure.
        outcome = {"type": "exit", "exit_code": int(error)}
        return {**item, "output": [{"stdout": words, "stderr": "", "outcome": outcome}]}
    if kind == "apply_patch_call":
        return {**item, "status": "failed" if error else "completed", "output": words}
    return {**item, "output": words}


def own_output(kind: str, call_id: str, item: Block) -> Block | None:
    """The caller's own answer under the id that its call has now; None where it answers nothing."""
    if item.get("type") != f"{kind}_output":
        result = result_of(item)
        return made_output(kind, call_id, result.content, error=result.error)
    # A patch is answered by its status, and may say nothing more.
    if kind in RUN and not item.get("output") and kind != "apply_patch_call":
        return None
    if kind == "local_shell_call" and not item.get("call_id"):
        return {**item, "id": call_id}
    return {**item, "call_id": call_id}


def _call_id(item: Block) -> str:
    call_id = text(item.get("call_id"))
    # The API has answers to a local shell name their call by `id`.
    if not call_id and item.get("type", "").startswith("local_"):
        return text(item.get("id"))
    return call_id


def _output_words(output: Any) -> str:
    if isinstance(output, list):
        return "\n".join(
            _block_words(block) for block in output if isinstance(block, dict)
        )
    if isinstance(output, dict):
        return f"[{text(output.get('type')) or 'output'}]"
    return text(output)


def _block_words(block: Block) -> str:
    kind = text(block.get("type"))
    if kind in _WORDS:
        return text(block.get("text"))
    if "stdout" in block or "stderr" in block:
        streams = (text(block.get("stdout")), text(block.get("stderr")))
        return "\n".join(words for words in streams if not is_blank(words))
    return f"[{kind.removeprefix('input_')}]"
