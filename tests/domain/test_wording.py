"""What a word is, in any script."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.search.tokenize import LETTERS_MAX, places_in, spaced, words_in

WORDS = {
    "Hello, World_2!": ["hello", "world", "2"],
    "Crème BRÛLÉE Łódź Straße": ["creme", "brulee", "lodz", "strasse"],
    "Ёлка й": ["елка", "и"],
    "ΚΌΣΜΟΣ κόσμος": ["κοσμοσ", "κοσμοσ"],
    "İstanbul ISPARTA ıssız": ["istanbul", "isparta", "issiz"],
    "我喜欢": ["我", "喜", "欢"],
    "東京タワーへ": ["東", "京", "タ", "ワ", "ー", "へ"],
    "ｶﾞﾗｽ か\u3099": ["ガ", "ラ", "ス", "が"],
    "안녕 세계": ["안", "녕", "세", "계"],
    "ที่": ["ท", "ี", "่"],
    "مُحَمَّد الســـلام": ["محمد", "السلام"],
    "می\u200cخواهم": ["میخواهم"],
    "שָׁלוֹם": ["שלום"],
    "हिन्दी में": ["हिन्दी", "में"],
    "👍🏽 👨\u200d👩 ❤\ufe0f 🇩🇪": ["👍", "🏽", "👨", "👩", "❤", "🇩", "🇪"],
    "ﬁne ＡＢＣ x²": ["fine", "abc", "x2"],
    "iPhone手机15 €5": ["iphone", "手", "机", "15", "€", "5"],
    "a\0b\ud800c": ["a", "b", "c"],
    "┌──┐ │ … — „": [],
}

ANY = st.characters()
"""Lone surrogates too."""


@pytest.mark.parametrize("text", WORDS)
def test_a_text_is_parted_into_words_as_its_script_asks(text: str) -> None:
    assert words_in(text) == WORDS[text]


@pytest.mark.parametrize("text", ["Crème brûlée", "한글", "がぎぐ", "Ανάλυση", "Việt Nam"])
def test_a_text_has_the_same_words_however_its_characters_are_spelled(text: str) -> None:
    forms = {
        tuple(words_in(unicodedata.normalize(form, text)))
        for form in ("NFC", "NFD", "NFKC", "NFKD")
    }
    assert len(forms) == 1


def test_of_a_long_word_the_beginning_counts() -> None:
    assert words_in("x" * 1000) == ["x" * LETTERS_MAX]
    assert words_in("é" * 1000) == ["e" * LETTERS_MAX]
    assert spaced("ab " + "X" * 1000) == "ab " + "x" * LETTERS_MAX


@given(st.text(ANY))
def test_a_word_stands_where_its_place_says(text: str) -> None:
    places = list(places_in(text))
    assert [word for word, _, _ in places] == words_in(text)
    assert [words_in(text[start:end]) for _, start, end in places] == [
        [word] for word, _, _ in places
    ]
    ends = [0, *(end for _, _, end in places)]
    assert all(
        end <= start < next_end for end, (_, start, next_end) in zip(ends, places, strict=False)
    )


@given(st.text(ANY) | st.text("ab_- \n\0Z9" + "x" * 5, max_size=300))
def test_an_index_that_knows_no_script_finds_the_same_words(text: str) -> None:
    run = re.compile("[a-z0-9\x80-\U0010ffff]+")
    assert run.findall(spaced(text).lower() if text.isascii() else spaced(text)) == words_in(text)
