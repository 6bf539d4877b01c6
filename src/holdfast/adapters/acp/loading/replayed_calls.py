"""Calls as a replay tells them: Codex says that a call is done, and what it printed in the update
after that. Told to the store one after the other, the call would be done without an output.
"""

from holdfast.formats.acp.tool_calls import META, is_final
from holdfast.formats.reading import Block, fields


class ReplayedCalls:
    """Holds a call back until it is seen whether the next update is about what it printed."""

    def __init__(self) -> None:
        self._held: Block | None = None

    def take(self, update: Block) -> list[Block]:
        """The updates that are to be taken now."""
        held = self.rest()
        for before in held:
            if _goes_on(before, update):
                return [_joined(before, update)]
        if _prints_elsewhere(update):
            self._held = update
            return held
        return [*held, update]

    def rest(self) -> list[Block]:
        """What is held back; nothing more comes of it."""
        held = self._held
        self._held = None
        return [] if held is None else [held]


def _prints_elsewhere(update: Block) -> bool:
    """Whether this call is done, and shows a terminal whose words are not in it."""
    if update.get("sessionUpdate") != "tool_call" or not is_final(update):
        return False
    content = update.get("content")
    shows = content if isinstance(content, list) else []
    has_terminal = any(fields(item).get("type") == "terminal" for item in shows)
    return has_terminal and "terminal_output_delta" not in fields(update.get(META))


def _goes_on(call: Block, update: Block) -> bool:
    is_update = update.get("sessionUpdate") == "tool_call_update"
    return is_update and update.get("toolCallId") == call.get("toolCallId")


def _joined(call: Block, update: Block) -> Block:
    meta = {
        **fields(call.get(META)),
        **fields(update.get(META)),
    }
    # What the call says stands where both say something.
    return {**update, **call, META: meta}
