"""A server with the story, and pages in a browser that must not complain about anything."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from holdfast.server.serving.listening import listening
from torture.page.story import NOW, tell

WIDE, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 844}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="FOLDER", help="where pictures of the page are put")


class Server:
    """`holdfast serve`, on one port for as long as the tests run."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "agent.db"
        self.ids = tell(self.store)
        self.tokens = folder / "tokens"
        # The page reads, and does nothing else.
        self.token, self._admin = self._token("read"), self._token("admin")
        with listening("127.0.0.1", 0) as listener:
            self.port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None

    def _token(self, scope: str) -> str:
        words = ["token", str(self.tokens), "--scope", scope, "--json"]
        command = [sys.executable, "-m", "holdfast.cli.main", *words]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        return str(json.loads(made.stdout)["token"])

    def start(self) -> None:
        words = ["serve", str(self.store), "--tokens", str(self.tokens), "--port", str(self.port)]
        command = [sys.executable, "-m", "holdfast.cli.main", *words, "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["address"] == self.address

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def post(self, path: str, body: object) -> Any:
        request = urllib.request.Request(
            self.address + path,
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._admin}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def at(self, key: str = "", place: str = "") -> str:
        """An address of the page, with the token."""
        to = f"/s/{self.ids[key]}{place}" if key else "/"
        return f"{self.address}/#token={self.token}&to={to}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("page"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("HOLDFAST_CHROMIUM") or next(
        filter(None, map(shutil.which, names)), None
    )
    assert found, "There is no chromium here. On Debian: apt-get install chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found)
        yield opened
        opened.close()


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Open]:
    """Opens pages. After the test: none has logged an error, or asked anybody but the server, and the token was in no
    address.
    """
    contexts: list[BrowserContext] = []
    said: list[str] = []
    asked: list[str] = []

    def make(key: str = "", place: str = "", *, complains: bool = False, **more: Any) -> Page:
        settings = {"viewport": WIDE, "timezone_id": "UTC", "locale": "en-GB", **more}
        context = browser.new_context(**settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.clock.set_fixed_time(datetime.fromtimestamp(NOW / 1000, UTC))
        if not complains:
            page.on("console", lambda each: said.append(f"{each.type}: {each.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.at(key, place))
        return page

    yield make
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith(server.address) for url in asked), asked
    assert not any(server.token in url.partition("#")[0] for url in asked)


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where pictures are put."""
    return Path(request.config.getoption("--screenshots") or tmp_path)
