"""How pieces of something that no format knows grow together: keys of a delta that a provider sends
beyond its API.

Streams bring values in pieces. Words are joined, objects merged key by key, and items of a list
that carry an `index` grow at that index; what names or counts something is replaced by its latest
value.
"""

from typing import Any

# Servers repeat these with every piece, as OpenRouter does in `reasoning_details`:
# joined like words, they would be doubled.
_REPLACED = frozenset({"id", "type", "index", "format", "name", "role"})


def merged(before: Any, piece: Any, key: str = "") -> Any:
    """The value after this piece; neither argument is changed."""
    if isinstance(before, str) and isinstance(piece, str):
        return piece if key in _REPLACED else before + piece
    if isinstance(before, dict) and isinstance(piece, dict):
        grown = {
            name: merged(before.get(name), value, name) for name, value in piece.items()
        }
        return {**before, **grown}
    if isinstance(before, list) and isinstance(piece, list):
        return _merged_items(before, piece)
    # A null adds nothing, and must not erase what came before.
    return before if piece is None else piece


def _merged_items(before: list[Any], piece: list[Any]) -> list[Any]:
    out = list(before)
    for item in piece:
        place = _place_of(item, out)
        if place is None:
            out.append(item)
        else:
            out[place] = merged(out[place], item)
    return out


def _place_of(item: Any, items: list[Any]) -> int | None:
    """Where in the list this item goes on: at its index, or in the text that the list ends with."""
    if not isinstance(item, dict):
        return None
    # An index counts the items of one type: others may have the same.
    if isinstance(item.get("index"), int):
        for place, other in enumerate(items):
            if isinstance(other, dict) and _name(other) == _name(item):
                return place
        return None
    last = items[-1] if items else None
    if not isinstance(last, dict) or not item.keys() == last.keys() == {"type", "text"}:
        return None
    return len(items) - 1 if last["type"] == item["type"] else None


def _name(item: dict[str, Any]) -> tuple[Any, Any]:
    return item.get("index"), item.get("type")
