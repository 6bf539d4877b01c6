"""Kills and cuts on all three sides of the proxy: what was shown is stored, and a half answer can't look
whole.
"""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

import holdfast
from clients import SCRIPTS
from holdfast.server.proxy import proxied_sessions
from holdfast.testing.providers import check
from locked_stores import held
from procs import child
from proxy_world import (
    LIMIT_S,
    HeldProvider,
    ProxyClients,
    ProxyProcess,
    cut_off,
    half_heard_of,
    keys,
    provider,
    proxied,
    told,
    turns,
)
from servers import waiting_until
from thorough import few_cases

FORMATS = ("openai.chat", "openai.responses", "anthropic")
# Two processes for each: what the dialects differ in is not what a kill is about.
KILLED = (
    "openai.chat",
    pytest.param("openai.responses", marks=pytest.mark.slow),
    pytest.param("anthropic", marks=pytest.mark.slow),
)
HI = [{"role": "user", "content": "Hi"}]

CLIENT = """
import http.client, json
port, path, name = sys.argv[1:]
body = {"model": "m", "stream": True, name: [{"role": "user", "content": "Hi"}]}
connection = http.client.HTTPConnection("127.0.0.1", int(port))
connection.request("POST", path, json.dumps(body), {"Holdfast-Session": "mine"})
answer = connection.getresponse()
seen = b""
while b"two" not in seen:
    seen += answer.read1(1000)
say("heard")
hear()
"""


def words(chunks: list[Any]) -> str:
    return "".join(chunk.to_json() for chunk in chunks)


@contextmanager
def half_heard(upstream: HeldProvider, port: int, format: str, **more: Any) -> Iterator[Any]:
    """A stream of which the client has seen "one two ", and the provider sends no more for now."""
    script = SCRIPTS[format](["one ", "two ", "three"])
    ask = partial(ProxyClients(port, "mine").stream, format, HI)
    yield half_heard_of(upstream, script, ask, **more)


def answer_again(upstream: HeldProvider, port: int, format: str) -> None:
    upstream.answer(SCRIPTS[format](["one ", "two ", "three"], number=2))
    assert "three" in words(list(ProxyClients(port, "mine").stream(format, HI)))


def view(store: Path, format: str) -> str:
    """What the model sees, if the provider takes it."""
    with holdfast.open(store) as opened:
        context = opened.session("mine").context(format)
    assert check(format, context) == []
    return json.dumps(context)


@few_cases(every=3)
@pytest.mark.parametrize("format", KILLED)
def test_a_killed_proxy_leaves_what_was_shown(tmp_path: Path, format: str) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, ProxyProcess(store, upstream) as proxy:
        with half_heard(upstream, proxy.port, format) as stream:
            proxy.kill()
            with cut_off():
                list(stream)
        upstream.go_on()
        with proxy:
            # As a client does: the same list again.
            answer_again(upstream, proxy.port, format)
            code, said = proxy.end()
    assert (code, said) == (-signal.SIGTERM, "")
    assert told(store, "mine") == [
        ("user", "Hi", "complete"),
        ("assistant", "one two ", "partial"),
        ("assistant", "one two three", "complete"),
    ]
    assert turns(store, "mine") == ["abandoned", "completed"]
    assert view(store, format).count("one two") == 1


def test_a_killed_proxy_finds_the_session_of_a_list_again(tmp_path: Path) -> None:
    store, script = tmp_path / "a.db", SCRIPTS["openai.chat"]
    said = [*HI, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}]
    with provider() as upstream, ProxyProcess(store, upstream) as proxy:
        upstream.answer(script(["Hello."]))
        list(ProxyClients(proxy.port).stream("openai.chat", HI))
        upstream.answer(script(["one ", "two"]), hold_after=2)
        stream = iter(ProxyClients(proxy.port).stream("openai.chat", said))
        next(stream)
        proxy.kill()
        upstream.go_on()
        with proxy:
            upstream.answer(script(["one ", "two"]))
            list(ProxyClients(proxy.port).stream("openai.chat", said))
            proxy.end()
    assert keys(store) == ["proxy:…"]


@few_cases(every=2)
@pytest.mark.parametrize("format", FORMATS)
def test_a_killed_client_does_not_stop_the_answer(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_sessions, "RETRY_S", 0.5)  # it may come back, but does not
    store = tmp_path / "a.db"
    path, name = {
        "openai.chat": ("/v1/chat/completions", "messages"),
        "openai.responses": ("/v1/responses", "input"),
        "anthropic": ("/v1/messages", "messages"),
    }[format]
    with provider() as upstream, proxied(store, upstream) as port:
        script = SCRIPTS[format](["one ", "two ", "three"])
        place = next(n for n, (_, data) in enumerate(script) if "three" in json.dumps(data))
        upstream.answer(script, hold_after=place)
        with child(CLIENT, port, path, name) as client:
            client.wait_for("heard")
            upstream.held.get(timeout=LIMIT_S)
            client.kill()
        with holdfast.open(store) as opened:
            session = opened.session("mine", create=False)
            live, cursor = "", None
            for event in session.follow():
                live, cursor = live + (event.text or ""), event.cursor
                if "two" in live:
                    break
            upstream.go_on()
            # The rest is fetched from the stream, from where the client stood.
            for event in session.follow(after=cursor):
                live += event.text or ""
                if event.entry is not None and event.entry.kind == "end":
                    break
        assert live.endswith("one two three")
        assert upstream.ended.get(timeout=LIMIT_S)
    assert told(store, "mine")[-1] == ("assistant", "one two three", "complete")
    assert turns(store, "mine") == ["completed"]


@few_cases(every=3)
@pytest.mark.parametrize("ending", ["cut", "closed"])
@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_that_breaks_off_breaks_off_for_the_client(
    tmp_path: Path, format: str, ending: str
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        script = SCRIPTS[format](["one ", "two ", "three"])
        place = next(n for n, (_, data) in enumerate(script) if "three" in json.dumps(data))
        upstream.answer(script[:place], ending=ending)
        heard = []
        with cut_off():
            for chunk in ProxyClients(port, "mine").stream(format, HI):
                heard.append(chunk)
        assert "two" in words(heard)
        # Tried again at once, it is another attempt at the same turn.
        answer_again(upstream, port, format)
    assert told(store, "mine") == [
        ("user", "Hi", "complete"),
        ("assistant", "one two ", "partial"),
        ("assistant", "one two three", "complete"),
    ]
    assert turns(store, "mine") == ["completed"]
    assert view(store, format).count("one two") == 1


def test_a_body_that_ends_well_without_an_end_of_the_answer_is_cut(tmp_path: Path) -> None:
    with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
        upstream.answer(SCRIPTS["anthropic"](["one ", "two"])[:-1])
        with cut_off():
            list(ProxyClients(port, "mine").stream("anthropic", HI))
    assert told(tmp_path / "a.db", "mine")[-1] == ("assistant", "one two", "partial")
    assert turns(tmp_path / "a.db", "mine") == ["failed"]


def test_a_killed_provider_breaks_off_for_the_client(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    serving = """
    from proxy_world import HeldProvider
    from sse_server import chat_script
    upstream = HeldProvider()
    upstream.answer(chat_script(["one ", "two ", "three"]), hold_after=4)
    say("port", upstream.port)
    hear()
    """
    with child(serving) as other:

        class Elsewhere:
            url = f"http://127.0.0.1:{other.wait_for('port')}"

        with proxied(store, Elsewhere()) as port:  # type: ignore[arg-type]
            stream = iter(ProxyClients(port, "mine").stream("openai.chat", HI))
            seen = ""
            while "one" not in seen:
                seen += next(stream).to_json()
            other.kill()
            with cut_off():
                list(stream)
    assert told(store, "mine")[1][2] == "partial"
    assert turns(store, "mine") == ["failed"]


@pytest.mark.parametrize("status", [429, 500, 529])
def test_an_error_that_clients_try_again_is_an_attempt(tmp_path: Path, status: int) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        clients = ProxyClients(port, "mine")
        upstream.answer_whole({"error": {"message": "Later."}}, status=status)
        upstream.answer(SCRIPTS["openai.chat"](["Hello."]))
        trying = clients.openai.with_options(max_retries=1)
        list(trying.chat.completions.create(model="m", messages=HI, stream=True))  # type: ignore[call-overload]
    assert [text for _, text, _ in told(store, "mine")] == ["Hi", "Hello."]
    assert turns(store, "mine") == ["completed"]


def test_an_error_among_the_events_passes_and_fails_the_attempt(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Later."}}
    with provider() as upstream, proxied(store, upstream) as port:
        script = [*SCRIPTS["anthropic"](["one "])[:4], ("error", error)]
        upstream.answer(script)
        with pytest.raises(Exception, match="overloaded_error"):
            list(ProxyClients(port, "mine").stream("anthropic", HI))
    assert told(store, "mine")[-1][2] == "partial"
    assert turns(store, "mine") == ["failed"]


def test_a_client_that_left_and_says_more_interrupts_its_turn(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        with half_heard(upstream, port, "openai.chat") as stream:
            stream.close()
        clients = ProxyClients(port, "mine")
        said = [
            *HI,
            {"role": "assistant", "content": "one two "},
            {"role": "user", "content": "Stop. Say A."},
        ]
        upstream.answer(SCRIPTS["openai.chat"](["A."], number=2))
        list(clients.stream("openai.chat", said))
        upstream.go_on()
        # The provider finds out that nobody reads on.
        assert upstream.ended.get(timeout=LIMIT_S)
    assert told(store, "mine") == [
        ("user", "Hi", "complete"),
        ("assistant", "one two ", "partial"),
        ("user", "Stop. Say A.", "complete"),
        ("assistant", "A.", "complete"),
    ]
    assert turns(store, "mine") == ["interrupted", "completed"]


def test_told_to_it_stops_with_its_client(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream, stop_with_client=True) as port:
        with half_heard(upstream, port, "openai.chat") as stream:
            stream.close()
        with holdfast.open(store) as opened:
            session = opened.session("mine", create=False)
            for _ in waiting_until("the answer is cut off"):
                if [entry.kind for entry in session.entries()].count("message") == 2:
                    break
        upstream.go_on()
    assert told(store, "mine")[-1] == ("assistant", "one two ", "partial")
    assert turns(store, "mine") == ["interrupted"]


def test_a_turn_that_is_stopped_elsewhere_cuts_its_client(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        with half_heard(upstream, port, "openai.chat") as stream:
            with holdfast.open(store) as opened:
                assert opened.session("mine", create=False).stop()
            upstream.go_on()
            with cut_off():
                list(stream)
    assert told(store, "mine")[-1] == ("assistant", "one two ", "partial")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_ends_what_runs_and_says_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, ProxyProcess(store, upstream) as proxy:
        with half_heard(upstream, proxy.port, "openai.chat") as stream:
            assert proxy.process is not None and proxy.process.stderr is not None
            proxy.process.send_signal(number)
            with cut_off():
                list(stream)
            assert proxy.process.wait(LIMIT_S) == -number
            assert proxy.process.stderr.read() == ""
            proxy._close()
        upstream.go_on()
    assert told(store, "mine")[-1] == ("assistant", "one two ", "partial")
    with holdfast.open(store) as opened:
        [turn] = opened.session("mine").turns()
    assert (turn.end, turn.reason) == ("interrupted", "the proxy was told to end")


@pytest.mark.parametrize(
    "cause", ["the proxy is told to end", "the proxy is killed", "the connection is cut"]
)
def test_an_answer_whose_end_was_shown_is_whole(tmp_path: Path, cause: str) -> None:
    """Between the mark of its end and the end of its body nothing is missing of it any more."""
    store = tmp_path / "a.db"
    script = SCRIPTS["openai.chat"](["one ", "two"])
    with provider() as upstream, ProxyProcess(store, upstream) as proxy:
        if cause == "the connection is cut":
            upstream.answer(script, ending="cut")
            assert "two" in words(list(ProxyClients(proxy.port, "mine").stream("openai.chat", HI)))
            upstream.ended.get(timeout=LIMIT_S)
            proxy.end()
        else:
            upstream.answer([*script, script[-1]], hold_after=len(script))
            assert "two" in words(list(ProxyClients(proxy.port, "mine").stream("openai.chat", HI)))
            upstream.held.get(timeout=LIMIT_S)
            if cause == "the proxy is killed":
                proxy.kill()
            else:
                proxy.end()
            upstream.go_on()
    assert told(store, "mine")[-1] == ("assistant", "one two", "complete")
    ended = "abandoned" if cause == "the proxy is killed" else "completed"
    assert turns(store, "mine") == [ended]


@pytest.mark.slow
def test_told_to_end_it_waits_for_an_end_that_can_not_be_stored_at_once(tmp_path: Path) -> None:
    """The answer is cut, its turn's end waits for somebody else's lock, and the proxy goes on ending."""
    store = tmp_path / "a.db"
    with provider() as upstream, ProxyProcess(store, upstream) as proxy:
        with half_heard(upstream, proxy.port, "openai.chat") as stream:
            assert proxy.process is not None
            with held(str(store)):
                proxy.process.send_signal(signal.SIGTERM)
                with cut_off():
                    list(stream)
                with pytest.raises(subprocess.TimeoutExpired):
                    proxy.process.wait(1)
            assert proxy.process.wait(LIMIT_S) == -signal.SIGTERM
            proxy._close()
        upstream.go_on()
    with holdfast.open(store) as opened:
        [turn] = opened.session("mine").turns()
    assert (turn.end, turn.reason) == ("interrupted", "the proxy was told to end")


def test_what_can_not_be_stored_is_not_asked(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        answer_again(upstream, port, "openai.chat")
        upstream.seen.get(timeout=LIMIT_S)
        # The store is taken away: every write is an error from now on.
        for path in list(tmp_path.iterdir()):
            path.rename(path.with_name(f"gone-{path.name}"))
        with pytest.raises(openai.InternalServerError) as caught:
            ProxyClients(port, "other").stream("openai.chat", HI)
        assert caught.value.status_code == 503 and upstream.seen.empty()


def test_a_connection_is_used_again_and_one_that_was_closed_is_not_missed(tmp_path: Path) -> None:
    with provider() as upstream, proxied(tmp_path / "a.db", upstream) as port:
        for _ in range(3):
            answer_again(upstream, port, "openai.chat")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        for _ in range(2):
            upstream.answer_whole({"object": "list"})
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read() == b'{\n "object": "list"\n}'
        connection.close()
