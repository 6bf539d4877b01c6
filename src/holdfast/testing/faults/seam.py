"""Between SQLite and the disk: whatever is opened within a `with` block goes through a VFS of ours,
which is the process's default for that time. So the product needs no hook.
"""

from typing import Any, ClassVar, Self

import apsw


class SeamVfs(apsw.VFS):
    """A VFS on top of the usual one, which tells its seam what is done."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.name = f"holdfast {type(self).__name__} on {base}"
        self.seam: Any = None
        super().__init__(self.name, base)


_made: dict[tuple[str, str], SeamVfs] = {}


class Seam:
    """What stands there for the time of a `with` block."""

    vfs: ClassVar[type[SeamVfs]]

    def __enter__(self) -> Self:
        self._usual = apsw.vfs_names()[0]
        key = (self.vfs.__name__, self._usual)
        # One for the whole process: a connection may outlive its block, and SQLite would call
        # what is no longer there.
        if key not in _made:
            _made[key] = self.vfs(self._usual)
        vfs = _made[key]
        vfs.seam = self
        apsw.set_default_vfs(vfs.name)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.set_default_vfs(self._usual)


def path_of(name: Any) -> str:
    """The path that SQLite opens; empty for a file without a name."""
    return name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")
