"""Clients and providers that do what the APIs allow and few do: nothing is doubled, lost, or bent for it."""

import contextlib
from pathlib import Path
from typing import Any

import anthropic
import pytest

import holdfast
from clients import SCRIPTS
from holdfast.server.proxy.dialects import ANTHROPIC, CHAT
from proxied_samples import say, whole
from proxy_world import KEY, ProxyClients, provider, proxied, told, turns
from thorough import few_cases

HI = [{"role": "user", "content": "Hi"}]
FORMATS = ("openai.chat", "openai.responses", "anthropic")


def pieces(format: str) -> tuple[Any, Any, Any]:
    """Words, a call and its result, each by itself."""
    words = {"role": "assistant", "content": "I look."}
    said = {"name": "look", "arguments": '{"at": 1}'}
    if format == "openai.chat":
        call = {"id": "call_1", "type": "function", "function": said}
        result = {"role": "tool", "tool_call_id": "call_1", "content": "There."}
        return words, {"role": "assistant", "content": None, "tool_calls": [call]}, result
    if format == "openai.responses":
        result = {"type": "function_call_output", "call_id": "call_1", "output": "There."}
        return words, {"type": "function_call", "call_id": "call_1", **said}, result
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}}
    answer = {"type": "tool_result", "tool_use_id": "call_1", "content": "There."}
    return (
        words,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [answer]},
    )


@pytest.mark.parametrize("format", FORMATS)
def test_words_and_a_call_that_are_sent_back_apart_are_stored_once(
    tmp_path: Path, format: str
) -> None:
    store = tmp_path / "a.db"
    script = SCRIPTS[format]
    # Not all providers refuse neighbours of one role.
    with provider(strict=False) as upstream, proxied(store, upstream) as port:
        clients = ProxyClients(port, "mine")
        upstream.answer(script(["I look."], calls=[("call_1", "look", ['{"at": ', "1}"])]))
        list(clients.stream(format, HI))
        said: list[Any] = [*HI, *pieces(format)]
        upstream.answer(script(["Found."], number=2))
        list(clients.stream(format, said))
        said += [{"role": "assistant", "content": "Found."}, {"role": "user", "content": "And?"}]
        upstream.answer(script(["That is all."], number=3))
        list(clients.stream(format, said))
    texts = [text for _, text, _ in told(store, "mine")]
    assert texts == ["Hi", "I look.", "There.", "Found.", "And?", "That is all."]


@few_cases(every=3)
@pytest.mark.parametrize("encoding", ["gzip", None])
@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/x-ndjson", ""])
def test_a_stream_is_one_whatever_its_provider_calls_it(
    tmp_path: Path, kind: str, encoding: str | None
) -> None:
    store = tmp_path / "a.db"
    format = "openai.chat"
    with provider() as upstream, proxied(store, upstream) as port:
        script = SCRIPTS[format](["one ", "two ", "three"])
        upstream.answer(script, hold_after=len(script) - 2, kind=kind, encoding=encoding)
        stream = iter(ProxyClients(port, "mine").stream(format, HI))
        seen = ""
        # It is not held back until its end.
        while "three" not in seen:
            seen += next(stream).to_json()
        upstream.go_on()
        list(stream)
    assert told(store, "mine")[-1] == ("assistant", "one two three", "complete")
    assert turns(store, "mine") == ["completed"]


def test_an_answer_in_one_piece_to_who_asked_for_a_stream_is_stored(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        upstream.answer_whole(whole(CHAT, [say(CHAT, "Hello.")]))
        list(ProxyClients(port, "mine").stream("openai.chat", HI))
    assert told(store, "mine")[-1] == ("assistant", "Hello.", "complete")


@few_cases(every=5)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("field", ["type", "code"])
@pytest.mark.parametrize("key", [KEY, f"Incorrect key: {KEY}", "sk-abcdef", "0a1b2c3d4e5f6071"])
def test_an_error_that_has_the_key_in_it_is_stored_as_an_error(
    tmp_path: Path, format: str, field: str, key: str
) -> None:
    store = tmp_path / "a.db"
    error = {field: key, "message": f"Incorrect API key provided: {key}"}
    event: Any = {"type": "error", "error": error}
    if format == "openai.responses":
        event = {"type": "response.failed", "response": {"id": "r", "error": error}}
    with provider() as upstream, proxied(store, upstream) as port:
        name = None if format == "openai.chat" else event["type"]
        upstream.answer([(name, event)])
        with contextlib.suppress(Exception):
            list(ProxyClients(port, "mine").stream(format, HI))
    assert turns(store, "mine") == ["failed"]
    with holdfast.open(store) as opened:
        [turn] = opened.session("mine", create=False).turns()
    assert turn.error == "the provider answered: error"
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert key.encode() not in stored


@pytest.mark.parametrize("starts", [1, 2], ids=["one proxy", "started again"])
@pytest.mark.parametrize("tools", [["look"], ["rate"], []])
def test_one_question_under_other_instructions_is_no_turn(
    tmp_path: Path, tools: list[str], starts: int
) -> None:
    store = tmp_path / "a.db"
    format = "openai.chat"
    script = SCRIPTS[format]

    def ask(clients: ProxyClients, told: str, said: list[Any], names: list[str]) -> None:
        more: Any = [
            {"type": "function", "function": {"name": name, "parameters": {}}} for name in names
        ]
        asked = [{"role": "system", "content": told}, *said]
        list(clients.stream(format, asked, **({"tools": more} if more else {})))

    with provider() as upstream, contextlib.ExitStack() as running:
        port = running.enter_context(proxied(store, upstream))
        clients = ProxyClients(port, "mine")
        upstream.answer(script(["Hello."]))
        ask(clients, "You help.", HI, ["look"])
        rate = [{"role": "user", "content": "Is this spam?"}]
        upstream.answer(script(["I look."], calls=[("call_1", "look", ['{"at": 1}'])], number=2))
        ask(clients, "You classify.", rate, tools)
        if starts == 2:
            running.close()
            port = running.enter_context(proxied(store, upstream))
            clients = ProxyClients(port, "mine")
        # What its calls have given is no turn either.
        _, call, result = pieces(format)
        upstream.answer(script(["No."], number=3))
        ask(clients, "You classify.", [*rate, {**call, "content": "I look."}, result], tools)
        upstream.answer(script(["Well."], number=4))
        said = [*HI, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "So?"}]
        ask(clients, "You help.", said, ["look"])
    assert [text for _, text, _ in told(store, "mine")] == ["Hi", "Hello.", "So?", "Well."]
    beside = [text for role, text, _ in told(store, "mine/side") if role != "system"]
    assert beside == ["Is this spam?", "I look.", "There.", "No."]
    with holdfast.open(store) as opened:
        assert opened.session("mine").instructions() == "You help."


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("as_blocks", [True, False], ids=["blocks", "text"])
def test_a_prefill_is_the_beginning_of_its_answer(
    tmp_path: Path, is_streamed: bool, as_blocks: bool
) -> None:
    store = tmp_path / "a.db"
    words = '{"capital":'
    content = [{"type": "text", "text": words}] if as_blocks else words
    lead = {"role": "assistant", "content": content}
    said: list[Any] = []
    with provider(strict=False) as upstream, proxied(store, upstream) as port:
        # Found by its list: what clients join is known there, too.
        clients = ProxyClients(port)
        for number, (asked, rest) in enumerate(
            (("France?", ' "Paris"}'), ("Spain?", ' "Madrid"}'))
        ):
            said.append({"role": "user", "content": asked})
            # An attempt that was answered with an error has said nothing.
            upstream.answer_whole({"error": {"type": "overloaded_error"}}, status=529)
            with pytest.raises(anthropic.APIStatusError):
                clients.stream("anthropic", [*said, lead])
            if is_streamed:
                upstream.answer(SCRIPTS["anthropic"]([rest[:3], rest[3:]], number=number))
                list(clients.stream("anthropic", [*said, lead]))
            else:
                upstream.answer_whole(whole(ANTHROPIC, [say(ANTHROPIC, rest)]))
                clients.whole("anthropic", [*said, lead])
            said.append({"role": "assistant", "content": words + rest})
    with holdfast.open(store) as opened:
        [info] = opened.sessions()
        session = opened.get(info.id)
        assert [each.text for each in session.transcript()] == [each["content"] for each in said]
        assert [turn.end for turn in session.turns()] == ["completed", "completed"]
        assert [each["content"] for each in session.context()] == [each["content"] for each in said]
