"""A healed session as a directory that OpenViking loads: the same folder gives the same bytes. Lock
files stay behind.

What could not be read lies in `aside/`, where OpenViking does not look.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from holdfast.importers.openviking.files import (
    ABSTRACT,
    DONE,
    FAILED,
    META,
    OVERVIEW,
    ROOT,
    Archive,
    MessageLine,
    SessionFolder,
    SmallFile,
)

ASIDE = "aside"


def write_folder(folder: SessionFolder, out: Path) -> None:
    """Writes a session's directory where there is nothing yet; only its owner may read it."""
    _make(out)
    _write_records(out, ROOT, folder.records)
    _write_small(out / META, folder.meta)
    for archive in folder.archives:
        _write_archive(out, f"history/{archive.name}", archive)
    for name, raw in folder.asides:
        _write_aside(out, name, raw)
    for name in folder.outputs:
        _copy(Path(folder.path, name), out / name)
    for name, source in folder.others:
        _copy(Path(source), out / name)


def _write_archive(out: Path, under: str, archive: Archive) -> None:
    # An archive without a file in it is still one, by its number.
    _make(out / under)
    _write_records(out, f"{under}/{ROOT}", archive.records)
    _write_small(out / under / META, archive.meta)
    _write_small(out / under / DONE, archive.done)
    _write_small(out / under / FAILED, archive.failed)
    for name, words in ((OVERVIEW, archive.overview), (ABSTRACT, archive.abstract)):
        if words:
            _write(out / under / name, words)


def _write_records(
    out: Path, name: str, records: tuple[MessageLine, ...] | None
) -> None:
    # No file and an empty file are two things: an archive without one tells by its meta what it
    # took.
    if records is None:
        return
    lines = []
    for record in records:
        if record.aside:
            _write_aside(out, f"{name}-{record.number}", record.raw)
        else:
            lines.append(record.raw + b"\n")
    _write(out / name, b"".join(lines))


def _write_aside(out: Path, name: str, raw: bytes) -> None:
    # With a digest: a store may be healed twice, and line 4 of a file torn both times.
    name = f"{name.replace('/', '-')}-{hashlib.sha256(raw).hexdigest()[:12]}"
    _write(out / ASIDE / name, raw)


def _write_small(path: Path, file: SmallFile) -> None:
    if file.there:
        _write(path, file.raw)


def _make(path: Path) -> None:
    # `mkdir(parents=True)` would make the folders above with the usual rights.
    if not path.exists():
        _make(path.parent)
        path.mkdir(mode=0o700)


def _open(path: Path) -> BinaryIO:
    _make(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return open(os.open(path, flags, 0o600), "wb")


def _write(path: Path, raw: bytes) -> None:
    with _open(path) as file:
        file.write(raw)


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as file, _open(target) as copy:
        shutil.copyfileobj(file, copy)
