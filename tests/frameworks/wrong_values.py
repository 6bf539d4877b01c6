"""Calls with wrong values: what an adapter is given is taken, or refused with one of Holdfast's errors.

for name in good:
    each wrong value in the place of the good one
"""

import asyncio
import inspect
import math
import traceback
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError


class Odd:
    """A value that nobody knows."""


WRONG: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, math.nan, "", "a\ud800", "\0", b"x")
WRONG += ([], [1], [None], ["a"], {}, {1: 2}, {"a": 1}, Odd())


def raw_errors(call: Callable[..., Any], **good: Any) -> list[str]:
    """Errors that are none of Holdfast's, of calls in which one argument is wrong."""
    found = []
    for name in good:
        for value in WRONG:
            try:
                _done(call(**{**good, name: value}))
            except HoldfastError:
                pass
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                told = f"{type(error).__name__}: {ascii(str(error))} at {at.filename}:{at.lineno}"
                found.append(f"{name}={ascii(value)}: {told}")
    return found


def _done(result: Any) -> None:
    if inspect.isawaitable(result) or hasattr(result, "__aiter__"):
        asyncio.run(_awaited(result))
    elif hasattr(result, "__next__"):
        list(result)


async def _awaited(result: Any) -> None:
    if inspect.isawaitable(result):
        await result
    else:
        async for _ in result:
            pass
