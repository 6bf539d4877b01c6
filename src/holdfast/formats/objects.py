"""SDK objects as plain JSON data: callers hand over what their provider's client gave them."""

from typing import Any

from holdfast.domain.message import DEPTH_MAX, too_deep

_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any, depth: int = 0) -> Any:
    """The value with every SDK object in it dumped as the API said it; plain data comes back as it is."""
    if depth > DEPTH_MAX:
        raise too_deep("the message")
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        for item in value.values():
            if type(item) not in _SCALARS:
                return {key: plain(item, depth + 1) for key, item in value.items()}
        return value
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return value
    data = dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
    if isinstance(data, dict) and "role" in data:
        # Clients fill in `tool_calls: null` and the like, which the same API refuses when the message is sent back.
        return {key: item for key, item in data.items() if item is not None or key == "content"}
    return data


def field(value: Any, name: str) -> Any:
    """A field of a chunk, whether it is a dict or an SDK object; None when it has none."""
    if type(value) is dict:
        return value.get(name)
    return getattr(value, name, None)
