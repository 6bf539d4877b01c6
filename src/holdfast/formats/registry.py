"""The formats there are, by name. Each is loaded when it is first asked for: most
programs use one.
"""

from importlib import import_module

from holdfast.domain.message import MessageNote, Payload, thaw
from holdfast.domain.repair import Piece
from holdfast.errors import Damaged, InvalidMessage
from holdfast.formats.format import Format
from holdfast.formats.notes import disagreement
from holdfast.formats.sdk_objects import plain

__all__ = ["get", "insist_on", "is_known", "known", "plain", "read", "register"]

_OWN = {
    "acp": ("holdfast.formats.acp.messages", "Acp"),
    "agent_framework": (
        "holdfast.formats.frameworks.agent_framework",
        "AgentFramework",
    ),
    "adk": ("holdfast.formats.frameworks.adk", "Adk"),
    "agno": ("holdfast.formats.frameworks.agno", "Agno"),
    "anthropic": ("holdfast.formats.anthropic.messages", "Anthropic"),
    "claude.code": ("holdfast.formats.anthropic.claude_code", "ClaudeCode"),
    "goose": ("holdfast.formats.goose.messages", "Goose"),
    "holdfast": ("holdfast.formats.neutral", "Neutral"),
    "langchain": ("holdfast.formats.langchain.messages", "LangChain"),
    "langgraph": ("holdfast.formats.langchain.steps", "LangGraph"),
    "llama_index": ("holdfast.formats.frameworks.llama_index", "LlamaIndex"),
    "openai.chat": ("holdfast.formats.openai.chat", "OpenAIChat"),
    "openai.responses": ("holdfast.formats.openai.responses", "OpenAIResponses"),
    "openviking": ("holdfast.formats.openviking", "OpenViking"),
    "strands": ("holdfast.formats.frameworks.strands", "Strands"),
    "pydantic_ai": ("holdfast.formats.frameworks.pydantic_ai", "PydanticAI"),
    "pydantic_ai.steps": (
        "holdfast.formats.frameworks.pydantic_ai_steps",
        "PydanticAISteps",
    ),
}

_formats: dict[str, Format] = {}


def get(name: str) -> Format:
    """The format of this name; `InvalidMessage` tells which there are."""
    # Looked up first: a registered format may replace one of ours.
    found = _formats.get(name)
    if found is None:
        if name not in _OWN:
            raise InvalidMessage(
                problem=f"`{name}` is not a format; known are {', '.join(known())}",
                place="format",
            )
        # Two threads may get here: formats hold no state, so either object will do.
        module, kind = _OWN[name]
        found = _formats[name] = getattr(import_module(module), kind)(read)
    return found


def is_known(name: str) -> bool:
    """Whether there is a format of this name."""
    return name in _formats or name in _OWN


def known() -> list[str]:
    """The names of all formats."""
    return sorted({*_OWN, *_formats})


def register(format: Format) -> None:
    """Makes a format known; one of the same name is replaced."""
    _formats[format.name] = format


def read(format_name: str, body: bytes) -> list[Piece]:
    """A frozen payload as pieces: what repair and formats use for messages of any format."""
    payload = _thawed(format_name, body)
    return get(format_name).read(payload)


def insist_on(note: MessageNote, body: bytes) -> None:
    """`Damaged`, with what is wrong, unless a stored body can be read and is what its note says."""
    payload = _thawed(note.format, body)
    format = get(note.format)
    try:
        said = format.note(payload)
        format.read(payload)
    # A format may trip over what it has not noted itself in any way.
    except Exception as error:
        why = error.problem if isinstance(error, InvalidMessage) else repr(error)
        told = f"it is no message in the format `{note.format}` ({why})"
        raise Damaged(where="a payload", problem=told) from error
    problem = disagreement(note, said)
    if problem is not None:
        raise Damaged(where="a payload", problem=problem)


def _thawed(format_name: str, body: bytes) -> Payload:
    payload = thaw(body)
    # These are bytes from the store, not an argument: what is wrong with them is
    # damage, and `InvalidMessage` would blame the caller.
    if not isinstance(payload, dict | list):
        raise Damaged(
            where="a payload", problem=f"a {type(payload).__name__} is not a message"
        )
    if not is_known(format_name):
        # Written by a later release, or by a program that had registered its own
        # format. The name comes from the store too, and may be of any length.
        raise Damaged(
            where="a payload",
            problem=f"`{format_name[:40]}` is not a format that this release knows",
        )
    return payload
