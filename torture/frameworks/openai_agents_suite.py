"""The SDK's own session tests, from its source distribution, run against `HoldfastSession`.

As a plug-in of pytest (`-p torture.frameworks.openai_agents_suite`) it puts a session of Holdfast's
in the place of `SQLiteSession` before the tests are read. Tests that look into the connections of
`SQLiteSession`, or break its tables, are about that class and are left out, by name.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from torture.frameworks.published_suite import installed, outcome, unpacked

PLUGIN = "torture.frameworks.openai_agents_suite"
FILES = ["memory/test_session.py", "memory/test_session_limit.py"]
FILES += ["memory/test_session_context_wrapper.py", "memory/test_session_persistence_sanitize.py"]
FILES += ["test_soft_cancel.py"]
NEEDS = ["pytest-asyncio", "pytest-mock", "inline-snapshot"]

OF_SQLITE_ALONE = [
    # its connections, which it keeps one for each thread
    "test_sqlite_session_close_closes_worker_thread_connections",
    "test_sqlite_session_reaps_connections_from_exited_worker_threads",
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
    "test_sqlite_session_keeps_connections_of_live_worker_threads",
    "test_sqlite_session_file_lock_is_shared_across_instances",
    "test_sqlite_session_rollback_failure_evicts_connection",
    "test_sqlite_session_close_retries_quarantined_connection",
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
    # its tables, which they drop, and rows, which they spoil, through these connections
    "test_sqlite_session_failed_clear_session_rolls_back",
    "test_sqlite_session_failed_pop_item_releases_write_lock",
    "test_sqlite_session_pop_item_skips_corrupt_most_recent",
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
    # its errors: what is no JSON is an `InvalidMessage` of ours, and a session has no `close`
    "test_sqlite_session_failed_add_items_releases_write_lock",
    "test_sqlite_session_closed_rejects_empty_add_items",
]


def suite(environment: Path) -> tuple[int, int, list[str]]:
    """How many of the tests passed, of how many, and a sentence for each that did not."""
    release = installed(environment, "openai-agents")
    source = unpacked(environment, release, environment / "sdist", needs=NEEDS)
    options = ["-k", " and ".join(f"not {name}" for name in OF_SQLITE_ALONE)]
    options += [f"tests/{name}" for name in FILES]
    return outcome(environment, source, PLUGIN, options)


def pytest_configure(config: Any) -> None:
    """Puts ours in the place of theirs, before any test is read."""
    import agents
    import agents.memory
    import agents.memory.sqlite_session as module

    from holdfast.adapters.openai_agents import HoldfastSession

    class Ours(HoldfastSession):
        """A session that is made with the arguments of theirs."""

        def __init__(self, session_id: str, db_path: Any = ":memory:", **more: Any) -> None:
            if str(db_path) == ":memory:":
                self._folder = tempfile.TemporaryDirectory()
                db_path = Path(self._folder.name) / "memory.db"
            super().__init__(session_id, db_path, **more)

        def close(self) -> None:
            """Theirs has it."""

    for place in (agents, agents.memory, module):
        place.SQLiteSession = Ours  # type: ignore[attr-defined]


if __name__ == "__main__":
    print(*suite(Path(sys.argv[1])), sep="\n")
