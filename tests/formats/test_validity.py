"""Whatever a log holds, the context made from it is one its provider accepts (I-9, I-10)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.message import freeze
from holdfast.domain.repair import StoredMessage, may_cut, repair
from holdfast.domain.turn import tool_calls
from holdfast.formats import registry
from holdfast.testing.providers import check
from holdfast.testing.strategies import FORMATS, views
from thorough import examples


def context(format_name, seen, instructions=None):
    form = registry.get(format_name)
    shaped = form.shape(repair(seen, registry.read), used=set(), first=True)
    return form.close([payload for payload, _ in shaped], instructions)


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=examples(200), deadline=None)
def test_any_view_becomes_a_request_its_provider_accepts(target, seen):
    payloads = context(target, seen)
    assert check(target, payloads) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(seen=views(formats=("openai.chat", "anthropic")))
@settings(max_examples=examples(60), deadline=None)
def test_instructions_keep_a_request_valid(target, seen):
    payloads = context(target, seen, "Be brief.")
    if target == "anthropic":
        assert payloads == context(target, seen)
    else:
        assert payloads[0]["role"] == "system"
    assert check(target, payloads) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(seen=views(), data=st.data())
@settings(max_examples=examples(100), deadline=None)
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


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=examples(50), deadline=None)
def test_a_context_names_only_stored_messages(target, seen):
    shaped = registry.get(target).shape(repair(seen, registry.read), used=set(), first=True)
    known = {message.id for message in seen}
    assert all(one in known for _, ids in shaped for one in ids)


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(seen=views())
@settings(max_examples=examples(50), deadline=None)
def test_shaping_twice_gives_equal_requests_and_leaves_the_steps_alone(target, seen):
    steps = repair(seen, registry.read)
    form = registry.get(target)
    first = form.shape(steps, used=set(), first=True)
    assert form.shape(steps, used=set(), first=True) == first
    assert repair(seen, registry.read) == steps


CALLED = {
    "openai.chat": {
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]
    },
    "anthropic": {"content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
    "holdfast": {"parts": [{"type": "call", "id": "c1", "name": "f", "arguments": "{}"}]},
}
"""A call, in the formats in which others than the model can be made to say one. In the fourth a
call is an item of its own, and has no role.
"""
WORDS = {
    "openai.chat": {"content": "Look."},
    "anthropic": {"content": [{"type": "text", "text": "Look."}]},
    "holdfast": {"parts": [{"type": "text", "text": "Look."}]},
}
RESULT = {
    "openai.chat": {"role": "tool", "tool_call_id": "c1", "content": "found"},
    "anthropic": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}],
    },
    "holdfast": {
        "role": "tool",
        "parts": [{"type": "result", "call_id": "c1", "content": "found"}],
    },
}


def said_by(role, source, *, words):
    """A message of this role that makes a call, with words before it or without."""
    payload = {"role": role, **CALLED[source]}
    for key, value in WORDS[source].items() if words else ():
        payload[key] = value + payload[key] if key in payload else value
    return payload


def view_of(source, *payloads):
    form = registry.get(source)
    return [
        StoredMessage(f"m{seq}", seq, 1, form.note(payload), freeze(payload))
        for seq, payload in enumerate(payloads, 1)
    ]


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize(
    ("source", "role"),
    [*((source, role) for source in CALLED for role in ("user", "system")), ("holdfast", "tool")],
)
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("answered", [True, False])
def test_a_call_that_no_assistant_made_is_not_shown_and_its_words_are(
    target, source, role, words, answered
):
    form = registry.get(source)
    seen = view_of(
        source,
        form.say("user", "Hello."),
        form.say("assistant", "Hello!"),
        said_by(role, source, words=words),
        *([RESULT[source]] if answered else []),
        form.say("assistant", "And now?"),
        form.say("user", "Go on."),
    )
    payloads = context(target, seen)
    assert check(target, payloads) == []
    told = freeze(payloads)
    assert b'"c1"' not in told and b"found" not in told
    assert (b"Look." in told) == (words and role != "tool")
    assert tool_calls(seen, running=None) == []
