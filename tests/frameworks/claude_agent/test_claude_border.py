"""`HoldfastSessionStore` with wrong values: refused, or taken and read back."""

import asyncio
from pathlib import Path
from typing import Any

from wrong_values import raw_errors

from holdfast.adapters.claude_agent import HoldfastSessionStore

LINE = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "Water?"}}


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    store = HoldfastSessionStore(tmp_path / "agents.db")
    number = 0

    async def append(entries: Any) -> None:
        nonlocal number
        number += 1
        key = {"project_key": "p", "session_id": f"s{number}"}
        await store.append(key, entries)
        assert (await store.load(key) or []) == entries

    def with_name(**names: Any) -> Any:
        return store.append({"project_key": "p", "session_id": "s", **names}, [LINE])

    def with_field(**fields: Any) -> Any:
        return append([{**LINE, **fields}])

    at = {"project_key": "p", "session_id": "s"}
    wrong = raw_errors(append, entries=[LINE])
    wrong += raw_errors(lambda line: append([line]), line=LINE)
    wrong += raw_errors(with_field, **LINE, parentUuid=None, timestamp="2026-01-01")
    wrong += raw_errors(with_name, project_key="p", session_id="s", subpath="a")
    wrong += raw_errors(store.append, key=at, entries=[LINE])
    wrong += raw_errors(store.load, key=at)
    wrong += raw_errors(store.list_subkeys, key=at)
    wrong += raw_errors(store.delete, key={**at, "session_id": "q"})
    wrong += raw_errors(store.list_sessions, project_key="p")
    wrong += raw_errors(store.list_session_summaries, project_key="p")
    wrong += raw_errors(HoldfastSessionStore, store=tmp_path / "agents.db")
    assert wrong == [], "\n".join(wrong)
    assert asyncio.run(store.list_sessions("p"))
    assert asyncio.run(store.list_session_summaries("p"))
