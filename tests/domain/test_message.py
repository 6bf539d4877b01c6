"""Freezing and thawing: what goes in comes out, whatever Unicode it is; what JSON can't hold is
refused (I-3, I-14).
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.message import DEPTH_MAX, freeze, is_plain, thaw
from holdfast.errors import InvalidMessage

TEXT = st.text(st.characters(codec=None), max_size=20)  # type: ignore[arg-type]
ODD = '\0\x01\x7f\ud800\udbff\udc00\udfff\u2028\ufffe🦀é\\"\n'
ANY_TEXT = st.one_of(TEXT, st.text(st.sampled_from(ODD), max_size=8))
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, ANY_TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)
    ),
    max_leaves=20,
)


def joined(value: Any) -> Any:
    """A high and a low surrogate side by side are one character to every JSON reader."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


@given(value=JSON)
def test_what_was_frozen_comes_back_equal(value: Any) -> None:
    """H7: NUL and lone surrogates too."""
    body = freeze(value)
    assert thaw(body) == joined(value)
    assert json.loads(body) == joined(value), "any JSON reader can read it"
    assert freeze(thaw(body)) == body or thaw(freeze(thaw(body))) == thaw(body)


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "\ud800", "\udcff", "x\udc00\ud800y", "🦀", "\u2028", "\ufeff", ""]
)
def test_any_unicode_passes(text: str) -> None:
    for value in (
        text,
        {"role": "user", "content": text},
        {"content": [{"text": text}]},
        {text or "k": 1},
    ):
        assert thaw(freeze(value)) == value


def test_frozen_bytes_are_compact_and_keep_the_order_of_keys() -> None:
    assert (
        freeze({"role": "user", "content": "hé", "a": 1})
        == '{"role":"user","content":"hé","a":1}'.encode()
    )


def test_a_frozen_payload_no_longer_follows_its_object() -> None:
    """F7."""
    payload = {"content": ["a"]}
    body = freeze(payload)
    payload["content"].append("b")
    assert thaw(body) == {"content": ["a"]}


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"a": float("nan")}, "a"),
        ({"a": [1, {"b": float("inf")}]}, "a[1].b"),
        ({"content": [{"type": "text", "score": -float("inf")}]}, "content[0].score"),
        ([1, 2, float("nan")], "[2]"),
        (float("nan"), "the message"),
        ({"a": {"b": b"bytes"}}, "a.b"),
        ({"a": {1: "x"}}, "a"),
        ({"a": {"s": {1, 2}}}, "a.s"),
        ({"a": object()}, "a"),
    ],
)
def test_what_json_can_not_hold_is_refused_with_its_place(payload: Any, place: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        freeze(payload)
    assert caught.value.place == place
    assert f"`{place}`" in str(caught.value)


def nested(depth: int, innermost: Any = "deep") -> Any:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_bounded_and_what_is_within_the_bound_comes_back() -> None:
    assert thaw(freeze(nested(150))) == nested(150)
    for depth in (300, 5000, 100_000):
        with pytest.raises(InvalidMessage, match="deep"):
            freeze(nested(depth))


@pytest.mark.parametrize("innermost", ["deep", 1.5, None, [], {}, {"a": "b"}])
def test_the_bound_of_nesting_is_the_same_whatever_is_innermost(innermost: Any) -> None:
    most = DEPTH_MAX - 1 if innermost == {"a": "b"} else DEPTH_MAX
    assert thaw(freeze(nested(most, innermost))) == nested(most, innermost)
    with pytest.raises(InvalidMessage, match="deep"):
        freeze(nested(most + 1, innermost))


def test_what_is_known_to_be_plain_at_a_glance_is_what_json_holds() -> None:
    assert is_plain({"a": [1, 2.5, None, True, "x", {"b": {}}], "n": -(2**63)})
    odd = [float("nan"), 2**63, {1: "x"}, (1,), b"x", {1, 2}, object(), Shouted("x")]
    for value in odd:
        for payload in (value, [value], {"a": [value]}):
            assert not is_plain(payload), payload


class Shouted(str):
    """Text of somebody's own class."""


def test_a_payload_that_holds_itself_is_refused() -> None:
    payload: dict[str, Any] = {}
    payload["me"] = payload
    with pytest.raises(InvalidMessage):
        freeze(payload)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30, 1e308, 5e-324, -0.0])
def test_numbers_of_any_size_come_back_or_are_refused(number: Any) -> None:
    try:
        body = freeze({"n": number})
    except InvalidMessage:
        return
    assert thaw(body) == {"n": number}
