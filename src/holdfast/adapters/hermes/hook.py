"""The import hook: patches a module of Hermes after its own code ran, before its importer sees it.

No order of imports can go round it. This file is also copied, alone, into the environment of
Hermes, where every Python loads it at its start: so it imports nothing but what Python has loaded
by then, knows Holdfast by name only, and never raises. What Holdfast has to say about a module is
loaded when that module is: a Python that runs something else pays one look into a dict for each
import.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGE = "holdfast.adapters.hermes"

PATCHES: dict[str, tuple[str, ...]] = {
    "hermes_state": ("projection:patch_hermes_state",),
    # The first is the innermost: a turn is open before a stream in it begins, and its receipts are
    # known before it is.
    "run_agent": (
        "streams:patch_run_agent",
        "turns:patch_run_agent",
        "receipts:patch_run_agent",
    ),
    "gateway.platforms.base": ("receipts:patch_platform_base",),
    "gateway.run": ("cache_guard:patch_gateway_run", "receipts:patch_gateway_run"),
    "tui_gateway.server": ("receipts:patch_tui_server",),
}
"""For each module, the functions that patch it, in this order, as `module:function` of `PACKAGE`."""


class Finder(MetaPathFinder):
    """Finds the modules of `PATCHES` as Python would, and has them patched when they are run."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Masked while the others are asked, who would ask this one again.
        if fullname not in PATCHES or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        run = loader.exec_module

        def run_and_patch(module: ModuleType) -> None:
            run(module)
            patch(module)

        loader.exec_module = run_and_patch
        return spec


def patch(module: ModuleType) -> None:
    """Patches a module of Hermes, or leaves it alone and says why in a sentence."""
    name = module.__name__
    try:
        from importlib import import_module

        problem = import_module(f"{PACKAGE}.pins").problem_of(module)
        if problem is not None:
            _say(problem)
            return
        for each in PATCHES[name]:
            place, function = each.split(":")
            getattr(import_module(f"{PACKAGE}.{place}"), function)(module)
    # Whatever it is: Hermes has to start.
    except Exception as error:
        _say(f"{name} is not patched ({type(error).__name__}: {error})")


def install() -> None:
    """Puts the finder in front of all others; once."""
    if not any(
        type(each).__name__ == "Finder" and hasattr(each, "_looking")
        for each in sys.meta_path
    ):
        sys.meta_path.insert(0, Finder())


_said: set[str] = set()


def _say(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        print(f"holdfast: {sentence}", file=sys.stderr)
