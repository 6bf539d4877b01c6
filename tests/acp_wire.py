"""A recorder without processes: lines go in on both sides, and what it passes on comes out.

wire = Wire(store)
wire.client("session/prompt", {...}, id=1)      # what the agent gets, as bytes
wire.said("s", sessionUpdate="agent_message_chunk", ...)    # what the client gets
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Session
from holdfast.adapters.acp.recorder import Recorder
from holdfast.adapters.acp.recording import Recording
from holdfast.adapters.acp.storage import SessionStorage
from holdfast.testing.providers import check

SAMPLES = Path(__file__).parent / "samples" / "acp"


class Wire:
    """Both ends of one connection. `to_client` and `to_agent` are all that went there."""

    def __init__(
        self,
        store: holdfast.Store,
        *,
        meet: bool = True,
        serves_load: bool = False,
        key_of: Callable[[str], str] = "acp:toy:{}".format,
    ) -> None:
        self.store = store
        self.recording = Recording(serves_load=serves_load)
        self.problems: list[str] = []
        storage = SessionStorage(store, key_of)
        self.recorder = Recorder(self.recording, storage, self.problems.append)
        self.to_client = b""
        self.to_agent = b""
        if meet:
            self.client("initialize", {"protocolVersion": 1}, id="hello")
            self.answer("hello", {"protocolVersion": 1, "agentInfo": {"name": "toy"}})

    def pass_on(self, sender: Any, *raws: bytes) -> bytes:
        """Lines from one side; what the other one gets."""
        out = b""
        for sent in self.recorder.take(sender, raws):
            out += sent.forward
            self.to_client += sent.to_client
            self.to_agent += sent.to_agent
            more = self.recorder.settle(sent)
            self.to_client += more.to_client
            self.to_agent += more.to_agent
        if sender == "agent":
            self.to_client += out
        else:
            self.to_agent += out
        return out

    def client(self, method: str, params: Any, **more: Any) -> bytes:
        return self.pass_on("client", line(method=method, params=params, **more))

    def agent(self, method: str, params: Any, **more: Any) -> bytes:
        return self.pass_on("agent", line(method=method, params=params, **more))

    def answer(self, id: Any, result: Any) -> bytes:
        """The agent answers."""
        return self.pass_on("agent", line(id=id, result=result))

    def prompt(self, words: str, *, id: Any = 1, session: str = "s") -> bytes:
        block = {"type": "text", "text": words}
        params = {"sessionId": session, "prompt": [block]}
        return self.client("session/prompt", params, id=id)

    def update(self, session: str = "s", **update: Any) -> bytes:
        return self.agent("session/update", {"sessionId": session, "update": update})

    def text(self, words: str, *, session: str = "s", **more: Any) -> bytes:
        return self.chunk("agent_message_chunk", words, session=session, **more)

    def chunk(self, kind: str, words: str, *, session: str = "s", **more: Any) -> bytes:
        content = {"type": "text", "text": words}
        return self.update(session, sessionUpdate=kind, content=content, **more)

    def call(self, id: str, **more: Any) -> bytes:
        fields = {"title": "ls", "name": "shell", "rawInput": {"command": "ls"}, **more}
        return self.update(sessionUpdate="tool_call", toolCallId=id, **fields)

    def result(self, id: str, words: str = "done", status: str = "completed") -> bytes:
        content = [{"type": "content", "content": {"type": "text", "text": words}}]
        return self.update(
            sessionUpdate="tool_call_update", toolCallId=id, status=status, content=content
        )

    def end(self, id: Any = 1, reason: str = "end_turn") -> bytes:
        return self.answer(id, {"stopReason": reason})

    def load(self, *, id: Any = "load", session: str = "s") -> bytes:
        return self.client("session/load", {"sessionId": session, "cwd": "/w"}, id=id)

    def session(self, session: str = "s") -> Session:
        return self.store.session(f"acp:toy:{session}", create=False)

    def told(self, session: str = "s") -> list[tuple[str, str]]:
        """Who said what, those left out who said nothing."""
        return told(self.session(session))


def told(session: Session) -> list[tuple[str, str]]:
    """Who said what in a session; a call stands by its id."""
    out = []
    for message in session.transcript():
        said = message.text or " ".join(call.call_id for call in message.calls)
        if said:
            out.append((message.role, said))
    return out


def insist_valid(session: Session) -> None:
    """Any provider takes what the model is told next."""
    for format in ("openai.chat", "openai.responses", "anthropic", "holdfast", "acp"):
        payloads = session.context(format)
        if format != "acp":
            assert check(format, payloads) == [], format


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
