"""The harness's own tests of step persistence, run against `HoldfastStepStore`.

They are in its source distributions up to release 0.36.0, and are run with the release that the environment has. As a
plug-in of pytest (`-p torture.frameworks.pydantic_ai_suite`) this puts a store of ours in the place of
`InMemoryStepStore` and `SqliteStepStore` before the tests are read. Tests that look into the tables or connections of
those are about them and are left out, by name; so is the file about throwing snapshots away, which ours does not.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from torture.frameworks.published_suite import outcome, unpacked

RELEASE = "pydantic-ai-harness==0.36.0"
NEEDS = ["dirty-equals", "inline-snapshot"]
PLUGIN = "torture.frameworks.pydantic_ai_suite"
FILES = ["test_step_persistence.py", "test_durable_step_persistence.py", "test_frontier.py"]
FILES += ["test_sqlite_and_media.py"]

OF_THEIRS_ALONE = [
    # the tables and connections of `SqliteStepStore`, whose rows they change by hand
    "TestSqliteRowDefenses",
    "test_skips_corrupt_rows",
    "test_legacy_database_without_state_column_migrates",
    "test_failed_state_migration_surfaces_instead_of_pinning_a_broken_schema",
    "test_shared_connection_default_media_store_uses_same_connection",
    "test_rejects_both_database_and_connection",
    # where it puts pictures: ours are parts of messages, and large ones are kept once by the store
    "test_large_binary_stored_in_same_db",
    "test_dedup_across_snapshots",
    "test_external_media_store_override",
    "test_sqlite_store_auto_uses_same_db",
    "test_sqlite_store_none_disables_media",
    # its error for a run that is registered twice; ours is a `BadArgument`
    "test_register_duplicate_run_raises",
    # its writer is a process of its own, which has their store; tests/frameworks has the same with ours
    "test_hard_kill_leaves_model_frontier_and_unknown_effects",
]


def suite(environment: Path) -> tuple[int, int, list[str]]:
    """How many of the tests passed, of how many, and a sentence for each that did not."""
    options = ["-o", "anyio_mode=auto"]
    options += ["-k", " and ".join(f"not {name}" for name in OF_THEIRS_ALONE)]
    options += [f"tests/step_persistence/{name}" for name in FILES]
    return outcome(environment, _source(environment), PLUGIN, options)


def _source(environment: Path) -> Path:
    """A folder with the tests of the release, and nothing else of it: what is tested is installed."""
    place = environment / "suite"
    if not place.exists():
        with tempfile.TemporaryDirectory() as folder:
            release = unpacked(environment, RELEASE, Path(folder) / "sdist", needs=NEEDS)
            place.mkdir()
            shutil.copytree(release / "tests", place / "tests")
            (place / "pytest.ini").write_text("[pytest]\n")
    return place


def pytest_configure(config: Any) -> None:
    """Puts ours in the place of theirs, before any test is read."""
    import pydantic_ai_harness.step_persistence as theirs
    import pydantic_ai_harness.step_persistence._capability as capability
    import pydantic_ai_harness.step_persistence._store as module

    from holdfast.adapters.pydantic_ai import HoldfastStepStore

    class Ours(HoldfastStepStore):
        """A store that is made with the arguments of theirs."""

        def __init__(self, database: Any = None, **more: Any) -> None:
            self.database = database
            if database is None:
                self._folder = tempfile.TemporaryDirectory()
                database = Path(self._folder.name) / "memory.db"
            super().__init__(database)

    for place in (theirs, capability, module):
        for name in ("InMemoryStepStore", "SqliteStepStore"):
            setattr(place, name, Ours)


if __name__ == "__main__":
    print(*suite(Path(sys.argv[1])), sep="\n")
