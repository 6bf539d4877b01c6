"""`python -m torture.frameworks.savers`: `HoldfastSaver` beside LangGraph's own savers.

In one run, on one machine: turns a second in one thread and in 64 at once, the load of a long
thread, and what it takes on disk. Run it where LangGraph is installed (`./dev frameworks langgraph`
makes such an environment).
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast

TEXT = "what would you say to about one hundred and twenty characters of text, more or less, in a row, my dear friend?"
THREADS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500, help="of two messages (%(default)s)")
    parser.add_argument("--postgres", help="an address of an empty PostgreSQL database")
    options = parser.parse_args()
    print(f"{options.turns} turns of two messages, each of {len(TEXT)} characters")
    print(
        f"{'saver':<22}{'turns/s':>9}{'64 threads':>12}{'load, ms':>10}{'bytes':>13}{'a message':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, opened in _savers(Path(folder), options.postgres).items():
            with opened() as (saver, size):
                print(f"{name:<22}{_measured(saver, size, options.turns)}", flush=True)


def _savers(folder: Path, postgres: str | None) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "HoldfastSaver": lambda: _ours(str(folder / "ours.db")),
        "SqliteSaver": lambda: _sqlite(folder / "theirs.db"),
    }
    if postgres:
        found["HoldfastSaver, server"] = lambda: _ours(postgres)
        found["PostgresSaver"] = lambda: _postgres(postgres)
    return found


@contextmanager
def _ours(where: str) -> Iterator[Any]:
    from holdfast.adapters.langgraph import HoldfastSaver

    with holdfast.open(where) as store:
        # What waits in the log of a file is brought into it in its own time, for both.
        yield (
            HoldfastSaver(store),
            lambda: store.info().pages * store.info().page_bytes or store.info().bytes,
        )


@contextmanager
def _sqlite(place: Path) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(place)) as saver:
        yield saver, lambda: _pages(saver)


def _pages(saver: Any) -> int:
    [(count,)] = saver.conn.execute("PRAGMA page_count")
    [(size,)] = saver.conn.execute("PRAGMA page_size")
    return int(count * size)


@contextmanager
def _postgres(address: str) -> Iterator[Any]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
        sums = " + ".join(f"pg_total_relation_size('{table}')" for table in tables)
        yield saver, lambda: saver.conn.execute(f"SELECT {sums} AS n").fetchone()["n"]


def _measured(saver: Any, size: Callable[[], int], turns: int) -> str:
    graph = _graph(saver)
    _turns(graph, "warm", 2)
    before = size()
    alone = _turns(graph, "long", turns)
    taken = size() - before
    config = {"configurable": {"thread_id": "long"}}
    began = time.perf_counter()
    loaded = graph.get_state(config).values["messages"]
    load_ms = (time.perf_counter() - began) * 1000
    assert len(loaded) == 2 * turns
    began = time.perf_counter()
    each = max(1, turns // 100)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: _turns(graph, f"t{number}", each), range(THREADS)))
    many = THREADS * each / (time.perf_counter() - began)
    return f"{alone:>9.1f}{many:>12.1f}{load_ms:>10.1f}{taken:>13,}{taken / turns / 2:>11,.0f}"


def _graph(saver: Any) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [AIMessage(f"Well, {TEXT}")]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def _turns(graph: Any, thread: str, count: int) -> float:
    """Turns a second."""
    config = {"configurable": {"thread_id": thread}}
    began = time.perf_counter()
    for number in range(count):
        graph.invoke({"messages": [("user", f"{number}: {TEXT}")]}, config)
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
