"""examples/telegram_bot.py with aiogram's real release, against a Bot API on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from test_examples import every_update_is_there_once, example

SAID = ["Where is order 17?", "Hello!", "And order 23?", "/new", "Do you know me?", "Thank you."]
CHATS = [42, 7, 42, 7, 7, 42]
LIMIT_S = 60.0


class BotApi:
    """Updates that are given again until they are confirmed, and the messages of its chats."""

    def __init__(self) -> None:
        self.offset = 0
        self.messages: list[list[Any]] = []
        self.polls = 0
        self.news = threading.Condition()
        self.url = ""

    def call(self, method: str, given: dict[str, str]) -> Any:
        with self.news:
            answer = getattr(self, method)(given)
            self.news.notify_all()
            return answer

    def getMe(self, given: dict[str, str]) -> Any:
        return {"id": 1, "is_bot": True, "first_name": "Host", "username": "host_bot"}

    def getUpdates(self, given: dict[str, str]) -> Any:
        self.polls += 1
        self.offset = max(self.offset, int(given.get("offset", 0)))
        found = []
        for number, (chat, text) in enumerate(zip(CHATS, SAID, strict=True), start=1):
            if number >= self.offset:
                message = {"message_id": 100 + number, "date": 1, "text": text}
                message["chat"] = {"id": chat, "type": "private", "first_name": "Ann"}
                found.append({"update_id": number, "message": message})
        if not found:
            self.news.wait(0.1)
        # One at a time: the next request confirms it.
        return found[:1]

    def sendMessage(self, given: dict[str, str]) -> Any:
        self.messages.append([int(given["chat_id"]), given["text"]])
        return self._message(len(self.messages))

    def editMessageText(self, given: dict[str, str]) -> Any:
        number = int(given["message_id"])
        self.messages[number - 1][1] = given["text"]
        return self._message(number)

    def _message(self, number: int) -> Any:
        chat, text = self.messages[number - 1]
        place = {"id": chat, "type": "private", "first_name": "Ann"}
        return {"message_id": number, "date": 1, "chat": place, "text": text}

    def wait_for(self, *words: str) -> None:
        """Until all of these stand in the chats."""

        def told() -> bool:
            all_of_it = str(self.messages)
            return all(each in all_of_it for each in words)

        with self.news:
            assert self.news.wait_for(told, LIMIT_S), self.messages


@pytest.fixture
def api() -> Iterator[BotApi]:
    made = BotApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            given = {name: values[0] for name, values in parse_qs(raw).items()}
            answer = made.call(self.path.rpartition("/")[2], given)
            body = json.dumps({"ok": True, "result": answer}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a bot that was killed

    server = Server(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


ENOUGH = ("Order 17 arrives", "Order 23 arrives", "A new conversation.", "I have heard")


@pytest.mark.parametrize("moment", ["Order 17 ", "A new conversation.", "Order 23 "])
def test_with_aiogram_every_update_is_answered_though_the_bot_is_killed(
    api: BotApi, moment: str, tmp_path: Path
) -> None:
    settings = {"BOT_TOKEN": "42:AAAA", "BOT_API": api.url}
    with example("telegram_bot.py", "--delay", 0.02, cwd=tmp_path, settings=settings) as bot:
        api.wait_for(moment)
        bot.kill()
        bot.wait()
    api.polls = 0
    with example("telegram_bot.py", cwd=tmp_path, settings=settings) as bot:
        api.wait_for(*ENOUGH)
        # It polls, so that it knows what to do when it is told to stop.
        with api.news:
            assert api.news.wait_for(lambda: api.offset > len(SAID) and api.polls > 2, LIMIT_S)
        bot.terminate()
        assert bot.wait(LIMIT_S) == 0
    every_update_is_there_once(tmp_path)


def test_an_update_is_confirmed_only_when_it_is_stored(api: BotApi, tmp_path: Path) -> None:
    """A bot whose store can't be opened has confirmed nothing."""
    (tmp_path / "bot.db").mkdir()
    settings = {"BOT_TOKEN": "42:AAAA", "BOT_API": api.url}
    with example("telegram_bot.py", cwd=tmp_path, settings=settings) as bot:
        assert bot.wait(LIMIT_S) != 0
    assert api.offset <= 1
