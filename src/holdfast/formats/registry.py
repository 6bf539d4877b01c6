"""The formats there are, by name."""

from holdfast.domain.message import thaw
from holdfast.domain.repair import Piece
from holdfast.errors import InvalidMessage
from holdfast.formats.anthropic import Anthropic
from holdfast.formats.format import Format
from holdfast.formats.neutral import Neutral
from holdfast.formats.objects import plain
from holdfast.formats.openai_chat import OpenAIChat
from holdfast.formats.openai_responses import OpenAIResponses

__all__ = ["get", "known", "plain", "read", "register"]

_formats: dict[str, Format] = {}


def get(name: str) -> Format:
    """The format of this name; `InvalidMessage` tells which there are."""
    found = _formats.get(name)
    if found is None:
        raise InvalidMessage(problem=f"`{name}` is not a format; known are {', '.join(known())}", place="format")
    return found


def known() -> list[str]:
    """The names of all formats."""
    return sorted(_formats)


def register(format: Format) -> None:
    """Makes a format known; one of the same name is replaced."""
    _formats[format.name] = format


def read(format_name: str, body: bytes) -> list[Piece]:
    """A frozen payload as pieces: what repair and formats use for messages of any format."""
    return get(format_name).read(thaw(body))


register(OpenAIChat(read))
register(OpenAIResponses(read))
register(Anthropic(read))
register(Neutral(read))
