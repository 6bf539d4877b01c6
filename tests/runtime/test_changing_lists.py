"""A list or a message that another thread changes during the call that stores it: it is stored as it
was at some moment, or refused with one of our errors (FAULTS F7).

The other thread is played by the interpreter: at the n-th line that runs of the call, the message has
one key more.
"""

import copy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import Session, Store
from holdfast.errors import InvalidMessage
from thorough import few_cases

USER = {"role": "user", "content": [{"type": "text", "text": "Hi", "a": {"b": [1]}}]}


def growing(value: Any) -> None:
    """One key more in each object in here."""
    if isinstance(value, dict):
        for each in list(value.values()):
            growing(each)
        value[f"k{len(value)}"] = "late"
    elif isinstance(value, list):
        for each in list(value):
            growing(each)


def at_line(number: int, change: Callable[[], None], work: Callable[[], Any]) -> bool:
    """Does the work, and the change when so many lines of it have run; whether it came to that."""
    left = number

    def traced(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if "/holdfast/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                change()
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return left <= 0


@few_cases(every=3)
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("how", ["record", "append", "accept", "add", "label"])
def test_what_changes_while_it_is_stored_is_stored_or_refused(
    store: Store, session: Session, how: str, flat: bool
) -> None:
    first = session.append("first")
    ways: dict[str, Callable[[Any], Any]] = {
        "record": lambda given: session.record([{"role": "user", "content": "first"}, given]),
        "append": session.append,
        "accept": partial(store.accept, "other"),
        "add": partial(_added, session),
        "label": lambda given: session.label(first, about=given),
    }
    lines = 0
    done = True
    while done:
        lines += 7
        message = copy.deepcopy({"role": "user", "content": "Hi"} if flat else USER)
        try:
            done = at_line(lines, partial(growing, message), partial(ways[how], message))
        except InvalidMessage as error:
            assert "another thread" in str(error) or "RuntimeError" in str(error)
    assert lines > 7
    assert len(list(session.transcript())) and session.context("anthropic")
    assert store.check() == []


def _added(session: Session, message: Any) -> None:
    with session.turn("q", on_busy="refuse") as turn:
        turn.add(message)
