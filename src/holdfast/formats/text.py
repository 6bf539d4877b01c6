"""`text`: a stream of plain words, stored as an assistant message of the format the caller works
in.

Words carry no mark of their end; whoever reads the stream folds `END` when its iterator has ended.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.chunk import Delta
from holdfast.domain.message import Spoken, freeze
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Format

END: Delta = ("done", 0, None)


class TextAssembly:
    """Words being put together."""

    ends_with_source = True

    def __init__(self, format: Format) -> None:
        self._format = format
        self._words: list[str] = []
        self._complete = False

    def take(self, chunk: Any) -> list[Delta]:
        if type(chunk) is not str:
            # Not `isinstance`, which believes what an object says of itself.
            if not issubclass(type(chunk), str):
                problem = (
                    f"a text stream has strings, not a {type(chunk).__name__}; name the "
                    "stream's format"
                )
                raise InvalidMessage(problem=problem, place="the chunk")
            # A member of a string enum, for one: from the journal it comes back as
            # plain text, and a live message must not differ from that.
            chunk = str.__str__(chunk)
        # Without a delta there is no journal row, and nobody waits for a sync.
        return [("text", 0, chunk)] if chunk else []

    def fold(self, deltas: Sequence[Delta]) -> None:
        for kind, _, value in deltas:
            if kind == "text":
                self._words.append(value)
            elif kind == "done":
                self._complete = True

    @property
    def complete(self) -> bool:
        return self._complete

    def message(self) -> Spoken | None:
        if not self._words:
            return None
        payload = self._format.say("assistant", "".join(self._words))
        note = self._format.note(payload)
        if not self._complete:
            note = msgspec.structs.replace(note, partial=True, plain=False)
        return Spoken(note, freeze(payload))
