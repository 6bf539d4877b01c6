"""What came in, kept until a turn has it."""

from types import ModuleType
from typing import Any

from holdfast import Receipt


def patch_platform_base(module: ModuleType) -> None:
    """Takes a receipt of each message, and carries it through every join."""


def patch_gateway_run(module: ModuleType) -> None:
    """Carries receipts to their turns, and puts back what no turn took."""


def patch_run_agent(module: ModuleType) -> None:
    """Steered texts, and an interrupt flag that a turn's own message has left."""


def patch_tui_server(module: ModuleType) -> None:
    """Receipts of the TUI's prompts."""


def claim(agent: Any, user_message: Any) -> list[Receipt]:
    """The receipts of the messages that this call of `run_conversation` is about, for
    `Session.turn(take=…)`: called by `turns`, once for each call, in the agent's thread.
    """
    return []
