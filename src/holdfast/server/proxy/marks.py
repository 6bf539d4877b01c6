"""What of a list tells which conversation it is: ids of calls first, texts second, positions never.

Between two requests of one conversation clients move cache marks, turn texts into blocks and back,
insert reminders and system messages anywhere, split a message of three calls into three, strip
blanks, and word the last message anew. So a list is read as marks: a call's id, the id that a result
answers, or who said which words, without what clients put around them.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.record.fingerprint import fingerprint

Mark = tuple[str, str]
"""What kind it is (`call`, `result`, or a role), and the id or the words."""
Marks = tuple[Mark, ...]

ENDING_MIN, ENDING_MAX = 3, 64
"""So many messages in a row tell a conversation by its end; fewer may be anybody's."""

_AROUND = re.compile(
    r"<(system-reminder|turn-context)>.*?</\1>|\[Request interrupted by user[^\]]*\]",
    re.DOTALL,
)


def marks_of(messages: Iterable[Any]) -> Marks:
    """The marks of a list, in its order. System messages have none."""
    found: list[Mark] = []
    for message in messages:
        said = fingerprint(message)
        if said.role == "system":
            continue
        found += [("result", id) for id in said.answers]
        if not said.answers:
            words = plain_words(said.text)
            if words:
                found.append((said.role, words))
        elif plain_words(said.text) and _says_more(message):
            # Words beside results, as Anthropic's API has them in one message.
            found.append(("user", plain_words(_beside(message))))
        found += [("call", id) for id, _, _ in said.calls]
        # What is neither, an image for example, tells messages apart as words do; thoughts do not,
        # for clients leave them out.
        if said.other and not said.text and not _thinks(message):
            found.append((said.role, _digest("\n".join(said.other))))
    return tuple(found)


def _thinks(message: Any) -> bool:
    return isinstance(message, dict) and message.get("type") == "reasoning"


def plain_words(text: str) -> str:
    """A text without what clients put around it, in one line."""
    return " ".join(_AROUND.sub(" ", text).split())


def _blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _says_more(message: Any) -> bool:
    return bool(plain_words(_beside(message)))


def _beside(message: Any) -> str:
    words = []
    for block in _blocks(message):
        if isinstance(block, dict) and block.get("type") == "text":
            words.append(str(block.get("text", "")))
    return "\n\n".join(words)


def chains(marks: Sequence[Mark]) -> list[str]:
    """For each beginning of the list that ends with an answer of the model's, longest first, a digest
    of the words in it.
    """
    digest = hashlib.sha256()
    found = []
    for kind, words in marks:
        # Results are long, and are known by their calls.
        if kind in ("call", "result"):
            continue
        digest.update(f"{kind}\0{words}\0".encode(errors="surrogatepass"))
        if kind == "assistant":
            found.append(digest.hexdigest())
    return found[::-1]


def beginnings(marks: Sequence[Mark]) -> list[str]:
    """For each beginning of the list that has an answer of the model's, longest first, a digest of the
    words in it.
    """
    digest = hashlib.sha256()
    found = []
    is_answered = False
    for kind, words in marks:
        if kind in ("call", "result"):
            continue
        digest.update(f"{kind}\0{words}\0".encode(errors="surrogatepass"))
        is_answered = is_answered or kind == "assistant"
        if is_answered:
            found.append(digest.hexdigest())
    return found[::-1]


def endings(marks: Sequence[Mark]) -> list[str]:
    """For each end of the list of so many words, the shortest first, a digest of the words in it: what is
    left of a list whose head was cut off.
    """
    digest = hashlib.sha256()
    found = []
    words = [mark for mark in marks if mark[0] not in ("call", "result")]
    for kind, said in reversed(words[-ENDING_MAX:]):
        digest.update(f"{kind}\0{said}\0".encode(errors="surrogatepass"))
        found.append(digest.hexdigest())
    return found[ENDING_MIN - 1 :]


def opening(marks: Sequence[Mark]) -> str | None:
    """What stands for a list in which the model has said nothing yet; None for others."""
    if any(kind in ("assistant", "call") for kind, _ in marks) or not marks:
        return None
    return asked(marks)


def asked(marks: Sequence[Mark]) -> str:
    """What stands for a whole list. A context may show neighbours of one role as one."""
    joined: list[Mark] = []
    for kind, words in marks:
        if joined and joined[-1][0] == kind and kind not in ("call", "result"):
            _, before = joined.pop()
            words = f"{before} {words}"
        joined.append((kind, words))
    lines = [f"{kind}\0{words}" for kind, words in joined]
    return _digest("\0".join(lines))


def calls_in(marks: Sequence[Mark]) -> list[str]:
    """The ids of calls and results in a list, the last first."""
    found = {id: None for kind, id in reversed(marks) if kind in ("call", "result")}
    return [id for id in found if id]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
