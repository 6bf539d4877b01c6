"""Lines of OpenViking in any context: read with their calls and results, and valid for every
provider (I-9, I-10).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.message import Call, Image, Other, Result, Text, freeze
from holdfast.domain.repair import INTERRUPTED, StoredMessage, repair
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.testing.providers import check
from thorough import examples

PROVIDERS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
FORMAT = registry.get("openviking")


def seen(*payloads):
    return [
        StoredMessage(
            id=f"m{index}",
            seq=index + 1,
            turn=None,
            note=FORMAT.note(payload),
            body=freeze(payload),
        )
        for index, payload in enumerate(payloads)
    ]


def context(name, *payloads):
    form = registry.get(name)
    return form.close(
        [
            one
            for one, _ in form.shape(repair(seen(*payloads), registry.read), used=set(), first=True)
        ],
        None,
    )


def words(role, text):
    return {
        "id": "w",
        "role": role,
        "parts": [{"type": "text", "text": text}],
        "created_at": "2026-09-21T08:00:00Z",
    }


def tool(call_id, status="completed", **more):
    part = {
        "type": "tool",
        "tool_id": call_id,
        "tool_name": "shell",
        "tool_status": status,
        "tool_input": {"cmd": "ls"},
    }
    return {**part, **({"tool_output": "a b"} if status != "running" else {}), **more}


def parts(payload):
    return [piece.part for piece in FORMAT.read(payload)]


def test_a_tools_part_is_a_call_and_its_result():
    read = parts(
        {"role": "assistant", "parts": [tool("c1"), tool("c2", "error"), tool("c3", "running")]}
    )
    assert read == [
        Call("c1", "shell", '{"cmd":"ls"}'), Result("c1", "a b"),
        Call("c2", "shell", '{"cmd":"ls"}'), Result("c2", "a b", error=True),
        Call("c3", "shell", '{"cmd":"ls"}'),
    ]  # fmt: skip


def test_old_lines_pictures_contexts_and_strangers_are_read():
    assert parts({"role": "user", "content": "Old."}) == [Text("Old.")]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    memory = {
        "type": "context",
        "uri": "viking://x",
        "context_type": "memory",
        "abstract": "Trees are dry.",
    }
    stranger = {"type": "hologram", "beam": 1}
    read = parts({"role": "user", "parts": [picture, memory, stranger, "odd"]})
    assert read == [
        Image("data:image/png;base64,AA"),
        Text("Trees are dry."),
        Other("hologram"),
        Other("part"),
    ]


def test_results_stand_next_to_their_calls_in_every_context():
    said = [
        words("user", "Look."),
        {"role": "assistant", "parts": [tool("c1"), tool("c1", tool_output="again")]},
    ]
    chat = context("openai.chat", *said, words("user", "Thanks."))
    assert [one["role"] for one in chat] == ["user", "assistant", "tool", "tool", "user"]
    assert [one["content"] for one in chat if one["role"] == "tool"] == ["a b", "again"]


def test_an_id_that_is_used_again_keeps_its_own_result():
    """The first call never ended; what the second one brought is not its outcome."""
    said = [{"role": "assistant", "parts": [tool("c1", "running")]}, words("user", "Again.")]
    chat = context(
        "openai.chat", words("user", "Look."), *said, {"role": "assistant", "parts": [tool("c1")]}
    )
    assert [one["content"] for one in chat if one["role"] == "tool"] == [INTERRUPTED, "a b"]


def test_a_line_that_only_carries_tools_is_the_agents():
    note = FORMAT.note({"role": "user", "parts": [tool("c1")]})
    assert note.role == "assistant" and [call.id for call in note.calls] == ["c1"]
    assert context("openai.chat", {"role": "user", "parts": [tool("c1")]})[0]["role"] == "assistant"


def test_what_a_user_says_beside_a_tool_stays_the_users():
    said = {"role": "user", "parts": [{"type": "text", "text": "See:"}, tool("c1")]}
    [message] = context("openai.chat", said)
    assert message["role"] == "user" and "a b" in str(message["content"])


def test_its_own_context_holds_the_lines_as_they_were():
    said = [words("user", "Look."), words("assistant", "So."), words("user", "On.")]
    assert context("openviking", *said) == said
    calls = {"role": "assistant", "parts": [tool("c1", duration_ms=2.5)]}
    assert context("openviking", calls) == [calls]


def test_foreign_calls_become_parts_with_their_results():
    chat = registry.get("openai.chat")
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "2"},
    ]
    messages = [
        StoredMessage(id=f"m{n}", seq=n, turn=1, note=chat.note(one), body=freeze(one))
        for n, one in enumerate(said)
    ]
    [(payload, ids)] = FORMAT.shape(repair(messages, registry.read), used=set(), first=True)
    assert payload["parts"] == [
        {
            "type": "tool",
            "tool_id": "x",
            "tool_name": "f",
            "tool_input": {"a": 1},
            "tool_status": "completed",
            "tool_output": "2",
        }
    ]
    assert ids == ("m0", "m1")


@pytest.mark.parametrize(
    "payload", [[], {"role": "king", "parts": []}, {"role": "user"}, {"role": "user", "parts": "x"}]
)
def test_what_is_no_line_is_refused(payload):
    with pytest.raises(InvalidMessage):
        FORMAT.note(payload)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.lists(st.text(max_size=3), max_size=2)
)
PART = st.one_of(
    JUNK,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "tool", "context", "image_url", "odd"])},
        optional={
            "text": st.text(max_size=6) | JUNK,
            "abstract": st.text(max_size=4) | JUNK,
            "tool_id": st.sampled_from(["a", "b", ""]) | JUNK,
            "tool_name": st.text(max_size=4) | JUNK,
            "tool_status": st.sampled_from(["pending", "running", "completed", "error"]) | JUNK,
            "tool_input": JUNK | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
            "tool_output": JUNK,
            "image_url": JUNK
            | st.fixed_dictionaries({"url": st.just("https://x.test/a.png") | JUNK}),
        },
    ),
)
PAYLOAD = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"])},
    optional={
        "parts": st.lists(PART, max_size=4),
        "content": st.text(max_size=6),
        "id": st.text(max_size=4),
    },
).filter(lambda one: "parts" in one or "content" in one)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*PROVIDERS, "openviking"])
@settings(max_examples=examples(120), deadline=None)
@given(payloads=st.lists(PAYLOAD, max_size=8))
def test_any_lines_become_a_request_its_provider_accepts(target, payloads):
    made = context(target, *payloads)
    if target in PROVIDERS:
        assert check(target, made) == []
    else:
        for payload in made:
            FORMAT.note(payload)
