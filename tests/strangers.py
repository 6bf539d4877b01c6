"""Values that a program may hand over by mistake, and objects that raise when they are looked at.

`VALUES` are for every place that takes data; `data` is a Hypothesis strategy that nests them.
"""

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Any
from unittest.mock import MagicMock

import msgspec
from hypothesis import strategies as st


class Boom(Exception):
    """What these objects raise."""


def raising(name: str, base: type = object, *given: Any) -> Any:
    """An object of a class of its own whose method of this name raises."""

    def boom(self: Any, *_: Any, **__: Any) -> Any:
        raise Boom(name)

    hashed = {"__hash__": base.__hash__} if name == "__eq__" else {}
    return type(f"Bad{name.strip('_').title()}", (base,), {name: boom, **hashed})(*given)


def _boom(self: Any, *_: Any, **__: Any) -> Any:
    raise Boom


class Loud(str):
    """A string whose every method raises."""

    __str__ = __repr__ = __eq__ = __hash__ = __len__ = __format__ = __contains__ = _boom  # type: ignore[assignment]
    isprintable = isascii = isspace = encode = strip = _boom  # type: ignore[assignment]


class LoudInt(int):
    """A number whose every method raises."""

    __str__ = __repr__ = __eq__ = __hash__ = __bool__ = __int__ = __index__ = __abs__ = _boom  # type: ignore[assignment]
    __lt__ = __gt__ = __le__ = __ge__ = bit_length = _boom  # type: ignore[assignment]


class Plain(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042
    RED = "red"

    def __str__(self) -> str:
        return "another"


class Str(str):
    """Somebody's own string."""


class Int(int):
    """Somebody's own integer."""


class Float(float):
    """Somebody's own number."""


class Dict(dict[str, Any]):
    """Somebody's own dict."""


class Index:
    """An integer as numpy has them: none of Python's, but as good as one."""

    def __index__(self) -> int:
        return 3


class Changing(dict[str, Any]):
    """A dict that tells something else each time."""

    told = 0

    def items(self) -> Any:
        self.told += 1
        return [("role", "user"), ("content", "x" if self.told % 2 else object())]


class Dumped:
    """An SDK object."""

    def model_dump(self, **_: Any) -> Any:
        return {"role": "user", "content": Str("x"), "odd": [Word.RED]}


class DumpsItself:
    def model_dump(self, **_: Any) -> Any:
        return self


class DumpsOtherwise:
    def model_dump(self) -> Any:
        return {}


class Hidden:
    @property
    def __class__(self) -> Any:
        raise Boom


class Elusive:
    def __getattr__(self, name: str) -> Any:
        raise Boom(name)


@dataclasses.dataclass
class Data:
    a: int = 1


class Struct(msgspec.Struct):
    a: int = 1


Point = collections.namedtuple("Point", "x y")


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


_round: list[Any] = []
_round.append(_round)
_round_dict: dict[str, Any] = {}
_round_dict["a"] = _round_dict

KEPT: dict[str, Any] = {
    "true": True,
    "zero": 0,
    "minus one": -1,
    "2**64": 2**64,
    "2**200": 2**200,
    "-2**200": -(2**200),
    "1.5": 1.5,
    "1e308": 1e308,
    "nothing": None,
    "empty": "",
    "blank": " ",
    "NUL": "a\x00b",
    "surrogate": "\ud800",
    "halves": "\ud83d\ude00",
    "long": "x" * 70_000,
    "list": [],
    "dict": {},
    "surrogate inside": {"a": ["\udfff"]},
    "surrogate key": {"\ud800": 1},
    "integers inside": {"a": [2**200, -(2**63), 2**63]},
    "Str": Str("red"),
    "Int": Int(3),
    "Float": Float(2.5),
    "Dict": Dict(a=Str("b")),
    "IntEnum": Number.ONE,
    "StrEnum": Word.RED,
    "(str, Enum)": Mixed.RED,
    "enum key": {Word.RED: Mixed.RED},
    "loud": Loud("loud"),
    "loud int": LoudInt(3),
    "loud inside": {"a": [Loud("x"), LoudInt(3)]},
    "namedtuple": Point(1, Str("y")),
    "tuple": ("a",),
    "OrderedDict": collections.OrderedDict(a=1),
    "defaultdict": collections.defaultdict(list, a=[1]),
    "150 deep": _nested(150),
    "its own items": Changing(role="user", content="x"),
    "SDK object": Dumped(),
    "SDK object inside": {"a": [Dumped()]},
    "bad items": raising("items", dict, {"a": 1}),
    "bad iteration": raising("__iter__", list, [1]),
    "bad get": raising("get", dict, {"role": "user", "content": "x"}),
}
"""Data that can be kept, though some of it is of odd classes."""

REFUSED: dict[str, Any] = {
    "nan": math.nan,
    "infinite": math.inf,
    "nan inside": {"a": [{"b": -math.inf}]},
    "10**5000": 10**5000,
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "bytes inside": {"a": [b"x"]},
    "round list": _round,
    "round dict": _round_dict,
    "5,000 deep": _nested(5000),
    "int key": {1: 2},
    "None key": {None: 1},
    "bytes key": {b"a": 1},
    "huge key": {10**5000: 1},
    "bad key": {raising("__repr__"): 1},
    "repr": raising("__repr__"),
    "eq": raising("__eq__"),
    "hash": raising("__hash__"),
    "str": raising("__str__"),
    "bool": raising("__bool__"),
    "len": raising("__len__"),
    "iter": raising("__iter__"),
    "dir": raising("__dir__"),
    "getattribute": raising("__getattribute__"),
    "repr inside": {"a": [raising("__repr__")]},
    "Enum": Plain.RED,
    "index": Index(),
    "dumps raising": raising("model_dump"),
    "dumps itself": DumpsItself(),
    "dumps otherwise": DumpsOtherwise(),
    "SDK class": Dumped,
    "hidden": Hidden(),
    "elusive": Elusive(),
    "dataclass": Data(),
    "struct": Struct(),
    "mock": MagicMock(),
    "set": {1},
    "frozenset": frozenset({"a"}),
    "date": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "uuid": uuid.UUID(int=5),
    "decimal": decimal.Decimal(1),
    "complex": 1j,
    "type": int,
    "function": len,
    "module": math,
    "exception": ValueError("x"),
    "ellipsis": ...,
    "range": range(3),
    "set inside": {"a": {1}},
    "date inside": {"a": datetime.date(2026, 1, 1)},
    "dataclass inside": {"a": Data()},
    "uuid inside": {"a": uuid.UUID(int=1)},
    "enum inside": {"a": Plain.RED},
}
"""What JSON has no place for."""

VALUES = KEPT | REFUSED

# which Hypothesis can't look at either
_DRAWN = [name for name in REFUSED if name not in ("hidden", "getattribute")]
_KEYS = st.text(max_size=5) | st.just(Word.RED)


def _kept(name: str) -> Any:
    return KEPT[name]


def _refused(name: str) -> Any:
    return REFUSED[name]


data = st.recursive(
    st.sampled_from(list(KEPT)).map(_kept)
    | st.text()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
"""Nested data that can be kept."""

odd_data = st.recursive(
    data | st.sampled_from(_DRAWN).map(_refused),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
"""Nested data of any kind."""


def joined(text: str) -> str:
    """The text with the halves of a character joined, as JSON has them."""
    return str.__str__(text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def as_json(value: Any) -> Any:
    """What is read back of a value that was kept: the same, of JSON's own classes."""
    if isinstance(value, Dumped):
        return {"role": "user", "content": "x", "odd": ["red"]}
    kind = type(value)
    for base, bare in ((str, joined), (bool, bool), (int, int.__int__), (float, float.__float__)):
        if issubclass(kind, base):
            return bare(value)
    if issubclass(kind, dict):
        return {joined(key): as_json(item) for key, item in dict.items(value)}
    if issubclass(kind, list | tuple):
        return [
            as_json(item) for item in (list if issubclass(kind, list) else tuple).__iter__(value)
        ]
    return value
