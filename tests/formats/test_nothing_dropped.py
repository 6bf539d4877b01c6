"""Nothing that a provider sends is dropped in silence: it has a part, or it is kept as it came and
said back so.
"""

import json

import pytest
from openai.types.chat import ChatCompletionChunk

from holdfast.domain.chunk import pack, shown, unpack
from holdfast.domain.message import freeze, thaw
from holdfast.domain.repair import StoredMessage, repair
from holdfast.formats import registry
from holdfast.testing.providers import check

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


def chunk(delta, finish=None, **more):
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def chat(*deltas, finish="stop"):
    return [chunk(delta) for delta in deltas] + [chunk({}, finish)]


def told(format, chunks):
    """The message that a stream comes to, as it is folded live and from the journal; and the text
    that was shown.
    """
    assembly, again = registry.get(format).assembly(), registry.get(format).assembly()
    text = ""
    for one in chunks:
        deltas = assembly.take(one)
        assembly.fold(deltas)
        text += shown(deltas)
        again.fold(unpack(pack(deltas)))
    spoken = assembly.message()
    assert again.message() == spoken
    return spoken, thaw(spoken.body) if spoken else None, text


def contexts(format, *payloads):
    """The context in every format of a user's message, these, and one more of the user's; each
    valid.
    """
    form = registry.get(format)
    said = [form.say("user", "Hi."), *payloads, form.say("user", "And?")]
    seen = [
        StoredMessage(f"m{seq}", seq, 1, form.note(one), freeze(one))
        for seq, one in enumerate(said, 1)
    ]
    out = {}
    for target in FORMATS:
        shaped = registry.get(target).shape(repair(seen, registry.read), used=set(), first=True)
        out[target] = [payload for payload, _ in shaped]
        assert check(target, out[target]) == [], target
    return out


@pytest.fixture(params=["dicts", "SDK objects"])
def as_sent(request):
    """Chunks as a caller reads them by hand, and as the client gives them."""
    if request.param == "dicts":
        return lambda chunks: chunks
    return lambda chunks: [ChatCompletionChunk.construct(**one) for one in chunks]


def test_the_transcript_of_spoken_audio_is_shown_and_kept(as_sent):
    deltas = [
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"audio": {"data": "AAE=", "transcript": "Good "}},
        {"audio": {"data": "AgM=", "transcript": "morning."}},
        {"audio": {"expires_at": 99}},
    ]
    spoken, payload, text = told("openai.chat", as_sent(chat(*deltas)))
    assert text == "Good morning."
    audio = {"id": "audio_1", "data": "AAECAw==", "transcript": "Good morning.", "expires_at": 99}
    assert payload["audio"] == audio
    for context in contexts("openai.chat", payload).values():
        assert "Good morning." in json.dumps(context)
    assert not spoken.note.partial


def test_content_in_blocks_is_kept_in_blocks(as_sent):
    """Magistral: what the model thought comes in blocks of its own, then words."""
    thought = [
        {"type": "thinking", "thinking": [{"type": "text", "text": part}]}
        for part in ("Hm, ", "yes.")
    ]
    deltas = [{"content": [thought[0]]}, {"content": [thought[1]]}]
    deltas += [{"content": [{"type": "text", "text": "It "}]}, {"content": "rains."}]
    _, payload, text = told("openai.chat", as_sent(chat(*deltas)))
    assert text == "It rains."
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, yes."}]}
    assert payload["content"] == [thinking, {"type": "text", "text": "It rains."}]
    made = contexts("openai.chat", payload)
    assert made["openai.chat"][1] == payload
    assert made["anthropic"][1]["content"][0]["text"] == "It rains."


def test_the_first_kind_of_function_call_is_a_call(as_sent):
    deltas = [
        {"function_call": {"name": "look", "arguments": ""}},
        {"function_call": {"arguments": '{"at": "sky"}'}},
    ]
    spoken, payload, _ = told("openai.chat", as_sent(chat(*deltas, finish="function_call")))
    assert payload["function_call"] == {"name": "look", "arguments": '{"at": "sky"}'}
    assert [(call.name, call.whole) for call in spoken.note.calls] == [("look", True)]
    contexts("openai.chat", payload, {"role": "function", "name": "look", "content": "stars"})


def test_a_call_of_a_custom_tool_keeps_its_name_and_input(as_sent):
    opened = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls "}}
    deltas = [{"tool_calls": [opened]}, {"tool_calls": [{"index": 0, "custom": {"input": "-l"}}]}]
    spoken, payload, _ = told("openai.chat", as_sent(chat(*deltas, finish="tool_calls")))
    assert payload["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    ]
    assert spoken.note.calls[0].name == "shell"
    contexts("openai.chat", payload, {"role": "tool", "tool_call_id": "c1", "content": "total 0"})


def test_keys_that_only_a_server_knows_are_kept_and_said_back(as_sent):
    """OpenRouter's pictures and reasoning details; a call's signature, as Gemini sends it; a key
    that nobody knows.
    """
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}, "index": 0}
    details = [
        {"type": "reasoning.text", "text": part, "format": "anthropic-v1", "index": 0}
        for part in ("Hm, ", "yes.")
    ]
    signed = {"google": {"thought_signature": "c2ln"}}
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    deltas = [
        {
            "content": "Look: ",
            "reasoning": "Hm, yes.",
            "reasoning_details": [details[0]],
            "vendor_trace": "a",
        },
        {"images": [image], "reasoning_details": [details[1]], "vendor_trace": "b"},
        {"tool_calls": [{**call, "extra_content": signed}]},
    ]
    _, payload, _ = told("openai.chat", as_sent(chat(*deltas, finish="tool_calls")))
    assert payload["images"] == [image]
    assert payload["reasoning"] == "Hm, yes."
    assert payload["reasoning_details"] == [{**details[0], "text": "Hm, yes."}]
    assert payload["vendor_trace"] == "ab"
    assert payload["tool_calls"][0]["extra_content"] == signed
    form = registry.get("openai.chat")
    said = [
        form.say("user", "Hi."),
        payload,
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    seen = [
        StoredMessage(f"m{seq}", seq, 1, form.note(one), freeze(one))
        for seq, one in enumerate(said, 1)
    ]
    sent = [
        payload for payload, _ in form.shape(repair(seen, registry.read), used=set(), first=True)
    ]
    assert sent[1] == payload


@pytest.mark.parametrize("finish", ["error", "network_error", "insufficient_system_resource"])
def test_a_server_that_says_it_failed_has_not_finished_the_message(as_sent, finish):
    spoken, _, text = told("openai.chat", as_sent(chat({"content": "Half an"}, finish=finish)))
    assert text == "Half an" and spoken.note.partial and spoken.note.finish == finish


def test_an_error_in_the_stream_is_no_end_either():
    chunks = [
        chunk({"content": "Half an"}),
        {"error": {"code": 502, "message": "gone"}, **chunk({}, "stop")},
    ]
    spoken, _, _ = told("openai.chat", chunks)
    assert spoken.note.partial


@pytest.mark.parametrize(
    "odd",
    [
        {"tool_calls": [{"id": 7, "function": {"name": "f", "arguments": {"a": 1}}}]},
        {"content": [{"text": "no type"}, "words", 5]},
        {"content": {"type": "text", "text": "one block"}},
        {"reasoning": {"text": "an object"}},
        {"audio": "no object", "role": 5},
    ],
)
def test_deltas_of_an_odd_shape_are_kept_too(odd):
    spoken, payload, _ = told(
        "openai.chat", [chunk(odd), chunk({"content": "."}), {**chunk({}, 5), "model": 5}]
    )
    assert not spoken.note.partial and (spoken.note.finish, spoken.note.model) == ("5", "5")
    said = json.dumps(payload)
    for word in ("no type", "words", "one block", "an object", '"a"'):
        assert (word in said.replace("\\", "")) == (word in json.dumps(odd))


SERVED = [
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {
        "type": "file_search_call",
        "id": "fs_1",
        "status": "completed",
        "queries": ["q"],
        "results": None,
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1",
        "container_id": "c",
        "outputs": [],
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"},
    {"type": "mcp_list_tools", "id": "ml_1", "server_label": "s", "tools": []},
    {
        "type": "mcp_call",
        "id": "mc_1",
        "name": "n",
        "server_label": "s",
        "arguments": "{}",
        "output": "o",
        "error": None,
    },
    {"type": "compaction", "id": "cm_1", "encrypted_content": "gAAA"},
]
WORDS = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Found.", "annotations": [], "logprobs": []}],
}  # fmt: skip


def streamed(items, *, end="response.completed"):
    events = [{"type": "response.created", "response": {"id": "r", "model": "m"}}]
    for place, item in enumerate(items):
        opened = {**item, "status": "in_progress"} if "status" in item else item
        events.append({"type": "response.output_item.added", "output_index": place, "item": opened})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    return [
        *events,
        {"type": end, "response": {"id": "r", "model": "m", "status": end[9:], "output": items}},
    ]


@pytest.mark.parametrize("item", SERVED, ids=[item["type"] for item in SERVED])
def test_what_the_responses_api_ran_itself_comes_back_as_it_came(item):
    _, payload, text = told("openai.responses", streamed([item, WORDS]))
    assert payload == [item, WORDS] and text == "Found."
    made = contexts("openai.responses", payload)
    assert made["openai.responses"][1:3] == [item, WORDS]
    assert all("Found." in json.dumps(context) for context in made.values())


CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}
PATCH = {"type": "create_file", "path": "a.txt", "diff": "+a"}
RUN = {
    "computer": {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "c1",
        "status": "completed",
        "pending_safety_checks": [],
        "action": CLICK,
    },
    "local_shell": {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "c1",
        "status": "completed",
        "action": EXEC,
    },
    "shell": {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "c1",
        "status": "completed",
        "action": {"commands": ["ls"]},
    },
    "apply_patch": {
        "type": "apply_patch_call",
        "id": "ap_1",
        "call_id": "c1",
        "status": "completed",
        "operation": PATCH,
    },
    "lark": {
        "type": "custom_tool_call",
        "id": "ct_1",
        "call_id": "c1",
        "name": "lark",
        "input": "a + b",
    },
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}
ANSWERS = {
    "computer": {"type": "computer_call_output", "call_id": "c1", "output": SCREENSHOT},
    "local_shell": {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"},
    "shell": {
        "type": "shell_call_output",
        "call_id": "c1",
        "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "apply_patch": {
        "type": "apply_patch_call_output",
        "call_id": "c1",
        "status": "completed",
        "output": "done",
    },
    "lark": {"type": "custom_tool_call_output", "call_id": "c1", "output": "3"},
}


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("thought", [(), (THOUGHT,)], ids=["", "with reasoning"])
def test_a_call_of_a_tool_that_the_caller_runs_is_a_call_and_never_stands_unanswered(name, thought):
    """The Responses API refuses such a call without its output."""
    spoken, payload, _ = told("openai.responses", streamed([*thought, RUN[name]]))
    assert payload == [*thought, RUN[name]]
    assert [(call.id, call.name) for call in spoken.note.calls] == [("c1", name)]
    made = contexts("openai.responses", payload)["openai.responses"]
    assert ("c1" in json.dumps(made)) == (name != "computer"), (
        "words can't answer a computer's call"
    )
    answered = contexts("openai.responses", payload, ANSWERS[name])["openai.responses"]
    assert answered[1 : 3 + len(thought)] == [*thought, RUN[name], ANSWERS[name]]


@pytest.mark.parametrize("name", RUN)
def test_what_a_turn_answers_in_words_answers_such_a_call(name):
    result = {"role": "tool", "parts": [{"type": "result", "call_id": "c1", "content": "seen"}]}
    form, neutral = registry.get("openai.responses"), registry.get("holdfast")
    said = [(form, form.say("user", "Go.")), (form, [THOUGHT, RUN[name]]), (neutral, result)]
    seen = [
        StoredMessage(f"m{seq}", seq, 1, f.note(one), freeze(one))
        for seq, (f, one) in enumerate(said, 1)
    ]
    for target in FORMATS:
        shaped = registry.get(target).shape(repair(seen, registry.read), used=set(), first=True)
        payloads = [payload for payload, _ in shaped]
        assert check(target, payloads) == [] and "seen" in json.dumps(payloads), target


def test_a_shell_that_the_server_ran_keeps_its_output_in_the_response():
    items = [THOUGHT, RUN["shell"], {**ANSWERS["shell"], "id": "so_1"}, WORDS]
    spoken, payload, _ = told("openai.responses", streamed(items))
    assert payload == items and spoken.note.calls == ()
    assert contexts("openai.responses", payload)["openai.responses"][1:5] == items


def use(number, name="web_search", **more):
    return {
        "type": "server_tool_use",
        "id": f"srvtoolu_{number}",
        "name": name,
        "input": {"query": "q"},
        **more,
    }


def found(number):
    result = {
        "type": "web_search_result",
        "url": "https://a",
        "title": "A",
        "encrypted_content": "x",
        "page_age": None,
    }
    return {
        "type": "web_search_tool_result",
        "tool_use_id": f"srvtoolu_{number}",
        "content": [result],
    }


def words(text, **more):
    return {"type": "text", "text": text, **more}


CITED = {
    "type": "web_search_result_location",
    "cited_text": "c",
    "encrypted_index": "e",
    "title": "A",
    "url": "https://a",
}


def anthropic_events(blocks, stop="end_turn", **closing):
    events = [
        {
            "type": "message_start",
            "message": {"id": "m", "model": "claude", "usage": {"input_tokens": 1}},
        }
    ]
    for index, block in enumerate(blocks):
        opened, deltas = dict(block), []
        if "input" in block:
            opened["input"] = {}
            text = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": part} for part in (text[:4], text[4:])
            ]
        if block["type"] == "text":
            opened = {
                "type": "text",
                "text": "",
                **({"citations": None} if "citations" in block else {}),
            }
            deltas = [
                {"type": "citations_delta", "citation": one} for one in block.get("citations") or ()
            ]
            deltas.append({"type": "text_delta", "text": block["text"]})
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None, **closing}
    return [
        *events,
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def test_what_anthropic_ran_itself_comes_back_as_it_came():
    mcp = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "n", "server_name": "s", "input": {}}
    blocks = [
        {"type": "redacted_thinking", "data": "x"},
        words("Let me look."),
        use(1),
        found(1),
        mcp,
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [words("o")],
        },
        words("Found.", citations=[CITED]),
    ]
    container = {"id": "container_1", "expires_at": "2026-01-01"}
    spoken, payload, text = told("anthropic", anthropic_events(blocks, container=container))
    assert payload["content"] == blocks and payload["container"] == container
    assert text == "Let me look.Found." and not spoken.note.partial
    made = contexts("anthropic", payload)
    assert made["anthropic"][1] == {"role": "assistant", "content": blocks}
    assert all("Found." in json.dumps(context) for context in made.values())


def test_a_kind_of_delta_that_is_new_grows_its_block():
    events = anthropic_events([words("Hi.")])
    block = {"type": "compaction", "content": ""}
    delta = {"type": "compaction_delta", "content": "short"}
    events[1:1] = [
        {"type": "content_block_start", "index": 5, "content_block": block},
        {"type": "content_block_delta", "index": 5, "delta": delta},
    ]
    _, payload, _ = told("anthropic", events)
    assert payload["content"][0] == {"type": "compaction", "content": "short"}


def test_a_turn_that_paused_is_valid_before_a_user_s_message():
    """A use of the provider's own tool without a result is refused, unless it is the end of the
    request.
    """
    for blocks in (
        [words("Let me look."), use(1)],
        [use(1)],
        [{"type": "redacted_thinking", "data": "x"}, use(1)],
    ):
        _, payload, _ = told("anthropic", anthropic_events(blocks, stop="pause_turn"))
        assert payload["content"] == blocks
        contexts("anthropic", payload)


def test_a_turn_that_paused_and_went_on_is_one_message_with_its_pairs():
    _, paused, _ = told(
        "anthropic", anthropic_events([words("Let me look."), use(1)], stop="pause_turn")
    )
    _, resumed, _ = told("anthropic", anthropic_events([found(1), words("Found.")]))
    made = contexts("anthropic", paused, resumed)["anthropic"]
    assert made[1]["content"] == [words("Let me look."), use(1), found(1), words("Found.")]


@pytest.mark.parametrize("format", ["openai.chat", "openai.responses"])
@pytest.mark.parametrize("cut", ['{"at": "sk', "", "not json"])
def test_arguments_that_were_cut_off_are_sent_as_valid_json(format, cut):
    """A whole message that stopped at its limit, in the middle of a call."""
    calls = {
        "openai.chat": {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": cut}}
            ],
        },
        "openai.responses": [
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": cut}
        ],
    }
    made = contexts(format, calls[format])
    for context in made["openai.chat"][1]["tool_calls"]:
        assert json.loads(context["function"]["arguments"]) == ({"arguments": cut} if cut else {})
