"""A list that goes on from all that is known is taken in one step, and what comes of it is what
walking gives.
"""

import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.domain.record import reconcile as module
from holdfast.domain.record.grouping import Shown
from holdfast.domain.record.memory import Remembered
from holdfast.domain.record.reconcile import Reconciled

WORDS = st.sampled_from(["yes", "no", "", "yes"])
REFS = st.sampled_from([("a",), ("b",), ("b", "c"), ()])


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[Any], list[Remembered], list[Shown], set[str]]:
    """What a caller presents, what its handle remembers and what the view shows: mostly
    the same.
    """
    refs = draw(st.lists(REFS, max_size=4))
    objects = [{"role": "user", "content": draw(WORDS)} for _ in refs]
    held = [
        Remembered(draw(st.sampled_from([one, one, None])), dict(one), ids)
        for one, ids in zip(objects, refs, strict=True)
    ]
    shown: list[Shown] = [(dict(one), ids) for one, ids in zip(objects, refs, strict=True)]
    body = draw(
        st.sampled_from([objects, objects, copy.deepcopy(objects), objects[::-1], objects[:1]])
    )
    body = [*body, *draw(st.sampled_from([[], [{"role": "user", "content": "new"}], objects[:1]]))]
    if shown and draw(st.booleans()):
        shown[draw(st.integers(0, len(shown) - 1))] = (
            {"role": "user", "content": draw(WORDS)},
            draw(REFS),
        )
    return body, held, shown, draw(st.sampled_from([set(), {"a"}]))


@given(lists())
def test_what_is_taken_in_one_step_is_what_walking_takes(
    given: tuple[list[Any], list[Remembered], list[Shown], set[str]],
) -> None:
    body, held, shown, spent = given
    # as its caller has seen
    assume(held and body[: len(held)] == [entry.snapshot for entry in held])
    strode, walked = (Reconciled(None, [], [], {}, []) for _ in range(2))
    count = module._stride(strode, body, held, shown, spent)
    far = module._walk(walked, body, held, module.Wordings(shown, {}, {}), spent)
    assert count in (0, far)
    if count:
        assert (strode.order, strode.edits) == (walked.order, walked.edits)
        assert [(id(one.object), one.snapshot, one.refs) for one in strode.anchors] == [
            (id(one.object), one.snapshot, one.refs) for one in walked.anchors
        ]
    else:
        assert strode == Reconciled(None, [], [], {}, [])


def test_a_list_and_a_copy_of_it_are_both_taken_in_one_step() -> None:
    messages = [{"role": "user", "content": f"m{n}"} for n in range(3)]
    held = [Remembered(one, dict(one), (str(n),)) for n, one in enumerate(messages)]
    shown: list[Shown] = [(dict(one), (str(n),)) for n, one in enumerate(messages)]
    for body in (messages, copy.deepcopy(messages)):
        result = Reconciled(None, [], [], {}, [])
        assert (
            module._stride(result, [*body, {"role": "user", "content": "new"}], held, shown, ())
            == 3
        )
        assert result.order == ["0", "1", "2"]


def test_what_is_remembered_of_a_list_is_what_the_view_shows_and_only_the_rest_is_made_again() -> (
    None
):
    messages = [{"role": "user", "content": f"m{n}"} for n in range(3)]
    shown: list[Shown] = [(dict(one), (str(n),)) for n, one in enumerate(messages)]
    known = Remembered(messages[0], *shown[0])
    held = [
        known,
        *(Remembered(one, dict(one), (str(n),)) for n, one in enumerate(messages[1:], 1)),
    ]
    result = Reconciled(None, [], [], {}, [])
    module._stride(result, messages, held, shown, ())
    assert result.anchors[0] is known
    assert [id(one.snapshot) for one in result.anchors] == [id(words) for words, _ in shown]
    assert [id(one.object) for one in result.anchors] == list(map(id, messages))
