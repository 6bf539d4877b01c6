"""`langgraph`: what LangGraph keeps of a thread beside its messages, one record for each step.

A record is an object with a `kind`. No model sees it, and nothing in it is said by anybody: it lies
in a session of its own, beside the one with the thread's words.
"""

from typing import Any

from holdfast.domain.message import MessageNote, Other, Payload, Role
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.format import Assembly, BuiltInFormat
from holdfast.formats.neutral import NeutralWriter
from holdfast.formats.reading import fields, text
from holdfast.formats.text import TextAssembly

NAME = "langgraph"


class LangGraph(BuiltInFormat):
    """Records of LangGraph's steps."""

    name = NAME
    _writer: Any = NeutralWriter

    def say(self, role: Role, text: str) -> Payload:
        return {"kind": "note", "text": text}

    def note(self, payload: Payload) -> MessageNote:
        if not isinstance(fields(payload).get("kind"), str):
            raise InvalidMessage(problem="a record has a `kind`", place="kind")
        return MessageNote(role="system", format=NAME, plain=False)

    def read(self, payload: Payload) -> list[Piece]:
        said = fields(payload)
        return [Piece(Other(text(said.get("kind")) or "record"), said)]

    def assembly(self) -> Assembly:
        return TextAssembly(self)
