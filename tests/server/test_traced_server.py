"""`holdfast serve` that is traced: each request is a span below its `traceparent`, each turn one below the
request that started it, and nobody's words, tokens or sessions of others are in any.
"""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

import holdfast
from commanding import surroundings
from holdfast.server.app import Settings
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.server.serving.serve import server_of
from spans_seen import SeenSpans, is_child, is_error
from wire_server import ask, served_in_thread

SECRET = "the code is 7F3K"
RED, BLUE = "hf_token_of_red", "hf_token_of_blue"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@contextmanager
def traced_server(path, seen, **how):
    tracing = holdfast.Tracing(seen.provider, **how)
    known = {RED: identity("red", "admin"), BLUE: identity("blue", "admin")}
    tokens = Tokens({digest_of(token): who for token, who in known.items()})
    settings = Settings(tokens=tokens, tracing=tracing)
    with served_in_thread(path, lambda store: server_of(store, settings), tracing=tracing) as port:
        yield lambda token, *request, **more: ask(port, token, *request, **more)


@pytest.fixture
def seen():
    return SeenSpans()


@pytest.fixture
def served(tmp_path, seen):
    with traced_server(tmp_path / "s.db", seen) as asking:
        yield asking


def start(asking, token=RED, key="k", **more):
    body = {"key": key, "message": SECRET, **more}
    return asking(token, "POST", "/v1/turns", body, headers=TRACEPARENT).done


def test_a_traceparent_is_the_parent_of_the_request_and_that_of_the_turn(served, seen):
    turn = start(served)
    served(RED, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
    [request] = seen.awaited("POST /v1/turns")
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT and request.parent.is_remote
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/turns",
        "http.response.status_code": 201,
        "url.scheme": "http",
        "holdfast.tenant": "red",
    }
    span = seen.one("invoke_agent")
    assert is_child(span, request)
    assert span.attributes["gen_ai.conversation.id"] == turn["session_id"]
    assert span.attributes["holdfast.turn.end"] == "completed"
    [end] = seen.awaited("POST /v1/turns/{turn}/end")
    assert f"{end.context.trace_id:032x}" != TRACE
    assert end.attributes["holdfast.turn.id"] == turn["id"]
    # What a request writes is below that request, though the turn was begun by another.
    ending = [each for each in seen.named("holdfast.commit") if is_child(each, end)]
    assert [each.attributes["holdfast.commit.kinds"] for each in ending] == [("end",)]


def test_what_is_no_traceparent_begins_a_trace_of_its_own(served, seen):
    for words in ("", SECRET, f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"):
        served(None, "GET", "/health", headers={"traceparent": words}).done  # noqa: B018
    spans = seen.awaited("GET /health", 4)
    assert all(each.parent is None for each in spans)
    assert len({each.context.trace_id for each in spans}) == 4


def test_no_words_no_token_no_key_and_no_address_is_in_a_span(served, seen):
    turn = start(served, key="telegram:dm:42", event_id="update-17", reply_to="chat-99")
    session = turn["session_id"]
    pushed = served(RED, "POST", f"/v1/turns/{turn['id']}/streams").done["message_id"]
    chunks = {"index": 0, "chunks": [SECRET], "close": True}
    served(RED, "POST", f"/v1/turns/{turn['id']}/streams/{pushed}", chunks).done  # noqa: B018
    served(RED, "GET", "/v1/search?text=7F3K").done  # noqa: B018
    assert served("hf_wrong", "GET", f"/v1/sessions/{session}").status == 401
    assert served(RED, "GET", f"/v1/nothing/{SECRET.replace(' ', '-')}").status == 404
    served(RED, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
    seen.awaited("GET", 2)
    for words in ("7F3K", RED, BLUE, "hf_wrong", "telegram", "update-17", "chat-99", "nothing"):
        assert words not in seen.text
    refused, missing = seen.named("GET")
    assert [each.attributes["http.response.status_code"] for each in (refused, missing)] == [
        401,
        404,
    ]
    assert not is_error(refused) and not is_error(missing)


def test_a_session_of_another_tenant_is_in_no_span_of_mine(served, seen):
    theirs = start(served, BLUE)
    seen.awaited("POST /v1/turns")
    seen.clear()
    session = theirs["session_id"]
    for method, path in (
        ("GET", f"/v1/sessions/{session}"),
        ("GET", f"/v1/sessions/{session}/transcript"),
        ("POST", f"/v1/turns/{theirs['id']}/end"),
    ):
        assert served(RED, method, path).status == 404
    seen.awaited("POST /v1/turns/{turn}/end")
    assert session not in seen.text and "blue" not in seen.text


def test_requests_of_two_tenants_share_no_trace(served, seen):
    red = served(RED, "POST", "/v1/turns", {"key": "k", "message": "r"}).done
    blue = served(BLUE, "POST", "/v1/turns", {"key": "k", "message": "b"}).done
    for token, turn in ((RED, red), (BLUE, blue)):
        served(token, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
    seen.awaited("POST /v1/turns/{turn}/end", 2)
    whose = {}
    for span in seen.all:
        session = span.attributes.get("gen_ai.conversation.id")
        if session is not None:
            whose.setdefault(span.context.trace_id, set()).add(session)
    assert len(whose) >= 4 and all(len(sessions) == 1 for sessions in whose.values())


def test_a_turn_whose_client_is_gone_is_told_when_it_is_settled(served, seen):
    turn = start(served, lease_s=0.1)
    [span] = seen.awaited("invoke_agent")
    assert span.attributes["holdfast.turn.id"] == turn["id"]
    assert span.attributes["holdfast.turn.end"] == "abandoned"
    assert span.attributes["holdfast.turn.reason"] == "its client's lease ran out"
    assert is_error(span) and span.attributes["error.type"] == "abandoned"


def test_content_is_told_when_it_is_asked_for(tmp_path, seen):
    with traced_server(tmp_path / "s.db", seen, content=True) as asking:
        turn = start(asking)
        asking(RED, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
        [span] = seen.awaited("invoke_agent")
    assert json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"] == SECRET
    assert RED not in seen.text


def test_a_turn_of_a_python_client_is_told_by_the_client_alone(tmp_path, seen):
    mine = SeenSpans()
    tracing = holdfast.Tracing(seen.provider)
    tokens = Tokens({digest_of(RED): identity("red", "admin")})
    settings = Settings(tokens=tokens, tracing=tracing)
    make = lambda store: server_of(store, settings)  # noqa: E731
    with served_in_thread(tmp_path / "s.db", make, tracing=tracing) as port:
        where = f"http://127.0.0.1:{port}"
        with holdfast.open(where, token=RED, tracing=holdfast.Tracing(mine.provider)) as store:
            with store.session("k").turn("Hello.") as turn:
                turn.say("Hello to you.")
    assert mine.one("invoke_agent").attributes["holdfast.turn.id"] == turn.id
    assert not seen.named("invoke_agent") and not seen.named("holdfast.commit")
    assert {span.attributes["http.request.method"] for span in seen.all} == {"POST"}


PROVIDER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

provider = TracerProvider()
line = lambda span: span.to_json(indent=None) + "\\n"
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr, formatter=line)))
trace.set_tracer_provider(provider)
"""


def run_serve(folder, *arguments, provides):
    """`holdfast serve`, in a process with a tracer provider of its own as `opentelemetry-instrument` sets it."""
    around = surroundings()
    if provides:
        (folder / "sitecustomize.py").write_text(PROVIDER)
        around["PYTHONPATH"] = f"{folder}:{around.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", str(folder / "s.db")]
    return subprocess.Popen(
        [*command, "--port", "0", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=around,
    )


def test_the_command_has_a_switch_and_what_it_traced_is_told_before_it_ends(tmp_path):
    served = run_serve(tmp_path, "--otel", provides=True)
    told = json.loads(served.stdout.readline())
    port, token = int(told["address"].rpartition(":")[2]), told["token"]
    turn = ask(port, token, "POST", "/v1/turns", {"key": "k", "message": SECRET}).done
    ask(port, token, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
    served.terminate()
    _, log = served.communicate(timeout=60)
    spans = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"POST /v1/turns", "invoke_agent", "holdfast.commit"} <= {each["name"] for each in spans}
    assert SECRET not in log and token not in log


def test_a_switch_without_its_extra_says_what_to_install(tmp_path):
    barring = "import sys\nsys.modules['opentelemetry'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(barring)
    around = {**surroundings(), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", str(tmp_path / "s.db"), "--otel"]
    done = subprocess.run(command, capture_output=True, text=True, env=around, timeout=60)
    assert done.returncode == 2 and "pip install 'holdfast[otel]'" in done.stderr


def test_a_switch_that_nobody_would_hear_is_refused(tmp_path):
    served = run_serve(tmp_path, "--otel", provides=False)
    said, log = served.communicate(timeout=60)
    assert served.returncode == 2 and said == ""
    assert "opentelemetry-instrument" in log
