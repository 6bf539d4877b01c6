"""Lists that are recorded in another order, with results of tools among them, by handles that
remember nothing (I-10, I-12): no call and no result is stored twice or lost, wherever it stands, and
a list that is recorded again as it is stores nothing.
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


def record_afresh(
    store: holdfast.Store, messages: list[Payload], *, looks: bool = False
) -> list[Payload]:
    """Records a copy of the list by a handle that remembers nothing; what was new in it. `looks`: the
    handle loads the context before.
    """
    session = store.session("k")
    if looks:
        session.context()
    new = set(session.record(copy.deepcopy(messages)).new)
    return [message.payload for message in session.transcript() if message.id in new]


def of_tools(messages: list[Payload]) -> list[Payload]:
    return [each for each in messages if each["role"] == "tool" or "tool_calls" in each]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(orders(), st.booleans())
def test_nothing_is_lost_in_another_order_and_nothing_doubled_by_recording_it_again(
    versions: list[list[Payload]], looks: bool
) -> None:
    with holdfast.testing.temporary_store() as store:
        for number, version in enumerate(versions, 1):
            record_afresh(store, version)
            for _ in range(2):
                assert record_afresh(store, version, looks=looks) == []
            stored = [message.payload for message in store.session("k").transcript()]
            counts = Counter(map(repr, of_tools(stored)))
            assert counts == dict.fromkeys(map(repr, of_tools(versions[0])), 1)
            # A text that an order has moved behind all others may have been said again: once for each.
            assert max(Counter(map(repr, stored)).values()) <= number
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


def test_a_list_that_was_reordered_twice_stores_nothing_when_it_is_recorded_again() -> None:
    u0, u1, call, r0, r1 = user("u0"), user("u1"), calling("c0", "c1"), result("c0"), result("c1")
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, [u0, u1, call, r0, r1])
        # Behind all that is known it is said again: the first one is in the view no more.
        assert record_afresh(store, [u0, call, r0, r1, u1]) == [u1]
        for _ in range(3):
            assert record_afresh(store, [u0, r0, call, u1, r1]) == []
        longer = [u0, r0, call, u1, r1, user("u2")]
        assert record_afresh(store, longer) == [user("u2")]
        assert record_afresh(store, longer) == []


def test_a_list_without_what_its_view_has_kept_stores_nothing_when_it_is_recorded_again() -> None:
    said, call = {"role": "assistant", "content": "m0"}, calling("c0", "c1", "c2")
    r0, r1, r2 = map(result, ("c0", "c1", "c2"))
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, [said, call, r0, r1, r2])
        record_afresh(store, [r0, r1, r2, call, said])
        # Before its call no context had shown it, so nobody can have dropped it.
        other = [r2, call, said, r0]
        record_afresh(store, other)
        for _ in range(2):
            assert record_afresh(store, other) == []


@pytest.mark.parametrize("other", OTHERS)
def test_a_handle_that_has_looked_knows_what_no_context_shows(other: list[Payload]) -> None:
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, [CALL, RESULT, user("u1")])
        record_afresh(store, other)
        assert record_afresh(store, other, looks=True) == []


def test_a_list_from_before_a_cut_is_not_taken_for_the_end_of_it() -> None:
    """It begins with the words of what is left, and goes on with what was said before that."""
    yes, fine = user("yes"), {"role": "assistant", "content": "fine"}
    older = [yes, fine, user("more"), fine, yes]
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, older)
        record_afresh(store, [fine, yes])
        assert record_afresh(store, older) == []
        assert list(store.session("k").context()) == older


def test_a_result_that_was_trimmed_with_its_call_is_known_behind_what_was_left() -> None:
    with holdfast.testing.temporary_store() as store:
        record_afresh(store, [CALL, RESULT, user("u1")])
        record_afresh(store, [user("u1")])
        assert record_afresh(store, [user("u1"), RESULT]) == []


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
