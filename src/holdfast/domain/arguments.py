"""Arguments: what a parameter takes, as rules (I-25).

A rule is called with the parameter's name and the value that was given. It returns the value to go
on with (an id given as an integer becomes text) or raises `BadArgument`, which says what the
parameter takes and what it was given: the kind of a value, or its size, but never the words of a
caller, which may be long or secret.
"""

from collections.abc import Callable
from typing import Any, Literal

from holdfast.errors import BadArgument, HoldfastError

Rule = Callable[[str, Any], Any]

Checked = Any
"""The type of a parameter behind the border: text by now, where a caller may give an
integer too.
"""

Durability = Literal["power", "process"]
OnBusy = Literal["wait", "interrupt", "refuse"]
State = Literal["open", "running", "ended"]

INTEGER_MAX = (1 << 63) - 1
NAME_MAX = 1024
"""Bytes in a name that is looked up: it has to fit into an index row of every engine."""
ID_MAX = 16_384
_SHOWN_MAX = 40
_PLAIN_MAX = 256


def refuse(parameter: str, takes: str, value: Any) -> BadArgument:
    """The error for this value."""
    return BadArgument(parameter=parameter, takes=takes, given=kind_of(value))


def kind_of(value: Any) -> str:
    """What a value is, without its words. Its class is asked, not the value: what an object of a
    caller's own says about itself may raise.
    """
    kind = type(value)
    if value is None or kind is bool:
        return repr(value)
    if issubclass(kind, int):
        number = int.__int__(value)
        return (
            str(number)
            if -(10**20) < number < 10**20
            else "an integer of more than 20 digits"
        )
    if issubclass(kind, float):
        return float.__repr__(value)
    if issubclass(kind, str):
        return _kind_of_text(str.__str__(value))
    if kind in (list, tuple, dict, set, frozenset, bytes, bytearray) and not value:
        return f"an empty {kind.__name__}"
    return f"{'an' if kind.__name__[:1].lower() in 'aeiou' else 'a'} {kind.__name__}"


def _kind_of_text(text: str) -> str:
    if not text:
        return "an empty string"
    if not text.isprintable() and text.isspace():
        return "white space"
    if not _is_unicode(text):
        return "text with lone surrogates in it"
    return f"text of {len(text):,} characters" if len(text) > 1 else "one character"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def anything(parameter: str, value: Any) -> Any:
    """For what is judged elsewhere: a message by its format, arguments and outcomes of tools when
    they are frozen.
    """
    return value


def text(parameter: str, value: Any) -> str:
    """Words: any string. Lone surrogates and NULs are kept as JSON escapes."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise refuse(parameter, "text", value)


def name(takes: str = "a name", *, bytes_max: int = NAME_MAX) -> Rule:
    """Text that engines compare, sort and index: not empty, valid Unicode, and short. NUL is a
    letter like others.
    """
    limit = f"{takes}: not empty, at most {bytes_max:,} bytes of Unicode"

    def check(parameter: str, value: Any) -> str:
        if type(value) is not str:
            if not isinstance(value, str):
                raise refuse(parameter, takes, value)
            value = str.__str__(value)
        text: str = value
        if 0 < len(text) <= _PLAIN_MAX and text.isascii():
            return text  # what names mostly are
        if not text or not _is_unicode(text) or len(text.encode()) > bytes_max:
            raise refuse(parameter, limit, text)
        return text

    return check


def id(takes: str = "text or an integer", *, least: int = 1) -> Rule:
    """An identity from outside, in any letters. Platforms give integers, too: they are kept as
    their decimal text.
    """
    limit = f"{takes}, {'not empty and ' if least else ''}at most {ID_MAX:,} characters"

    def check(parameter: str, value: Any) -> Any:
        if isinstance(value, str):
            value = value if type(value) is str else str.__str__(value)
            if least <= len(value) <= ID_MAX:
                return value
            raise refuse(parameter, limit, value)
        if isinstance(value, int) and not isinstance(value, bool):
            if -INTEGER_MAX <= (number := int.__int__(value)) <= 2 * INTEGER_MAX + 1:
                return str(number)
            raise refuse(parameter, f"{takes} of at most 64 bits", value)
        raise refuse(parameter, takes, value)

    return check


def whole(least: int = 0, most: int = INTEGER_MAX) -> Rule:
    """A whole number in these bounds."""
    takes = f"a whole number from {least}" + (
        f" to {most:,}" if most < INTEGER_MAX else " on"
    )

    def check(parameter: str, value: Any) -> int:
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and least <= (number := int.__int__(value)) <= most
        ):
            return number
        raise refuse(parameter, takes, value)

    return check


def number(unit: str, *, most: float, above: float | None = None) -> Rule:
    """A finite number of seconds, hours or days; from 0, or more than `above`."""
    takes = f"a number of {unit}, " + (
        f"more than {above:g}" if above is not None else "from 0"
    )
    takes += f" and at most {most:,}"

    def check(parameter: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            bare = (
                int.__int__(value) if isinstance(value, int) else float.__float__(value)
            )
            # which nan is not
            if (bare > above if above is not None else bare >= 0) and bare <= most:
                return bare
        raise refuse(parameter, takes, value)

    return check


def flag(parameter: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one: an approval hangs on it."""
    if value is True or value is False:
        return value
    raise refuse(parameter, "True or False", value)


def choice(*known: str) -> Rule:
    """One of these words."""
    said = [f'"{word}"' for word in known]
    takes = f"{', '.join(said[:-1])} or {said[-1]}"

    def check(parameter: str, value: Any) -> str:
        if isinstance(value, str) and (word := str.__str__(value)) in known:
            return word
        raise BadArgument(parameter=parameter, takes=takes, given=shown(value))

    return check


def shown(value: Any) -> str:
    """A value of a parameter that takes one of a few words: nobody's secret, so its beginning is
    told.
    """
    if not issubclass(type(value), str) or not str.__len__(value):
        return kind_of(value)
    word = str.__str__(value)
    return repr(word[:_SHOWN_MAX]) + ("…" if len(word) > _SHOWN_MAX else "")


def kind(takes: str, *kinds: type, unless: tuple[type, ...] = ()) -> Rule:
    """A value of one of these classes."""

    def check(parameter: str, value: Any) -> Any:
        if isinstance(value, kinds) and not isinstance(value, unless):
            return value
        raise refuse(parameter, takes, value)

    return check


def optional(rule: Rule) -> Rule:
    """None is left as it is: the parameter says what that means."""

    def check(parameter: str, value: Any) -> Any:
        return None if value is None else rule(parameter, value)

    return check


def kept(rule: Rule, parameter: str, value: Any) -> Any:
    """The value as the rule lets it pass. An object of the caller's that raises when it is looked
    at is refused.
    """
    try:
        return rule(parameter, value)
    except HoldfastError:
        raise
    except Exception as error:
        given = f"{kind_of(value)} that raises {type(error).__name__}"
        raise BadArgument(
            parameter=parameter, takes="a value that can be looked at", given=given
        ) from error
