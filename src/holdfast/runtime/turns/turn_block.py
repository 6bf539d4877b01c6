"""A `with` block and its turn: a block that is left without reaching `__exit__` ends its turn all
the same.

Ctrl-C may arrive as `__exit__` is entered, before its first line. A `with` statement alone holds
what it is going to call at its end; so that is an object of its own here, made for each block, and
the keeper watches it. When it is gone and the turn still runs, the block is over, whoever holds the
turn.
"""

import weakref
from collections.abc import Callable
from typing import Any

from holdfast.runtime.turns.running_turn import RunningTurn


class Block:
    """What a `with` statement calls at its end."""

    __slots__ = ("__weakref__", "_leave", "_owner")

    def __init__(self, owner: Any, leave: Callable[..., Any]) -> None:
        self._owner, self._leave = owner, leave

    def __call__(self, *error: Any) -> Any:
        return self._leave(self._owner, *error)


class AsyncBlock(Block):
    """What an `async with` statement calls and awaits at its end; it lets go of what it has called
    before it awaits.
    """

    __slots__ = ()

    async def __call__(self, *error: Any) -> Any:
        return await self._leave(self._owner, *error)


class Leaving:
    """`__exit__` or `__aexit__` of a turn: another `Block` each time it is looked up."""

    def __init__(self, leave: Callable[..., Any], kind: type[Block] = Block) -> None:
        self._leave, self._kind = leave, kind

    def __get__(self, owner: Any, kind: type | None = None) -> Callable[..., Any]:
        if owner is None:
            return self._leave
        block = self._kind(owner, self._leave)
        # Weak: the `with` statement alone holds it, so that it goes with the block.
        owner._block = weakref.ref(block)
        return block


def enter(owner: Any, work: RunningTurn) -> None:
    """The block is entered. A `with` statement has looked up its end just before; others may have
    none. If this is interrupted, no block will ever end the turn.
    """
    try:
        work.hold.take()
        block = owner._block() if owner._block is not None else None
        if block is not None:
            work.watch_block(block)
    except BaseException:
        work.hand_over()
        raise
