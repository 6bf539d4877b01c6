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

# What both engines hold in a column of integers.
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
        # Python refuses to write out a number of some thousand digits.
        if abs(number) >= 10**20:
            return "an integer of more than 20 digits"
        return str(number)
    if issubclass(kind, float):
        return float.__repr__(value)
    if issubclass(kind, str):
        return _kind_of_text(str.__str__(value))
    if kind in (list, tuple, dict, set, frozenset, bytes, bytearray) and not value:
        return f"an empty {kind.__name__}"
    article = "an" if kind.__name__[:1].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}"


def _kind_of_text(text: str) -> str:
    if not text:
        return "an empty string"
    if not text.isprintable() and text.isspace():
        return "white space"
    if not _is_unicode(text):
        return "text with lone surrogates in it"
    if len(text) == 1:
        return "one character"
    return f"text of {len(text):,} characters"


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
    return _text(parameter, "text", value)


def _text(parameter: str, takes: str, value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise refuse(parameter, takes, value)


def name(takes: str = "a name", *, bytes_max: int = NAME_MAX) -> Rule:
    """Text that engines compare, sort and index: not empty, valid Unicode, and short. NUL is a
    letter like others.
    """
    limit = f"{takes}: not empty, at most {bytes_max:,} bytes of Unicode"

    def check(parameter: str, value: Any) -> str:
        text = _text(parameter, takes, value)
        # what names mostly are
        if 0 < len(text) <= _PLAIN_MAX and text.isascii():
            return text
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
        if _is_integer(value):
            number = int.__int__(value)
            # What fits into 64 bits, with a sign or without one.
            if -INTEGER_MAX <= number <= 2 * INTEGER_MAX + 1:
                return str(number)
            raise refuse(parameter, f"{takes} of at most 64 bits", value)
        text = _text(parameter, takes, value)
        if least <= len(text) <= ID_MAX:
            return text
        raise refuse(parameter, limit, text)

    return check


def _is_integer(value: Any) -> bool:
    """An integer, and not True or False, which are integers to Python."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(least: int = 0, most: int = INTEGER_MAX) -> Rule:
    """A whole number in these bounds."""
    end = f"to {most:,}" if most < INTEGER_MAX else "on"
    takes = f"a whole number from {least} {end}"

    def check(parameter: str, value: Any) -> int:
        if _is_integer(value) and least <= (number := int.__int__(value)) <= most:
            return number
        raise refuse(parameter, takes, value)

    return check


def number(unit: str, *, most: float, above: float | None = None) -> Rule:
    """A finite number of seconds, hours or days; from 0, or more than `above`."""
    start = "from 0" if above is None else f"more than {above:g}"
    takes = f"a number of {unit}, {start} and at most {most:,}"

    def check(parameter: str, value: Any) -> float:
        bare: float
        if _is_integer(value):
            bare = int.__int__(value)
        elif isinstance(value, float):
            bare = float.__float__(value)
        else:
            raise refuse(parameter, takes, value)
        # In bounds, which nan is not: no comparison with it is true.
        is_enough = bare >= 0 if above is None else bare > above
        if is_enough and bare <= most:
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
    # The rule has refused it, in its own words.
    except HoldfastError:
        raise
    except Exception as error:
        given = f"{kind_of(value)} that raises {type(error).__name__}"
        raise BadArgument(
            parameter=parameter, takes="a value that can be looked at", given=given
        ) from error
