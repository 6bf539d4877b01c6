"""Strands' own tests of its session managers, from its source distribution, run against ours.

As a plug-in of pytest (`-p torture.frameworks.strands_suite`) it puts `HoldfastRepository` in the
place of the repository that they are written with, and of `FileSessionManager`'s own, and our
storage in the place of its storages, before the tests are read. Tests that look for files, or spoil
them, are about these classes and are left out, by name.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from torture.frameworks.published_suite import installed, outcome, unpacked

PLUGIN = "torture.frameworks.strands_suite"
FILES = ["session/test_repository_session_manager.py", "session/test_file_session_manager.py"]
FILES += ["session/test_snapshot_session_manager.py", "storage/test_in_memory_storage.py"]
NEEDS = ["pytest-asyncio", "moto"]

OF_FILES_ALONE = [
    # where the files are, and what is in them
    "test_create_session",
    "test_delete_session",
    "test_create_agent",
    "test_create_message",
    "test_message_durable_id_persists",
    "test_corrupted_json_file",
    "test_permission_error_handling",
    "test__get_session_path_invalid_session_id",
    "test__get_agent_path_invalid_agent_id",
    "test__get_message_path_invalid_message_id",
    "test_create_multi_agent",
    "test_create_session_multi_agent_directory_structure",
    # strategies of searching, and emptying all at once, which the protocol does not have
    "test_clear",
    "test_namespace_clear_only_clears_prefix",
    "test_namespace_passes_scoped_instance_to_strategy",
    "test_write_indexes_with_search_strategy",
    "test_search_delegates_to_strategy",
]


def suite(environment: Path) -> tuple[int, int, list[str]]:
    """How many of the tests passed, of how many, and a sentence for each that did not."""
    release = installed(environment, "strands-agents")
    source = unpacked(environment, release, environment / "sdist", needs=NEEDS)
    options = ["-W", "ignore::DeprecationWarning"]
    options += [f"tests/strands/{name}" for name in FILES]
    return outcome(environment, source, PLUGIN, options)


def pytest_configure(config: Any) -> None:
    """Puts ours in the place of theirs, before any test is read."""
    sys.path.insert(0, os.getcwd())
    import strands.session
    import strands.session.file_session_manager as files
    import strands.session.snapshot_session_manager as snapshots
    import strands.storage
    import tests.fixtures.mock_session_repository as mocked  # type: ignore[import-not-found]
    from strands.session.repository_session_manager import RepositorySessionManager

    from holdfast.adapters.strands import HoldfastRepository, HoldfastStorage

    class Repository(HoldfastRepository):
        """One that is made without a place."""

        def __init__(self) -> None:
            self._folder = tempfile.TemporaryDirectory()
            super().__init__(Path(self._folder.name) / "sessions.db")

    class Manager(RepositorySessionManager, HoldfastRepository):
        """A manager that is its own repository, as theirs is."""

        def __init__(self, session_id: str, storage_dir: Any = None, **more: Any) -> None:
            HoldfastRepository.__init__(self, Path(storage_dir) / "sessions.db")
            RepositorySessionManager.__init__(self, session_id, self)

    class FileStorage(HoldfastStorage):
        """One that is given a folder."""

        def __init__(self, base_dir: Any = ".strands") -> None:
            Path(base_dir).mkdir(parents=True, exist_ok=True)
            super().__init__(Path(base_dir) / "storage.db")

    class ShortStorage(HoldfastStorage):
        """One that is made without a place."""

        def __init__(self) -> None:
            self._folder = tempfile.TemporaryDirectory()
            super().__init__(Path(self._folder.name) / "storage.db")

    # Snapshots name the class of the storage that they refer to.
    FileStorage.__name__ = "LocalFileStorage"
    # Only for the tests of the storage itself: elsewhere it stands for what is not to last.
    strands.storage.InMemoryStorage = ShortStorage
    strands.storage.LocalFileStorage = FileStorage
    snapshots.LocalFileStorage = FileStorage
    mocked.MockedSessionRepository = Repository
    files.FileSessionManager = Manager
    strands.session.FileSessionManager = Manager


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leaves out what is about files."""
    kept, out = [], []
    for item in items:
        is_about_files = item.originalname in OF_FILES_ALONE
        (out if is_about_files else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=out)


if __name__ == "__main__":
    print(*suite(Path(sys.argv[1])), sep="\n")
