"""What a server that is told to end does about answers that their clients have not taken yet."""

import json
import signal
import socket
import time
from contextlib import contextmanager

import holdfast
from wire_server import WireServer

ENDED = (-signal.SIGTERM, "")


def test_a_server_that_ends_is_kept_by_nobody_who_takes_nothing_of_a_whole_answer(tmp_path):
    with _with_much_to_tell(tmp_path) as (server, session), _asking(server, session) as deaf:
        assert deaf.recv(15) == b"HTTP/1.1 200 OK"
        assert server.end() == ENDED


def test_a_server_that_ends_is_slow_for_one_who_takes_an_answer_slowly(tmp_path):
    with _with_much_to_tell(tmp_path) as (server, session), _asking(server, session) as slow:
        taken = slow.recv(15)
        server.process.terminate()
        while more := slow.recv(2**18):
            taken += more
            time.sleep(0.01)
        assert server.end() == ENDED
    assert json.loads(taken.partition(b"\r\n\r\n")[2])["items"][1]["text"] == MUCH


MUCH = "much " * 1_600_000
"""More than lines hold of it, for a client that takes nothing."""


@contextmanager
def _with_much_to_tell(folder):
    with holdfast.open(folder / "s.db") as store:
        session = store.session("k")
        with session.turn("Tell me.") as turn:
            turn.say(MUCH)
    with WireServer(folder / "s.db") as server:
        yield server, session.id


def _asking(server, session):
    """A connection on which a transcript was asked for."""
    asking = socket.create_connection(("127.0.0.1", server.port))
    head = f"GET /v1/sessions/{session}/transcript HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    asking.sendall(f"{head}Authorization: Bearer {server.key}\r\n\r\n".encode())
    return asking
