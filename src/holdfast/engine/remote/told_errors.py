"""Errors on their way over HTTP: from a class and its fields to bytes, and back to that class.

The code names the class, on both sides the same. Where a store is, its own process knows by another
name than whoever asks: a path on the server is told to nobody, and here the address stands for it.
"""

from typing import Any

import msgspec

from holdfast import errors
from holdfast.engine.remote.http_connection import RawAnswer
from holdfast.engine.remote.verbs import ErrorTold
from holdfast.errors import (
    HoldfastError,
    InvalidMessage,
    OperatorNeeded,
    SchemaMismatch,
    StoreUnavailable,
)

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Answers of something in between, or of a server that is going down or coming up."""
_WORDS_MAX = 300
_UNSAID = {
    "problem": "its server says that it can't be used now",
    "remedy": "Look into the server's log, then try again",
}
"""What stands where a server does not tell more."""


def told(error: HoldfastError) -> ErrorTold:
    """The error as it is sent. What is no value of JSON goes as the words for it; an error that
    needs a person names places of the server's machine, and its words are not told.
    """
    fields: dict[str, Any] = {}
    if isinstance(error, OperatorNeeded) and getattr(error, "where", None):
        return ErrorTold(error.code, {})
    for name, value in error.fields.items():
        if name != "where":
            fields[name] = _plain(value)
    return ErrorTold(error.code, fields)


def error_of(told: ErrorTold, where: str) -> HoldfastError:
    """The error that was told, of its own class; of a store that is at `where` for us."""
    kind = _by_code().get(told.code)
    if kind is None:
        problem = f"the server told an error that this release does not know ({told.code:.60})"
        return unusable(where, problem, "Use a newer Holdfast here")
    fields = {**_UNSAID, **told.fields, "where": where}
    known = _fields_of(kind)
    return kind(**{name: fields[name] for name in known if name in fields})


def error_of_status(answer: RawAnswer, where: str) -> HoldfastError | None:
    """What an answer that is no success means; None when it may be another one in a moment."""
    told = _problem_in(answer)
    status = answer.status
    # A verb never says that something is not found: then it is the address that is not.
    if told is not None and told.code in _by_code() and status != 404:
        return error_of(told, where)
    if status in RETRIED:
        return None
    if status == 401:
        problem = "the server knows no such token"
        remedy = "Give the token that it printed, or one of its file, as `token`"
    elif status == 403:
        problem = "the token does not allow this"
        remedy = "Use a token with a wider scope"
    elif status == 404:
        problem = "no Holdfast answers there"
        remedy = "Check the address, and that `holdfast serve` runs there"
    elif status == 413:
        return too_large(None)
    else:
        problem = f"the server answered {status}"
        remedy = "Look into the server's log"
    return unusable(where, problem, remedy)


def unusable(where: str, problem: str, remedy: str) -> StoreUnavailable:
    return StoreUnavailable(where=where, problem=problem, remedy=remedy)


def untrusted(where: str, problem: str) -> StoreUnavailable:
    """Whoever answers there can't show that it is the server that was meant."""
    problem = f"its certificate is not to be trusted: {problem[:_WORDS_MAX]}"
    remedy = "If the authority that signed it is your own, give its certificate as `ca`"
    return unusable(where, problem, remedy)


def too_large(most: int | None) -> InvalidMessage:
    """What a server will not take, however often it is sent."""
    limit = "" if most is None else f", {most:,} bytes"
    return InvalidMessage(
        problem=f"it is larger than the server takes{limit}", place="commit"
    )


def other_protocol(where: str, *, found: int, known: int) -> SchemaMismatch:
    return SchemaMismatch(where=where, found=found, known=known)


def _problem_in(answer: RawAnswer) -> ErrorTold | None:
    """The code and the fields of a problem+json; None when it is something else."""
    try:
        value = msgspec.json.decode(answer.content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    code = value.get("code")
    if not isinstance(code, str):
        return None
    kind = _by_code().get(code)
    known = _fields_of(kind) if kind is not None else ()
    return ErrorTold(code, {name: value[name] for name in known if name in value})


def _by_code() -> dict[str, type[HoldfastError]]:
    if not _KINDS:
        for kind in vars(errors).values():
            if isinstance(kind, type) and issubclass(kind, HoldfastError):
                _KINDS[kind.code] = kind
    return _KINDS


_KINDS: dict[str, type[HoldfastError]] = {}


def _fields_of(kind: type[HoldfastError]) -> list[str]:
    names: list[str] = []
    for each in kind.__mro__:
        names += [name for name in vars(each).get("__annotations__", {})]
    # Not declared as a field: only an ambiguous name has candidates.
    return [name for name in names if name != "code"] + ["candidates"]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)[:_WORDS_MAX]
