"""The order in which files of sessions are restored: each after those that it needs, whatever the
files are called.

A session of a key needs those that the key had before: only the next one gets the key. A fork needs
the session whose past it shares.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec

from holdfast.errors import Damaged, StoreUnavailable
from holdfast.importers.jsonl import lines
from holdfast.runtime.transfer.exported_file import EntryLine, read_header

_OPENED = b'"opened"'


class _Opening(msgspec.Struct):
    """The note of an entry that opens a session, as far as it matters here."""

    parent: str | None = None


class _Needs(msgspec.Struct):
    """What a file says of its session: its id, its key and epoch, whose past it shares."""

    id: str | None = None
    key: str | None = None
    epoch: int = 0
    parents: frozenset[str] = frozenset()


def in_order(paths: Sequence[str]) -> list[str]:
    """These files, as they can be restored one after another; those that need nothing of each other
    stay as they are given.
    """
    # One alone needs no look: it is read often enough.
    if len(paths) < 2:
        return list(paths)
    needs = [_needs(Path(path)) for path in paths]
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for at in range(len(paths)):
        sorter.add(at)
    for before, after in _pairs(needs):
        sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError:
        # No store of ours writes such files; they come as they are given.
        return list(paths)
    found: list[int] = []
    while ready := sorted(sorter.get_ready()):
        found += ready
        sorter.done(*ready)
    return [paths[at] for at in found]


def _pairs(needs: list[_Needs]) -> Iterator[tuple[int, int]]:
    """Which comes before which."""
    of_key: dict[str, list[int]] = {}
    of_id: dict[str, list[int]] = {}
    for at, each in enumerate(needs):
        if each.key is not None:
            of_key.setdefault(each.key, []).append(at)
        if each.id is not None:
            of_id.setdefault(each.id, []).append(at)
    for same_key in of_key.values():
        same_key.sort(key=lambda at: needs[at].epoch)
        yield from zip(same_key, same_key[1:], strict=False)
    for after, each in enumerate(needs):
        for parent in each.parents:
            for before in of_id.get(parent, ()):
                yield before, after


def _needs(path: Path) -> _Needs:
    """What can't be read needs nothing: it is told when it is restored."""
    needs = _Needs()
    unreadable = (msgspec.MsgspecError, RecursionError)
    with suppress(Damaged, StoreUnavailable, OSError, *unreadable):
        session = read_header(path).session
        epoch = session.get("epoch")
        needs.id, needs.key = session["id"], session.get("key")
        needs.epoch = epoch if isinstance(epoch, int) else 0
        needs.parents = frozenset(_parents(path))
    return needs


def _parents(path: Path) -> Iterator[str]:
    for line in lines(path):
        # Few lines have it, and the rest need no decoder.
        if line.number > 1 and _OPENED in line.raw:
            read = msgspec.json.decode(line.raw, type=EntryLine)
            if read.kind == "opened":
                parent = msgspec.json.decode(read.note, type=_Opening).parent
                if parent is not None:
                    yield parent
