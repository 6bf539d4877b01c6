"""Tokens that are taken back while an answer is told, and names in headers."""

import http.client
import json
import threading
from pathlib import Path

import openai
import pytest

from clients import SCRIPTS
from holdfast.server.auth import Identity, Tokens, digest_of, identity
from holdfast.server.proxy.dialects import CHAT
from proxied_samples import say, whole
from proxy_world import LIMIT_S, ProxyClients, cut_off, keys, provider, proxied, told, turns

HI = [{"role": "user", "content": "Hi"}]


class TakenTokens(Tokens):
    """One token, until it is taken back."""

    def __init__(self, token: str) -> None:
        super().__init__({digest_of(token): identity("default", "write")})
        self.is_taken = False

    def identity(self, token: str) -> Identity | None:
        return None if self.is_taken else super().identity(token)

    def version(self) -> int:
        return int(self.is_taken)


def test_an_answer_whose_token_is_taken_back_is_cut_and_stored(tmp_path: Path) -> None:
    store, tokens = tmp_path / "a.db", TakenTokens("hf_a")
    with provider() as upstream, proxied(store, upstream, tokens=tokens) as port:
        script = SCRIPTS["openai.chat"](["one ", "two ", "three"])
        place = next(n for n, (_, data) in enumerate(script) if "three" in json.dumps(data))
        upstream.answer(script, hold_after=place)
        clients = ProxyClients(port, "mine", **{"Holdfast-Token": "hf_a"})
        stream = iter(clients.stream("openai.chat", HI))
        next(stream)
        upstream.held.get(timeout=LIMIT_S)
        tokens.is_taken = True
        # Its provider says no more: the client is cut by nobody else.
        with cut_off():
            list(stream)
        upstream.go_on()
        assert upstream.ended.get(timeout=LIMIT_S)
    assert told(store, "mine")[-1] == ("assistant", "one two three", "complete")
    assert turns(store, "mine") == ["completed"]


def test_one_who_has_heard_nothing_yet_is_told_why(tmp_path: Path) -> None:
    store, tokens = tmp_path / "a.db", TakenTokens("hf_a")
    with provider() as upstream, proxied(store, upstream, tokens=tokens) as port:
        clients = ProxyClients(port, "mine", **{"Holdfast-Token": "hf_a"})
        # No answer is planned: the provider has the request, and waits.
        taking = _Taking(upstream.seen.get, tokens)
        with taking, pytest.raises(openai.AuthenticationError):
            clients.stream("openai.chat", HI)
        upstream.answer(SCRIPTS["openai.chat"](["Hello."]))
        assert upstream.ended.get(timeout=LIMIT_S)
    assert told(store, "mine")[-1] == ("assistant", "Hello.", "complete")


class _Taking:
    """Takes the token back, in a thread, as soon as the provider has a request."""

    def __init__(self, wait, tokens: TakenTokens) -> None:  # type: ignore[no-untyped-def]
        def take() -> None:
            wait(timeout=LIMIT_S)
            tokens.is_taken = True

        self._thread = threading.Thread(target=take)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(LIMIT_S)


def test_a_name_is_the_same_in_a_header_and_in_json(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        for name in ("clé".encode(), "cl\xe9".encode("latin-1"), None):
            upstream.answer_whole(whole(CHAT, [say(CHAT, "Hello.")]))
            body = {"messages": HI, "metadata": {"session_id": "clé"}}
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            connection.putrequest("POST", "/v1/chat/completions")
            raw = json.dumps(body).encode()
            connection.putheader("Content-Length", str(len(raw)))
            if name is not None:
                connection.putheader("Holdfast-Session", name)
            connection.endheaders(raw)
            assert connection.getresponse().status == 200
            connection.close()
    assert keys(store) == ["clé"]
