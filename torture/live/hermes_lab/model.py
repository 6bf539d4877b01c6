"""A scripted model on loopback that speaks the Chat Completions API and streams.

A user's text may hold a line `DO: [steps]`; a step is a dict with `text` and, if wished, `tools`
(`name` and `args`), `hold` (after so many words the stream stands still until `release`), `cut`
(after so many words the connection is closed) and `pause` (seconds before each word). Which step it
is, is told by how many answers came after that text. All that was asked is in `requests`.
"""

import json
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "lantern-1"
_NOTE = re.compile(r"\[System note:.*?\](?=\s*(?:\n\n|\Z))", re.DOTALL)
"""What Hermes itself puts before or after a user's words."""


def do(*steps, say="Please."):
    """A message of the user's that scripts the answers to it."""
    return f"{say} DO: {json.dumps(list(steps))}"


class Model:
    """The server; `url` is what a program is configured with."""

    def __init__(self):
        self.requests = []
        self._go_on = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def release(self):
        """Lets all streams that stand still go on; none stands still from now on."""
        self._go_on.set()

    def stand_still(self):
        """From now on streams stand still again where their script says so."""
        self._go_on.clear()

    def hold(self):
        self._go_on.wait(300)

    def asked(self, text):
        """The messages of the requests whose last message of the user has this text."""
        found = []
        for request in list(self.requests):
            messages = request.get("messages", [])
            users = [each for each in messages if each["role"] == "user"]
            if users and text in words_of(users[-1]["content"]):
                found.append(messages)
        return found

    def close(self):
        self.release()
        self._server.shutdown()
        self._server.server_close()


def words_of(content):
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def step_of(messages):
    """What is to be said to these messages."""
    last, text = None, ""
    for place, message in enumerate(messages):
        words = words_of(message.get("content"))
        if message["role"] == "user" and words.strip():
            last, text = place, words
    if last is None:
        return {"text": "Hello."}
    # Several questions may have been glued into one: the last of them is answered.
    asked = (_NOTE.sub("", text).strip() or "nothing").splitlines()[-1]
    scripts = re.findall(r"DO: (\[.*\])", asked)
    if not scripts:
        return {"text": f"Noted: {asked[:60]}"}
    steps = json.loads(scripts[-1])
    rounds = sum(message["role"] == "assistant" for message in messages[last + 1 :])
    return steps[rounds] if rounds < len(steps) else {"text": "All done here."}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._json({"object": "list", "data": [{"id": NAME, "context_length": 200000}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self.path.split("?")[0].endswith("/chat/completions"):
            self._json({})
            return
        self.server.model.requests.append(body)
        try:
            self._answer(body, step_of(body.get("messages", [])))
        except (BrokenPipeError, ConnectionResetError):
            return

    def _answer(self, body, step):
        calls = []
        for tool in step.get("tools", ()):
            function = {"name": tool["name"], "arguments": json.dumps(tool["args"])}
            calls.append(
                {"id": f"call_{uuid.uuid4().hex[:12]}", "type": "function", "function": function}
            )
        finish = "tool_calls" if calls else "stop"
        if not body.get("stream"):
            message = {"role": "assistant", "content": step.get("text"), "tool_calls": calls}
            if not calls:
                del message["tool_calls"]
            self._json(_frame("message", message, finish))
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self._event(_frame("delta", {"role": "assistant", "content": ""}, None))
        if not self._words(step):
            return
        for index, call in enumerate(calls):
            self._event(_frame("delta", {"tool_calls": [{"index": index, **call}]}, None))
        self._event(_frame("delta", {}, finish))
        self._event("[DONE]")

    def _words(self, step):
        """Says the words of this step; False where the connection is cut."""
        model = self.server.model
        for number, word in enumerate(re.findall(r"\S+\s*", step.get("text") or "")):
            if number == step.get("hold"):
                model.hold()
            if number == step.get("cut"):
                self.connection.close()
                return False
            time.sleep(step.get("pause", 0))
            self._event(_frame("delta", {"content": word}, None))
        return True

    def _event(self, data):
        words = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write(f"data: {words}\n\n".encode())
        self.wfile.flush()

    def _json(self, value):
        raw = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format, *args):
        """Nothing: the table is the output."""


def _frame(kind, said, finish):
    name = "chat.completion" if kind == "message" else "chat.completion.chunk"
    return {
        "id": "c1",
        "object": name,
        "created": 1,
        "model": NAME,
        "choices": [{"index": 0, kind: said, "finish_reason": finish}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
