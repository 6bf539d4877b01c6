"""What looks like a secret, and is left out of what people hand on.

A shape that nothing else has is enough (a key of a provider, a private key); other values are
secrets by what stands before them (`password=…`). What is not of these shapes stays.
"""

import re
from collections.abc import Iterator
from typing import Any

from holdfast.domain.approval import read_arguments
from holdfast.formats.reading import dumped

_WHOLE = {
    "private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----"
    r"(?:(?!-----END)[\s\S]){0,20000}(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----)?",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{16,}",
    "API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    # These two begin alike; the longer shape goes first.
    "Holdfast token": r"\bhf_[A-Za-z0-9_-]{40,}",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "Google key": r"\bAIza[0-9A-Za-z_-]{35}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "Telegram token": r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
}
_NAMES = (
    r"(?:api[_-]?key|access[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|(?:access|auth|refresh|bearer)[_-]?token|token|passw(?:or)?d|passphrase)"
)
_FIELD = re.compile(r"[A-Za-z0-9_-]{0,40}" + _NAMES, re.IGNORECASE)
_HAS_DIGIT = r"(?=[^\s\"',;]{0,200}[0-9])"
"""Where nothing but a colon or a space stands before it, a word without a digit is prose."""
_VALUES = {
    # Authorization: Bearer …
    "token": r"(\b(?:Bearer|Basic)\s{1,4})" + _HAS_DIGIT + r"[A-Za-z0-9._~+/=-]{16,}",
    # postgresql://user:…@host
    "password": r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s/@]{1,200}(?=@)",
    # DB_PASSWORD=…, "api_key": "…"
    "secret": r"((?<![A-Za-z])"
    + _NAMES
    + r"[\"']?\s{0,4}(?:[:=]\s{0,4}[\"']|=\s{0,4}|:\s{0,4}"
    + _HAS_DIGIT
    + r"))[^\s\"',;&<>{}\[\]]{8,}",
}


def _shapes() -> Iterator[tuple[re.Pattern[str], str]]:
    for name, shape in _WHOLE.items():
        yield re.compile(shape), f"[redacted: {name}]"
    for name, shape in _VALUES.items():
        yield re.compile(shape, re.IGNORECASE), rf"\g<1>[redacted: {name}]"


_SHAPES = list(_shapes())


def redacted(text: str) -> str:
    """The text, with a word for what kind of secret it was in the place of each."""
    for shape, words in _SHAPES:
        text = shape.sub(words, text)
    return text


def redacted_value(value: Any) -> Any:
    """A JSON value without secrets in its texts; names of fields stay."""
    if isinstance(value, str):
        return _redacted_text(value)
    if isinstance(value, list | tuple):
        return [redacted_value(each) for each in value]
    if isinstance(value, dict):
        return {name: _redacted_field(name, each) for name, each in value.items()}
    return value


def _redacted_text(text: str) -> str:
    # Arguments of a call are JSON in a text, and stay JSON.
    value = read_arguments(text) if text[:1] in ("{", "[") else text
    if isinstance(value, str):
        return redacted(text)
    kept = redacted_value(value)
    return text if kept == value else dumped(kept)


def _redacted_field(name: str, value: Any) -> Any:
    # A secret may be one by the name of its field alone.
    if isinstance(value, str) and _FIELD.fullmatch(name) and len(value) >= 8:
        return "[redacted: secret]"
    return redacted_value(value)
