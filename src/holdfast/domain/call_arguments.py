"""The arguments of a call, as a model said them: one rule for what the text means.

Text that says nothing is what tools without arguments get, `{}`. Text that is JSON in one way only,
and that a caller could give to `Turn.call` as a value, means that value. Everything else is the text
itself: it was cut off or never JSON, has a key twice, has numbers or depths that JSON can't be
trusted with; or it is a JSON string, which as a value would be taken for text of its own. So what a
tool is handed is what was approved, for either of them is the same call to `Turn.call`.
"""

from typing import Any

from holdfast.domain.message import freeze


def read_arguments(text: str) -> Any:
    """The value of these arguments; the text itself where it has none."""
    value, _ = _read(text)
    return text if isinstance(value, str) else value


def canonical(text: str) -> str:
    """The arguments as we would write them: the same for a text and for the value that it is read
    as, and another one for everything that means something else.
    """
    return _read(text)[1]


def _read(text: str) -> tuple[Any, str]:
    if not text or text.isspace():
        return {}, "{}"
    import json  # not before there is a call: it takes longer to load than this package

    try:
        value = json.loads(text, object_pairs_hook=_unambiguous)
        return value, freeze(value).decode()
    except Exception:
        # Whatever is wrong with it, it is for the tool to say so.
        return text, text


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value
