"""Lists that are recorded in another order, with results of tools among them, by handles that
remember nothing (I-10, I-12): no call and no result is stored twice or lost, wherever it stands.
"""

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
import holdfast.testing
from holdfast.testing.providers import check

Payload = dict[str, Any]


def calling(*ids: str, text: str | None = None, arguments: str = "{}") -> Payload:
    function = {"name": "ls", "arguments": arguments}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def result(id: str) -> Payload:
    return {"role": "tool", "tool_call_id": id, "content": f"output of {id}"}


def user(text: str) -> Payload:
    return {"role": "user", "content": text}


@st.composite
def lists(draw: st.DrawFn) -> list[Payload]:
    """Questions, answers, and calls with their results; no two say the same."""
    found: list[Payload] = []
    for number, kind in enumerate(draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))):
        if kind < 2:
            found.append({"role": ("user", "assistant")[kind], "content": f"m{number}"})
        else:
            ids = [f"c{number}-{place}" for place in range(kind - 1)]
            text = draw(st.sampled_from([None, f"m{number}"]))
            found += [calling(*ids, text=text), *map(result, ids)]
    return found


@st.composite
def orders(draw: st.DrawFn) -> list[list[Payload]]:
    """A list, and what its keeper makes of it: each is the last one in another order, perhaps
    without one message.
    """
    found = [draw(lists())]
    for _ in range(2):
        # Any order as likely as any other: most are far from the one before.
        other = draw(st.randoms(use_true_random=False)).sample(found[-1], len(found[-1]))
        found.append(other[draw(st.integers(0, 1)) :] or other)
    return found


def record_afresh(store: holdfast.Store, messages: list[Payload]) -> list[Payload]:
    """Records a copy of the list by a handle that remembers nothing; what was new in it."""
    session = store.session("k")
    new = set(session.record(copy.deepcopy(messages)).new)
    return [message.payload for message in session.transcript() if message.id in new]


def of_tools(messages: list[Payload]) -> list[Payload]:
    return [each for each in messages if each["role"] == "tool" or "tool_calls" in each]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(orders())
def test_no_call_and_no_result_is_doubled_or_lost_in_another_order(
    versions: list[list[Payload]],
) -> None:
    with holdfast.testing.temporary_store() as store:
        for version in versions:
            record_afresh(store, version)
            assert of_tools(record_afresh(store, version)) == []
            stored = [message.payload for message in store.session("k").transcript()]
            counts = Counter(map(repr, of_tools(stored)))
            assert counts == dict.fromkeys(map(repr, of_tools(versions[0])), 1)
            assert all(message in stored for message in version)
            assert check("openai.chat", list(store.session("k").context())) == []


CALL, RESULT = calling("c1"), result("c1")
OTHERS = [
    # Its call was trimmed, and what is left was reordered.
    [user("u1"), RESULT],
    [RESULT, user("u1")],
    # It stands before its call.
    [RESULT, CALL, user("u1")],
    [RESULT, user("u1"), CALL],
]


@pytest.mark.parametrize("other", OTHERS)
def test_a_result_that_does_not_stand_behind_its_call_is_known(other: list[Payload]) -> None:
    with holdfast.testing.temporary_store() as store:
        assert len(record_afresh(store, [CALL, RESULT, user("u1")])) == 3
        for _ in range(3):
            assert RESULT not in record_afresh(store, other)
        # Behind its call it is shown again.
        back = [CALL, RESULT, user("u1")]
        assert of_tools(record_afresh(store, back)) == []
        assert list(store.session("k").context()) == back


def test_a_call_whose_id_was_used_before_has_an_answer_of_its_own() -> None:
    """Some models number the calls of each turn from 1; the same tool may well say the same."""
    first = [user("u1"), calling("c1"), RESULT]
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, first)
        # The first pair was trimmed.
        later = [user("u1"), user("u2"), calling("c1", arguments='{"again": true}'), RESULT]
        assert record_afresh(store, later[:2]) == [user("u2")]
        assert record_afresh(store, later[:3]) == later[2:3]
        assert record_afresh(store, later) == [RESULT]
        assert record_afresh(store, later) == []
