"""Questions, where a text answers them, and what is shown of it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.search.query import (
    SNIPPET_MAX,
    SearchableText,
    SearchQuestion,
    SearchScope,
    answers,
    asked,
    places,
    snippet,
)
from holdfast.domain.search.tokenize import words_in

ANY = st.characters()
"""Lone surrogates too."""


def found(text: str, question: str) -> list[str] | None:
    """The parts of the text that answer."""
    hits = places(text, asked(question))
    return None if hits is None else [text[start:end] for start, end in hits]


def test_all_words_must_occur_in_any_order() -> None:
    assert found("The tide turned at noon.", "noon tide") == ["tide", "noon"]
    assert found("The tide turned at noon.", "noon midnight") is None


def test_words_in_quotes_stand_next_to_each_other() -> None:
    assert found("to be or not to be", '"not to be"') == ["not to be"]
    assert found("to be or not to be", '"be not"') is None
    assert found("to be or not to be", "“or not” be") == ["be", "or not", "be"]


def test_what_is_written_without_a_space_stands_together() -> None:
    assert found("call read_file now", "read_file") == ["read_file"]
    assert found("call file_read now", "read_file") is None
    assert found("我喜欢机器学习", "机器学习") == ["机器学习"]
    assert found("我喜欢学习机器", "机器学习") is None
    assert found("don’t", "don't") == ["don’t"]


def test_the_last_word_may_be_the_beginning_of_one() -> None:
    assert found("holding fast", "fast hol") == ["holding", "fast"]
    assert found("holding fast", "hol fast") is None
    assert found("holding fast", '"hol"') is None
    assert found("holding fast", "h") is None, "one letter begins too many words"


def test_nothing_asked_is_answered_by_everything_and_no_words_by_nothing() -> None:
    assert found("anything", "  ") == []
    assert found("anything!?", "!?") is None


@pytest.mark.parametrize(
    "question", ['"', '""', '"a', "AND", "NOT x", "a OR b", "x*", "(", "^a", "-a", "'", "\0"]
)
def test_no_character_is_a_command(question: str) -> None:
    assert asked(question).phrases == tuple((word,) for word in words_in(question))


def test_a_filter_is_for_what_a_message_is() -> None:
    words = SearchableText("hello", "assistant", partial=True, tools=("look",))

    def passes(**filters: object) -> bool:
        return answers(words, SearchScope("t", asked("hello"), **filters)) is not None  # type: ignore[arg-type]

    assert passes(role="assistant") and passes(tool="look") and passes(partial=True)
    assert not passes(role="user") and not passes(tool="Look") and not passes(partial=False)


def test_places_that_touch_are_one() -> None:
    assert found("中文中文", "中文 文中") == ["中文中文"]


def test_a_snippet_shows_the_first_place_and_marks_all_it_shows() -> None:
    text = "before " * 40 + "the kelp\nholds fast, the kelp does " + "after " * 40
    shown, marks = snippet(text, places(text, asked("kelp")) or [])
    assert shown.startswith("…") and shown.endswith("…") and "\n" not in shown
    assert len(shown) <= SNIPPET_MAX + 2
    assert [shown[start:end] for start, end in marks] == ["kelp", "kelp"]


def test_a_short_text_is_shown_whole() -> None:
    assert snippet("kelp", [(0, 4)]) == ("kelp", ((0, 4),))
    assert snippet("", []) == ("", ())


@given(st.text(ANY, max_size=600), st.integers(0, 599), st.integers(1, 300))
def test_a_snippet_can_be_shown_anywhere_and_its_marks_lie_in_it(
    text: str, start: int, size: int
) -> None:
    end = min(start + size, len(text))
    shown, marks = snippet(text, [(start, end)] if start < end else [])
    assert shown == "" or shown.encode()
    assert not any(unicodedata.category(character) == "Cc" for character in shown)
    assert all(0 <= a < b <= len(shown) for a, b in marks)
    if start < end:
        a, b = marks[0]
        for given_one, shown_one in zip(text[start:end], shown[a:b], strict=False):
            assert shown_one == given_one or shown_one in " \ufffd…"


@given(st.text(ANY), st.text(ANY))
def test_a_question_has_an_answer_or_none_but_never_an_error(text: str, question: str) -> None:
    wanted = asked(question)
    assert isinstance(wanted, SearchQuestion)
    hits = places(text, wanted)
    assert hits is None or all(0 <= start < end <= len(text) for start, end in hits)
