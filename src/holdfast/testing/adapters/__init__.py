"""The kit for adapters: one matrix of faults for every framework, with real processes that are
really killed, and the next request judged by a strict provider.

Who writes an adapter writes a *player*, a module that asks one prompt of the framework's real
runner (`holdfast.testing.adapters.playing` says what is in it), and

    matrix = play("player.py")
    print(matrix.text())       # the framework's own store beside Holdfast
    assert not matrix.wrong
"""

from holdfast.testing.adapters.matrix import Matrix, play
from holdfast.testing.adapters.playing import Show, Task
from holdfast.testing.adapters.provider import (
    JudgedRequest,
    ScriptedAnswer,
    ScriptedProvider,
    serve,
)
from holdfast.testing.adapters.rows import ROWS, FaultRow
from holdfast.testing.adapters.verdict import Outcome

__all__ = [
    "ROWS",
    "FaultRow",
    "JudgedRequest",
    "Matrix",
    "Outcome",
    "ScriptedAnswer",
    "ScriptedProvider",
    "Show",
    "Task",
    "play",
    "serve",
]
