"""Strands' own tests of its session managers, from its source distribution, run against ours.

As a plug-in of pytest (`-p torture.frameworks.strands_suite`) it puts `HoldfastRepository` in the
place of the repository that they are written with, and of `FileSessionManager`'s own, and our
storage in the place of its storages, before the tests are read. Tests that look for files, or spoil
them, are about these classes and are left out, by name.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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
    python = str(environment / "bin" / "python")
    source = _source(environment, python)
    command = [python, "-m", "pytest", "-q", "-p", "torture.frameworks.strands_suite"]
    command += ["-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"]
    command += [f"tests/strands/{name}" for name in FILES]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True)
    said = ended.stdout
    failed = re.findall(r"^(?:FAILED|ERROR) (.+)$", said, re.MULTILINE)
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", said))
    if ended.returncode and not failed:
        failed = [said[-400:] + ended.stderr[-400:]]
    return passed, passed + len(failed), [f"its own suite: {each}" for each in failed]


def _source(environment: Path, python: str) -> Path:
    """The unpacked source distribution of the release that the environment has."""
    place = environment / "sdist"
    if not place.exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDS], check=True)
        shown = subprocess.run(
            [python, "-c", "import importlib.metadata as m; print(m.version('strands-agents'))"],
            check=True,
            capture_output=True,
            text=True,
        )
        wanted = f"strands-agents=={shown.stdout.strip()}"
        download = [python, "-m", "pip", "download", "--quiet", "--no-deps"]
        download += ["--no-binary", "strands-agents", "--dest", str(place), wanted]
        subprocess.run(download, check=True)
        for archive in place.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
    [folder] = [each for each in place.iterdir() if each.is_dir()]
    return folder


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
