"""Stand-in."""

from types import ModuleType


def patch_hermes_state(module: ModuleType) -> None:
    """Nothing yet."""


def patch_run_agent(module: ModuleType) -> None:
    """Nothing yet."""


def patch_gateway_run(module: ModuleType) -> None:
    """Nothing yet."""
