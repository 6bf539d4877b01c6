"""A fork waits until no thread of this process is importing.

Python locks a module while it is imported. A child that is forked meanwhile gets that lock, half of
a module and nobody who finishes it: its own import of the same module waits for ever. Much of this
package is imported when it is first used, so a thread that uses a call for the first time is such a
moment. Parts of Python itself are waited for, too: what is first used imports them. Imports of
others are their own affair.
"""

import _imp
import os
import sys
import threading
from _thread import get_ident
from contextlib import suppress
from importlib import _bootstrap
from typing import Any

WAIT_S = 5.0
"""So long a fork waits for imports."""
NAP_S = 0.001
_WAITED_FOR = sys.stdlib_module_names | {"holdfast", "apsw", "msgspec", "psycopg"}
# Python's own, without which nothing is waited for.
_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
_is_held = False
"""Whether the fork that is beginning keeps others from beginning an import."""


def _before() -> None:
    global _is_held
    for _ in range(int(WAIT_S / NAP_S)):
        # Before it is taken: whoever is interrupted in between lets go of nothing.
        _is_held = True
        _imp.acquire_lock()
        if not _others_import():
            return
        # Not kept meanwhile: an import takes it for every module that it leads to.
        _after()
        threading.Event().wait(NAP_S)


def _others_import() -> bool:
    me = get_ident()
    for name, found in list(_locks.items()):
        if name.partition(".")[0] in _WAITED_FOR:
            owner = getattr(found(), "owner", None)
            if owner is not None and owner != me:
                return True
    return False


def _after() -> None:
    global _is_held
    if _is_held:
        with suppress(RuntimeError):
            _imp.release_lock()
        _is_held = False


def wait_at_forks() -> None:
    """From now on. Once in a process."""
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
