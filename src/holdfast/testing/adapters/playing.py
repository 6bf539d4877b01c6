"""What runs in the process that is killed: `main` plays one task with a player.

A *player* is a module, given by name or by path, that knows one framework. It has

    ask(task, show)     asks `task.prompt` of the framework's real runner, in `task.session`, with its client pointed
                        at `task.url`, and hands each piece that a user would see to `show`, when a user would
    clear(task)         begins the session anew, as its users do                       (rows without it are left out)
    compact(task)       puts `task.summary` in the place of the session's history      (likewise)
    spoil(task)         damages the last record of the framework's own store           (likewise)
    STORE_CODE          a part of the paths of the framework's own store's source: where a crash may come

All may be plain functions or coroutine functions. `task.on` says which store: "holdfast", at `task.where`, or
"own", the framework's own one, in `task.folder`. Tools the model may call: `task.water(row)` does what the tool
`water(row: int) -> str` does.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

Show = Callable[[str], None]

_KIT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_HOLDFAST = os.path.join(os.path.dirname(os.path.dirname(_KIT)), "")

# Far longer than any row waits: whoever holds a tool kills its process.
HELD_S = 120.0


@dataclass(frozen=True)
class Task:
    """What a player is to do. `request_id` is the caller's own name for the prompt: the same one
    again is the same request. `url` is the provider's; OpenAI's clients want `base_url`.
    """

    on: str
    folder: str
    where: str
    session: str
    url: str
    ledger: int
    action: str = "ask"
    prompts: tuple[str, ...] = ()
    request_ids: tuple[str, ...] = ()
    prompt: str = ""
    request_id: str | None = None
    summary: str = ""
    cancel_after: int | None = None
    hold_tool: bool = False
    crash_at: int | None = None

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def is_own(self) -> bool:
        return self.on == "own"

    def tell(self, **fact: Any) -> None:
        """A line for whoever watches: it is out of this process when this returns."""
        # One write to a pipe, shorter than what a pipe takes at once: no lines are mixed up.
        os.write(self.ledger, (json.dumps(fact) + "\n").encode())

    def water(self, row: int) -> str:
        """What the tool does: something that must not be forgotten."""
        self.tell(tool="water", row=row)
        if self.hold_tool:
            threading.Event().wait(HELD_S)
        return f"row {row} was watered"

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Task":
        told = json.loads(text)
        for name in ("prompts", "request_ids"):
            told[name] = tuple(told[name])
        return cls(**told)


def load(player: str) -> ModuleType:
    """The module of a player, by its name or its path."""
    if not player.endswith(".py"):
        return importlib.import_module(player)
    spec = importlib.util.spec_from_file_location(Path(player).stem, player)
    assert spec is not None and spec.loader is not None
    # Not put into `sys.modules`: a player is loaded once, and imported by nobody.
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Does one task. What a player raises is told, and ends the process with 1."""
    player, task = load(sys.argv[1]), Task.from_json(sys.argv[2])
    try:
        _do(player, task)
    # What a user's cancelling looks like from outside. The row waits for this line
    # before it lets the provider go on.
    except (asyncio.CancelledError, KeyboardInterrupt):
        task.tell(cancelled=True)
    except Exception as error:
        task.tell(error=f"{type(error).__name__}: {error}")
        raise


def _do(player: ModuleType, task: Task) -> None:
    if task.action != "ask":
        # Counted in every such action, killed or not: a row asks a clean run how many
        # lines there are before it chooses where to kill.
        crash = _Crash(task, player)
        _call(getattr(player, task.action), task)
        crash.disarm()
        task.tell(done=task.action, lines=crash.lines)
        return
    for number, prompt in enumerate(task.prompts):
        request_id = task.request_ids[number] if task.request_ids else None
        asking = replace(task, prompt=prompt, request_id=request_id)
        show = _Shown(task)
        _call(player.ask, asking, show)
        # After the whole answer: an observer takes this for the acknowledgement of the
        # turn.
        task.tell(done=prompt)


def _call(function: Callable[..., Any], *arguments: Any) -> None:
    if not inspect.iscoroutinefunction(function):
        function(*arguments)
        return

    async def run() -> None:
        if isinstance(arguments[-1], _Shown):
            arguments[-1].cancels(asyncio.get_running_loop(), asyncio.current_task())
        await function(*arguments)

    asyncio.run(run())


class _Shown:
    """What a player shows with. After so many pieces the user cancels: the task that asks is
    cancelled, or Ctrl-C comes where there is no event loop.
    """

    def __init__(self, task: Task) -> None:
        self._task, self._pieces = task, 0
        self._cancel: Callable[[], None] = lambda: signal.raise_signal(signal.SIGINT)

    def cancels(self, loop: asyncio.AbstractEventLoop, asking: Any) -> None:
        def cancel() -> None:
            # A framework may show pieces from a thread of its own.
            loop.call_soon_threadsafe(asking.cancel)

        self._cancel = cancel

    def __call__(self, text: str) -> None:
        if not text:
            return
        self._task.tell(shown=text)
        self._pieces += 1
        if self._pieces == self._task.cancel_after:
            self._cancel()


class _Crash:
    """Kills this process when the n-th line of the store's own code is about to run; without an n,
    counts them.
    """

    def __init__(self, task: Task, player: ModuleType) -> None:
        self.lines = 0
        own = getattr(player, "STORE_CODE", "\0")
        self._code = own if task.is_own else _HOLDFAST
        self._at = task.crash_at
        # For threads that are started from now on: a store may write on one of its own.
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def disarm(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        place = frame.f_code.co_filename
        # The kit's own lines don't count: they are no part of the store, and run in
        # both cases.
        if self._code not in place or place.startswith(_KIT):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._trace
