"""The reference of the public face, written from its signatures and docstrings: `./dev api` writes
docs/api.md.

What is documented is what `holdfast.__all__` names. The words for parameters are in `api_words`.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import holdfast
from tidy.api_words import PARAMETERS

WIDTH = 100
FUNCTIONS = ["open", "open_async", "copy"]
FACES = [
    "Store",
    "Session",
    "Turn",
    "Delivery",
    "Owed",
    "AgentCache",
    "Idle",
    "Daily",
    "Policy",
    "Message",
]
CONSTRUCTED = {"AgentCache", "Idle", "Daily"}
HEAD = """# API reference

Written from the code by `./dev api`; do not edit it by hand. The [guide](guide.md) shows how the calls are used
together.

Every argument is checked before anything is written: a wrong one raises `errors.BadArgument`, which names the parameter
and what it takes. Ids may be given as integers and are kept as text. Times are in milliseconds since 1970, UTC; what
ends in `_s` is a number of seconds. All names below are in `holdfast`: `from holdfast import Store`.
"""


def page() -> str:
    """The whole reference."""
    names = [name for name in holdfast.__all__ if name not in ("errors", "parts", "HoldfastError")]
    classes = [name for name in names if isinstance(getattr(holdfast, name), type)]
    aliases = [name for name in names if name not in classes and name not in FUNCTIONS]
    ours = [name for name in classes if name not in FACES and not is_async(name)]
    sections = [
        HEAD,
        *(f"## {name}\n\n{_function(name, getattr(holdfast, name))}" for name in FUNCTIONS),
        *(_class(name) for name in FACES),
        "## What calls return\n",
        *(_class(name, level=3) for name in ours),
        _asyncio([name for name in classes if is_async(name)]),
        _parts(),
        "## Names of types\n\n"
        + "".join(f"* `{name}`: `{_plain(getattr(holdfast, name))}`\n" for name in aliases),
        _errors(),
    ]
    return "\n".join(sections)


def is_async(name: str) -> bool:
    """Whether this class is met with asyncio alone."""
    return name.startswith("Async") or name in ("OpeningStore", "StartingTurn")


def functions() -> Iterator[tuple[str, Any]]:
    """Every call that the page tells of, by its name."""
    for name in FUNCTIONS:
        yield name, getattr(holdfast, name)
    for name in holdfast.__all__:
        face = getattr(holdfast, name)
        if isinstance(face, type) and not issubclass(face, Exception):
            yield from ((f"{name}.{method}", function) for method, function in _methods(face))
            if name in CONSTRUCTED:
                yield name, face


def parameters(function: Any) -> list[inspect.Parameter]:
    """The parameters that a caller gives."""
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def words(call: str, parameter: str) -> str:
    """What this parameter of this call means; empty when nobody has said it."""
    return PARAMETERS.get(key(call, parameter), "")


def key(call: str, parameter: str) -> str:
    """Where its words are: those for this call alone, or those for every parameter of this name."""
    own = f"{call.removeprefix('Async')}.{parameter}"
    return own if own in PARAMETERS else parameter


def undocumented() -> list[str]:
    """Public classes, methods and properties without a docstring of their own or of a
    base class.
    """
    found = []
    for name in holdfast.__all__:
        face = getattr(holdfast, name)
        if isinstance(face, type):
            found += [name] if not (face.__doc__ or "").strip() else []
            public = [each for each in vars(face) if not each.startswith("_")]
            called = [
                each for each in public if isinstance(vars(face)[each], property | FunctionType)
            ]
            found += [
                f"{name}.{each}" for each in called if not inspect.getdoc(getattr(face, each))
            ]
    return found


def _class(name: str, level: int = 2) -> str:
    face = getattr(holdfast, name)
    title = "#" * level
    text = f"{title} {name}\n\n"
    if name in CONSTRUCTED:
        text += f"```python\n{_signature(name, face)}\n```\n\n"
    text += f"{_doc(face)}\n" + _listed(name, face if name in CONSTRUCTED else None)
    fields = (
        [] if name in CONSTRUCTED else [f"{each}: {_plain(kind)}\n" for each, kind in _fields(face)]
    )
    if fields:
        text += (
            f"\nA `{face.__base__.__name__}` with:\n" if face.__base__ is holdfast.Message else ""
        )
        text += f"\n```python\n{''.join(fields)}```\n"
    for each, value in vars(face).items():
        if isinstance(value, property) and not each.startswith("_"):
            text += f"\n{title}# {name}.{each}\n\n{_doc(value)}\n"
    for each, function in _methods(face):
        text += f"\n{title}# {name}.{each}\n\n{_function(f'{name}.{each}', function)}"
    return text


def _fields(face: type) -> list[tuple[str, Any]]:
    kinds = inspect.get_annotations(face)
    return [(name, kind) for name, kind in kinds.items() if not name.startswith("_")]


def _methods(face: type) -> Iterator[tuple[str, Any]]:
    """Its own public methods. What a list can do, or what a base class explains, is not
    told again.
    """
    for name, function in vars(face).items():
        is_own = (
            isinstance(function, FunctionType) and not name.startswith("_") and function.__doc__
        )
        if is_own and not (issubclass(face, list) and hasattr(list, name)):
            yield name, function


def _function(call: str, function: Any) -> str:
    return f"```python\n{_signature(call, function)}\n```\n\n{_doc(function)}\n{_listed(call, function)}"


def _listed(call: str, function: Any) -> str:
    listed = (
        [f"* `{each.name}`: {words(call, each.name)}\n" for each in parameters(function)]
        if function
        else []
    )
    return "\n" + "".join(listed) if listed else ""


def _signature(call: str, function: Any) -> str:
    said: list[str] = []
    for each in parameters(function):
        if each.kind is each.KEYWORD_ONLY and not any(one.startswith("*") for one in said):
            said.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f" = {_value(each.default)}"
        said.append(f"{stars}{each.name}: {_plain(each.annotation)}{default}")
    back = (
        call
        if isinstance(function, type)
        else _plain(inspect.signature(function).return_annotation)
    )
    name = call.rpartition(".")[2]
    one = f"def {name}({', '.join(said)}) -> {back}: ..."
    return (
        one
        if len(one) <= WIDTH
        else f"def {name}(\n" + "".join(f"    {each},\n" for each in said) + f") -> {back}: ..."
    )


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _plain(kind: Any) -> str:
    """A type by the names that a reader of this page knows it by."""
    if kind is None:
        return "None"
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    text = re.sub(r"(?:\b[a-z_]+\.)+(?=[A-Za-z])", "", text)
    text = re.sub(r"Optional\[(Literal\[.*?\])\]", r"\1 | None", text)
    text = re.sub(r"~(\w)", r"\1", text).replace("NoneType", "None")
    return text.replace("'", '"') if "Literal[" in text else text.replace("'", "").replace('"', "")


def _doc(value: Any) -> str:
    """Its docstring, without what it cites for those who work on it."""
    return re.sub(
        r"\s*\((?:I-\d+|FAULTS [A-Z]\d+)(?:, [A-Z]\S*)*\)",
        "",
        inspect.cleandoc(value.__doc__ or "").strip(),
    )


def _asyncio(names: list[str]) -> str:
    text = (
        "## asyncio\n\n`open_async` gives the same store for asyncio: the same names and "
        "parameters, awaited.\n"
    )
    text += "Iterators are read with `async for`, blocks entered with `async with`.\n\n"
    return text + "".join(
        f"* `{name}`: {' '.join(_doc(getattr(holdfast, name)).split())}\n" for name in names
    )


def _parts() -> str:
    text = f"## parts\n\n{_doc(holdfast.parts)}\n\n"
    for name in holdfast.parts.__all__:
        face = getattr(holdfast.parts, name)
        if isinstance(face, type):
            fields = ", ".join(f"{each}: {_plain(kind)}" for each, kind in _fields(face))
            text += f"* `{name}({fields})`: {_doc(face)}\n"
    return text + f"* `Part`: any of these {len(get_args(holdfast.parts.Part))}\n"


def _errors() -> str:
    text = (
        f"## errors\n\n```\n{_doc(holdfast.errors)}\n```\n\n| error | code | says "
        "|\n|---|---|---|\n"
    )
    left = [holdfast.HoldfastError]
    while left:
        kind = left.pop(0)
        left = [*kind.__subclasses__(), *left]
        text += (
            f"| `{kind.__name__}` | `{kind.code}` | "
            f"{' '.join(_doc(kind).replace('|', chr(92) + '|').split())} |\n"
        )
    return text


if __name__ == "__main__":
    sys.stdout.write(page())
