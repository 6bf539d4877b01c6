"""What is too much: large bodies, slow clients, half-open connections, too many requests; and what
is never in a log.
"""

import contextlib
import http.client
import json
import socket
import threading

import pytest

from holdfast.server.limits import BUCKETS_MAX, Rates
from holdfast.server.problems import WireProblem
from holdfast.server.serving.slow_clients import TimedProtocol
from wire_server import WireServer, ask, in_thread

LIMIT_S = 60
AUTH = b"Authorization: Bearer hf_in_thread\r\n"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A server that is in a hurry."""
    store = tmp_path_factory.mktemp("limits") / "s.db"
    patience, TimedProtocol.head_s = TimedProtocol.head_s, 0.3
    try:
        with in_thread(store, bytes_max=100_000, body_s=0.3) as server:
            yield server
    finally:
        TimedProtocol.head_s = patience


def _connected(port):
    return socket.create_connection(("127.0.0.1", port), LIMIT_S)


def _rest(connection):
    """All that comes until the other side closes."""
    said = b""
    while piece := connection.recv(65536):
        said += piece
    return said


def test_a_body_that_is_too_large_is_refused_before_it_is_read(limited):
    port, token = limited
    told = ask(port, token, "POST", "/v1/inbox", {"key": "k", "message": "x" * 100_000})
    assert (told.status, told.code, told.body["bytes_max"]) == (413, "too_large", 100_000)
    told = ask(port, token, "POST", "/v1/inbox", {"key": "k", "message": "x" * 90_000})
    assert told.status == 201
    with _connected(port) as connection:
        # It says how large it will be, and never sends it.
        head = b"POST /v1/inbox HTTP/1.1\r\nHost: x\r\n" + AUTH
        connection.sendall(head + b"Content-Length: 1000000000000\r\n\r\n")
        assert _rest(connection).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_read_up_to_the_limit(limited):
    port, _ = limited
    with _connected(port) as connection:
        head = b"POST /v1/inbox HTTP/1.1\r\nHost: x\r\n" + AUTH
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        for _ in range(7):
            connection.sendall(chunk)
        assert _rest(connection).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_comes_too_slowly_is_given_up(limited):
    port, _ = limited
    with _connected(port) as connection:
        head = b"POST /v1/inbox HTTP/1.1\r\nHost: x\r\n" + AUTH
        connection.sendall(head + b'Content-Length: 50\r\n\r\n{"key": ')
        assert _rest(connection).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_or_says_it_slowly_is_closed(limited):
    port, token = limited
    with _connected(port) as silent, _connected(port) as slow:
        # A byte now and then buys no time.
        over = threading.Event()

        def trickle():
            try:
                for byte in b"GET /health HTTP/1.1\r\nX-Slow: " + b"y" * 10_000:
                    slow.sendall(bytes([byte]))
                    if over.wait(0.02):
                        return
            except OSError:
                return

        sender = threading.Thread(target=trickle)
        sender.start()
        try:
            assert silent.recv(1) == b""
            with contextlib.suppress(ConnectionResetError):
                assert slow.recv(1) == b""
        finally:
            over.set()
            sender.join()
    # One that is answered in time may go on, and begins anew with the next request.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    for _ in range(3):
        connection.request("GET", "/v1/sessions", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    connection.close()


@pytest.mark.parametrize("line", [b"X-More: " + b"y" * 4000 + b"\r\n", b"y" * 4000])
def test_a_head_that_comes_to_no_end_is_refused(tmp_path, line):
    with in_thread(tmp_path / "s.db") as (port, _), _connected(port) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX-First: ")
        with pytest.raises(ConnectionError):
            for _ in range(2000):
                connection.sendall(line)


def test_what_comes_behind_a_body_is_no_header(limited):
    port, _ = limited
    said = []
    for name in (b"one", b"two"):
        body = b'{"key": "%b", "message": "Hello."}' % name
        with _connected(port) as connection:
            head = b"POST /v1/turns HTTP/1.1\r\nHost: x\r\n" + AUTH
            connection.sendall(head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            connection.sendall(b"%x\r\n%b\r\n" % (len(body), body))
            connection.sendall(b"0\r\nIdempotency-Key: behind\r\n\r\n")
            said.append(_rest(connection))
    # The same key for another request would be refused.
    assert [answer[:13] for answer in said] == [b"HTTP/1.1 201 "] * 2


def test_a_request_that_waits_is_not_taken_for_a_slow_one(limited):
    port, token = limited
    turn = ask(port, token, "POST", "/v1/turns", {"key": "w", "message": "One."}).done
    found = []

    def wait():
        body = {"key": "w", "message": "Two."}
        found.append(ask(port, token, "POST", "/v1/turns", body))

    waiter = threading.Thread(target=wait)
    waiter.start()
    # For longer than a head or a body may take.
    waiter.join(0.8)
    assert waiter.is_alive()
    ask(port, token, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
    waiter.join(LIMIT_S)
    assert found[0].status == 201


def test_half_open_connections_do_not_keep_others_waiting(limited):
    port, token = limited
    held = [_connected(port) for _ in range(50)]
    try:
        assert ask(port, token, "GET", "/v1/sessions").status == 200
    finally:
        for each in held:
            each.close()


def test_who_asks_too_often_is_told_to_wait(tmp_path):
    with in_thread(tmp_path / "s.db", rate=3) as (port, token):
        told = [ask(port, token, "GET", "/v1/sessions") for _ in range(6)]
        assert told[0].status == 200 and told[-1].status == 429
        assert told[-1].code == "rate_limited" and int(told[-1].headers["retry-after"]) >= 1


class _Asking:
    """A sender whose clock is turned by hand."""

    def __init__(self, rate):
        self.now, self._rates = 100.0, Rates(rate, lambda: self.now)

    def ask(self, name="ada"):
        """How long it is to wait; 0 if it is let in."""
        try:
            self._rates.count({"client": (name, 1)})
        except WireProblem as problem:
            return int(problem.headers["retry-after"])
        return 0


def test_who_asks_twice_as_often_as_it_may_is_let_in_every_other_time():
    sender, let_in = _Asking(8), 0
    for _ in range(320):
        sender.now += 1 / 16
        let_in += sender.ask() == 0
    # Those of twenty seconds, and the second's worth that it may save up.
    assert 160 <= let_in <= 168


@pytest.mark.parametrize("rate", [0.125, 0.375, 0.75, 1, 3, 8])
def test_who_waits_as_long_as_it_was_told_is_let_in(rate):
    sender = _Asking(rate)
    for elapsed in (0, 0.25, 0.5, 1.75, 2.25):
        sender.now += elapsed
        while not (wait := sender.ask()):
            pass
        if wait > 1:
            sender.now += wait - 1
            assert sender.ask() == 1
            wait = 1
        sender.now += wait
        assert sender.ask() == 0


def test_who_has_asked_too_often_waits_however_many_others_ask():
    sender = _Asking(2)
    assert [sender.ask() for _ in range(3)] == [0, 0, 1]
    for number in range(BUCKETS_MAX + 5):
        sender.ask(f"other {number}")
        if number % 100 == 0:
            assert sender.ask() == 1


def test_nothing_that_is_said_and_no_token_is_in_the_log_or_in_a_problem(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        word = "xylophone"
        server.turn(word, word)
        for raw in (b'{"key": "xylophone"', b'{"xylophone": 1}', b'"xylophone"', b"\xff\xfe"):
            told = server.ask("POST", "/v1/turns", raw=raw)
            assert told.status == 400
        for body in ({"key": "k", "message": {"xylophone": word}}, {"key": "k", "message": [word]}):
            told = server.ask("POST", "/v1/turns", body)
            assert word not in json.dumps(told.body) or told.code == "invalid_message"
        server.ask("GET", f"/v1/search?text={word}").done  # noqa: B018
        deep = b'{"key": "k", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert server.ask("POST", "/v1/turns", raw=deep).status == 400
        key = server.key
        # SIGTERM: all that it has said on its way.
        _, said = server.end()
    assert word not in said and key not in said
