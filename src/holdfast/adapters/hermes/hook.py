"""The import hook: patches a module of Hermes after its own code ran, before its importer sees it.

No order of imports can go round it. This file is also copied, alone, into the environment of
Hermes, where every Python loads it at its start. So it imports nothing but what Python itself has
loaded by then, knows Holdfast by name only, and never raises. What Holdfast does to a module is
loaded when that module is: a Python that runs something else pays one look into a dict for each
import.
"""

import sys

TYPE_CHECKING = (
    False  # not from `typing`, which takes longer to load than all else here
)
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PACKAGE = "holdfast.adapters.hermes"

# For each module, what patches it, in this order: `module:function` of `PACKAGE`. What comes last
# is called first: the receipts of a turn are known before it opens, and it is open before a stream
# of it begins.
PATCHES: "dict[str, tuple[str, ...]]" = {
    "hermes_state": ("projection:patch_hermes_state",),
    "run_agent": (
        "streams:patch_run_agent",
        "turns:patch_run_agent",
        "receipts:patch_run_agent",
    ),
    "agent.turn_finalizer": ("turns:patch_turn_finalizer",),
    "gateway.platforms.base": ("received.platform_patches:patch_platform_base",),
    "gateway.run": (
        "cache_guard:patch_gateway_run",
        "received.runner_patches:patch_gateway_run",
    ),
}


class Finder:
    """Finds the modules of `PATCHES` as the others would, and has them patched once they ran."""

    is_holdfast_for_hermes = True

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        if fullname not in PATCHES:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return _patched_when_run(spec)
        return None


def _patched_when_run(spec: "ModuleSpec") -> "ModuleSpec":
    loader: Any = spec.loader
    if loader is None:
        return spec
    run = loader.exec_module

    def run_and_patch(module: "ModuleType") -> None:
        run(module)
        patch(module)

    loader.exec_module = run_and_patch
    return spec


def patch(module: "ModuleType") -> None:
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
            patches = import_module(f"{PACKAGE}.{place}")
            getattr(patches, function)(module)
    # Whatever it is, Hermes has to start.
    except Exception as error:
        _say(f"{name} of Hermes is left alone ({type(error).__name__}: {error})")


def install() -> None:
    """Puts the finder in front of all others; once, whichever copy of this file was first."""
    for finder in sys.meta_path:
        if getattr(finder, "is_holdfast_for_hermes", False):
            return
    sys.meta_path.insert(0, Finder())


_said: "set[str]" = set()


def _say(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        # The real one: a one-shot command of Hermes sends what is written to the other nowhere.
        print(f"holdfast: {sentence}", file=sys.__stderr__ or sys.stderr)
