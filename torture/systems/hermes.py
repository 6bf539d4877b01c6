"""Hermes Agent 0.19.0: what it made itself is healthy where it should be, the context that Holdfast
makes of it is what Hermes itself sends next, and what the doctor healed it loads and carries on.

Hermes runs in an environment of its own (`hermes_driver.py`, a process that does one task after
another); a scripted model on loopback answers it. Each row of the first kind is something that
Hermes did to a store of its own: turns, tool calls, a compaction in place and one into a child, an
undo, a branch, a kill in the middle of an answer. It is examined and imported, and Hermes is spoken
to once more; where something was found, the store is healed to Hermes' own form and loaded again.
Each of the second is a broken store, healed with every question answered yes, and spoken to: the
request that Hermes sends then must be valid, and hold the messages that it should, and the store be
healthy afterwards.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

import hermes_stores as stores  # noqa: E402
from holdfast.testing.providers import check  # noqa: E402
from torture.systems.judging import NEXT, Trouble, counted, judged  # noqa: E402

RELEASE = "0.19.0"
INSTALL = [f"hermes-agent=={RELEASE}"]
NO_ANSWER = "[No answer to this message is stored.]"
NO_QUESTION = "[The question is not stored.]"
UNKNOWN = '{"error": "interrupted, outcome unknown"}'
TIDE = '{"output": "high 21:40"}'
BEYOND = {"hermes/ghost-route", "hermes/summary-without-source", "hermes/unreadable-record"}
SUMMARY = "[CONTEXT COMPACTION"
CRANE, SLIP, WINCH = "Is the crane free?", "Is the slip free?", "And the winch?"
ALL_DAY = "The slip is free all day."

# What Hermes should send of the session `sick` of each case, or of the one that its chat is in,
# after healing and before the new question.
SENT: dict[str, list[str]] = {
    "orphan_user": ["Which berth is free?", NO_ANSWER, CRANE, "Yes."],
    "orphan_user_at_the_end": [CRANE, "Yes.", "Which berth is free?", NO_ANSWER],
    "orphan_user_beside_a_notice": ["Which berth is free?", NO_ANSWER, CRANE, "Yes."],
    "orphan_user_compacted_away": [
        "Log the ferry.",
        stores.SUMMARY,
        "Log the tug.",
        NO_ANSWER,
        "Log the yacht.",
        "Logged, no pilot.",
        "How many?",
        "Three.",
    ],
    "merged_user_blob": ["Log the tug.", NO_ANSWER, "How many so far?", "One."],
    "partial_unmarked": ["Which berth is free?", "Berth 4 is fr", "Go on.", "Berth 4 is free."],
    "split_by_stream_cut": [
        "Tell me about the harbour.",
        "It was built in 1871 and has nine berths.",
        "Thanks.",
        "You are welcome.",
    ],
    "duplicate_tool_call_row": [
        "When is high water?",
        "Let me look.",
        UNKNOWN,
        "Well?",
        "At 21:40.",
    ],
    "repeated_tail": [
        "[CONTEXT COMPACTION] More was logged.",
        "Log the barge at 12.",
        "Logged, two hands.",
        "How many so far?",
        "Four.",
        "And now?",
        "Still four.",
    ],
    "repeated_tail_in_one_batch": [
        "Log the ferry at 9.",
        stores.SUMMARY,
        "Log the tug at 10.",
        "Logged too.",
        "How many so far?",
        "Two.",
    ],
    "written_after_end": [SLIP, "All day.", WINCH, "In repair.", "And the ramp?", "Wet."],
    "interleaved_turns": [
        CRANE,
        "The crane is.",
        SLIP,
        "The slip is not.",
        "Thanks.",
        "You are welcome.",
    ],
    "double_user_row": [CRANE, "Yes."],
    "tool_result_without_call": ["When is high water?", "At 21:40."],
    "tool_result_twice": ["When is high water?", "", TIDE, "At 21:40."],
    "tool_call_without_result": ["When is high water?", "", TIDE, UNKNOWN, "Well?", "At 21:40."],
    "tool_call_without_result_at_the_end": ["When is high water?", "", UNKNOWN],
    "session_meta_repeated": [
        CRANE,
        "Yes.",
        "And the slip?",
        "Which slip?",
        "The one beside it.",
        "It is free.",
    ],
    "compression_without_child": [CRANE, "Yes.", f"And the slip?\n\n{NEXT}"],
    "compression_with_a_next_session": [WINCH, "In repair."],
    "message_count_drift": [CRANE, "Yes."],
    "replaced_characters": ["Which boat?", "The yellow 🚤 tonight."],
    "replaced_characters_for_good": ["Which boat \ufffd?", "The yellow one."],
    "tool_calls_not_json": ["When is high water?", "Let me look.", TIDE, TIDE, "At 21:40."],
    "lost_turn": [NO_QUESTION, ALL_DAY, NO_QUESTION, "The winch is in repair."],
    "answer_only_in_ledger": [CRANE, "Yes.", SLIP, f"Yes. {ALL_DAY}", WINCH, "In repair."],
    "stale_compression_lock": [CRANE, "Yes."],
    "review_harness_turn": [CRANE, "Yes.", "And the slip?", "All day."],
    "history_stored_twice": [
        CRANE,
        "Yes.",
        "And the slip?",
        "All day.",
        "Thanks.",
        "You are welcome.",
    ],
    "summary_without_source": ["Log the ferry.", stores.SUMMARY, "How many?", "Three."],
    "unreadable_record": [CRANE, "Yes.", "And the slip?", "All day."],
}
ELSEWHERE = {
    "repeated_tail": "compacted",
    "repeated_tail_in_one_batch": "compacted",
    "written_after_end": "right",
    "compression_with_a_next_session": "next",
}


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    with tempfile.TemporaryDirectory() as folder, Model() as model:
        hermes = Hermes(environment, Path(folder), model)
        rows = {name: _own(hermes, Path(folder), name) for name in SCENARIOS}
        rows |= {name: _healed(hermes, Path(folder), name) for name in SENT}
        hermes.close()
    return counted(rows)


# Stores that Hermes makes.


class Book:
    """A store that Hermes keeps."""

    format = "openai.chat"

    def __init__(self, hermes: "Hermes", folder: Path) -> None:
        folder.mkdir()
        self.hermes, self.folder, self.files = hermes, folder, folder / "state.db"

    def say(self, text: str, session: str = "own") -> list[dict[str, Any]]:
        return self.hermes.say(self.files, session, text)

    def do(self, act: str, **more: Any) -> dict[str, Any]:
        return self.hermes.do(act, self.files, "own", **more)

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What Hermes sends when this session is spoken to once more, up to the new prompt."""
        *sent, last = self.say(NEXT, session)
        before = last["content"].removesuffix(NEXT).rstrip("\n")
        return [*sent, {**last, "content": before}] if before else sent


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the system's, which Hermes makes anew. It writes the arguments of calls in a
    way of its own, and a summary between two of the user's messages as one of the assistant's;
    Holdfast writes all summaries as the user's, and as one message what the user says in a row.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if SUMMARY in str(message.get("content")):
            message = {**message, "role": "user"}
        if told and told[-1]["role"] == message["role"] == "user":
            told[-1] = {"role": "user", "content": f"{told[-1]['content']}\n\n{message['content']}"}
        else:
            told.append(_plain_calls(message))
    return told


def _plain_calls(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.loads(call["function"]["arguments"]),
            },
        }
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _turns(book: Book) -> str:
    for text in ("Which berth is free?", "Make a list of it.", "Thanks."):
        book.say(text)
    return "own"


def _in_place(book: Book) -> str:
    _long(book)
    book.do("compact", in_place=True)
    book.say("And now?")
    return "own"


def _twice(book: Book) -> str:
    """Hermes stores what a compaction keeps once more each time: the doctor has a rule for it."""
    _in_place(book)
    book.do("compact", in_place=True)
    book.say("And then?")
    return "own"


def _rotated(book: Book) -> str:
    _long(book)
    child = str(book.do("compact", in_place=False)["session"])
    assert child != "own", "the compaction made no child"
    book.say("And now?", child)
    return child


def _long(book: Book) -> None:
    for number in range(8):
        book.say(f"Log boat {number}." + " It is a long one." * 20)


def _undone(book: Book) -> str:
    _turns(book)
    book.do("undo")
    book.say("Another question.")
    return "own"


def _branched(book: Book) -> str:
    _turns(book)
    book.do("branch", into="own-2")
    book.say("Another question.", "own-2")
    return "own-2"


def _killed(book: Book) -> str:
    """Killed in the middle of an answer: a live session whose last question may still be
    at work.
    """
    _turns(book)
    book.hermes.kill_during(book.files, "own", "SLOW")
    return "own"


def _turn_after_a_kill(book: Book) -> str:
    _killed(book)
    book.say("Are you there?")
    return "own"


SCENARIOS: dict[str, tuple[Callable[[Book], str], set[str]]] = {
    "turns with a tool": (_turns, set()),
    "compaction in place": (_in_place, set()),
    "two compactions in place": (_twice, {"hermes/repeated-tail"}),
    "compaction into a child": (_rotated, set()),
    "undo": (_undone, set()),
    "branch": (_branched, set()),
    "kill -9 in an answer": (_killed, set()),
    "turn after a kill -9": (_turn_after_a_kill, {"hermes/orphan-user"}),
}


def _own(hermes: "Hermes", folder: Path, name: str) -> list[str]:
    book = Book(hermes, folder / name.replace(" ", "-"))
    problems = judged(book, SCENARIOS[name], plain)
    return problems or (_loaded_again(book) if SCENARIOS[name][1] else [])


def _loaded_again(book: Book) -> list[str]:
    """What Hermes left, healed to its own form and spoken to again."""
    healed = book.folder / "healed.db"
    doctor(str(book.files), "--heal", str(healed), "--as", "hermes", "--accept", "*")
    problems = check("openai.chat", book.hermes.say(healed, "own", NEXT))
    left = {finding["rule"] for finding in examined(healed)}
    return [*problems, *(f"loaded again, {rule} is found" for rule in sorted(left))]


# Stores that were broken.


def _healed(hermes: "Hermes", folder: Path, name: str) -> list[str]:
    healed = folder / f"{name}-healed.db"
    doctor(
        str(stores.damaged(folder / f"{name}.db", name)),
        "--heal",
        str(healed),
        "--as",
        "hermes",
        "--accept",
        "*",
    )
    session = ELSEWHERE.get(name, "sick")
    try:
        sent = hermes.say(healed, session, NEXT)
    except Trouble as trouble:
        return [str(trouble)]
    problems = check("openai.chat", sent)
    texts = [message.get("content") or "" for message in sent if message["role"] != "system"]
    wanted = SENT[name] if SENT[name][-1].endswith(NEXT) else [*SENT[name], NEXT]
    if texts != wanted:
        problems.append(f"sent {texts}, expected {wanted}")
    left = {finding["rule"] for finding in examined(healed)} - BEYOND - after(name)
    return [*problems, *(f"afterwards {rule} is found" for rule in sorted(left))]


def after(name: str) -> set[str]:
    """What Hermes itself breaks by going on."""
    return {"hermes/orphan-user"} if name == "compression_without_child" else set()


def examined(store: Path) -> list[dict[str, Any]]:
    return doctor(str(store))["stores"][0]["findings"]


def doctor(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "holdfast.cli.main", "doctor", "--json", *arguments]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path[:2])}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class Hermes:
    """The driver, in a process of its own that is started again when it was killed."""

    def __init__(self, environment: Path, folder: Path, model: "Model") -> None:
        self._command = [
            str(environment / "bin" / "python"),
            str(Path(__file__).with_name("hermes_driver.py")),
        ]
        self._folder = folder
        self._model = model
        self._process: subprocess.Popen[str] | None = None

    def say(self, store: Path, session: str, text: str) -> list[dict[str, Any]]:
        """One turn; the messages of the first request that was sent for it."""
        self._model.requests.clear()
        self.do("say", store, session, text=text)
        asked = [request["messages"] for request in self._model.requests if "messages" in request]
        mine = [
            messages for messages in asked if str(messages[-1].get("content", "")).endswith(text)
        ]
        if not mine:
            raise Trouble(f"no request ends with {text!r}")
        return mine[0]

    def do(self, act: str, store: Path, session: str, **more: Any) -> dict[str, Any]:
        self._tell(act, store, session, more)
        assert self._process is not None and self._process.stdout is not None
        answer: dict[str, Any] = json.loads(
            self._process.stdout.readline() or '{"error": "it is gone"}'
        )
        if "error" in answer:
            raise Trouble(f"{act}: {answer['error']}")
        return answer

    def kill_during(self, store: Path, session: str, text: str) -> None:
        """Kills it while the model is in the middle of an answer."""
        self._model.halfway.clear()
        self._tell("say", store, session, {"text": text})
        if not self._model.halfway.wait(60):
            raise Trouble("the model was not asked")
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None
        self._model.go_on.set()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _tell(self, act: str, store: Path, session: str, more: dict[str, Any]) -> None:
        if self._process is None:
            home = {"HERMES_HOME": str(self._folder / "home"), "HOME": str(self._folder)}
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=self._folder,
                env={"PATH": os.environ["PATH"]} | home,
            )
        assert self._process.stdin is not None
        task = {"act": act, "store": str(store), "session": session, "url": self._model.url} | more
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()


class Model:
    """An OpenAI-compatible model: a list asked for is made with a tool, all else is answered with a
    few words.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.halfway, self.go_on = threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.model = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "Model":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        model: Model = self.server.model  # type: ignore[attr-defined]
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        model.requests.append(request)
        last = request["messages"][-1]
        text = str(last.get("content") or "")
        if last["role"] == "user" and text == "Make a list of it.":
            self._answer(request, {"tool_calls": [_todo()]}, "tool_calls")
        elif text == "SLOW":
            self._half(model)
        else:
            self._answer(
                request, {"content": f"Answer to {len(request['messages'])} messages."}, "stop"
            )

    def _answer(self, request: dict[str, Any], said: dict[str, Any], finish: str) -> None:
        message = {"role": "assistant", "content": None} | said
        if not request.get("stream"):
            self._send("application/json", json.dumps(_frame("message", message, finish)))
            return
        for index, call in enumerate(message.get("tool_calls", ())):
            call["index"] = index
        frames = [_frame("delta", message, None), _frame("delta", {}, finish)]
        self._send(
            "text/event-stream",
            "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n",
        )

    def _half(self, model: Model) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(
            f"data: {json.dumps(_frame('delta', {'content': 'Half of '}, None))}\n\n".encode()
        )
        self.wfile.flush()
        model.halfway.set()
        model.go_on.wait(60)

    def _send(self, kind: str, body: str) -> None:
        raw = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the table is the output."""


def _frame(kind: str, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, kind: said, "finish_reason": finish}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    name = "chat.completion" if kind == "message" else "chat.completion.chunk"
    return {
        "id": "c1",
        "object": name,
        "created": 1,
        "model": "lantern-1",
        "choices": [choice],
        "usage": usage,
    }


def _todo() -> dict[str, Any]:
    arguments = json.dumps({"todos": [{"id": "1", "content": "Berth 4", "status": "pending"}]})
    return {
        "id": "call_0",
        "type": "function",
        "function": {"name": "todo", "arguments": arguments},
    }
