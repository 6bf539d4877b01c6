"""`./dev streams`: the published clients of the AI SDK (6 and 7) and of AG-UI on the streams of a real server.

A turn is played while pages come at each of its steps, some with nothing, some with half of the answer from before:
all of them show the same in the end, and it is what the transcript has. Then turns that fail and that are stopped,
and a server that is killed in the middle. Every event of AG-UI is also read by its package for Python.
At last, the public suite of the Durable Streams protocol.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from torture.streams.durable import conformance

CLIENTS = ("ai", "ai-7", "ag-ui")
LIMIT_S = 60
Json = dict[str, Any]


class Server:
    """`holdfast serve` in a process of its own."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "holdfast.cli.main", "serve", str(self._store)]
        self._process = subprocess.Popen(
            [*words, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.address, self.token = told["address"], told["token"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)


class Page:
    """A client in a process of its own; it is connected when this returns."""

    folder = Path()

    def __init__(self, server: Server, client: str, session: str, before: list[Json]) -> None:
        self.client = client
        words = ["node", "page.mjs", client, server.address, server.token, session]
        self._process = subprocess.Popen(
            [*words, json.dumps(before)], cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.connected = json.loads(self._process.stdout.readline())

    def shown(self, *, is_cut: bool = False) -> Json:
        """What it shows when its stream has ended. A client that complains has not understood, unless
        its stream was cut.
        """
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        self._process.wait(LIMIT_S)
        assert said, f"{self.client} ended with code {self._process.returncode} and showed nothing"
        lines = [json.loads(line) for line in said.splitlines()]
        complaints = [line for line in lines if "complaint" in line]
        assert is_cut or not complaints, complaints
        [shown] = [line for line in lines if "messages" in line]
        for event in shown.get("events", ()):
            TypeAdapter(Event).validate_python(event)
        return shown


def _delta(finish: str | None = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(arguments: str, **more: Any) -> Json:
    function = {"arguments": arguments, **more.pop("function", {})}
    return _delta(tool_calls=[{"index": 0, "function": function, **more}])


ASKING = [
    _delta(role="assistant", reasoning_content="Let me "),
    _delta(reasoning_content="see."),
    _delta(content="I will "),
    _delta(content="look."),
    _call("", id="call_1", type="function", function={"name": "weather"}),
    _call('{"city":'),
    _call('"Rome"}'),
    _delta("tool_calls"),
]


class Turn:
    """A turn that is played over HTTP."""

    def __init__(self, server: Server, key: str) -> None:
        self._server = server
        started = server.ask("POST", "/v1/turns", {"key": key, "message": "How is the weather?"})
        self.session, self.path = started["session_id"], f"/v1/turns/{started['id']}"

    def do(self, step: str, body: Json) -> Any:
        return self._server.ask("POST", f"{self.path}/{step}", body)

    def spoken(self, format: str, chunks: list[Any]) -> Iterator[str]:
        """A message, one chunk at a time."""
        id: str = self.do("streams", {"format": format})["message_id"]
        for index, chunk in enumerate(chunks):
            body = {"index": index, "chunks": [chunk], "close": index == len(chunks) - 1}
            self.do(f"streams/{id}", body)
            yield id

    def played(self) -> Iterator[str]:
        """All of it, a step at a time; each gives the id of the first message."""
        id = ""
        for id in self.spoken("openai.chat", ASKING):
            yield id
        self.do("results", {"call_id": "call_1", "content": "Sunny."})
        yield id
        for _ in self.spoken("text", ["It is ", "sunny."]):
            yield id


def whole_turn(server: Server) -> None:
    """Pages that come at any time show the same."""
    turn = Turn(server, "whole")
    pages = [Page(server, client, turn.session, []) for client in CLIENTS]
    for number, id in enumerate(turn.played()):
        client = CLIENTS[number % len(CLIENTS)]
        # What it had before it was reloaded: nothing, a part of the answer, or what the server has.
        part = {"type": "text", "text": "I w", "state": "streaming"}
        half: Json = {"id": id, "role": "assistant", "parts": [part]}
        if client == "ag-ui":
            half = {"id": id, "role": "assistant", "content": "I w"}
        stored = server.ask("GET", f"/v1/ai-sdk/{turn.session}/messages")["messages"]
        before = ([], [half], stored if client != "ag-ui" else [])[number // 3 % 3]
        pages.append(Page(server, client, turn.session, before))
    turn.do("end", {})
    for page in pages:
        shown = page.shown()
        assert shown["problem"] is None, shown
        (_as_agui if page.client == "ag-ui" else _as_ui)(shown, id)
    for client in CLIENTS:
        page = Page(server, client, turn.session, [])
        shown = page.shown()
        if client == "ag-ui":
            _as_agui(shown, id)
        else:
            assert (page.connected["connected"], shown["messages"]) == (204, []), shown
    stored = server.ask("GET", f"/v1/ai-sdk/{turn.session}/messages")["messages"]
    _as_ui({"messages": stored, "ending": {"finishReason": "stop"}}, id)


def _as_ui(shown: Json, id: str) -> None:
    *said, message = shown["messages"]
    assert [each["role"] for each in said] in ([], ["user"]), shown
    assert message["id"] == id, shown
    assert shown["ending"]["finishReason"] == "stop", shown
    kinds = [part["type"] for part in message["parts"]]
    assert kinds == ["step-start", "reasoning", "text", "dynamic-tool", "step-start", "text"], kinds
    _, thought, text, tool, _, last = message["parts"]
    assert thought["text"] == "Let me see." and thought["state"] == "done", thought
    assert text["text"] == "I will look." and last["text"] == "It is sunny.", message
    assert tool["state"] == "output-available" and tool["output"] == "Sunny.", tool
    assert tool["input"] == {"city": "Rome"}, tool


def _as_agui(shown: Json, id: str) -> None:
    user, thought, asked, tool, last = shown["messages"]
    assert user["content"] == "How is the weather?" and thought["content"] == "Let me see.", shown
    assert (asked["id"], asked["content"]) == (id, "I will look."), asked
    assert asked["toolCalls"][0]["function"]["arguments"] == '{"city":"Rome"}', asked
    assert tool["content"] == "Sunny." and last["content"] == "It is sunny.", shown


def failed_turn(server: Server) -> None:
    """A turn that fails is an error, with what was said before it."""
    _ends(server, {"end": "failed", "error": "no line"}, problem="no line")


def stopped_turn(server: Server) -> None:
    """A turn that is stopped is neither an error nor a finish."""
    _ends(server, {"end": "interrupted", "reason": "enough"}, problem=None)


def _ends(server: Server, how: Json, *, problem: str | None) -> None:
    turn = Turn(server, f"ends {how['end']}")
    pages = [Page(server, client, turn.session, []) for client in CLIENTS]
    spoken = turn.spoken("text", ["Half of ", "it", "and more"])
    next(spoken), next(spoken)
    turn.do("end", how)
    for page in pages:
        shown = page.shown()
        assert shown["problem"] == problem, shown
        if page.client != "ag-ui":
            assert "finishReason" not in shown["ending"], shown
            [said] = [part["text"] for part in shown["messages"][-1]["parts"] if "text" in part]
        else:
            said = shown["messages"][-1]["content"]
        assert said == "Half of it", shown


def killed_server(server: Server) -> None:
    """The server is killed in the middle: pages notice, and what was said is there for the next."""
    turn = Turn(server, "killed")
    pages = [Page(server, client, turn.session, []) for client in CLIENTS]
    spoken = turn.spoken("text", ["Half of ", "it"])
    id = next(spoken)
    server.kill()
    for page in pages:
        shown = page.shown(is_cut=True)
        assert shown["problem"] is not None, shown
    server.start()
    said = server.ask("GET", f"/v1/sessions/{turn.session}/transcript")["items"][-1]
    assert (said["id"], said["text"], said["state"]) == (id, "Half of ", "partial"), said
    for client in CLIENTS:
        page = Page(server, client, turn.session, [])
        shown = page.shown()
        if client == "ag-ui":
            assert shown["messages"][-1]["content"] == "Half of ", shown
        else:
            assert page.connected["connected"] == 204, shown


SCENES: tuple[Callable[[Server], None], ...] = (
    whole_turn,
    failed_turn,
    stopped_turn,
    killed_server,
)


def main(arguments: list[str]) -> int:
    Page.folder = Path(arguments[0]).resolve()
    # Beside its packages: there its imports are found.
    page = Path(__file__).with_name("page.mjs").read_text()
    (Page.folder / "page.mjs").write_text(page)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "s.db")
        try:
            for scene in SCENES:
                problem = None
                try:
                    scene(server)
                except AssertionError as error:
                    problem = str(error)
                    failures += 1
                print(f"{'ok  ' if problem is None else 'FAIL'}  {scene.__doc__}", flush=True)
                if problem is not None:
                    print(f"      {problem[:2000]}", flush=True)
        finally:
            server.kill()
    is_conform = conformance(Page.folder)
    print(f"{len(SCENES) - failures} passed, {failures} failed")
    return 0 if is_conform and not failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
