"""A stream: one message while it is being spoken, from its first chunk to its entry in the log.

The message's id is minted before its first chunk. Chunks are read into deltas and stored as journal rows; when the
stream ends, the message is one entry, whole if the stream said its end and partial if not. A message rebuilt from the
journal after a crash is folded by the same code (I-5, I-6).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.domain.chunk import Delta, pack, shown, unpack
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import Chunk, Row
from holdfast.formats import registry
from holdfast.formats.format import Assembly
from holdfast.formats.text import TextAssembly


class Stream:
    """One message being spoken."""

    def __init__(self, id: bytes, *, format: str, into: str) -> None:
        self.id = id
        self._format, self._into = format, into
        self._assembly = _assembly(format, into)
        self._rows = 0
        self.ended = False

    def take(self, chunks: Iterable[Any]) -> tuple[Chunk | None, str]:
        """Provider chunks as the journal row to store next and the text to hand on once it is stored."""
        take = self._assembly.take
        deltas: list[Delta] = []
        for chunk in chunks:
            deltas += take(chunk)
        if not deltas:
            return None, ""
        self._assembly.fold(deltas)
        text = shown(deltas)
        if self._rows == 0:
            deltas.insert(0, ("open", 0, [self._format, self._into]))
        row = Chunk(self.id, self._rows, pack(deltas))
        self._rows += 1
        return row, text

    def finish(self) -> None:
        """The iterator has ended. For plain text that is its end; other formats must have said theirs."""
        if self._format == "text":
            self._assembly.fold([("done", 0, None)])

    @property
    def complete(self) -> bool:
        return self._assembly.complete

    def message(self) -> Spoken | None:
        """The message, marked partial unless it is complete."""
        spoken = self._assembly.message()
        if spoken is not None and not self._assembly.complete and not spoken.note.partial:
            spoken = Spoken(replace(spoken.note, partial=True, plain=False), spoken.body)
        return spoken


def rebuild(rows: Sequence[Row], *, known: set[bytes]) -> list[tuple[bytes, Spoken]]:
    """The partial messages in these journal rows, those of `known` messages left out: what was stored of them is all
    that anybody can have seen."""
    assemblies: dict[bytes, Assembly] = {}
    for row in rows:
        if row.message in known:
            continue
        deltas = unpack(row.body)
        if row.index == 0:
            format, into = deltas.pop(0)[2]
            assemblies[row.message] = _assembly(format, into)
        if row.message in assemblies:
            assemblies[row.message].fold(deltas)
    out = []
    for id, assembly in assemblies.items():
        spoken = assembly.message()
        if spoken is not None:
            # Complete or not: its entry was never written, so nobody was told that it had ended.
            out.append((id, Spoken(replace(spoken.note, partial=True, plain=False), spoken.body)))
    return out


def _assembly(format: str, into: str) -> Assembly:
    return TextAssembly(registry.get(into)) if format == "text" else registry.get(format).assembly()
