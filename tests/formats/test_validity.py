"""Whatever a log holds, the context made from it is one its provider accepts (I-9, I-10)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.repair import may_cut, repair
from holdfast.formats import registry
from holdfast.testing.providers import check
from holdfast.testing.strategies import FORMATS, views


def context(format_name, seen, instructions=None):
    form = registry.get(format_name)
    shaped = form.shape(repair(seen, registry.read), used=set(), first=True)
    return form.close([payload for payload, _ in shaped], instructions)


@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=200, deadline=None)
def test_any_view_becomes_a_request_its_provider_accepts(target, seen):
    payloads = context(target, seen)
    assert check(target, payloads) == []


@pytest.mark.parametrize("target", FORMATS)
@given(seen=views(formats=("openai.chat", "anthropic")))
@settings(max_examples=60, deadline=None)
def test_instructions_keep_a_request_valid(target, seen):
    payloads = context(target, seen, "Be brief.")
    if target == "anthropic":
        assert payloads == context(target, seen)
    else:
        assert payloads[0]["role"] == "system"
    assert check(target, payloads) == []


@pytest.mark.parametrize("target", FORMATS)
@given(seen=views(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_shaping_in_pieces_gives_what_shaping_at_once_gives(target, seen, data):
    form = registry.get(target)
    steps = repair(seen, registry.read)
    whole = form.shape(steps, used=set(), first=True)
    cuts = [place for place in range(1, len(steps)) if may_cut(steps[place - 1], steps[place])]
    used: set[str] = set()
    pieces = []
    begun = 0
    chosen = data.draw(st.sets(st.sampled_from(cuts))) if cuts else set()
    for cut in [*sorted(chosen), len(steps)]:
        pieces += form.shape(steps[begun:cut], used=used, first=begun == 0)
        begun = cut
    assert pieces == whole


@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=50, deadline=None)
def test_a_context_names_only_stored_messages(target, seen):
    shaped = registry.get(target).shape(repair(seen, registry.read), used=set(), first=True)
    known = {message.id for message in seen}
    assert all(one in known for _, ids in shaped for one in ids)


@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=50, deadline=None)
def test_shaping_twice_gives_equal_requests_and_leaves_the_steps_alone(target, seen):
    steps = repair(seen, registry.read)
    form = registry.get(target)
    first = form.shape(steps, used=set(), first=True)
    assert form.shape(steps, used=set(), first=True) == first
    assert repair(seen, registry.read) == steps
