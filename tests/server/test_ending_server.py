"""A server that is told to end does so, whenever it is told, and whatever its clients have not taken yet."""

import json
import os
import signal
import socket
import time
from contextlib import contextmanager

import pytest

import holdfast
from openviking_server import LIMIT_S
from procs import child
from wire_server import WireServer

ENDED = (-signal.SIGTERM, "")
LOOP = """
import asyncio
from holdfast.cli.graceful_exit import ending_in_order
from holdfast.server.serving.event_loop import run_server

async def server():
    waiting = asyncio.create_task(hear_later())
    say("starts")
    try:
        await waiting
    finally:
        say("closes")

async def hear_later():
    await asyncio.sleep(600)

with ending_in_order():
    run_server(server())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_told_to_end_while_it_starts_puts_its_things_away_and_ends(number):
    with child(LOOP) as other:
        other.wait_for("starts")
        os.kill(other.pid, number)
        assert other.end(code=-number) == ["closes"]


def test_a_server_that_is_told_to_end_at_once_ends(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        assert server.end() == ENDED


def test_a_server_whose_terminal_is_closed_ends(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        turn = server.turn("k")["id"]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(LIMIT_S) == -signal.SIGHUP
        assert server.end() == (-signal.SIGHUP, "")
    with holdfast.open(tmp_path / "s.db") as store:
        [left] = store.session("k").turns()
    assert (left.id, left.end) == (turn, "interrupted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_that_is_told_to_end_ends_all_of_its_turns(tmp_path, number):
    """It was told again by what had ended, and did not get to that."""
    with WireServer(tmp_path / "s.db") as server:
        for place in range(30):
            turn = server.turn(f"k{place}")
            server.stream(turn["id"], "Half of ")
        server.process.send_signal(number)
        server.process.wait(LIMIT_S)
    with holdfast.open(tmp_path / "s.db") as store:
        ends = [store.session(f"k{place}").turns()[0].end for place in range(30)]
        assert ends == ["interrupted"] * 30


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
