"""Looking for messages: what is asked for, and where a text answers it.

A question is a person's words, never a query language: all words must occur, in any order; those
between double quotes next to each other. So must the parts of what is written without a space
("don't", `read_file`, a sentence in Chinese). The last word may be the beginning of one, from two
letters on, unless it is quoted. `wording` says what a word is.

Every engine answers with these functions, or with an index that agrees with them.
"""

import re
from collections.abc import Sequence

import msgspec

from holdfast.domain.entry import Entry
from holdfast.domain.search.tokenize import places_in, words_in

TEXT_MAX = 64 * 1024
"""So many characters of a message can be found; what follows is too long to be looked for in one
message.
"""
QUESTION_MAX = 1000
PHRASES_MAX = 32
SNIPPET_MAX = 200
_BEFORE = 60
_WORD_END = 24

Place = tuple[int, int]
"""From, and up to, but not including."""

_quotes = re.compile('["“”„]')
_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class SearchableText(msgspec.Struct, frozen=True):
    """What can be found in a message: its words, and what it is."""

    text: str
    role: str
    partial: bool = False
    tools: tuple[str, ...] = ()
    """The tools that it calls, or whose answer it is."""


class SearchQuestion(msgspec.Struct, frozen=True):
    """A question: rows of words, all of which must occur. `beginning`: the very last word may go
    on.
    """

    phrases: tuple[tuple[str, ...], ...] = ()
    beginning: bool = False
    anything: bool = False
    """Nothing was asked: every message is an answer."""


class SearchScope(msgspec.Struct, frozen=True):
    """Which messages are looked for, of one tenant (I-19). `since` and `until` are milliseconds
    since 1970; a message of the time `until` is too late.
    """

    tenant: str
    asked: SearchQuestion
    role: str | None = None
    tool: str | None = None
    partial: bool | None = None
    key: str | None = None
    session: str | None = None
    state: str | None = None
    """Of the session: "open", "running" or "ended"."""
    since: int | None = None
    until: int | None = None


class Found(msgspec.Struct, frozen=True):
    """A message that was looked for, and where in its words the answer stands."""

    session: str
    key: str | None
    entry: Entry
    words: SearchableText
    places: tuple[Place, ...]


def asked(text: str) -> SearchQuestion:
    """A person's words as a question. Words that hold nothing to look for (`!?`) have no answer."""
    # A pasted page is no question; its beginning is.
    pieces = _quotes.split(text[:QUESTION_MAX])
    phrases: list[tuple[str, ...]] = []
    beginning = False
    for index, piece in enumerate(pieces):
        # Between the first quote and the second, the third and the fourth, and so on.
        quoted = index % 2 == 1
        for part in [piece] if quoted else piece.split():
            phrase = tuple(words_in(part))
            if phrase:
                phrases.append(phrase)
                beginning = not quoted and len(phrase[-1]) >= 2
    return SearchQuestion(
        tuple(phrases[:PHRASES_MAX]),
        beginning and len(phrases) <= PHRASES_MAX,
        anything=not text.strip(),
    )


def answers(words: SearchableText, sought: SearchScope) -> list[Place] | None:
    """Where these words answer what is sought, in order; None when they don't."""
    if sought.role is not None and words.role != sought.role:
        return None
    if sought.tool is not None and sought.tool not in words.tools:
        return None
    if sought.partial is not None and words.partial != sought.partial:
        return None
    return places(words.text, sought.asked)


def places(text: str, question: SearchQuestion) -> list[Place] | None:
    """Where a text answers a question, in order and apart from each other; None when it doesn't."""
    if not question.phrases:
        return [] if question.anything else None
    found = list(places_in(text))
    words = [word for word, _, _ in found]
    hits: list[Place] = []
    for number, phrase in enumerate(question.phrases):
        # Only the very last word: somebody may still be typing it.
        open_ended = question.beginning and number == len(question.phrases) - 1
        at = _occurrences(words, phrase, open_ended)
        if not at:
            return None
        for index in at:
            last = index + len(phrase) - 1
            hits.append((found[index][1], found[last][2]))
    return _apart(sorted(hits))


def _occurrences(
    words: Sequence[str], phrase: Sequence[str], open_ended: bool
) -> list[int]:
    """The places at which a row of words stands among others."""
    *whole, last = phrase
    size = len(whole)
    found = []
    for end in range(size, len(words)):
        is_last = words[end] == last or (open_ended and words[end].startswith(last))
        if is_last and words[end - size : end] == whole:
            found.append(end - size)
    return found


def _apart(hits: list[Place]) -> list[Place]:
    """Places that touch become one."""
    apart: list[Place] = []
    for start, end in hits:
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def snippet(text: str, hits: Sequence[Place]) -> tuple[str, tuple[Place, ...]]:
    """The text around the first place, in one line, and which parts of that are the places. `…`
    stands where it was cut.
    """
    first = hits[0][0] if hits else 0
    start = _word_start(text, max(0, first - _BEFORE), first)
    end = min(len(text), start + SNIPPET_MAX)
    if end < len(text):
        end = _word_last(text, end)
    shown = _unprintable.sub(_shown, text[start:end])
    moved = -start
    if start:
        shown = f"…{shown}"
        moved += 1
    if end < len(text):
        shown = f"{shown}…"
    marks = []
    for begins, ends in hits:
        if begins < end and ends > start:
            marks.append((max(begins, start) + moved, min(ends, end) + moved))
    return shown, tuple(marks)


def _shown(found: re.Match[str]) -> str:
    """A character for one that can't be shown, so that places stay where they are."""
    return "\ufffd" if found.group() >= "\ud800" else " "


def _word_start(text: str, start: int, first: int) -> int:
    """The beginning of a word near `start`, not after `first`."""
    if start == 0:
        return 0
    for at in range(start, min(start + _WORD_END, first)):
        if text[at - 1].isspace():
            return at
    return start


def _word_last(text: str, end: int) -> int:
    """The end of a word near `end`, not after it."""
    for at in range(end, end - _WORD_END, -1):
        if text[at].isspace():
            return at
    return end
