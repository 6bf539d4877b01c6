"""LangGraph's `SqliteSaver` and `HoldfastSaver`, each under the same graph, whose model answers at once; on
PostgreSQL its `PostgresSaver` beside ours as well, if an address is given. A turn is one call of `invoke`, each
on a thread of its own.

`python -m torture.frameworks.savers` measures what a thread of many turns comes to.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare, compare_at

THREADS = 64
Make = Callable[[Path], Any]
_graphs: dict[Path, Any] = {}
_pool = ThreadPoolExecutor(THREADS)


class GraphThread:
    """A thread of a graph. All threads of a round are those of one saver, as in a program."""

    def __init__(self, key: str, folder: Path, make: Make) -> None:
        if folder not in _graphs:
            _graphs.clear()
            _graphs[folder] = graph(make(folder))
        self._graph = _graphs[folder]
        self._config: Any = {"configurable": {"thread_id": f"{folder.name} {key}"}}

    async def turn(self) -> None:
        await _apart(self._graph.invoke, {"messages": [("user", ASKED)]}, self._config)

    async def fill(self, turns: int) -> None:
        said = [("user", ASKED), ("assistant", SAID)] * turns
        await _apart(self._graph.update_state, self._config, {"messages": said}, "model")

    async def load(self) -> int:
        state = await _apart(self._graph.get_state, self._config)
        return len(state.values["messages"])


async def _apart(work: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *given))


def graph(saver: Any) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [AIMessage(SAID)]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def _sqlite(folder: Path) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(folder / "own.db", check_same_thread=False))


def _postgres(address: str, folder: Path) -> Any:
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg import Connection
    from psycopg.rows import dict_row

    options: Any = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    saver = PostgresSaver(Connection.connect(address, **options))
    saver.setup()
    return saver


def _ours(folder: Path) -> Any:
    from holdfast.adapters.langgraph import HoldfastSaver

    return HoldfastSaver(folder / "holdfast.db")


def _ours_at(address: str, folder: Path) -> Any:
    from holdfast.adapters.langgraph import HoldfastSaver

    return HoldfastSaver(address)


def own_at(address: str, key: str, folder: Path) -> GraphThread:
    return GraphThread(key, folder, partial(_postgres, address))


def ours_at(address: str, key: str, folder: Path) -> GraphThread:
    return GraphThread(key, folder, partial(_ours_at, address))


def main() -> None:
    pairs: dict[str, tuple[Make, Make]] = {"SqliteSaver": (_sqlite, _ours)}
    for name, (own, ours) in pairs.items():
        print(name)
        compare(partial(GraphThread, make=own), partial(GraphThread, make=ours))
    for address in sys.argv[1:]:
        print(f"PostgresSaver, {address}")
        compare_at(address, own_at, ours_at)


if __name__ == "__main__":
    main()
