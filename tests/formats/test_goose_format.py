"""Messages of goose: read, noted, shown to every provider, and made from what others said."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goose_stores import call, result, text, thinking
from holdfast.domain.message import Call, Image, Other, Result, Text, Thinking, freeze
from holdfast.domain.repair import StoredMessage, may_cut, repair
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.testing.providers import check
from holdfast.testing.strategies import FORMATS, views
from thorough import examples

goose = registry.get("goose")


def message(role, *blocks, **more):
    return {"id": "m", "role": role, "created": 1790010001, "content": list(blocks), **more}


def seen(*payloads):
    return [
        StoredMessage(
            id=f"m{n}",
            seq=n,
            turn=None,
            note=goose.note(payload),
            body=freeze(payload),
            at=n * 1000,
        )
        for n, payload in enumerate(payloads, start=1)
    ]


def context(format_name, messages):
    form = registry.get(format_name)
    shaped = form.shape(repair(messages, registry.read), used=set(), first=True)
    return form.close([payload for payload, _ in shaped], None)


def parts(*blocks, role="assistant"):
    return [piece.part for piece in goose.read(message(role, *blocks))]


def test_every_block_is_read_as_what_it_is():
    odd = {"type": "systemNotification", "notificationType": "inlineMessage", "msg": "Hm."}
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert parts(text("Hello."), image, odd) == [
        Text("Hello."), Image("data:image/png;base64,AAAA"), Other("systemNotification"),
    ]  # fmt: skip
    assert parts(
        thinking("Hm.", "sig"), thinking("Hm.", ""), {"type": "redactedThinking", "data": "x"}
    ) == [
        Thinking("Hm.", signed=True),
        Thinking("Hm."),
        Thinking("", signed=True),
    ]
    assert parts(call("c1")) == [Call("c1", "shell", '{"command":"ls"}')]


@pytest.mark.parametrize(
    "given, content, error",
    [
        (
            {"status": "success", "value": {"content": [text("saw")], "isError": False}},
            "saw",
            False,
        ),
        ({"status": "success", "value": [text("saw"), {"type": "image"}]}, "saw\n[image]", False),
        ({"status": "success", "value": {"content": [text("no")], "isError": True}}, "no", True),
        ({"status": "error", "error": "-32603: interrupted"}, "-32603: interrupted", True),
        ("nonsense", "", False),
    ],
)
def test_a_result_is_read_in_all_its_shapes(given, content, error):
    block = {"type": "toolResponse", "id": "c1", "toolResult": given}
    assert parts(block, role="user") == [Result("c1", content, error=error)]


def test_words_alone_are_plain_and_results_are_a_tools():
    assert goose.note(message("user", text("Hello."))).plain
    assert not goose.note(message("wizard", text("Hello."))).plain
    note = goose.note(message("user", result("c1")))
    assert (note.role, note.answers) == ("tool", ("c1",))
    with pytest.raises(InvalidMessage):
        goose.note({"role": "user", "content": "Hello."})


def test_a_message_of_goose_goes_back_to_goose_as_it_was():
    stored = (
        message("user", text("Look."), metadata={"userVisible": True, "agentVisible": True}),
        message("assistant", thinking("Hm.", "sig"), call("c1"), metadata={"usage": {}}),
        message("user", result("c1")),
        message("assistant", text("A saw."), text(" And a rake.")),
    )
    assert context("goose", seen(*stored)) == list(stored)


def test_what_others_said_is_put_in_gooses_words():
    openai = registry.get("openai.chat")
    said = {
        "id": "c1",
        "type": "function",
        "function": {"name": "shell", "arguments": '{"command": "ls"}'},
    }
    spoken = (
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [said]},
        {"role": "tool", "tool_call_id": "c1", "content": "saw"},
    )
    messages = [
        StoredMessage(
            id=f"m{n}",
            seq=n,
            turn=None,
            note=openai.note(payload),
            body=freeze(payload),
            at=n * 1000,
        )
        for n, payload in enumerate(spoken, start=1)
    ]
    asked, called, answered = context("goose", messages)
    assert asked == {
        "id": "m1", "created": 1, "metadata": {"userVisible": True, "agentVisible": True},
        "role": "user", "content": [text("Look.")],
    }  # fmt: skip
    assert (called["content"], answered["content"]) == ([call("c1")], [result("c1")])


def test_a_stream_of_goose_becomes_one_message():
    assembly = goose.assembly()
    usage = {"usage": {"inputTokens": 9, "outputTokens": 4}}
    for chunk in (
        {
            "type": "Message",
            "message": {"id": "chatcmpl-1", "created": 5, "content": [text("I will ")]},
        },
        {
            "type": "Message",
            "message": {"id": "chatcmpl-1", "content": [text("look."), call("c1")]},
        },
        {"type": "Message", "message": {"id": "chatcmpl-1", "content": [], "metadata": usage}},
    ):
        assembly.fold(assembly.take(chunk))
    assert assembly.message().note.partial
    assembly.fold(assembly.take({"type": "Finish", "reason": "stop"}))
    spoken = assembly.message()
    payload = msgspec.json.decode(spoken.body)
    assert (payload["id"], payload["content"]) == ("chatcmpl-1", [text("I will look."), call("c1")])
    assert (spoken.note.partial, spoken.note.usage.output, spoken.note.finish) == (False, 4, "stop")


words = st.sampled_from(["Hello.", "", " ", "Ends in space. "])
ids = st.sampled_from(["call_0", "call_0", "call_1", "", " ", "x" * 90])
blocks = st.one_of(
    words.map(text),
    ids.map(call),
    st.builds(result, ids, words),
    st.builds(thinking, words, st.sampled_from(["", "sig-1", "sig-2"])),
    st.sampled_from(
        [
            {
                "type": "toolRequest",
                "id": "call_1",
                "toolCall": {"status": "error", "error": "no such tool"},
            },
            {
                "type": "toolResponse",
                "id": "call_1",
                "toolResult": {"status": "error", "error": ""},
            },
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "reasoning", "text": "Hm."},
            {"type": "text"},
            {},
            7,
            None,
            "text",
        ]
    ),
)
payloads = st.builds(
    lambda role, content: message(role, *content),
    st.sampled_from(["user", "user", "assistant", "assistant", "system", "wizard"]),
    st.lists(blocks, max_size=4),
)


@pytest.mark.slow
@pytest.mark.parametrize("target", FORMATS)
@given(spoken=st.lists(payloads, max_size=8))
@settings(max_examples=examples(150))
def test_whatever_goose_stored_becomes_a_request_that_the_provider_accepts(target, spoken):
    assert check(target, context(target, seen(*spoken))) == []


def problems(request):
    """What goose would cut out of these messages before it asks a model."""
    found, waiting, used = [], [], set()
    for index, said in enumerate(request):
        for block in said["content"]:
            if block.get("type") == "toolRequest":
                found += [f"{index}: call {block['id']} again"] if block["id"] in used else []
                found += (
                    [f"{index}: a call of {said['role']}"] if said["role"] != "assistant" else []
                )
                used.add(block["id"])
                waiting.append(block["id"])
            elif block.get("type") == "toolResponse":
                found += [f"{index}: a result of {said['role']}"] if said["role"] != "user" else []
                found += (
                    []
                    if block["id"] in waiting
                    else [f"{index}: result {block['id']} answers nothing"]
                )
                waiting = [one for one in waiting if one != block["id"]]
            elif block.get("type") == "text" and not block["text"].strip():
                found.append(f"{index}: blank text")
        if said["role"] not in ("user", "assistant") or not said["content"]:
            found.append(f"{index}: {said['role']} with {len(said['content'])} blocks")
    return found + [f"{one} was not answered" for one in waiting]


@pytest.mark.slow
@given(mixed=st.one_of(views(), st.lists(payloads, max_size=8).map(lambda spoken: seen(*spoken))))
@settings(max_examples=examples(200))
def test_any_view_becomes_a_dialogue_that_goose_takes_as_it_is(mixed):
    assert problems(context("goose", mixed)) == []


@given(spoken=st.lists(payloads, max_size=8), data=st.data())
@settings(max_examples=examples(80))
def test_shaping_in_pieces_gives_what_shaping_at_once_gives(spoken, data):
    steps = repair(seen(*spoken), registry.read)
    whole = goose.shape(steps, used=set(), first=True)
    cuts = [place for place in range(1, len(steps)) if may_cut(steps[place - 1], steps[place])]
    cut = data.draw(st.sampled_from(cuts)) if cuts else 0
    used: set[str] = set()
    assert [
        *goose.shape(steps[:cut], used=used, first=True),
        *goose.shape(steps[cut:], used=used, first=cut == 0),
    ] == whole
