"""An agent that speaks the Agent Client Protocol and does what a prompt says: what real agents were
seen to send, without a model.

    python tests/acp_agent.py HOME [refuse|queue]

A prompt ends in `DO: […]`, a list of steps. The agent keeps its sessions in HOME, the way goose
does: a turn is stored when it has ended, of a cancelled one the prompt alone.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Cancelled(Exception):
    """The client wants this turn to stop."""


class Agent:
    def __init__(self, home: Path, mode: str) -> None:
        self.home, self.mode = home, mode
        self.inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.cancelled = threading.Event()
        self.running: str | None = None
        self.waiting: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.asked = 0
        self.made = 0

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) + "\n")

    def write(self, text: str) -> None:
        with self.lock:
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()

    def update(self, session: str, **update: Any) -> dict[str, Any]:
        self.send(method="session/update", params={"sessionId": session, "update": update})
        return update

    def fresh(self, kind: str) -> str:
        self.made += 1
        return f"{kind}_{os.getpid()}_{self.made}"

    # Its own store.

    def path(self, session: str) -> Path:
        return self.home / f"{session}.json"

    def stored(self, session: str) -> list[dict[str, Any]]:
        return json.loads(self.path(session).read_text())

    def store(self, session: str, updates: list[dict[str, Any]]) -> None:
        self.path(session).write_text(json.dumps([*self.stored(session), *updates]))

    # What it is asked.

    def serve(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        while (message := self.inbox.get()) is not None:
            self.handle(message)

    def read(self) -> None:
        for raw in sys.stdin.buffer:
            try:
                message = json.loads(raw)
            except ValueError:
                self.write("heard: " + raw.decode(errors="replace"))
                continue
            method = message.get("method")
            if method is None:
                self.answers.put(message)
            elif method == "session/cancel":
                self.cancelled.set()
                self.answers.put({})
            elif method == "session/prompt" and self.running and self.mode == "refuse":
                words = "session already has active run `run_1`"
                self.send(id=message["id"], error={"code": -32602, "message": words})
            elif method == "session/prompt":
                self.running = self.running or "next"
                self.inbox.put(message)
            else:
                self.inbox.put(message)
        self.inbox.put(None)
        # The end of the input ends a turn as well, the way it does for real agents.
        os._exit(0)

    def handle(self, message: dict[str, Any]) -> None:
        method, id, params = message["method"], message.get("id"), message.get("params", {})
        if method == "initialize":
            info = {"name": "toy", "version": "1"}
            version = int(os.environ.get("ACP_VERSION", "1"))
            capable = {"loadSession": True}
            result = {"protocolVersion": version, "agentInfo": info, "agentCapabilities": capable}
            self.send(id=id, result=result)
        elif method == "session/new":
            session = f"20261115_{len(list(self.home.glob('*.json'))) + 1}"
            self.path(session).write_text("[]")
            self.send(id=id, result={"sessionId": session, "modes": {"currentModeId": "auto"}})
        elif method == "session/load":
            self.load(id, params["sessionId"])
        elif method == "session/prompt":
            self.prompt(id, params)
        elif id is not None:
            self.send(id=id, error={"code": -32601, "message": f"Method not found: {method}"})

    def load(self, id: Any, session: str) -> None:
        if not self.path(session).exists():
            self.send(id=id, error={"code": -32002, "message": "Resource not found"})
            return
        for update in self.stored(session):
            self.update(session, **update)
        self.send(id=id, result={"modes": {"currentModeId": "auto"}})
        self.update(session, sessionUpdate="usage_update", used=1, size=2)

    def prompt(self, id: Any, params: dict[str, Any]) -> None:
        session = params["sessionId"]
        self.running, words = session, params["prompt"][0]["text"]
        self.cancelled.clear()
        content = {"type": "text", "text": words}
        asked = {"sessionUpdate": "user_message_chunk", "content": content}
        said = [{**asked, "messageId": self.fresh("msg")}]
        kept = said[:]
        reason = "end_turn"
        try:
            for step in json.loads(words.partition("DO: ")[2] or "[]"):
                said += self.step(session, step)
                if self.cancelled.is_set():
                    raise Cancelled
            kept = said
        except Cancelled:
            reason = "cancelled"
        self.store(session, kept)
        self.running = None if self.inbox.empty() else "next"
        usage = {"inputTokens": 5, "outputTokens": 3, "totalTokens": 8}
        self.send(id=id, result={"stopReason": reason, "usage": usage})

    def step(self, session: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        [(what, value)] = list(step.items())[:1]
        return getattr(self, f"do_{what}")(session, value, step)

    def do_text(self, session: str, words: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        return self._speak(session, "agent_message_chunk", words, step)

    def do_think(self, session: str, words: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        return self._speak(session, "agent_thought_chunk", words, step)

    def _speak(
        self, session: str, kind: str, words: str, step: dict[str, Any]
    ) -> list[dict[str, Any]]:
        id = step.get("id") or self.fresh("chatcmpl")
        meta = {"toy": {"messageId": id}}
        named = {} if id == "none" else {"messageId": id, "_meta": meta}
        for word in words.split(" "):
            text = word + " " if word else ""
            self.update(
                session, sessionUpdate=kind, content={"type": "text", "text": text}, **named
            )
            time.sleep(step.get("slow", 0))
            if self.cancelled.is_set():
                raise Cancelled
        whole = {"type": "text", "text": words + " "}
        return [{"sessionUpdate": kind, "content": whole, **named}]

    def do_call(self, session: str, id: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        call = {"sessionUpdate": "tool_call", "toolCallId": id, "title": "run"}
        meta = {"claudeCode": {"toolName": step.get("name", "shell")}}
        given = step.get("input", {"command": "ls"})
        if step.get("late"):  # as Claude announces them
            self.update(session, **call, rawInput={}, status="pending", _meta=meta)
            grown = {"sessionUpdate": "tool_call_update", "toolCallId": id, "rawInput": given}
            self.update(session, **grown, _meta=meta)
        else:
            self.update(session, **call, rawInput=given, _meta=meta)
        return [{**call, "rawInput": given, "_meta": meta}]

    def do_progress(self, session: str, id: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        output = {"toolNotification": {"type": "live_output", "output": step["out"]}}
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"}
        self.update(session, **update, _meta=output)
        return []

    def do_result(self, session: str, id: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        block = {"type": "content", "content": {"type": "text", "text": step.get("out", "done")}}
        status = "failed" if step.get("failed") else "completed"
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status}
        return [self.update(session, **update, content=[block])]

    def do_ask(self, session: str, id: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        params = {"sessionId": session, "toolCall": {"toolCallId": id}, "options": options}
        self.send(id=self.asked, method="session/request_permission", params=params)
        self.asked += 1
        answer = self.answers.get()
        outcome = answer.get("result", {}).get("outcome", {})
        if outcome.get("optionId") == "yes":
            return []
        if outcome.get("outcome") != "selected":
            self.cancelled.set()
            raise Cancelled
        return self.do_result(session, id, {"out": "refused", "failed": True})

    def do_update(self, session: str, update: Any, step: dict[str, Any]) -> list[dict[str, Any]]:
        self.update(session, **update)
        return []

    def do_raw(self, session: str, line: str, step: dict[str, Any]) -> list[dict[str, Any]]:
        self.write(line.replace("SESSION", session))
        return []

    def do_big(self, session: str, size: int, step: dict[str, Any]) -> list[dict[str, Any]]:
        return self.do_result(session, step["call"], {"out": "x" * size})

    def do_hang(self, session: str, value: Any, step: dict[str, Any]) -> list[dict[str, Any]]:
        self.cancelled.wait()
        raise Cancelled

    def do_keep(self, session: str, value: Any, step: dict[str, Any]) -> list[dict[str, Any]]:
        """Stores something that the client was never shown."""
        return value

    def do_die(self, session: str, number: int, step: dict[str, Any]) -> list[dict[str, Any]]:
        os.kill(os.getpid(), number)
        signal.pause()
        return []


if __name__ == "__main__":
    # Ended by the signal itself, as agents are that are not written in Python.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Agent(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "queue").serve()
