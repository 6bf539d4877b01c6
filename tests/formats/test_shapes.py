"""What each format makes of a dialogue: verbatim where it can, worded anew where it must."""

import pytest

from holdfast.domain.message import freeze
from holdfast.domain.repair import INTERRUPTED, StoredMessage, repair
from holdfast.formats import registry
from holdfast.formats.anthropic.messages import EARLIER
from holdfast.testing.providers import check
from holdfast.testing.strategies import FORMATS, PNG


def seen_of(format_name, *payloads, turn=1, seq=1):
    form = registry.get(format_name)
    return [
        StoredMessage(f"m{place}", place, turn, form.note(payload), freeze(payload))
        for place, payload in enumerate(payloads, seq)
    ]


def shaped(target, seen):
    return registry.get(target).shape(repair(seen, registry.read), used=set(), first=True)


def context(target, seen, instructions=None):
    payloads = registry.get(target).close(
        [payload for payload, _ in shaped(target, seen)], instructions
    )
    assert check(target, payloads) == []
    return payloads


def chat_call(call_id="call_1", name="look", arguments='{"a":1}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


HEALTHY = {
    "openai.chat": [
        {"role": "user", "content": "Hi."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [chat_call("a"), chat_call("b")],
            "reasoning_content": "Hm.",
        },
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "B"}]},
        {"role": "assistant", "content": "Done.", "refusal": "Partly."},
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": PNG}},
            ],
        },
    ],
    "openai.responses": [
        {"role": "user", "content": "Hi."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "a",
            "name": "look",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "More."}]},
    ],
    "anthropic": [
        {"role": "user", "content": "Hi."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "Looking. "},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"a": 1}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "A"}],
                },
                {"type": "tool_result", "tool_use_id": "b", "content": "B", "is_error": True},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ],
    "holdfast": [
        {"role": "user", "parts": [{"type": "text", "text": "Hi."}, {"type": "image", "url": PNG}]},
        {
            "role": "assistant",
            "parts": [{"type": "call", "id": "a", "name": "look", "arguments": "{}"}],
        },
        {"role": "tool", "parts": [{"type": "result", "call_id": "a", "content": "A"}]},
        {"role": "assistant", "parts": [{"type": "text", "text": "Done."}]},
    ],
}


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_healthy_dialogue_comes_back_as_it_was(format_name):
    assert context(format_name, seen_of(format_name, *HEALTHY[format_name])) == HEALTHY[format_name]


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_a_healthy_dialogue_can_be_told_to_every_provider(source, target):
    payloads = context(target, seen_of(source, *HEALTHY[source]))
    text = str(payloads)
    assert "Hi." in text and "Done." in text and "look" in text


def test_one_response_of_many_items_comes_back_as_those_items():
    items = HEALTHY["openai.responses"][1:3]
    answer = HEALTHY["openai.responses"][3]
    seen = seen_of("openai.responses", items, answer)
    assert shaped("openai.responses", seen) == [
        (items[0], ("m1",)),
        (items[1], ("m1",)),
        (answer, ("m2",)),
    ]


@pytest.mark.parametrize("format_name", FORMATS)
def test_private_keys_are_stored_and_not_sent(format_name):
    payload = {**registry.get(format_name).say("user", "Hi."), "_stamp": "x"}
    seen = seen_of(format_name, payload)
    assert context(format_name, seen) == [registry.get(format_name).say("user", "Hi.")]


def test_what_codex_keeps_beside_an_item_is_not_sent():
    """It is under its own name in stores that an earlier release has brought over."""
    item = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi."}],
    }
    kept = {**item, "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    seen = seen_of("openai.responses", {"role": "user", "content": "Hi."}, kept)
    assert "passthrough" not in str(context("openai.responses", seen))


def test_neighbours_of_one_role_become_one_message_that_names_both():
    seen = seen_of(
        "openai.chat", *({"role": "user", "content": text} for text in ("One.", "Two.", "Three."))
    )
    assert shaped("openai.chat", seen) == [
        ({"role": "user", "content": "One.\n\nTwo.\n\nThree."}, ("m1", "m2", "m3"))
    ]


def test_calls_stored_one_by_one_become_one_message():
    calls = [
        {
            "role": "assistant",
            "parts": [{"type": "call", "id": "x", "name": "f", "arguments": "{}"}],
        }
    ] * 2
    results = [
        {"role": "tool", "parts": [{"type": "result", "call_id": "x", "content": text}]}
        for text in "12"
    ]
    chat = context("openai.chat", seen_of("holdfast", *calls, *results))
    assert [call["id"] for call in chat[0]["tool_calls"]] == ["x", "x-2"]
    assert [message["tool_call_id"] for message in chat[1:]] == ["x", "x-2"]


def test_words_in_blocks_and_a_call_without_words_join_without_blanks():
    said = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    seen = seen_of(
        "openai.chat", said, {"role": "assistant", "content": "", "tool_calls": [chat_call()]}
    )
    assert context("openai.chat", seen)[0] == {**said, "tool_calls": [chat_call()]}


def test_a_result_is_a_tools_whoever_is_said_to_have_spoken():
    call = {
        "role": "assistant",
        "parts": [{"type": "call", "id": "a", "name": "f", "arguments": "{}"}],
    }
    result = {"role": "assistant", "parts": [{"type": "result", "call_id": "a", "content": "A"}]}
    assert context("holdfast", seen_of("holdfast", call, result)) == [
        call,
        {**result, "role": "tool"},
    ]


def test_results_and_the_text_after_them_are_one_user_message_for_anthropic():
    seen = seen_of(
        "openai.chat",
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": None, "tool_calls": [chat_call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
        {"role": "user", "content": "Stop."},
    )
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "(no output)"}
    expected = {"role": "user", "content": [result, {"type": "text", "text": "Stop."}]}
    assert shaped("anthropic", seen)[-1] == (expected, ("m3", "m4"))


def test_chat_keeps_reused_ids_and_others_number_them():
    pair = [
        {"role": "assistant", "content": None, "tool_calls": [chat_call("call_0")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "x"},
    ]
    seen = seen_of("openai.chat", {"role": "user", "content": "Hi."}, *pair, *pair, *pair)
    assert context("openai.chat", seen)[1:] == pair * 3
    given = [item["call_id"] for item in context("openai.responses", seen)[1:]]
    assert given == ["call_0", "call_0", "call_0-2", "call_0-2", "call_0-3", "call_0-3"]


def test_an_interrupted_call_is_closed_for_every_provider():
    seen = seen_of(
        "anthropic",
        {"role": "user", "content": "Hi."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
        },
    )
    for target in FORMATS:
        assert INTERRUPTED in str(context(target, seen)[-1])
        assert shaped(target, seen)[-1][1] == ()


@pytest.mark.parametrize("signature", ["", None])
def test_one_unsigned_thinking_block_takes_all_thinking_of_its_message_along(signature):
    blocks = [
        {"type": "thinking", "thinking": "One.", "signature": "sig"},
        {"type": "thinking", "thinking": "Two.", "signature": signature},
        {"type": "text", "text": "Done."},
    ]
    seen = seen_of(
        "anthropic", {"role": "user", "content": "Hi."}, {"role": "assistant", "content": blocks}
    )
    assert context("anthropic", seen)[1]["content"] == blocks[2:]


def test_reasoning_is_dropped_with_the_server_ids_when_its_response_is_changed():
    response = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "a",
            "name": "bad name",
            "arguments": "{}",
        },
    ]
    call, answer = context("openai.responses", seen_of("openai.responses", response))
    assert call == {"type": "function_call", "call_id": "a", "name": "bad_name", "arguments": "{}"}
    assert answer["call_id"] == "a"


def test_reasoning_that_led_to_nothing_is_not_sent():
    response = [{"type": "reasoning", "id": "rs_1", "summary": []}]
    seen = seen_of("openai.responses", {"role": "user", "content": "Hi."}, response)
    assert context("openai.responses", seen) == [{"role": "user", "content": "Hi."}]


def test_reasoning_at_the_end_of_a_response_leads_into_no_other():
    words = [
        {
            "type": "message",
            "id": f"msg_{n}",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"{n}"}],
        }
        for n in (1, 2)
    ]
    first = [words[0], {"type": "reasoning", "id": "rs_1", "summary": []}]
    seen = seen_of("openai.responses", {"role": "user", "content": "Hi."}, first, [words[1]])
    assert "rs_1" not in str(context("openai.responses", seen))


def test_thinking_is_not_told_to_another_provider():
    seen = seen_of("anthropic", *HEALTHY["anthropic"])
    for target in ("openai.chat", "openai.responses", "holdfast"):
        assert "Hm." not in str(context(target, seen))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"a":1}', {"a": 1}),
        ("", {}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a":', {"arguments": '{"a":'}),
    ],
)
def test_arguments_are_an_object_for_anthropic(said, expected):
    calls = [chat_call(arguments=said)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    seen = seen_of("openai.chat", {"role": "user", "content": "Hi."}, message)
    assert context("anthropic", seen)[1]["content"][0]["input"] == expected


@pytest.mark.parametrize("url", [PNG, "https://example.org/a.png"])
def test_an_image_survives_every_change_of_provider(url):
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    by_target = {target: context(target, seen_of("openai.chat", image)) for target in FORMATS}
    for target, payloads in by_target.items():
        assert context("openai.chat", seen_of(target, *payloads)) == [image]


def test_what_a_provider_cant_express_is_named_for_users_only():
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    seen = seen_of(
        "openai.chat", {"role": "user", "content": [{"type": "text", "text": "Listen:"}, audio]}
    )
    assert context("anthropic", seen)[0]["content"][1] == {"type": "text", "text": "[audio]"}


def test_an_anthropic_request_opens_with_a_user_message():
    seen = seen_of("anthropic", {"role": "assistant", "content": "Hello."})
    assert context("anthropic", seen)[0] == {"role": "user", "content": EARLIER}
    assert shaped("anthropic", seen)[0][1] == ()


def test_a_closing_assistant_message_ends_without_white_space_for_anthropic():
    said = [{"type": "text", "text": "So: \n"}]
    seen = seen_of(
        "anthropic", {"role": "user", "content": "Hi."}, {"role": "assistant", "content": said}
    )
    assert context("anthropic", seen)[-1]["content"] == [{"type": "text", "text": "So:"}]


def test_so_does_one_of_bare_words():
    seen = seen_of(
        "anthropic", {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "So: \n"}
    )
    assert context("anthropic", seen)[-1]["content"] == "So:"


def test_system_messages_in_the_middle_are_user_text_for_anthropic():
    seen = seen_of(
        "openai.chat",
        {"role": "user", "content": "Hi."},
        {"role": "system", "content": "Be brief."},
    )
    assert context("openai.chat", seen)[1] == {"role": "system", "content": "Be brief."}
    assert context("openai.responses", seen)[1] == {"role": "system", "content": "Be brief."}
    assert [block["text"] for block in context("anthropic", seen)[0]["content"]] == [
        "Hi.",
        "Be brief.",
    ]


def test_instructions_stand_where_the_format_wants_them():
    seen = seen_of("openai.chat", {"role": "user", "content": "Hi."})
    system = {"role": "system", "content": "Be brief."}
    assert context("openai.chat", seen, "Be brief.")[0] == system
    assert context("openai.responses", seen, "Be brief.")[0] == system
    assert context("anthropic", seen, "Be brief.")[0]["role"] == "user"
    parts = [{"type": "text", "text": "Be brief."}]
    assert context("holdfast", seen, "Be brief.")[0] == {"role": "system", "parts": parts}


def test_a_partial_response_is_told_in_plain_words():
    form = registry.get("openai.responses")
    assembly = form.assembly()
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    for event in (
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "reasoning", "id": "r", "summary": []},
        },
        {"type": "response.output_item.added", "output_index": 1, "item": item},
        {
            "type": "response.output_text.delta",
            "output_index": 1,
            "content_index": 0,
            "delta": "Half a sen",
        },
    ):
        assembly.fold(assembly.take(event))
    spoken = assembly.message()
    seen = [StoredMessage("m1", 1, 1, spoken.note, spoken.body)]
    assert context("openai.responses", seen) == [{"role": "assistant", "content": "Half a sen"}]


def test_lone_surrogates_pass():
    payload = {"role": "user", "content": "half \ud83d"}
    seen = seen_of("openai.chat", payload)
    assert [one for one, _ in shaped("openai.chat", seen)] == [payload]


def test_the_old_single_call_is_told_as_a_list_of_one():
    seen = seen_of(
        "openai.chat",
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "look", "arguments": "{}"},
        },
        {"role": "function", "name": "look", "content": "found"},
    )
    call, answer = context("openai.chat", seen)
    assert call["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert answer == {"role": "tool", "tool_call_id": "look", "content": "found"}
