"""A healed session as a directory that OpenViking loads: the same folder gives the same bytes. Lock
files stay behind.

What could not be read lies in `aside/`, where OpenViking does not look.
"""

import hashlib
import os
from pathlib import Path

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
_BLOCK = 1 << 20


def write_folder(folder: SessionFolder, out: Path) -> None:
    """Writes a session's directory where there is nothing yet; only its owner may read it."""
    _make(out)
    _write_records(out, ROOT, folder.records)
    _write_paper(out / META, folder.meta)
    for archive in folder.archives:
        _write_archive(out, archive)
    for name, raw in folder.asides:
        _write(out / ASIDE / _aside_name(name, raw), raw)
    for name in folder.outputs:
        _copy(Path(folder.path, name), out / name)
    for name, source in folder.others:
        _copy(Path(source), out / name)


def _write_archive(out: Path, archive: Archive) -> None:
    under = f"history/{archive.name}"
    _make(out / under)
    _write_records(out, f"{under}/{ROOT}", archive.records)
    for name, paper in (
        (META, archive.meta),
        (DONE, archive.done),
        (FAILED, archive.failed),
    ):
        _write_paper(out / under / name, paper)
    for name, words in ((OVERVIEW, archive.overview), (ABSTRACT, archive.abstract)):
        if words:
            _write(out / under / name, words)


def _write_records(
    out: Path, name: str, records: tuple[MessageLine, ...] | None
) -> None:
    if records is None:
        return
    _write(
        out / name,
        b"".join(record.raw + b"\n" for record in records if not record.aside),
    )
    for record in records:
        if record.aside:
            _write(
                out / ASIDE / _aside_name(f"{name}-{record.number}", record.raw),
                record.raw,
            )


def _aside_name(name: str, raw: bytes) -> str:
    return f"{name.replace('/', '-')}-{hashlib.sha256(raw).hexdigest()[:12]}"


def _write_paper(path: Path, paper: SmallFile) -> None:
    if paper.there:
        _write(path, paper.raw)


def _make(path: Path) -> None:
    missing = [path, *(above for above in path.parents if not above.exists())]
    for folder in reversed([one for one in missing if not one.exists()]):
        folder.mkdir(mode=0o700)


def _write(path: Path, raw: bytes) -> None:
    _make(path.parent)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as file:
        file.write(raw)


def _copy(source: Path, target: Path) -> None:
    _write(target, b"")
    with open(source, "rb") as file, open(target, "ab") as copy:
        while block := file.read(_BLOCK):
            copy.write(block)
