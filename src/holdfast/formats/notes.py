"""The note beside a payload, made from its pieces: the same reading that repair and shaping use
later.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.arguments import shown
from holdfast.domain.message import Call, CallNote, MessageNote, Result, Role
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.reading import is_blank, is_json, text

_NOTED_LESS = ("openai.responses",)
"""Formats whose notes of an earlier release know only calls that name their tool."""


def note_of(name: str, role: Role, pieces: Sequence[Piece]) -> MessageNote:
    """The note of a message that is more than words."""
    calls: list[CallNote] = []
    results: list[Result] = []
    for piece in pieces:
        part = piece.part
        if isinstance(part, Call):
            # Empty text is no JSON either: the call may have been cut before it.
            whole = is_json(part.arguments)
            calls.append(CallNote(part.id, part.name, whole=whole))
        elif isinstance(part, Result):
            results.append(part)
    # Providers that know no role of tools carry results in a user's message.
    if results and len(results) == len(pieces):
        role = "tool"
    return MessageNote(
        role=role,
        format=name,
        plain=False,
        calls=tuple(calls),
        answers=tuple(result.call_id for result in results),
        # `all` of no results is true, and a message without any has not failed.
        failed=bool(results) and all(result.error for result in results),
    )


def disagreement(note: MessageNote, said: MessageNote) -> str | None:
    """What the note of a message says otherwise than its payload, whose own note is `said`; None
    when the two agree. Repair and writers go by the note, and find what it names in the payload.
    """
    if note.plain and not said.plain:
        return "its note says less than its body"
    if note.role != said.role:
        return f"its note is of role {note.role}, and its body of role {said.role}"
    if note.answers != said.answers:
        return "its note answers other calls than its body"
    noted, made = (
        [(call.id, call.name) for call in each.calls] for each in (note, said)
    )
    if said.format in _NOTED_LESS:
        made = [call for call in made if call in noted]
    return None if noted == made else "its note has other calls than its body"


def check_role(payload: Any, roles: dict[str, Role]) -> Role:
    """The message's role in Holdfast's words."""
    if not isinstance(payload, dict):
        raise InvalidMessage(
            problem=f"a message is a dict, not a {type(payload).__name__}",
            place="the message",
        )
    said = payload.get("role")
    # A role that is no text may not even be looked up: a list has no hash.
    role = roles.get(text(said))
    if role is None:
        raise InvalidMessage(
            problem=f"{shown(said)} is not one of the roles {', '.join(roles)}",
            place="role",
        )
    return role


def check_content(content: Any, place: str = "content") -> None:
    """Content is words, a list of blocks, or nothing."""
    if isinstance(content, list):
        for index, block in enumerate(content):
            check_block(block, f"{place}[{index}]")
    elif content is not None and not isinstance(content, str):
        raise InvalidMessage(
            problem=f"content is text or a list, not a {type(content).__name__}",
            place=place,
        )


def check_block(block: Any, place: str) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise InvalidMessage(problem="a block is a dict with a `type`", place=place)


def is_words(content: Any, kinds: tuple[str, ...]) -> bool:
    """Whether content is only words, and says something in each of its blocks."""
    if isinstance(content, str):
        return not is_blank(content)
    if not isinstance(content, list) or not content:
        return False
    # A single blank block is enough for a provider to refuse the request (FAULTS E10),
    # so such a message can't be passed on unread. LangChain's lists may hold bare texts.
    return all(
        isinstance(block, dict)
        and block.get("type") in kinds
        and not is_blank(block.get("text"))
        for block in content
    )
