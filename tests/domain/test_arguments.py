"""Rules of arguments: what merely counts as something else is not taken for it (I-25)."""

import math

import pytest

from holdfast.domain.arguments import flag, id, number, whole
from holdfast.errors import BadArgument


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_a_whole_number_is_one_and_nothing_that_counts_as_one(value: object) -> None:
    assert whole()("limit", 1) == 1
    with pytest.raises(BadArgument):
        whole()("limit", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 0, True, "5"])
def test_seconds_are_finite_and_more_than_none(value: object) -> None:
    rule = number("seconds", above=0, most=100)
    assert rule("lease_s", 0.5) == 0.5
    with pytest.raises(BadArgument):
        rule("lease_s", value)


@pytest.mark.parametrize("value", [1, 0, "yes", "no", [], None])
def test_yes_is_true_and_nothing_else(value: object) -> None:
    """An approval hangs on it."""
    assert flag("approved", True) is True
    with pytest.raises(BadArgument):
        flag("approved", value)


def test_an_id_that_a_platform_gave_as_a_number_is_text_from_then_on() -> None:
    assert id()("event_id", 42) == "42"
    with pytest.raises(BadArgument):
        id()("event_id", True)
