"""What looks like a secret, and is left out of what people hand on.

A shape that nothing else has is enough (a key of a provider, a private key); other values are
secrets by what stands before them (`password=…`). What is not of these shapes stays.
"""

import re
from collections.abc import Iterator
from typing import Any

from holdfast.domain.approval import read_arguments
from holdfast.formats.reading import dumped

_ESCAPED = (
    r"(?<=\\[bfnrt])|(?<=\\[xX][0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"  # in JSON, in code
    r"|(?<=%[0-9A-Fa-f]{2})"  # in an address
    r"|(?<=[\[;0-9][mK])"  # the end of a colour of a terminal
)
"""The letters and digits that end an escape belong to no word."""
_BEGINS = rf"(?=[A-Za-z])(?:(?<![A-Za-z0-9])|{_ESCAPED})"
"""Where a word of ASCII begins; `\\b` takes it for one word with the letters of another script."""
_ANYWHERE = {
    "private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?!-----END)[\s\S]){0,20000}"
    r"(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
    # In the address that it is used in, letters stand before it: api.telegram.org/bot….
    "Telegram token": r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9])",
}
_WORDS = {
    "Anthropic key": r"sk-ant-[A-Za-z0-9_-]{16,}",
    "API key": r"sk-[A-Za-z0-9_-]{20,}",
    "GitHub token": r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
    "GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    # These two begin alike; the longer shape goes first.
    "Holdfast token": r"hf_[A-Za-z0-9_-]{40,}",
    "Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "AWS key": r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])",
    "Google key": r"AIza[0-9A-Za-z_-]{35}",
    "Slack token": r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}",
    "Groq key": r"gsk_[A-Za-z0-9]{20,}",
    "xAI key": r"xai-[A-Za-z0-9]{20,}",
    "Replicate token": r"r8_[A-Za-z0-9]{20,}",
    "npm token": r"npm_[A-Za-z0-9]{30,}",
    "PyPI token": r"pypi-[A-Za-z0-9_-]{32,}",
    "SendGrid key": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "Stripe key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "JSON web token": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
}
_NAMES = (
    r"(?:api[_-]?key|access[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|(?:access|auth|refresh|bearer)[_-]?token|token|passw(?:or)?d|passphrase)"
)
_FIELD = re.compile(r"[A-Za-z0-9_-]{0,40}" + _NAMES, re.IGNORECASE)
_CLEAR = re.compile(r"key$|passw|passphrase|client", re.IGNORECASE)
"""Names that nothing but a secret has; what is called a token or a secret may be many a thing."""
_CAMEL = r"(?-i:(?<=[a-z])(?=[A-Z]))"
_CLEAR_BEGINS = r"(?=passw|passphrase)"
"""In PGPASSWORD= nothing stands between the words; of `token` and the like that would be too much."""
_HAS_DIGIT = r"(?=[^\s\"',;]{0,200}[0-9])"
"""Where nothing but a colon or a space stands before it, a word without a digit is prose."""
_VALUES = {
    # Authorization: Bearer …
    "token": r"((?:Bearer|Basic)\s{1,4})" + _HAS_DIGIT + r"[A-Za-z0-9._~+/=-]{12,}",
    # postgresql://user:…@host
    "password": r"([a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s/@]{1,200}(?=@)",
}
# DB_PASSWORD=…, "api_key": "…", and the same inside a text that is JSON itself.
_NAMED = re.compile(
    r"(?:(?<![A-Za-z])|" + _ESCAPED + r"|" + _CAMEL + r"|" + _CLEAR_BEGINS + r")"
    r"(?P<name>" + _NAMES + r")"
    r"\\{0,15}[\"']?\s{0,8}(?P<sign>:=|=>|==|[:=])\s{0,8}(?:"
    r"\\{1,15}[\"'](?P<inner>[^\"'\\\n]+)"
    r"|(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n])+)"
    r"|(?P<bare>(?:[^\s\"',;&<>{}\[\]\\]|\\(?![\"'n\\])){4,}))",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(
    r"(?:await|new|null|none|nil|true|false|undefined|input)"
    r"|[A-Za-z_][\w.]*\(.*"  # a call
    r"|[A-Za-z_]+(?:\.[A-Za-z_]+)+"  # an attribute
    r"|[a-z_]+(?::[\w.]+)?(?:\|[a-z_]+(?::[\w.]+)?)+"  # required|min:8
    r"|\$[A-Za-z_]\w*",  # a variable of a shell
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\$?\{.*\}|<.*>|\$[A-Za-z_]\w*|\[redacted: [\w ]+\]")
_INDEXED = re.compile(r"[A-Za-z_][\w.]*")
_HOLDS = frozenset(("value", "values", "raw", "plain", "plaintext", "data", "secret"))
"""Fields of a secret that have its words; others, such as its type, tell of it."""
SECRET = "[redacted: secret]"


def _shapes() -> Iterator[tuple[re.Pattern[str], str]]:
    for name, shape in _ANYWHERE.items():
        yield re.compile(shape), f"[redacted: {name}]"
    for name, shape in _VALUES.items():
        yield re.compile(_BEGINS + shape, re.IGNORECASE), rf"\g<1>[redacted: {name}]"


_SHAPES = list(_shapes())
# One pass for all of them: at most places of a text no word begins.
_WORD = re.compile(
    _BEGINS + "(?:" + "|".join(f"({shape})" for shape in _WORDS.values()) + ")"
)
_KINDS = list(_WORDS)


def redacted(text: str) -> str:
    """The text, with a word for what kind of secret it was in the place of each."""
    text = _WORD.sub(_redacted_word, text)
    for shape, words in _SHAPES:
        text = shape.sub(words, text)
    return _NAMED.sub(_redacted_match, text)


def _redacted_word(found: re.Match[str]) -> str:
    return f"[redacted: {_KINDS[(found.lastindex or 1) - 1]}]"


def _redacted_match(found: re.Match[str]) -> str:
    which = found.lastgroup or ""
    if found["bare"] is not None:
        which = "bare"
        if _is_expression(found):
            return found[0]
    elif found["quoted"] is not None:
        which = "quoted"
    if not _is_secret(found["name"], found[which]):
        return found[0]
    start, end = found.span(which)
    begin = found.start()
    return found[0][: start - begin] + SECRET + found[0][end - begin :]


def _is_expression(found: re.Match[str]) -> bool:
    """Whether code or prose stands there, and no value: nothing is quoted."""
    bare = found["bare"]
    if found["sign"] == ":" and not _has_digit(bare):
        return True
    if found.string[found.end() : found.end() + 1] == "[" and _INDEXED.fullmatch(bare):
        return True
    # What is handed on under its own name is a variable.
    name = bare.rstrip(").:")
    return bool(_EXPRESSION.fullmatch(bare) or _FIELD.fullmatch(name))


def _has_digit(value: str) -> bool:
    return any(letter.isdigit() for letter in value)


def _is_secret(name: str, value: str) -> bool:
    """Whether this is long enough for a secret, by the name that it has."""
    if _PLACEHOLDER.fullmatch(value):
        return False
    if not _CLEAR.search(name):
        return len(value) >= 8
    return len(value) >= (4 if _has_digit(value) else 7)


def redacted_value(value: Any) -> Any:
    """A JSON value without secrets in its texts and in the names of its fields."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list | tuple):
        return [redacted_value(each) for each in value]
    if isinstance(value, dict):
        return _redacted_fields(value)
    return value


def _redacted_fields(value: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, each in value.items():
        said = told = redacted(name)
        times = 1
        while told in kept:  # two secrets of one kind
            times += 1
            told = f"{said} {times}"
        kept[told] = _redacted_field(name, each)
    return kept


def redacted_text(text: str) -> str:
    """The text without secrets. JSON in a text, such as the arguments of a call, stays JSON."""
    value = read_arguments(text) if text[:1] in ("{", "[") else text
    if isinstance(value, str):
        return redacted(text)
    kept = redacted_value(value)
    return text if kept == value else dumped(kept)


def _redacted_field(name: str, value: Any) -> Any:
    # A secret may be one by the name of its field alone.
    if not _FIELD.fullmatch(name):
        return redacted_value(value)
    return _redacted_under(name, value)


def _redacted_under(name: str, value: Any) -> Any:
    """What stands in a field with the name of a secret."""
    if isinstance(value, str):
        return SECRET if _is_secret(name, value) else redacted_text(value)
    if isinstance(value, list | tuple):
        return [_redacted_under(name, each) for each in value]
    if isinstance(value, dict):
        return {
            inner: _redacted_under(name, each)
            if inner.lower() in _HOLDS
            else _redacted_field(inner, each)
            for inner, each in value.items()
        }
    return value
