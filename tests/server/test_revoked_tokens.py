"""A token that is taken back: whoever waits with it is answered, and told, no more."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

import holdfast
from event_reader import EventReader
from holdfast.server.app import Settings, make_app
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.server.serving.serve import server_of
from holdfast.server.serving.token_file import AWAY_S, TokenFile
from holdfast.server.waiting import TokenWatch
from line_pusher import LinePusher
from servers import waiting_until
from wire_server import WireServer, ask, new_token, served_in_thread
from worlds import HandWorld

ENDLESS = (
    "/v1/sessions/{session}/stream",
    "/v1/ai-sdk/{session}/stream",
    "/v1/ag-ui/{session}",
    "/v1/stream/s?offset=-1&live=sse",
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


def test_a_file_says_whether_anybody_may_have_been_let_out(file):
    world = HandWorld()
    new_token(file, "one", "read")
    tokens = TokenFile(str(file), world=world)
    first = tokens.version()
    assert tokens.version() == first
    new_token(file, "two", "read")
    second = tokens.version()
    assert second != first
    file.unlink()
    assert tokens.version() == second
    world.advance(seconds=AWAY_S)
    assert tokens.version() != second


def test_what_waits_is_looked_at_only_when_the_tokens_have_changed(monkeypatch):
    looks = []

    class Counted(Tokens):
        now = 0

        def identity(self, token):
            looks.append(token)
            return super().identity(token)

        def version(self):
            return self.now

    async def scenario():
        monkeypatch.setattr("holdfast.server.waiting.LOOK_S", 0.001)
        who = {digest_of(name): identity("one", "read") for name in ("a", "b")}
        tokens = Counted(who)
        watch = TokenWatch(tokens)
        waiting = {
            name: asyncio.ensure_future(watch.revoked(name, identity("one", "read")))
            for name in ("a", "b")
        }
        await asyncio.sleep(0.05)
        assert sorted(looks) == ["a", "b"]
        del tokens._known[digest_of("a")]
        tokens.now = 1
        await waiting["a"]
        assert not waiting["b"].done()
        waiting["b"].cancel()
        # Taken back before the wait began: it is told at once.
        await watch.revoked("a", identity("one", "read"))

    asyncio.run(scenario())


@pytest.mark.slow
def test_all_who_wait_with_a_token_that_is_taken_back_are_told(tmp_path, file):
    kept = new_token(file, "one", "admin")
    before = file.read_text()
    lost = new_token(file, "one", "write")
    with _served(tmp_path / "s.db", file) as (port, app):
        turn = ask(port, kept, "POST", "/v1/turns", {"key": "k", "message": "Hello."}).done
        session = turn["session_id"]
        opened = ask(port, kept, "POST", f"/v1/turns/{turn['id']}/streams", {}).done
        push = f"/v1/turns/{turn['id']}/streams/{opened['message_id']}"
        ask(port, kept, "POST", push, {"index": 0, "chunks": ["Half of "]})
        text = {"content-type": "text/plain"}
        assert ask(port, kept, "PUT", "/v1/stream/s", raw=b"", headers=text).status == 201
        readers = [EventReader(port, lost, path.format(session=session)) for path in ENDLESS]
        stays = EventReader(port, kept, ENDLESS[0].format(session=session))
        for reader in (*readers, stays):
            reader.take(1)
        views = f"/v1/sessions/{session}/views"
        tag = ask(port, kept, "GET", views).headers["etag"]
        polls = [
            ("GET", views, None, {"If-None-Match": tag, "Prefer": "wait=30"}),
            ("POST", "/v1/turns", {"key": "k"}, {"Idempotency-Key": "same"}),
            ("POST", f"/v1/sessions/{session}/compact", {"summary": "All of it."}, {}),
            ("GET", "/v1/stream/s?offset=now&live=long-poll", None, {}),
        ]
        told = []

        def wait(method, path, body, headers):
            told.append(ask(port, lost, method, path, body, headers=headers))

        waiting = [threading.Thread(target=wait, args=each) for each in polls]
        for each in waiting:
            each.start()
        for _ in waiting_until("all of them wait"):
            if len(app.state.token_watch) == len(readers) + 1 + len(polls):
                break
        file.write_text(before)
        left = [reader.all() for reader in readers]
        for each in waiting:
            each.join(30)
        # Who may still ask is told on.
        ask(port, kept, "POST", f"/v1/turns/{turn['id']}/end")
        rest = stays.until(lambda event: event.event == "entry" and event.data["kind"] == "end")
        assert rest[-1].data["kind"] == "end"
        ask(port, kept, "POST", f"/v1/sessions/{session}/end", {"reason": "over"})
        assert stays.all()[-1].event == "end"
    assert [each.code for each in told] == ["unauthenticated"] * len(polls)
    assert "end" not in [event.event for event in left[0]]
    assert "token" in left[1][-2].data["errorText"]
    assert left[2][-1].data["code"] == "unauthenticated"


@pytest.mark.slow
def test_whoever_writes_line_by_line_with_a_token_that_is_taken_back_is_told(tmp_path, file):
    kept = new_token(file, "one", "admin")
    before = file.read_text()
    lost = new_token(file, "one", "write")
    with _served(tmp_path / "s.db", file) as (port, app):
        body = {"key": "k", "message": "Hello.", "lease_s": 600}
        turn = ask(port, kept, "POST", "/v1/turns", body).done
        opened = ask(port, kept, "POST", f"/v1/turns/{turn['id']}/streams", {}).done
        path = f"/v1/turns/{turn['id']}/streams/{opened['message_id']}"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {lost}\r\n"
        head += "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        line = b'{"index":0,"chunks":["Casa "]}\n'
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(head.encode() + b"%x\r\n%b\r\n" % (len(line), line))
            said = b""
            while b"Casa" not in said:
                said += connection.recv(65536)
            file.write_text(before)
            # It says nothing more, and is ended all the same.
            while piece := connection.recv(65536):
                said += piece
        assert b'"code":"unauthenticated"' in said
        ask(port, kept, "POST", f"/v1/turns/{turn['id']}/end")


@pytest.mark.slow
def test_whoever_goes_on_talking_with_a_token_that_is_taken_back_is_not_heard(tmp_path, file):
    kept = new_token(file, "one", "admin")
    before = file.read_text()
    lost = new_token(file, "one", "write")

    def server(opened):
        return server_of(opened, Settings(tokens=TokenFile(str(file))))

    with served_in_thread(tmp_path / "s.db", server) as port:
        body = {"key": "k", "message": "Hello.", "lease_s": 600}
        turn = ask(port, kept, "POST", "/v1/turns", body).done
        opened = ask(port, kept, "POST", f"/v1/turns/{turn['id']}/streams", {}).done
        place = f"/v1/turns/{turn['id']}/streams/{opened['message_id']}"
        with LinePusher(port, lost, place) as pusher:
            told = pusher.talked(lambda: file.write_text(before))
        assert told[-1]["problem"]["code"] == "unauthenticated"
        said = "".join(each["text"] for each in told[:-1])
        assert said == "".join(f"{n} " for n in range(told[-2]["index"]))
        ask(port, kept, "POST", f"/v1/turns/{turn['id']}/end")
        items = ask(port, kept, "GET", f"/v1/sessions/{turn['session_id']}/transcript").done[
            "items"
        ]
    # What was stored was told.
    assert items[-1]["text"] == said


@contextmanager
def _served(store, file):
    made = []

    def server(opened):
        app = make_app(opened, Settings(tokens=TokenFile(str(file))))
        made.append(app)
        return uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    with served_in_thread(store, server) as port:
        yield port, made[0]


@pytest.mark.slow
def test_a_follower_in_python_is_told_that_its_token_counts_no_more(tmp_path, file):
    kept = new_token(file, "one", "admin")
    before = file.read_text()
    lost = new_token(file, "one", "read")
    with WireServer(tmp_path / "s.db", "--tokens", file, key=kept) as server:
        session = server.ask("POST", "/v1/sessions", {"key": "k"}).done["id"]
        with holdfast.open(f"http://127.0.0.1:{server.port}", token=lost) as store:
            following = store.get(session).follow()
            assert next(following).entry.kind == "opened"
            file.write_text(before)
            with pytest.raises(holdfast.errors.StoreUnavailable, match="no such token"):
                next(following)
