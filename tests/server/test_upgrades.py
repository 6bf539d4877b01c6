"""Requests that ask for another protocol, and bytes that are no request: nothing of what was said is lost
without a word (RFC 9110, 7.8: whoever does not speak it goes on as if it had not been asked).
"""

import json
import socket

import pytest

from line_pusher import Line
from wire_server import in_thread

UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with in_thread(tmp_path_factory.mktemp("upgrades") / "s.db") as served:
        yield served


class Wire:
    """A connection; what it is answered, request by request."""

    def __init__(self, server):
        port, self._token = server
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._got = b""

    def head(self, method, path, *more):
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self._token}\r\n"
        return (head + "".join(more) + "\r\n").encode()

    def send(self, *pieces):
        for piece in pieces:
            self._socket.sendall(piece)

    def answer(self):
        """The status of the next answer, and its JSON."""
        while True:
            head, found, body = self._got.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
            if found and len(body) >= length:
                self._got = body[length:]
                return int(head.split()[1]), json.loads(body[:length])
            data = self._socket.recv(1 << 16)
            assert data, self._got
            self._got += data

    def rest(self, pieces=1000):
        got = b""
        while pieces and (data := self._socket.recv(1 << 16)):
            got += data
            pieces -= 1
        return got

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def _said(line):
    path = f"/v1/sessions/{line.turn['session_id']}/transcript"
    return [each["text"] for each in line.ask("GET", path).done["items"]]


@pytest.mark.parametrize("pieces", [1, 2, 40])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_asks_for_http2_is_read(server, pieces, is_chunked):
    key = f"upgraded-{pieces}-{is_chunked}"
    body = json.dumps({"key": key, "message": "Casa Lola. " * 50}).encode()
    coded = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    length = "Transfer-Encoding: chunked\r\n" if is_chunked else f"Content-Length: {len(body)}\r\n"
    with Wire(server) as wire:
        data = wire.head("POST", "/v1/turns", UPGRADE, length) + (coded if is_chunked else body)
        size = -(-len(data) // pieces)
        wire.send(*(data[start : start + size] for start in range(0, len(data), size)))
        status, told = wire.answer()
        assert status == 201
        # The connection goes on as any other.
        wire.send(wire.head("GET", f"/v1/sessions/{told['session_id']}/transcript", UPGRADE))
        status, page = wire.answer()
    assert status == 200
    assert [each["text"] for each in page["items"]] == ["Casa Lola. " * 50]


def test_requests_that_follow_in_one_piece_are_answered_each(server):
    with Wire(server) as wire:
        body = json.dumps({"key": "in-one-piece", "message": "Hello."}).encode()
        first = wire.head("POST", "/v1/turns", UPGRADE, f"Content-Length: {len(body)}\r\n") + body
        wire.send(first + wire.head("GET", "/v1/sessions?limit=1"))
        assert [wire.answer()[0], wire.answer()[0]] == [201, 200]


def test_what_is_no_http_ends_an_answer_and_is_not_taken_for_a_piece_of_it(server):
    line = Line(server)
    with Wire(server) as wire:
        path = f"{line.path}/streams/{line.message}"
        lines = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
        said = b'{"index":0,"chunks":["Casa "]}\n'
        wire.send(wire.head("POST", path, lines), b"%x\r\n%b\r\n" % (len(said), said))
        begun = b""
        while b"Casa " not in begun:
            begun += wire.rest(1)
        wire.send(b"this is no size of a chunk\r\n")
        told = begun + wire.rest()
    assert told.count(b"HTTP/1.1") == 1 and not told.endswith(b"0\r\n\r\n")
    line.ask("POST", f"{line.path}/end")
    assert _said(line) == ["Hello.", "Casa "]


def test_a_body_that_is_no_utf_8_is_refused(server):
    half = b'{"key":"half","message":"\xed\xa0\xbd"}'
    for body in (half, '{"key":"wide","message":"x"}'.encode("utf-16")):
        with Wire(server) as wire:
            wire.send(wire.head("POST", "/v1/turns", f"Content-Length: {len(body)}\r\n") + body)
            status, told = wire.answer()
        assert status == 400 and told["code"] == "bad_argument"
