"""The proxy between the providers' own clients and a strict provider: bytes, sessions, kinds of answers."""

import gzip
import http.client
import json
import queue
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import holdfast
from clients import SCRIPTS
from commanding import command
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.testing.providers import check
from proxied_samples import say, whole
from proxy_world import (
    KEY,
    LIMIT_S,
    HeldProvider,
    ProxyClients,
    keys,
    provider,
    proxied,
    told,
    turns,
)

FORMATS = ("openai.chat", "openai.responses", "anthropic")
HI = [{"role": "user", "content": "Hi"}]


def dialect(format: str) -> Any:
    from holdfast.server.proxy.dialects import DIALECTS

    return next(each for each in DIALECTS if each.format == format)


def model(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def post(port: int, path: str, raw: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("POST", path, raw, headers)
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, names, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("format", FORMATS)
class TestAllDialects:
    def test_a_streamed_conversation(self, tmp_path: Path, format: str) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            upstream.answer(SCRIPTS[format](["Hel", "lo."]))
            first = list(clients.stream(format, HI))
            said = [*HI, model("Hello."), user("And?")]
            upstream.answer(SCRIPTS[format](["All ", "well."], number=2))
            second = list(clients.stream(format, said))
        assert first and second
        assert told(store, "mine") == [
            ("user", "Hi", "complete"),
            ("assistant", "Hello.", "complete"),
            ("user", "And?", "complete"),
            ("assistant", "All well.", "complete"),
        ]
        assert turns(store, "mine") == ["completed", "completed"]
        with holdfast.open(store) as opened:
            assert check(format, opened.session("mine").context(format)) == []

    def test_an_answer_that_is_not_streamed(self, tmp_path: Path, format: str) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            body = whole(dialect(format), [say(dialect(format), "Hello.")])
            upstream.answer_whole(body)
            answer = ProxyClients(port, "mine").whole(format, HI)
        assert "Hello." in answer.to_json()
        assert told(store, "mine") == [
            ("user", "Hi", "complete"),
            ("assistant", "Hello.", "complete"),
        ]
        assert turns(store, "mine") == ["completed"]

    @pytest.mark.parametrize("encoding", [None, "gzip"])
    def test_bytes_pass_unchanged_both_ways(
        self, tmp_path: Path, format: str, encoding: str | None
    ) -> None:
        name = dialect(format).list_in
        raw = json.dumps({"model": "m", "é": 1, name: HI, "stream": True}, indent=3).encode()
        path = f"/v1{dialect(format).path}?beta=true&x=%2F"
        with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
            sent = upstream.answer(SCRIPTS[format](["Grüße", "\u2028."]), encoding=encoding)
            given = {"Authorization": f"Bearer {KEY}", "Accept-Encoding": "gzip, br", "X-Odd": "1"}
            status, headers, body = post(port, path, raw, **given)
            seen = upstream.seen.get(timeout=LIMIT_S)
        assert (status, body) == (200, sent)
        assert headers.get("content-encoding") == encoding
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (seen.path, seen.raw) == (path, raw)
        assert seen.headers["authorization"] == f"Bearer {KEY}"
        assert seen.headers["x-odd"] == "1" and seen.headers["accept-encoding"] == "gzip"
        assert seen.headers["host"] == f"127.0.0.1:{upstream.port}"

    def test_a_chunk_is_stored_before_it_is_passed_on(self, tmp_path: Path, format: str) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            script = SCRIPTS[format](["one ", "two ", "three"])
            upstream.answer(script, hold_after=len(script) - 3)
            stream = iter(ProxyClients(port, "mine").stream(format, HI))
            seen = ""
            while "two" not in seen:
                seen += next(stream).to_json()
            with holdfast.open(store) as opened:
                session = opened.session("mine", create=False)
                # Whoever follows sees at once what the client has seen.
                live = ""
                for event in session.follow():
                    live += event.text or ""
                    if "two" in live:
                        break
            upstream.go_on()
            rest = list(stream)
        assert "one two" in live and rest

    def test_no_key_and_no_header_is_stored(self, tmp_path: Path, format: str) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            upstream.answer(SCRIPTS[format](["Hello."]))
            more = {"X-Mine": "a-header-of-mine"}
            list(ProxyClients(port, "mine", **more).stream(format, HI))
        for path in tmp_path.iterdir():
            raw = path.read_bytes()
            assert KEY.encode() not in raw and b"a-header-of-mine" not in raw
            assert b"Bearer" not in raw

    def test_what_the_provider_refuses_is_told_and_the_turn_fails(
        self, tmp_path: Path, format: str
    ) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            error = {"type": "error", "error": {"type": "t", "message": "No.", "code": "c"}}
            raw = upstream.answer_whole(error, status=400, **{"request-id": "r1"})
            with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as caught:
                ProxyClients(port, "mine").stream(format, HI)
        assert caught.value.response.content == raw
        assert caught.value.response.headers["request-id"] == "r1"
        assert told(store, "mine") == [("user", "Hi", "complete")]
        assert turns(store, "mine") == ["failed"]


class TestSessions:
    def ask(self, upstream: HeldProvider, clients: ProxyClients, *said: str, **more: Any) -> None:
        """Says this, by turns, the user first; the answer is the next letter."""
        messages = [user(text) if n % 2 == 0 else model(text) for n, text in enumerate(said)]
        upstream.answer(SCRIPTS["openai.chat"]([chr(ord(said[-1]) + 1)]))
        list(clients.stream("openai.chat", messages, **more))

    def test_a_session_is_found_by_its_list(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port)
            self.ask(upstream, clients, "a")
            self.ask(upstream, clients, "p")
            self.ask(upstream, clients, "a", "b", "c")
            self.ask(upstream, clients, "p", "q", "r")
        assert keys(store) == ["proxy:…", "proxy:…"]
        with holdfast.open(store) as opened:
            found = []
            for info in opened.sessions():
                session = opened.get(info.id)
                found.append("".join(message.text for message in session.transcript()))
        assert sorted(found) == ["abcd", "pqrs"]

    def test_a_session_is_found_by_its_list_in_another_process(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        for said in (("a",), ("p",), ("a", "b", "c"), ("p", "q", "r")):
            with provider() as upstream, proxied(store, upstream) as port:
                self.ask(upstream, ProxyClients(port), *said)
        assert keys(store) == ["proxy:…", "proxy:…"]

    def test_a_user_may_have_several_conversations(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        for said in (("a",), ("p",), ("a", "b", "c"), ("p", "q", "r")):
            with provider() as upstream, proxied(store, upstream) as port:
                self.ask(upstream, ProxyClients(port), *said, user="ada")
        assert keys(store) == ["ada", "ada/2"]
        assert [text for _, text, _ in told(store, "ada")] == ["a", "b", "c", "d"]
        assert [text for _, text, _ in told(store, "ada/2")] == ["p", "q", "r", "s"]

    def test_a_list_that_was_begun_again_is_the_same_named_session(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            self.ask(upstream, clients, "a")
            self.ask(upstream, clients, "p")
        assert [text for _, text, _ in told(store, "mine")] == ["a", "b", "p", "q"]
        with holdfast.open(store) as opened:
            assert [each["content"] for each in opened.session("mine").context()] == ["p", "q"]

    def test_news_alone_go_on_from_the_response_before(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        for number, before in enumerate((None, "resp_1", "resp_2"), 1):
            with provider() as upstream, proxied(store, upstream) as port:
                text = f"Answer {number}."
                script = SCRIPTS["openai.responses"]([text], number=number)
                upstream.answer(script)
                more = {} if before is None else {"previous_response_id": before}
                asked = [user(f"Question {number}.")]
                list(ProxyClients(port).stream("openai.responses", asked, **more))
        assert keys(store) == ["proxy:…"]
        with holdfast.open(store) as opened:
            [info] = opened.sessions()
            said = [message.text for message in opened.get(info.id).transcript()]
        assert said == [
            "Question 1.",
            "Answer 1.",
            "Question 2.",
            "Answer 2.",
            "Question 3.",
            "Answer 3.",
        ]

    def test_a_turn_goes_on_while_its_calls_are_answered(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        script = SCRIPTS["openai.chat"]
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
            upstream.answer(script(["I look."], calls=[("call_1", "look", ['{"at": ', "1}"])]))
            list(clients.stream("openai.chat", HI, tools=[tool]))
            function = {"name": "look", "arguments": '{"at": 1}'}
            call = {"id": "call_1", "type": "function", "function": function}
            said: list[Any] = [*HI, {**model("I look."), "tool_calls": [call]}]
            said.append({"role": "tool", "tool_call_id": "call_1", "content": "It is there."})
            upstream.answer(script(["Found."], number=2))
            list(clients.stream("openai.chat", said, tools=[tool]))
        assert turns(store, "mine") == ["completed"]
        assert [role for role, _, _ in told(store, "mine")] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]

    def test_a_title_is_beside_the_session(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            self.ask(upstream, clients, "a")
            upstream.answer(SCRIPTS["openai.chat"](["A title"]))
            asked = [{"role": "system", "content": "Generate a short title."}, user("a")]
            list(clients.stream("openai.chat", asked))
            self.ask(upstream, clients, "a", "b", "c")
        assert keys(store) == ["mine", "mine/title"]
        assert turns(store, "mine") == ["completed", "completed"]
        assert [text for _, text, _ in told(store, "mine")] == ["a", "b", "c", "d"]

    def test_two_at_once_are_both_answered_and_one_is_aside(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        script = SCRIPTS["openai.chat"]
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            upstream.answer(script(["one ", "two"]), hold_after=2)
            first = iter(clients.stream("openai.chat", HI))
            next(first)
            upstream.held.get(timeout=LIMIT_S)
            upstream.answer(script(["another"]))
            second = list(clients.stream("openai.chat", HI))
            upstream.go_on()
            assert second and list(first)
        assert [text for _, text, _ in told(store, "mine")] == ["Hi", "one two"]
        assert [text for _, text, _ in told(store, "mine/side")][-1] == "another"

    def test_two_who_begin_with_the_same_words_are_two(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        script = SCRIPTS["openai.chat"]
        with provider() as upstream, proxied(store, upstream) as port:
            upstream.answer(script(["one ", "two"]), hold_after=2)
            first = iter(ProxyClients(port).stream("openai.chat", HI))
            next(first)
            upstream.held.get(timeout=LIMIT_S)
            upstream.answer(script(["another"]))
            list(ProxyClients(port).stream("openai.chat", HI))
            upstream.go_on()
            list(first)
        assert keys(store) == ["proxy:…", "proxy:…"]

    def test_a_session_that_was_reset_goes_on_in_the_next(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            clients = ProxyClients(port, "mine")
            self.ask(upstream, clients, "a")
            with holdfast.open(store) as opened:
                opened.reset("mine")
            self.ask(upstream, clients, "p")
        assert [text for _, text, _ in told(store, "mine")] == ["p", "q"]


class TestOtherRequests:
    def test_what_is_expected_of_the_proxy_is_not_asked_of_the_provider(
        self, tmp_path: Path
    ) -> None:
        raw = json.dumps({"model": "m", "messages": HI, "stream": True}).encode()
        with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
            sent = upstream.answer(SCRIPTS["openai.chat"](["Hello."]))
            given = {"Expect": "100-continue", "TE": "trailers", "X-Odd": "1"}
            status, _, body = post(port, "/v1/chat/completions", raw, **given)
            seen = upstream.seen.get(timeout=LIMIT_S)
        assert (status, body, seen.raw) == (200, sent, raw)
        assert "expect" not in seen.headers and "te" not in seen.headers
        assert seen.headers["x-odd"] == "1"

    def test_what_asks_no_model_passes_and_is_not_stored(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            upstream.answer_whole({"object": "list", "data": [{"id": "m", "object": "model"}]})
            models = ProxyClients(port, "mine").openai.models.list()
            assert [each.id for each in models] == ["m"]
            upstream.answer_whole({"input_tokens": 7})
            counted = ProxyClients(port).anthropic.messages.count_tokens(model="m", messages=HI)
            assert counted.input_tokens == 7
        assert keys(store) == []

    def test_a_websocket_is_refused_so_that_the_client_posts(self, tmp_path: Path) -> None:
        with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "eA=="}
            connection.request("GET", "/v1/responses", headers=headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
            connection.close()
            with pytest.raises(queue.Empty):
                upstream.seen.get_nowait()
        assert answer.status == 426 and body["error"]["code"] == "upgrade_refused"

    def test_a_compressed_request_is_read_from_a_copy(self, tmp_path: Path) -> None:
        raw = gzip.compress(json.dumps({"model": "m", "messages": HI}).encode())
        with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
            for encoding in ("gzip", "zstd"):
                upstream.answer_whole(whole(dialect("openai.chat"), [model("Hello.")]))
                given = {"Content-Encoding": encoding, "Holdfast-Session": encoding}
                status, headers, _ = post(port, "/v1/chat/completions", raw, **given)
                assert (status, upstream.seen.get(timeout=LIMIT_S).raw) == (200, raw)
                assert ("holdfast-session-id" in headers) == (encoding == "gzip")
        assert keys(tmp_path / "a.db") == ["gzip"]

    def test_a_request_that_is_too_large_is_refused(self, tmp_path: Path) -> None:
        with provider() as upstream, proxied(tmp_path / "a.db", upstream, bytes_max=1000) as port:
            status, headers, body = post(port, "/v1/messages", b" " * 1001)
            assert status == 413 and headers["x-should-retry"] == "false"
            assert json.loads(body)["error"]["type"] == "too_large"

    def test_a_provider_that_is_not_there(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        with provider() as upstream, proxied(store, upstream) as port:
            upstream.close()
            with pytest.raises(openai.InternalServerError) as caught:
                ProxyClients(port, "mine").stream("openai.chat", HI)
            assert caught.value.status_code == 502
            status, _, _ = post(port, "/v1/embeddings", b"{}")
            assert status == 502
        assert told(store, "mine") == [("user", "Hi", "complete")]


class TestTokens:
    def test_a_page_of_somebody_else_can_not_use_it(self, tmp_path: Path) -> None:
        with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
            for headers in (
                {"Origin": "https://example.com"},
                {"Origin": "null"},
                {"Host": "example.com"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Host": f"rebound.example.com:{port}"},
            ):
                status, _, _ = post(port, "/v1/chat/completions", b"{}", **headers)
                assert status == 403, headers
            assert upstream.seen.empty()
            upstream.answer_whole({"object": "list"})
            origin = {"Origin": "http://localhost:3000", "Host": f"localhost:{port}"}
            assert post(port, "/v1/models", b"", **origin)[0] == 200
            # A page of this machine, under another of its names.
            upstream.answer_whole({"object": "list"})
            site = {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:3000"}
            assert post(port, "/v1/models", b"", **site)[0] == 200

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
    def test_an_address_that_others_can_reach_needs_tokens(self, tmp_path: Path, host: str) -> None:
        place = ("proxy", tmp_path / "a.db", "--upstream", "http://127.0.0.1:9", "--host", host)
        done = command(*place, "--port", "0")
        assert done.code == 2 and "a file of tokens" in done.err
        assert list(tmp_path.iterdir()) == []

    def test_each_token_has_its_tenant_and_none_is_refused(self, tmp_path: Path) -> None:
        store = tmp_path / "a.db"
        known = {
            digest_of("hf_a"): identity("acme", "write"),
            digest_of("hf_b"): identity("other", "write"),
            digest_of("hf_r"): identity("acme", "read"),
        }
        with provider() as upstream, proxied(store, upstream, tokens=Tokens(known)) as port:
            for token, text in (("hf_a", "For acme."), ("hf_b", "For the other.")):
                upstream.answer(SCRIPTS["openai.chat"]([text]))
                clients = ProxyClients(port, "mine", **{"Holdfast-Token": token})
                list(clients.stream("openai.chat", HI))
                assert "holdfast-token" not in upstream.seen.get(timeout=LIMIT_S).headers
            for path in (
                "/v1/chat/completions",
                "/v1/responses",
                "/v1/messages",
                "/v1/models",
                "/",
            ):
                assert post(port, path, b"{}")[0] == 401
                assert post(port, path, b"{}", Authorization="Bearer hf_a")[0] == 401
                assert post(port, path, b"{}", **{"Holdfast-Token": "hf_x"})[0] == 401
                assert post(port, path, b"{}", **{"Holdfast-Token": "hf_r"})[0] == 403
            with pytest.raises(queue.Empty):
                upstream.seen.get_nowait()
        assert told(store, "mine", tenant="acme")[-1][1] == "For acme."
        assert told(store, "mine", tenant="other")[-1][1] == "For the other."
        assert keys(store) == []
