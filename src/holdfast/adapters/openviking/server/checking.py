"""Checks of what a client sends, with the sentences that OpenViking has for what is wrong."""

from collections.abc import Collection, Mapping
from typing import Any

from holdfast.adapters.openviking.server.problem import RequestProblem
from holdfast.adapters.openviking.server.sessions.archive import Json

Where = tuple[str, ...]
"""The place of a value in a request, from its outermost part on."""
TRUE, FALSE = (
    ("true", "1", "yes", "on", "t", "y"),
    ("false", "0", "no", "off", "f", "n"),
)


def wrong(where: Where, message: str, kind: str) -> RequestProblem:
    """A value that can't be taken."""
    detail = {"loc": list(where), "message": message, "type": kind}
    words = f"Invalid request parameters: {'.'.join(where)}: {message}"
    return RequestProblem(
        "INVALID_ARGUMENT",
        words,
        {"validation_errors": [detail]},
    )


def an_object(value: Any, where: Where, only: Collection[str] | None = None) -> Json:
    """An object; with `only`, it may have no other fields."""
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise wrong(where, message, "model_attributes_type")
    if only is None:
        # A newer client may say more than this release knows: that is no mistake.
        return value
    for name in value:
        if name not in only:
            message = "Extra inputs are not permitted"
            raise wrong((*where, name), message, "extra_forbidden")
    return value


def a_text(value: Any, where: Where) -> str:
    if not isinstance(value, str):
        raise wrong(
            where,
            "Input should be a valid string",
            "string_type",
        )
    return value


def a_text_or_none(body: Json, name: str, where: Where) -> str | None:
    value = body.get(name)
    return None if value is None else a_text(value, (*where, name))


def a_list(value: Any, where: Where) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(
            where,
            "Input should be a valid list",
            "list_type",
        )
    return value


def one_of(value: Any, names: Collection[str], where: Where) -> str | None:
    """One of these names, or nothing."""
    if value is None:
        return None
    # In the words of OpenViking's own checks, which clients may show.
    if value not in names:
        quoted = [f"'{name}'" for name in names]
        listed = quoted[0]
        if len(quoted) > 1:
            listed = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
        raise wrong(
            where,
            f"Input should be {listed}",
            "literal_error",
        )
    return str(value)


def a_bool(value: Any, where: Where) -> bool:
    """True or false; in a query, as a word."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in (*TRUE, *FALSE):
        message = "Input should be a valid boolean, unable to interpret input"
        raise wrong(where, message, "bool_parsing")
    return word in TRUE


def a_count(
    value: Any, where: Where, *, least: int | None = 0, most: int | None = None
) -> int:
    """A whole number; in a query, as digits."""
    number = _whole(value, where)
    if least is not None and number < least:
        message = f"Input should be greater than or equal to {least}"
        raise wrong(where, message, "greater_than_equal")
    if most is not None and number > most:
        message = f"Input should be less than or equal to {most}"
        raise wrong(where, message, "less_than_equal")
    return number


def _whole(value: Any, where: Where) -> int:
    # In Python, true and false are numbers; in JSON they are not.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # `int` takes more than people mean: spaces, underscores, digits of any script, a thousand of
    # them.
    if isinstance(value, str) and len(value) < 20:
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit():
            return int(value)
    message = "Input should be a valid integer, unable to parse string as an integer"
    raise wrong(where, message, "int_parsing")


def asked_count(
    query: Mapping[str, str], name: str, default: int, *, least: int | None = 0
) -> int:
    """A number in a query."""
    if name not in query:
        return default
    return a_count(query[name], ("query", name), least=least)


def asked_bool(query: Mapping[str, str], name: str, default: bool) -> bool:
    """A word for true or false in a query."""
    return a_bool(query[name], ("query", name)) if name in query else default
