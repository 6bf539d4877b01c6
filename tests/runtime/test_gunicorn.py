"""A real gunicorn, whose master has the store open when it forks its workers (B2): what they
acknowledge is kept, through a worker's death, a reload and the end of all of them.
"""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import holdfast

LIMIT_S = 60.0
WORKERS = 3
APP = """
    import os
    import holdfast

    masters = holdfast.open("agent.db")  # with `preload_app`: in the master, before it forks
    with masters.turn("master", "Up?") as turn:
        turn.say("Up.")
    own = None

    def post_fork(server, worker):
        global own
        own = holdfast.open("agent.db")

    def application(environ, start_response):
        key, _, said = environ["PATH_INFO"][1:].partition("/")
        with own.turn(key, said) as turn:
            for _ in turn.deliver([f"{said}: ", "heard."]):
                if said == "die":
                    os.kill(os.getpid(), 9)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
"""


class Gunicorn:
    """A master with its workers, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "app.py").write_text(textwrap.dedent(APP))
        (folder / "conf.py").write_text(
            f"from app import post_fork\nworkers = {WORKERS}\npreload_app = True\n"
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / "log"
        command = ["-m", "gunicorn", "-c", "conf.py", "-b", f"127.0.0.1:{self.port}", "app"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], cwd=folder, stdout=log, stderr=log
            )

    def ask(self, key: str, said: str) -> str | None:
        """Which worker has answered; None if none did."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/{key}/{said}", timeout=LIMIT_S) as answer:
                told: bytes = answer.read()
                return told.decode()
        except (URLError, OSError):
            return None

    def wait_until_up(self) -> None:
        until = time.monotonic() + LIMIT_S
        while self.ask("up", "ping") is None:
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture
def gunicorn(tmp_path: Path) -> Iterator[Gunicorn]:
    server = Gunicorn(tmp_path)
    try:
        server.wait_until_up()
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


def ask_all(server: Gunicorn, keys: int, rounds: range) -> set[str]:
    """Each key in turn of its own, all keys at once; those who answered."""

    def talk(key: int) -> set[str | None]:
        return {server.ask(f"k{key}", f"n{number}") for number in rounds}

    with ThreadPoolExecutor(keys) as pool:
        told = set[str | None]().union(*pool.map(talk, range(keys)))
    assert None not in told, server.log.read_text()
    return {pid for pid in told if pid is not None}


def test_workers_of_a_master_that_has_the_store_open(gunicorn: Gunicorn, tmp_path: Path) -> None:
    workers = ask_all(gunicorn, 6, range(8))
    assert str(gunicorn.process.pid) not in workers
    # a worker dies in the middle of an answer, and another one takes its place
    assert gunicorn.ask("dead", "die") is None
    assert gunicorn.ask("dead", "again") is not None
    # a reload: new workers of the same master
    gunicorn.process.send_signal(signal.SIGHUP)
    gunicorn.wait_until_up()
    workers |= ask_all(gunicorn, 6, range(8, 12))
    assert len(workers) > 1
    gunicorn.process.terminate()
    assert gunicorn.process.wait(LIMIT_S) == 0, gunicorn.log.read_text()
    assert "Traceback" not in gunicorn.log.read_text()
    for pid in workers:
        assert not os.path.exists(f"/proc/{pid}/fd")
    with holdfast.open(tmp_path / "agent.db") as store:
        assert store.check() == []
        for key in range(6):
            texts = [message.text for message in store.session(f"k{key}").transcript()]
            expected = []
            for number in range(12):
                expected += [f"n{number}", f"n{number}: heard."]
            assert texts == expected
        told = [(one.text, one.state) for one in store.session("dead").transcript()]
        # the second message may have come before anybody saw that the first one's worker is dead
        assert sorted(told) == [
            ("again", "complete"),
            ("again: heard.", "complete"),
            ("die", "complete"),
            ("die: ", "partial"),
        ]
        context = [payload["content"] for payload in store.session("dead").context()]
        assert (context[0], context[-2:]) == ("die", ["again", "again: heard."])
        assert context[1].startswith("die: ")
