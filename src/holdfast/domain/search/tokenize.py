"""What a word is, in any script: the pieces by which a text is looked up.

A word is a run of letters, digits and their marks. Scripts that are written without spaces between
words (Chinese, Japanese, Thai and more, and Korean, whose words are inflected at their ends) have a
word for each character, so that any part of a text is a row of words. So has every symbol that
isn't ASCII, emoji among them.

Words are compared folded: case, accents, vowel points, width and joiners make no difference.
Everything else (spaces, punctuation, control characters, lone surrogates) parts words and is no
word itself.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

LETTERS_MAX = 64
"""Of a longer word its beginning counts: nobody looks for the whole of a key or of
encoded bytes.
"""

# Thai, Lao, Tibetan, Myanmar, Khmer, Tai Le, New Tai Lue, Tai Tham, Balinese, Hangul, kana,
# Bopomofo, Han, Yi, Tangut.
_SPACELESS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf"
    "\u0f40-\u0fbc\u1000-\u103f\u1050-\u108f\u1100-\u11ff"
    "\u1780-\u17d3\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7c"
    "\u1b00-\u1b4b\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua000-\ua48c\ua960-\ua97c\ua980-\ua9c0"
    "\ua9e0-\ua9fe\uaa60-\uaadf\uac00-\ud7fb\uf900-\ufaff"
    "\uff66-\uffdc\U00017000-\U00018d08\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SYLLABLE = (
    "[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?"  # a Korean character spelled out
)
_KANA = "[\u3041-\u30ff\uff66-\uff9d][\u3099\u309a\uff9e\uff9f]"  # a voiced one, spelled out
_JOINERS = "\u00ad\u200c\u200d\u2060"
# Currencies, arrows, mathematics, pictures; not the boxes that programs draw around their output.
_SYMBOLS = (
    "\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00d7\u00f7"
    "\u20a0-\u20cf\u2100-\u214f\u2190-\u24ff\u25a0-\u2bff\u3200-\u33ff"
    "\U0001f000-\U0001faff"
)
_MARKED = (
    range(0x300, 0x1D00),
    range(0x1DC0, 0x2100),
    range(0x2CE0, 0x2E00),
    range(0xA600, 0xAC00),
    range(0xFE00, 0xFE30),
    range(0x10A00, 0x12000),
    range(0x1D100, 0x1D250),
    range(0x1E000, 0x1E960),
    range(0xE0100, 0xE01F0),
)
"""Where there are marks among the characters."""

# Marks that many leave out when they write, and letters that many replace.
_ACCENTS = (
    (0x300, 0x36F),
    (0x483, 0x487),
    (0x591, 0x5C7),
    (0x610, 0x61A),
    (0x640, 0x640),
    (0x64B, 0x65F),
    (0x670, 0x670),
    (0x6D6, 0x6ED),
    (0xFE00, 0xFE0F),
    (0xE0100, 0xE01EF),
)
_LETTERS = {"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ħ": "h", "æ": "ae", "œ": "oe"}

_SPACES = {code: " " for code in range(0x80) if not chr(code).isalnum()}
_ascii = re.compile("[A-Za-z0-9]+")
_ascii_long = re.compile(f"[A-Za-z0-9]{{{LETTERS_MAX + 1}}}")


def words_in(text: str) -> list[str]:
    """The words of a text, folded, in order."""
    return [word for found in _pattern(text).findall(text) if (word := folded[found])]


def places_in(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text, folded, each with its place."""
    for found in _pattern(text).finditer(text):
        word = folded[found.group()]
        if word:
            yield word, found.start(), found.end()


def spaced(text: str) -> str:
    """A text in which words are runs of ASCII letters, ASCII digits and of all that isn't ASCII,
    and nothing else is such a run: what an index can part into words that knows no script at all.
    It need not fold ASCII.
    """
    if text.isascii():
        # quick to find, and most texts have nothing long
        widest = max(map(len, text.split()), default=0)
        if widest <= LETTERS_MAX or not _ascii_long.search(text):
            return text
    return " ".join(words_in(text))


def parted(text: str) -> list[str]:
    """The words of a text that is `spaced`, folded, in order."""
    return text.translate(_SPACES).lower().split() if text.isascii() else text.split()


def _pattern(text: str) -> re.Pattern[str]:
    # Most texts are; the other pattern is large, and is made when it is first needed.
    return _ascii if text.isascii() else _anywhere()


class _Folds(dict[str, str]):
    """Words as they are compared, remembered; nothing when only marks are left of one."""

    KNOWN_MAX = 50_000

    def __missing__(self, word: str) -> str:
        if len(self) >= self.KNOWN_MAX:
            # All at once: the usual words are soon back.
            self.clear()
        start = word[:LETTERS_MAX]
        fold = self[word] = start.lower() if start.isascii() else _fold(start)
        return fold


folded = _Folds()


def _fold(word: str) -> str:
    from unicodedata import normalize  # large, and of no use to a store of ASCII

    # Unicode's rule for comparing without case: folding can undo a decomposition.
    spread = normalize("NFKD", normalize("NFKD", word).casefold())
    return normalize("NFC", spread.translate(_changed()))


@lru_cache(maxsize=1)
def _changed() -> dict[int, str | None]:
    """What folding does to single characters; ASCII punctuation comes from characters like `⒈`."""
    dropped = [code for first, last in _ACCENTS for code in range(first, last + 1)]
    dropped += [ord(joiner) for joiner in _JOINERS]
    dropped += [code for code in range(0x80) if not chr(code).isalnum()]
    return {
        **dict.fromkeys(dropped),
        **{ord(letter): instead for letter, instead in _LETTERS.items()},
    }


@lru_cache(maxsize=1)
def _anywhere() -> re.Pattern[str]:
    """A word in any script. Which characters are marks is asked of Unicode, once, when it is first
    needed.
    """
    from unicodedata import category

    marks = [
        code for codes in _MARKED for code in codes if category(chr(code))[0] == "M"
    ]
    letters = rf"[^\W_{_SPACELESS}]"
    word = f"{letters}+(?:[{_ranges(marks)}{_JOINERS}]+{letters}*)*"
    return re.compile(f"{word}|{_SYLLABLE}|{_KANA}|[{_SPACELESS}]|[{_SYMBOLS}]")


def _ranges(codes: list[int]) -> str:
    """Ascending character codes as the inside of a character class."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(
        f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges
    )
