"""What a request is to its session: a turn, another attempt at one, or a call aside.

Agents make calls under a session's name that are no part of its conversation: titles, summaries,
warm-ups. One of those taken for a turn would put a stranger's words into the transcript and bend the
view; a turn taken for one of those is still stored, beside the session. So in doubt it is aside.

    said in the request        Codex tells (`request_kind`); known words of titles and summaries
    an agent without tools     Claude Code, goose and Codex have tools in every turn
    the list                   a turn's goes on from the one before. The same list again is another
                               attempt. One whose last message has grown, though it was answered, is a
                               summary being asked for (Claude Code's compaction)
"""

from typing import Any, Literal, NamedTuple

from holdfast.formats.reading import fields
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.marks import Mark, Marks, marks_of
from holdfast.server.proxy.naming import Headers, NamedSession, told_by_codex

Kind = Literal["turn", "title", "compaction", "warm-up", "aside"]

_TITLES = (
    "You are naming a coding session",
    "Generate a short title",
    "Generate a title for",
    "<session>",
)
_GROWN = "CRITICAL: Respond with TEXT ONLY"
"""What Claude Code adds to the last message of a list that is to be summarised."""
_COMPACTIONS = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "Please summarize the conversation history",
    "You are a summarization agent",
    "## Task Context - An llm context limit was reached",
)
SIGNS_WITHIN = 400
_CODEX_KINDS: dict[str, Kind] = {"compaction": "compaction", "prewarm": "warm-up"}


class Before(NamedTuple):
    """The last request of a session that was a turn: its list, what was answered, and whether its
    client has heard all of that.
    """

    marks: Marks
    answer: Marks = ()
    is_answered: bool = False
    is_open: bool = True
    """Whether the same list may come again: its answer failed, was cut, or was not heard."""
    has_tools: bool = False
    instructions: str = ""
    turn: str | None = None
    """How its client names the turn, if it does."""


def kind_of(
    request: Request,
    name: NamedSession | None,
    marks: Marks,
    before: Before | None,
    beside: Marks = (),
) -> Kind:
    """What a request is that does not tell it, to the session that it belongs to by its name or its
    list. `before` is None for a session in which nothing was said yet; `beside` is what was asked and
    answered aside last.
    """
    client = name.client if name is not None else None
    if client is not None and not request.has_tools:
        return "aside"
    # There is no list to compare with, or only the news of one.
    if before is None or not request.is_whole:
        return "turn"
    if not request.has_tools and before.has_tools and not goes_on(marks, before):
        return "aside"
    if request.has_tools and before.is_answered and _has_grown(marks, before):
        return "compaction"
    if is_strange(marks, before) and (
        _is_by_itself(request, marks, before) or answers_calls_of(marks, beside)
    ):
        return "aside"
    return "turn"


def told_kind(headers: Headers, request: Request, marks: Marks) -> Kind | None:
    """What a request says of itself, whatever its session is; None when it does not."""
    kind = _CODEX_KINDS.get(told_by_codex(headers, "request_kind") or "")
    if kind is not None:
        return kind
    if request.body.get("generate") is False:
        return "warm-up"
    words = " ".join(request.instructions.split())[:SIGNS_WITHIN]
    asked = ""
    if marks and marks[-1][0] == "user":
        asked = marks[-1][1]
    if _has(words, asked, _COMPACTIONS) or _GROWN in asked:
        return "compaction"
    # A person may ask for a title in the middle of a conversation.
    if not request.has_tools and len(marks) == 1:
        if _has(words, asked, _TITLES) or _wants_title(request):
            return "title"
    return None


def _has(told: str, asked: str, signs: tuple[str, ...]) -> bool:
    """Whether instructions have one of these words near their beginning, or a question begins so."""
    return asked.startswith(signs) or any(sign in told for sign in signs)


def _wants_title(request: Request) -> bool:
    """Whether the answer is to be JSON with a title and nothing else."""
    body = request.body
    for place in ("output_config", "text", "response_format"):
        shape = fields(body.get(place))
        shape = fields(shape.get("format")) or fields(shape.get("json_schema"))
        if list(fields(fields(shape.get("schema")).get("properties"))) == ["title"]:
            return True
    return False


def goes_on(marks: Marks, before: Before) -> bool:
    """Whether a list has all that the last one had, and more."""
    # As sets: clients insert messages and split them, so places tell nothing.
    return len(marks) > len(before.marks) and set(before.marks) <= set(marks)


def is_again(marks: Marks, before: Before) -> bool:
    """Whether a list is the last one again."""
    return marks == before.marks


def is_strange(marks: Marks, before: Before) -> bool:
    """Whether a list has nothing of the last one, nor of its answer."""
    return set(marks).isdisjoint((*before.marks, *before.answer))


def answers_calls_of(marks: Marks, beside: Marks) -> bool:
    """Whether a list goes on with the calls that were made aside."""
    made = {id for kind, id in beside if kind == "call"}
    answered = {id for kind, id in marks if kind == "result"}
    return not made.isdisjoint(answered)


def _has_grown(marks: Marks, before: Before) -> bool:
    """Whether a list is the last one, without its answer, and with more words at its end."""
    if not before.marks or not set(marks).isdisjoint(before.answer):
        return False
    *most, (kind, words) = before.marks
    if marks[: len(most)] != tuple(most):
        return False
    last = marks[len(most) :]
    # Results, and words behind them.
    if kind == "result" and last[:1] == ((kind, words),):
        return len(last) == 2 and last[1][0] == "user"
    if len(last) != 1 or last[0][0] != kind:
        return False
    words_now = last[0][1]
    return words_now != words and words_now.startswith(words)


def _is_by_itself(request: Request, marks: Marks, before: Before) -> bool:
    """Whether it is one question under other instructions, with tools or without."""
    return len(marks) == 1 and request.instructions != before.instructions


def own_messages(
    request: Request, before: Before | None, beside: Marks = ()
) -> list[Any]:
    """What a call aside says that neither its session does, nor what was said aside before."""
    known: set[Mark] = set(beside)
    if before is not None:
        known.update(before.marks, before.answer)
    own = []
    for message in request.messages:
        marks = marks_of([message])
        # What has no marks, as instructions have none, can't be looked up, and is kept.
        if not marks or not known.issuperset(marks):
            own.append(message)
    return own
