"""What programs do with Pydantic AI, the messages of each run as JSON in a table of SQLite, beside `HoldfastHistory`;
and the harness's `SqliteStepStore`, beside `HoldfastStepStore`.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torture.frameworks.speed.side_by_side import ASKED, SAID, compare


def _turn() -> list[Any]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    return [ModelRequest(parts=[UserPromptPart(ASKED)]), ModelResponse(parts=[TextPart(SAID)])]


def _turns(count: int) -> list[Any]:
    return [message for _ in range(count) for message in _turn()]


class TableOfJson:
    """A session as a table of JSON: a row for each run, as their example of a chat application has it."""

    def __init__(self, key: str, folder: Path) -> None:
        self._key, self._place = key, folder / "own.db"
        with self._database() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, key TEXT, list TEXT)"
            )
            database.execute("CREATE INDEX IF NOT EXISTS by_key ON said (key)")

    def _database(self) -> Any:
        return contextlib.closing(sqlite3.connect(self._place, timeout=60))

    async def turn(self) -> None:
        await self.fill(1)

    async def fill(self, turns: int) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        said = ModelMessagesTypeAdapter.dump_json(_turns(turns))
        with self._database() as database, database:
            database.execute("INSERT INTO said (key, list) VALUES (?, ?)", (self._key, said))

    async def load(self) -> int:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        found = 0
        with self._database() as database:
            query = "SELECT list FROM said WHERE key = ? ORDER BY id"
            for (said,) in database.execute(query, (self._key,)):
                found += len(ModelMessagesTypeAdapter.validate_json(said))
        return found


class OurHistory:
    """A session of ours."""

    def __init__(self, key: str, folder: Path) -> None:
        from holdfast.adapters.framework import store_of
        from holdfast.adapters.pydantic_ai import HoldfastHistory

        # One store for all sessions of a round; it is closed when the last of them is gone.
        self._store = store_of(folder / "holdfast.db")
        self._history = HoldfastHistory(self._store.session(key))

    async def turn(self) -> None:
        await self.fill(1)

    async def fill(self, turns: int) -> None:
        await self._history.aappend(_turns(turns))

    async def load(self) -> int:
        count = len(await self._history.amessages())
        del self._history, self._store
        return count


class StepsOfRuns:
    """A conversation in a step store: a run each turn, with a snapshot of all that was said."""

    def __init__(self, key: str, folder: Path, make: Callable[[Path], Any]) -> None:
        self._key, self._store = key, make(folder)
        self._said: list[Any] = []
        self._count = 0

    async def turn(self) -> None:
        await self.fill(1)

    async def fill(self, turns: int) -> None:
        from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent

        self._count += 1
        named = {"run_id": f"{self._key}.{self._count}", "conversation_id": self._key}
        self._said += _turns(turns)
        await self._store.register_run(RunRecord(**named))
        event = StepEvent(**named, kind="run_started", step_index=0, idempotency_key="0")
        await self._store.append_event(event)
        taken = ContinuableSnapshot(**named, step_index=1, messages=list(self._said))
        await self._store.save_snapshot(taken)
        event = StepEvent(**named, kind="run_completed", step_index=1, idempotency_key="1")
        await self._store.append_event(event)

    async def load(self) -> int:
        runs = await self._store.list_runs(conversation_id=self._key)
        taken = await self._store.latest_snapshot(run_id=runs[-1].run_id)
        del self._store
        return len(taken.messages)


def _their_steps(folder: Path) -> Any:
    from pydantic_ai_harness.step_persistence import SqliteStepStore

    return SqliteStepStore(database=folder / "own.db")


def _our_steps(folder: Path) -> Any:
    from holdfast.adapters.pydantic_ai import HoldfastStepStore

    return HoldfastStepStore(folder / "holdfast.db")


def main() -> None:
    print("messages as JSON in a table of SQLite")
    compare(TableOfJson, OurHistory)
    print("SqliteStepStore")
    compare(partial(StepsOfRuns, make=_their_steps), partial(StepsOfRuns, make=_our_steps))


if __name__ == "__main__":
    main()
