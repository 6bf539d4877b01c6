"""Arguments of calls as a model may say them: one rule for what they mean, wherever they are read
(I-22, I-25).
"""

import json

import pytest

import holdfast
from holdfast.domain.approval import digests_of, judge_call, read_arguments
from holdfast.domain.message import DEPTH_MAX
from holdfast.domain.turn import Ask
from holdfast.exporters.export import FORMATS as EXPORTED
from holdfast.exporters.export import export
from holdfast.formats import registry
from holdfast.parts import Call
from holdfast.testing.providers import check
from thorough import few_cases


def deep(levels):
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


AS_SAID = [
    "not json",
    " cut {",
    '{"a":NaN}',
    '{"a":Infinity}',
    "1e400",
    '{"x":1e999}',
    '{"a":%s}' % ("1" * 1300),
    '{"a":%s}' % ("1" * 5000),
    '{"a":1,"a":2}',
    '"x"',
    '"{}"',
    deep(DEPTH_MAX + 2),
    deep(300),
    deep(900),
    deep(5000),
]
READ = {
    "": {},
    " \n\t": {},
    "{}": {},
    ' { "a" : 1.0 } ': {"a": 1.0},
    '{"a":"\\ud800"}': {"a": "\ud800"},
    '{"b":1,"a":[null,true]}': {"b": 1, "a": [None, True]},
    "null": None,
    "5": 5,
    deep(DEPTH_MAX + 1): json.loads(deep(DEPTH_MAX + 1)),
}
TEXTS = [*AS_SAID, *READ]
FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


def made(text):
    function = {"name": "pay", "arguments": text}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def spoken(text):
    """The same from Anthropic, in a stream, where the message holds the value."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    block = {"type": "tool_use", "id": "c1", "name": "pay", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": text}
    return [
        {
            "type": "message_start",
            "message": {"id": "m", "type": "message", "role": "assistant", "model": "c"}
            | {"content": [], "stop_reason": None, "usage": usage},
        },
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]


def run(turn):
    """The loop of the guide."""
    given = []
    for call in turn.calls():
        turn.call(call.name, call.arguments, call_id=call.call_id)
        turn.result(call.call_id, "done")
        given.append(call.arguments)
    return given


def short(text):
    return f"{text[:12]}-{len(text)}"


@pytest.fixture
def session(path):
    with holdfast.open(path, durability="process") as store:
        yield store.session("k")


@few_cases(every=2)
@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_every_call_is_given_and_can_be_run_and_shown(session, text):
    with session.turn("Pay.") as turn:
        turn.add(made(text))
        assert run(turn) == [READ.get(text, text)]
    assert session.turns()[-1].end == "completed"
    for format in registry.known():
        context = session.context(format)
        json.dumps(context, allow_nan=False)
        if format in FORMATS:
            assert check(format, context) == []
    for format in EXPORTED:
        assert b"".join(export(session, format))


@few_cases(every=3)
@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_a_streamed_call_is_whole_and_can_be_run(session, text):
    with session.turn("Pay.") as turn:
        list(turn.deliver(spoken(text), "anthropic"))
        assert len(run(turn)) == 1
    assert [message.state for message in session.transcript()][1:] == ["complete", "complete"]
    for format in FORMATS:
        assert check(format, session.context(format)) == []


@few_cases(every=3)
@pytest.mark.parametrize("by", ["model", "agent"])
@pytest.mark.parametrize("text", TEXTS, ids=short)
def test_an_approved_call_is_started_with_what_it_is_given_as(session, text, by):
    with session.turn("Pay.") as turn:
        if by == "model":
            turn.add(made(text))
        id = turn.call("pay", text, call_id="c1", needs_approval=True)
        assert id.waiting
    session.decide(id, True, by="ann")
    with session.turn() as turn:
        assert run(turn) == [READ.get(text, text)]
    assert [call.arguments for call in session.calls()] == [text]


def test_arguments_that_nobody_can_read_are_in_the_way_of_no_other_call(session):
    with session.turn("Pay.") as turn:
        for text in (deep(5000), '{"a":1}'):
            asked = turn.call("pay", text, needs_approval=True)
            session.decide(asked, True, by="ann")
    with session.turn() as turn:
        assert run(turn) == [deep(5000), {"a": 1}]


def test_a_call_of_the_model_is_found_by_arguments_with_spaces_around_them(session):
    """Two calls with one id: the text tells them apart."""
    calls = [made(text)["tool_calls"][0] for text in (" eighty", "eighty")]
    with session.turn("Pay.") as turn:
        turn.add({"role": "assistant", "content": None, "tool_calls": calls})
        for text in (" eighty", "eighty"):
            assert turn.call("pay", text, call_id="c1", needs_approval=True).waiting
    assert [call.state for call in session.calls()] == ["waiting", "waiting"]


def test_an_approval_is_for_one_meaning():
    meanings = [*AS_SAID, "x", " ", *(text for text in READ if text.strip() not in ("", "{}"))]
    digests = [digests_of("pay", text) for text in meanings]
    for at, own in enumerate(digests):
        others = [each for each in digests[:at] + digests[at + 1 :] if own[0] in each]
        assert others == [], meanings[at][:40]


def test_what_is_read_means_what_was_said():
    for text in TEXTS:
        value = read_arguments(text)
        given = value if isinstance(value, str) else json.dumps(value)
        assert digests_of("pay", given)[0] == digests_of("pay", text)[0], text[:40]


def test_an_approval_of_nothing_that_an_older_release_noted_is_still_good():
    from hashlib import sha256

    ask = Ask("c1", "m", 0, sha256(b"pay\n").hexdigest(), approved=True)
    assert judge_call([ask], digests_of("pay", "{}"), needs_approval=False).act == "use"


def test_an_outbox_to_openviking_takes_any_arguments():
    from holdfast.adapters.openviking.client.outgoing import _input

    for text in TEXTS:
        json.dumps(_input(Call("c1", "pay", text).arguments), allow_nan=False)
