"""Repair's rules, one law each. Views are built from Chat Completions payloads; formats have tests
of their own.
"""

import msgspec
import pytest

from holdfast.domain.message import Call, Result, Text, Thinking, freeze
from holdfast.domain.repair import (
    INTERRUPTED,
    RUNNING,
    WAITING,
    StoredMessage,
    beside_their_calls,
    ids_of,
    may_cut,
    repair,
)
from holdfast.formats import registry


def user(text="Hi."):
    return {"role": "user", "content": text}


def says(text="Yes.", *calls):
    payload = {"role": "assistant", "content": text or None}
    if calls:
        payload["tool_calls"] = [
            {"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for one in calls
        ]
    return payload


def result(call_id, content="found"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def view(*payloads, turn=1, format_name="openai.chat", **facts):
    form = registry.get(format_name)
    return [
        StoredMessage(f"m{seq}", seq, turn, form.note(payload), freeze(payload), **facts)
        for seq, payload in enumerate(payloads, 1)
    ]


def at(seen, *turns):
    return [
        msgspec.structs.replace(message, turn=turn)
        for message, turn in zip(seen, turns, strict=True)
    ]


def as_partial(message):
    return msgspec.structs.replace(
        message, note=msgspec.structs.replace(message.note, partial=True, plain=False)
    )


def story(seen):
    """Steps as short words: roles, call ids, and what each result says."""
    out = []
    for step in repair(seen, registry.read):
        pieces = step.pieces or registry.read(step.source.note.format, step.source.body)
        parts = [piece.part for piece in pieces]
        calls = [part.id for part in parts if isinstance(part, Call)]
        results = [f"{part.call_id}={part.content}" for part in parts if isinstance(part, Result)]
        texts = [part.text for part in parts if isinstance(part, Text) and part.text]
        out.append((step.role, *texts, *calls, *results))
    return out


def test_plain_messages_pass_unread():
    def unreadable(name, body):
        raise AssertionError("read")

    seen = view(user(), says(), user("More."))
    assert [step.source for step in repair(seen, unreadable)] == seen


def test_whole_calls_with_their_results_pass_unread():
    def unreadable(name, body):
        raise AssertionError("read")

    seen = view(user(), says("", "a", "b"), result("a"), result("b"), says())
    assert [step.source for step in repair(seen, unreadable)] == seen


def test_a_call_without_a_result_is_shown_as_interrupted():
    assert story(view(user(), says("", "a"))) == [
        ("user", "Hi."),
        ("assistant", "a"),
        ("tool", f"a={INTERRUPTED}"),
    ]


def test_a_call_of_a_running_turn_is_shown_as_running():
    assert story(view(says("", "a"), running=True))[-1] == ("tool", f"a={RUNNING}")


def test_a_call_that_waits_for_approval_is_shown_as_waiting():
    seen = view(says("", "a", "b"), running=True, waiting=("b",))
    assert story(seen)[1:] == [("tool", f"a={RUNNING}"), ("tool", f"b={WAITING}")]


def test_a_made_result_is_an_error_and_shows_no_stored_message():
    made = repair(view(says("", "a")), registry.read)[1]
    assert made.pieces[0].part.error
    assert made.source is None and made.shows == ()


def test_a_result_without_a_call_is_left_out():
    assert story(view(user(), result("gone"), says())) == [("user", "Hi."), ("assistant", "Yes.")]


def test_the_first_of_two_results_stands():
    seen = view(says("", "a"), result("a", "one"), result("a", "two"))
    assert story(seen) == [("assistant", "a"), ("tool", "a=one")]


def test_a_second_result_does_not_answer_a_later_call_of_the_same_id():
    seen = view(says("", "a"), result("a", "one"), result("a", "two"), says("", "a"))
    assert story(seen)[-1] == ("tool", f"a={INTERRUPTED}")


def test_results_move_next_to_their_calls_in_call_order():
    seen = view(says("", "a", "b"), user("Wait!"), result("b"), result("a"))
    assert story(seen) == [
        ("assistant", "a", "b"),
        ("tool", "a=found"),
        ("tool", "b=found"),
        ("user", "Wait!"),
    ]


def test_fifty_calls_of_one_id_make_fifty_pairs():
    payloads = [
        message for n in range(50) for message in (says("", "call_0"), result("call_0", str(n)))
    ]
    results = [step[1] for step in story(view(*payloads)) if step[0] == "tool"]
    assert results == [f"call_0={n}" for n in range(50)]


def test_one_message_may_use_an_id_twice():
    seen = view(says("", "x", "x"), result("x", "one"), result("x", "two"))
    assert story(seen)[1:] == [("tool", "x=one"), ("tool", "x=two")]


def test_a_late_result_goes_to_the_call_of_its_own_turn():
    seen = at(view(says("", "x"), says("", "x"), result("x", "late")), 1, 2, 1)
    assert story(seen) == [
        ("assistant", "x"),
        ("tool", "x=late"),
        ("assistant", "x"),
        ("tool", f"x={INTERRUPTED}"),
    ]


def test_a_result_outside_a_turn_takes_the_latest_open_call():
    seen = at(view(says("", "x"), says("", "x"), result("x", "one")), 1, 2, None)
    assert story(seen)[-1] == ("tool", "x=one")


def test_a_result_stored_ahead_of_its_call_is_found_in_its_turn():
    assert story(view(result("a"), says("", "a"))) == [("assistant", "a"), ("tool", "a=found")]


def test_a_result_of_another_turn_is_not_taken_ahead_of_its_call():
    seen = at(view(result("a"), says("", "a")), 1, 2)
    assert story(seen)[-1] == ("tool", f"a={INTERRUPTED}")


def test_calls_stored_one_by_one_before_their_results_stand_together():
    seen = view(says("", "a"), says("", "b"), result("a"), result("b"))
    assert story(seen) == [
        ("assistant", "a"),
        ("assistant", "b"),
        ("tool", "a=found"),
        ("tool", "b=found"),
    ]


def test_calls_made_one_after_another_stay_in_sequence():
    seen = view(says("", "a"), result("a"), says("", "b"), result("b"))
    assert [step[0] for step in story(seen)] == ["assistant", "tool", "assistant", "tool"]


def test_text_after_an_open_call_comes_after_its_result():
    seen = view(says("", "a"), says("Done."), result("a"))
    assert story(seen) == [("assistant", "a"), ("tool", "a=found"), ("assistant", "Done.")]


@pytest.mark.parametrize("blank", ["", " \n", None, [], [{"type": "text", "text": " "}]])
def test_blank_messages_are_not_shown(blank):
    seen = view(
        user("Hi."), {"role": "assistant", "content": blank}, {"role": "user", "content": blank}
    )
    assert story(seen) == [("user", "Hi.")]


def test_a_partial_message_keeps_its_words_as_they_are():
    seen = [as_partial(view(says("Half a sen"))[0])]
    assert story(seen) == [("assistant", "Half a sen")]


def test_a_partial_message_keeps_only_calls_that_were_finished_and_answered():
    payload = says("Looking.", "a", "b", "c")
    payload["tool_calls"][2]["function"]["arguments"] = '{"pla'
    seen = view(payload, result("b"), result("c"))
    seen[0] = as_partial(seen[0])
    assert story(seen) == [("assistant", "Looking.", "b"), ("tool", "b=found")]


def test_a_partial_message_of_which_nothing_is_left_is_not_shown():
    seen = view(user(), says("", "a"))
    seen[1] = as_partial(seen[1])
    assert story(seen) == [("user", "Hi.")]


def test_several_results_in_one_message_become_one_step_each():
    blocks = [{"type": "tool_result", "tool_use_id": one, "content": one.upper()} for one in "ba"]
    call = [{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in "ab"]
    seen = view(
        {"role": "assistant", "content": call},
        {"role": "user", "content": [*blocks, {"type": "text", "text": "And?"}]},
        format_name="anthropic",
    )
    assert story(seen) == [
        ("assistant", "a", "b"),
        ("tool", "a=A"),
        ("tool", "b=B"),
        ("user", "And?"),
    ]
    assert [step.shows for step in repair(seen, registry.read)[1:]] == [("m2",)] * 3


def test_reasoning_alone_is_shown_only_with_what_it_led_to():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    kept = view(reasoning, call, format_name="openai.responses")
    assert [step.source for step in repair(kept, registry.read)[:2]] == kept
    cut = view(reasoning, {"role": "user", "content": "Hi."}, format_name="openai.responses")
    assert [step.source for step in repair(cut, registry.read)] == cut[1:]


def test_a_cut_may_fall_between_an_answer_and_the_next_question_only():
    steps = repair(view(user(), says("", "a"), result("a"), user(), says(), user()), registry.read)
    assert [place for place in range(1, len(steps)) if may_cut(steps[place - 1], steps[place])] == [
        5
    ]


def test_a_user_message_that_only_thinks_shows_nothing():
    payload = {"role": "user", "parts": [{"type": "thinking", "text": "Hm.", "signed": True}]}
    note = registry.get("holdfast").note(payload)
    seen = [StoredMessage("a", 1, None, note, freeze(payload))]
    assert repair(seen, registry.read) == []


def test_a_partial_message_does_not_show_thinking_that_was_never_signed():
    """I-14: what a provider has not signed it does not take back, and half of it least of all."""
    thoughts = [{"type": "thinking", "text": "Hm.", "signed": signed} for signed in (True, False)]
    payload = {"role": "assistant", "parts": [*thoughts, {"type": "text", "text": "Half a sen"}]}
    [message] = view(payload, format_name="holdfast")
    [step] = repair([as_partial(message)], registry.read)
    assert [piece.part for piece in step.pieces] == [
        Thinking("Hm.", signed=True),
        Text("Half a sen"),
    ]


@pytest.mark.parametrize(
    "payloads",
    [
        [user(), says("", "a"), says("Wait."), result("a"), user("Well?")],
        [says("", "a", "b"), says("Wait."), result("b"), result("a")],
        [says("", "a"), says("", "b"), says("Wait."), result("b"), result("a")],
        [says("", "a"), result("a"), says("", "b"), user(), result("b")],
        [says("", "a"), user(), says("", "a"), user(), result("a"), result("a")],
        [result("a"), says("", "a"), says("Wait.")],
    ],
)
def test_results_stand_beside_their_calls_as_a_context_shows_them(payloads):
    """The order in which what was ever said is laid beside a list (I-12)."""
    seen = view(*payloads)
    steps = [step for step in repair(seen, registry.read) if step.source]
    assert beside_their_calls(seen) == [step.source for step in steps]


def test_what_answers_several_calls_or_none_stands_once_and_nothing_is_left_out():
    seen = view(result("x"), says("", "a"), says("Wait."), says("", "b"), result("a"), user())
    assert ids_of(beside_their_calls(seen)) == ["m1", "m2", "m5", "m3", "m4", "m6"]
    parts = [{"type": "result", "call_id": one, "content": "found"} for one in "ab"]
    [both] = view({"role": "tool", "parts": parts}, format_name="holdfast")
    seen = [*view(user(), says("", "a", "b"), says("Wait.")), both]
    assert beside_their_calls(seen) == [seen[0], seen[1], both, seen[2]]
