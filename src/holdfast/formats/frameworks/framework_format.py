"""What the formats of frameworks do alike: a payload is the framework's own JSON, and goes back to it
as it came. What others have said is put into words, calls and results of its own.
"""

from typing import Any

from holdfast.domain.message import (
    Call,
    Image,
    MessageNote,
    Other,
    Payload,
    Refusal,
    Result,
    Role,
    Text,
)
from holdfast.domain.repair import Piece, Read, Step
from holdfast.formats.format import Assembly, BuiltInFormat
from holdfast.formats.notes import check_role, note_of
from holdfast.formats.reading import NOT_JSON, Block, is_blank, parsed
from holdfast.formats.shaping import DialogueWriter, output_text, stand_in
from holdfast.formats.text import TextAssembly


class FrameworkFormat(BuiltInFormat):
    """A format of a framework. Each adds `roles`, `read`, and how it words text, a call and the
    result of one.
    """

    roles: dict[str, Role]
    """The framework's names of roles, and what they are here."""

    def __init__(self, read: Read) -> None:
        super().__init__(read)
        self._writer = self._made_writer

    def _made_writer(self, read: Read, used: set[str]) -> "FrameworkWriter":
        return FrameworkWriter(self, read, used)

    def say(self, role: Role, text: str) -> Payload:
        return self.word(role, [self.text(text)])

    def note(self, payload: Payload) -> MessageNote:
        role = check_role(payload, self.roles)
        self.check(payload)
        return note_of(self.name, role, self.read(payload))

    def read(self, payload: Payload) -> list[Piece]:
        raise NotImplementedError

    def check(self, payload: Payload) -> None:
        """`InvalidMessage` when this is no message of the framework's."""

    def assembly(self) -> Assembly:
        return TextAssembly(self)

    def word(self, role: Role, blocks: list[Any]) -> Block:
        """A message of these blocks."""
        raise NotImplementedError

    def text(self, words: str) -> Any:
        """Words, as a block."""
        raise NotImplementedError

    def call(self, id: str, name: str, arguments: Any) -> Any:
        """A call, as a block; `arguments` is an object."""
        raise NotImplementedError

    def result(self, call_id: str, words: str, *, error: bool) -> Block:
        """The message that answers a call."""
        raise NotImplementedError


class FrameworkWriter(DialogueWriter):
    """Writes one dialogue: what is the framework's own as it came."""

    sides: dict[str, str | None] = dict.fromkeys(
        ("user", "assistant", "tool", "system")
    )
    id_length_max = 256

    def __init__(self, format: FrameworkFormat, read: Read, used: set[str]) -> None:
        super().__init__(read, used)
        self.name = format.name
        self._format = format

    def write(self, step: Step, *, joined: bool) -> Block | None:
        pieces = self._pieces(step)
        own = self._own_payload(step)
        if own is not None:
            # Its ids stay as they are, and count as used.
            for piece in pieces:
                if isinstance(piece.part, Call):
                    self._open_call(piece.part.id)
                elif isinstance(piece.part, Result) and self._pending:
                    self._pending.popleft()
            found: Block = own
            return found
        for piece in pieces:
            part = piece.part
            if isinstance(part, Result):
                # The id under which its call was written: that may be another than the
                # stored one.
                given = self._pending.popleft() if self._pending else part.call_id
                words = output_text(part.content)
                return self._format.result(given, words, error=part.error)
        blocks = self._blocks(step)
        return self._format.word(step.role, blocks) if blocks else None

    def _block(self, piece: Piece, role: Role, *, own: bool) -> Any:
        part = piece.part
        if isinstance(part, Call):
            said = parsed(part.arguments)
            if not isinstance(said, dict):
                # Frameworks take an object here and nothing else.
                said = {"arguments": part.arguments if said is NOT_JSON else said}
            return self._format.call(self._open_call(part.id), part.name, said)
        if isinstance(part, Text | Refusal):
            return None if is_blank(part.text) else self._format.text(part.text)
        if isinstance(part, Image):
            return self._format.text(f"[image] {part.url}"[:200])
        if isinstance(part, Other):
            return self._format.text(stand_in(piece))
        return None
