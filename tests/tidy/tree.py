"""The files of the project, as the rules read them."""

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar, cast

N = TypeVar("N", bound=ast.AST)

SKIPPED = {
    ".git",
    ".venv",
    ".venv-patroni",
    ".venv-tools",
    "__pycache__",
    "build",
    "dist",
    "node_modules",
}


@dataclass(frozen=True)
class Module:
    """A Python file. `name` is its dotted name below its root: `holdfast.domain.message`."""

    name: str
    path: Path
    shown: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.shown)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            found.setdefault(type(node), []).append(node)
        return found

    def nodes(self, *kinds: type[N]) -> Iterator[N]:
        """The nodes of these kinds. The tree is walked once for all the rules."""
        for kind in kinds:
            yield from cast(list[N], self._by_kind.get(kind, []))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def library(root: Path) -> list[Module]:
    """All modules of the library."""
    return list(_modules(root, root / "src"))


def modules(root: Path, *folders: str) -> list[Module]:
    """All Python files in these folders of the project; a folder that is not there has none."""
    return [module for folder in folders for module in _modules(root, root / folder)]


def _modules(root: Path, top: Path) -> Iterator[Module]:
    for path in sorted(top.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(root).parts):
            parts = path.relative_to(top).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found = path.stat()
            yield _module(
                name, path, path.relative_to(root).as_posix(), found.st_mtime_ns, found.st_size
            )


@cache
def _module(name: str, path: Path, shown: str, _written_at: int, _size: int) -> Module:
    """The same one for as long as its file is the same: it is parsed once for all the rules."""
    return Module(name, path, shown)


def forget() -> None:
    """Lets go of all that was parsed: a million objects, which every `gc.collect()` of a later test
    would look at.
    """
    _module.cache_clear()


def within(module: Module, *places: str) -> bool:
    """Whether the module lies in one of these places of the library, e.g. `engine/sqlite`."""
    return any(
        f"{module.shown}/".startswith((f"src/holdfast/{place}/", f"src/holdfast/{place}.py/"))
        for place in places
    )


def tracked(root: Path) -> list[Path]:
    """The files that are in the repository or about to be; without git, all files but what tools
    leave behind.
    """
    git = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if git.returncode == 0:
        return [
            root / name
            for name in sorted(set(git.stdout.split("\0")))
            if name and (root / name).is_file()
        ]
    return sorted(_walk(root))


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [
            name for name in folders if name not in SKIPPED and not name.endswith("_cache")
        ]
        yield from (Path(folder) / name for name in names)


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Every tracked text file: its path from the root, and its text. What is not UTF-8 is
    not text.
    """
    for path in tracked(root):
        try:
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
