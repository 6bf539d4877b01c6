"""A list that begins with what the view shows, or with what a context gave, was loaded: none of that
is new, whatever a handle remembers and whatever the view shows by now (I-12).
"""

import copy

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.message import Payload
from holdfast.domain.record.grouping import Shown
from holdfast.domain.record.layers import chosen
from holdfast.domain.record.memory import Remembered, held_of
from holdfast.domain.record.reconcile import reconcile

IDS = [f"id{number}" for number in range(6)]


@st.composite
def views(draw: st.DrawFn) -> list[Shown]:
    """Messages in some order, some of them shown as one."""
    order = draw(st.permutations(IDS).map(lambda ids: ids[: draw(st.integers(1, 6))]))
    shown: list[Shown] = []
    while order:
        together = order[: draw(st.integers(1, 3))]
        del order[: len(together)]
        role = draw(st.sampled_from(["user", "assistant"]))
        shown.append(
            (
                {"role": role, "content": "\n\n".join(f"text of {id}" for id in together)},
                tuple(together),
            )
        )
    return shown


def remembered(view: list[Shown], objects: bool) -> list[Remembered]:
    return [
        Remembered(payload if objects else None, copy.deepcopy(payload), refs)
        for payload, refs in view
    ]


@given(shown=views(), before=views(), objects=st.booleans(), more=st.integers(0, 2))
def test_what_the_view_shows_is_never_new(
    shown: list[Shown], before: list[Shown], objects: bool, more: int
) -> None:
    said: list[Payload] = [{"role": "user", "content": f"new {number}"} for number in range(more)]
    presented = [*copy.deepcopy([payload for payload, _ in shown]), *said]
    found = reconcile(presented, shown=shown, remembered=remembered(before, objects))
    assert found.new == said
    assert found.order == [*(ref for _, refs in shown for ref in refs), *range(more)]
    assert found.edits == {}


@given(
    contexts=st.lists(views(), min_size=1, max_size=3),
    shown=views(),
    before=views(),
    objects=st.booleans(),
    which=st.integers(0, 2),
    more=st.integers(0, 2),
)
def test_what_a_context_gave_is_never_new(
    contexts: list[list[Shown]],
    shown: list[Shown],
    before: list[Shown],
    objects: bool,
    which: int,
    more: int,
) -> None:
    loaded = contexts[which % len(contexts)]
    said: list[Payload] = [{"role": "user", "content": f"new {number}"} for number in range(more)]
    presented = [*copy.deepcopy([payload for payload, _ in loaded]), *said]
    held, layers = chosen(
        presented, remembered(before, objects), [held_of(view) for view in contexts]
    )
    found = reconcile(presented, shown=shown, remembered=held, layers=layers)
    assert found.new == said
    assert found.order == [*(ref for _, refs in loaded for ref in refs), *range(more)]


@given(gave=views(), shown=views(), before=views(), first=st.integers(0, 5))
def test_what_a_context_gave_is_not_new_in_a_list_without_its_head(
    gave: list[Shown], shown: list[Shown], before: list[Shown], first: int
) -> None:
    said: Payload = {"role": "user", "content": "new"}
    left = gave[first % len(gave) :]
    presented = [*copy.deepcopy([payload for payload, _ in left]), said]
    held, layers = chosen(presented, remembered(before, False), [held_of(gave)])
    known = {id: {"role": "user", "content": f"text of {id}"} for id in IDS}
    found = reconcile(presented, shown=shown, remembered=held, layers=layers, known=known)
    assert found.new == [said]
    assert found.order == [*(ref for _, refs in left for ref in refs), 0]
