"""SDK objects as plain JSON data: callers hand over what their provider's client gave them."""

from typing import Any

from holdfast.domain.arguments import kind_of
from holdfast.domain.message import DEPTH_MAX, exact, too_deep
from holdfast.errors import HoldfastError, InvalidMessage

_SCALARS = frozenset({str, int, float, bool, type(None)})
_TEXT = frozenset({str})


def plain(value: Any) -> Any:
    """The value with every SDK object in it dumped as the API said it, and everything else of
    exactly JSON's types; what is of those comes back as it is. An object that is neither is left to
    be refused when it is frozen; one that can't even be looked at is refused here.
    """
    try:
        return value if is_flat(value) else _plain(value, 0)
    except HoldfastError:
        raise
    except Exception as error:
        # Raised by code of the caller's, or because another thread changes the value.
        problem = (
            f"{kind_of(value)} can't be read: {type(error).__name__} was raised in it"
        )
        raise InvalidMessage(problem=problem, place="the message") from error


def is_flat(value: Any) -> bool:
    """Whether this is a dict of nothing but JSON's own scalars, as most messages are: there is
    nothing to look into.
    """
    # Exact types only: a subclass of the caller's own may answer anything, or raise.
    return (
        type(value) is dict
        and _SCALARS.issuperset(map(type, value.values()))
        and _TEXT.issuperset(map(type, value))
    )


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if depth > DEPTH_MAX:
        raise too_deep("")
    if issubclass(kind, dict):
        return _dict(value, kind, depth)
    if issubclass(kind, list | tuple):
        items = list if issubclass(kind, list) else tuple
        # The base class is asked: a subclass may have an iterator of its own.
        out = [_plain(item, depth + 1) for item in items.__iter__(value)]
        return value if kind is list and _is_same(out, value) else out
    if issubclass(kind, str | int | float):
        return exact(value)
    return _dumped(value, kind)


def _dumped(value: Any, kind: type) -> Any:
    """An SDK's object as the API said it; what is none comes back as it is."""
    # A class has the method as well, and nothing to dump.
    dump = None if issubclass(kind, type) else getattr(value, "model_dump", None)
    if dump is None:
        return value
    data = exact(dump(mode="json", exclude_unset=True, by_alias=True, warnings=False))
    if isinstance(data, dict) and "role" in data:
        # Clients fill in `tool_calls: null` and the like, which the same API refuses when the
        # message is sent back.
        return {
            key: item
            for key, item in data.items()
            if item is not None or key == "content"
        }
    return data


def _dict(value: dict[Any, Any], kind: type, depth: int) -> dict[Any, Any]:
    changed = {}
    is_exact = kind is dict
    for key, item in dict.items(value):
        if type(key) is not str:
            is_exact = False
        if type(item) not in _SCALARS:
            other = _plain(item, depth + 1)
            if other is not item:
                changed[key] = other
    if is_exact:
        return {**value, **changed} if changed else value
    return {
        exact(key) if isinstance(key, str) else key: changed.get(key, item)
        for key, item in dict.items(value)
    }


def _is_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(_is, one, other))


def _is(one: Any, other: Any) -> bool:
    return one is other


def field(value: Any, name: str) -> Any:
    """A field of a chunk, whether it is a dict or an SDK object; None when it has none."""
    if type(value) is dict:
        return value.get(name)
    return getattr(value, name, None)
