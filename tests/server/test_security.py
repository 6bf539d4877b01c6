"""Who may do what: every route says what it needs, and no tenant sees anything of another (I-19)."""

import asyncio
import re

import pytest

import holdfast
from commanding import command
from holdfast.engine.remote.verbs import PATH, VERBS
from holdfast.server.app import Settings, make_app
from holdfast.server.auth import SCOPES, Tokens
from holdfast.server.page import files
from holdfast.server.serving.listening import listening
from wire_server import WireServer, new_token

OPEN = {"/health", "/ready", "/openapi.json", *(route.path for route in files.routes())}
"""What is open to everybody. Think twice before anything is added. (And what a browser asks before it may
send a token.)"""
BYTES = "/v1/stream/{path:path}"
"""A stream is found by its address, in each tenant its own."""
BODIES = {
    "/v1/sessions": {"key": "mine"},
    "/v1/reset": {"key": "mine"},
    "/v1/turns": {"key": "mine", "message": "Hello."},
    "/v1/inbox": {"key": "mine", "message": "Hello."},
    "/v1/outbox/claim": {"claim_s": 1},
    "messages": {"message": "Hello."},
    "record": {"messages": [{"role": "user", "content": "Hello."}]},
    "instructions": {"text": "Be short."},
    "label": {"message_id": "m", "labels": {"a": 1}},
    "decide": {"call_id": "c", "approved": True, "by": "me"},
    "compact": {"summary": "All of it."},
    "rewind": {"to_message": "m"},
    "end": {"reason": "enough"},
    "erase": {"preview": False},
    "calls": {"name": "rm", "arguments": {}},
    "results": {"call_id": "c", "content": "done"},
    "failed": {"reason": "no line"},
    "{message}": {"index": 0, "chunks": ["a"]},
}
"""What a request to a route that takes something says: a valid one, so that nothing else refuses it."""

POSTED_QUESTIONS = {PATH + name for name in (*VERBS, "hello", "watch")} | {"/v1/ag-ui/{session}"}
"""What is posted and writes nothing."""


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    """All routes: path, method, scope."""

    async def look():
        async with holdfast.open_async(tmp_path_factory.mktemp("routes") / "s.db") as store:
            app = make_app(store, Settings(tokens=Tokens({})))
            return list(app.routes)

    found = []
    for route in asyncio.run(look()):
        for method in sorted(route.methods - {"HEAD", "OPTIONS"}):
            found.append((route.path, method, route.endpoint))
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("security")
    file = folder / "tokens"
    tokens = {scope: new_token(file, "one", scope) for scope in SCOPES}
    tokens["other"] = new_token(file, "other", "admin")
    with WireServer(folder / "s.db", "--tokens", file, key=tokens["admin"]) as server:
        yield server, tokens, file


def _body(path, method):
    if method == "GET":
        return None
    last = path.rpartition("/")[2]
    if path.startswith("/v1/turns/") and last == "end":
        return {}
    return BODIES.get(path) or BODIES.get(last) or {}


def test_every_route_says_what_it_needs(routes):
    for path, method, endpoint in routes:
        assert hasattr(endpoint, "scope"), f"{method} {path} does not say what it needs"
        if path in OPEN:
            assert endpoint.scope is None
        else:
            assert endpoint.scope in SCOPES, f"{method} {path} is open to everybody"
            # Questions to an engine are too long for an address; a client of AG-UI posts all it asks.
            asks = method == "GET" or path in POSTED_QUESTIONS
            assert asks or endpoint.scope != "read", f"{method} {path} writes"


@pytest.mark.slow
def test_no_route_but_the_open_ones_answers_without_a_token(routes, served):
    server, _, _ = served
    for path, method, _ in routes:
        address = re.sub(r"{[\w:]+}", "x", path)
        for token in (None, "hf_wrong"):
            told = server.ask(method, address, _body(path, method), token=token)
            if path in OPEN and token is None:
                assert told.status == 200
            else:
                assert (told.status, told.code) == (401, "unauthenticated"), (method, path)
                assert told.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.slow
def test_a_scope_is_enough_for_its_routes_and_for_no_others(routes, served):
    server, tokens, _ = served
    for path, method, endpoint in routes:
        if endpoint.scope is None:
            continue
        address = re.sub(r"{[\w:]+}", "0000", path)
        for scope in SCOPES:
            body = _body(path, method)
            if path == "/v1/turns":
                body = {**body, "key": scope}  # or the second would wait for the first
            told = server.ask(method, address, body, token=tokens[scope])
            is_enough = SCOPES.index(scope) >= SCOPES.index(endpoint.scope)
            assert (told.status == 403) != is_enough, (method, path, scope, told)
            if not is_enough:
                assert (told.code, told.body["scope"]) == ("forbidden", endpoint.scope)


@pytest.mark.slow
def test_what_is_another_tenants_is_not_found_on_any_route(routes, served):
    """I-19: with the right id, and with one that is nowhere, the answer is the same but for the id."""
    server, tokens, _ = served
    turn = server.turn("secret", "A secret.", reply_to="dm:1")
    message = server.stream(turn["id"], "Half an answer")
    real = {"session": turn["session_id"], "turn": turn["id"], "message": message, "reply": "00"}
    nowhere = {name: re.sub("[0-9a-f]", "0", text) for name, text in real.items()}
    tried = 0
    for path, method, _ in routes:
        if "{" not in path or path == BYTES:
            continue
        tried += 1
        told = []
        for names in (real, nowhere):
            address = re.sub(r"{(\w+)}", lambda name: names[name[1]], path)  # noqa: B023
            body = _body(path, method)
            answer = server.ask(method, address, body, token=tokens["other"])
            assert (answer.status, answer.code) == (404, "not_found"), (method, path, answer)
            words = str(answer.body)
            for name in ("turn", "session"):
                words = words.replace(names[name], "ID")
            told.append(words)
        assert told[0] == told[1], f"{method} {path} tells that it is there"
    assert tried > 30
    # Nothing of it was changed, either.
    assert server.texts(turn["session_id"]) == [("A secret.", "complete")]
    assert server.end(turn["id"])["end"] == "interrupted"


@pytest.mark.slow
def test_lists_searches_and_keys_are_the_tenants_own(served):
    server, tokens, _ = served
    other = tokens["other"]
    turn = server.turn("listed", "An unheard-of word: xylophone.", reply_to="dm:1")
    server.ask("POST", f"/v1/turns/{turn['id']}/messages", {"message": "Heard."}).done  # noqa: B018
    server.end(turn["id"])
    accept = {"key": "listed", "message": "Waits."}
    server.ask("POST", "/v1/inbox", accept).done  # noqa: B018
    for path in ("/v1/sessions", "/v1/search?text=xylophone", "/v1/inbox", "/v1/outbox"):
        assert server.ask("GET", path).done["items"], path
        assert server.ask("GET", path, token=other).done["items"] == [], path
    claim = server.ask("POST", "/v1/outbox/claim", {"claim_s": 9}, token=other)
    assert claim.done["items"] == []
    wanted = {"key": "listed", "create": False}
    assert server.ask("POST", "/v1/sessions", wanted, token=other).code == "not_found"
    mine = server.ask("POST", "/v1/sessions", {"key": "listed"}, token=other).done
    assert mine["id"] != turn["session_id"]
    # One Idempotency-Key of two tenants is two.
    body, headers = {"key": "k", "message": "Hello."}, {"Idempotency-Key": "same"}
    ids = [
        server.ask("POST", "/v1/turns", body, token=token, headers=headers).done["id"]
        for token in (tokens["write"], other)
    ]
    assert ids[0] != ids[1]


@pytest.mark.slow
def test_a_token_is_kept_as_a_digest_and_taken_back_at_once(served):
    server, tokens, file = served
    kept = file.read_text()
    assert not any(token in kept for token in tokens.values())
    assert file.stat().st_mode & 0o077 == 0
    short = new_token(file, "one", "read")
    assert server.ask("GET", "/v1/sessions", token=short).status == 200
    file.write_text(kept)
    assert server.ask("GET", "/v1/sessions", token=short).code == "unauthenticated"
    # A line that can't be read lets nobody in, and keeps nobody out who is in another one.
    file.write_text(kept + "sha256:half a li")
    assert server.ask("GET", "/v1/sessions").status == 200
    assert server.ask("GET", "/v1/sessions", token=short).code == "unauthenticated"
    file.write_text("")
    assert server.ask("GET", "/v1/sessions").code == "unauthenticated"
    file.write_text(kept)


def test_an_address_that_others_can_reach_needs_tokens(tmp_path):
    for host in ("0.0.0.0", "::", "192.168.0.1"):
        done = command("serve", tmp_path / "s.db", "--host", host, "--port", "0")
        assert done.code == 2 and "a file of tokens" in done.err
    assert not (tmp_path / "s.db").exists()


@pytest.mark.slow
def test_a_port_that_is_in_use_is_told_as_such(tmp_path):
    with listening("127.0.0.1", 0) as listener:
        port = str(listener.getsockname()[1])
        done = command("serve", tmp_path / "s.db", "--port", port)
    assert done.code == 2
    words = f"`port` takes a port that is free on 127.0.0.1, not {port}, which is in use."
    assert words in done.err


def test_every_answer_has_the_headers_that_keep_it_from_pages(served):
    server, _, _ = served
    for path, token in (("/health", None), ("/v1/sessions", server.key), ("/v1/x", server.key)):
        headers = server.ask("GET", path, token=token).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
