"""A coding agent at a terminal: a tool loop, Ctrl-C that keeps what was shown, compaction in the
middle of a turn.

    python examples/coding_agent.py [--store coding.db] [--folder .] [--delay 0.0]

Press Ctrl-C while it speaks or works: the turn ends as interrupted, what you saw is what is stored,
a call that was running is closed in the model's view, and the next prompt goes on from there. The
model and the prompts are scripted: it reads every Python file of the folder, far more than its
small context holds, and says what it found.
"""

import argparse
import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast

PROMPTS = ["How long are the Python files here?", "And which one is the longest?"]
CONTEXT_LIMIT = 4000
"""In characters, to keep the example small; a real agent counts tokens."""


class Agent:
    """The loop that every coding agent has: ask the model, run its calls, ask again."""

    def __init__(self, session: holdfast.Session, folder: Path, delay: float) -> None:
        self.session, self.folder, self.delay = session, folder, delay

    def ask(self, prompt: str) -> None:
        """One turn. Whatever ends the block, Ctrl-C included, all that was shown is stored and the
        turn has its end.
        """
        with self.session.turn(prompt) as turn:
            while True:
                self.make_room(turn)
                stream = model(turn.context("openai.chat"), self.files(), self.delay)
                # With the real client:
                #   stream = client.chat.completions.create(
                #       model="gpt-5", messages=turn.context("openai.chat"), tools=TOOLS, stream=True)
                for text in turn.deliver(stream, format="openai.chat"):
                    print(text, end="", flush=True)
                calls = turn.calls()
                if not calls:
                    return
                for call in calls:
                    self.run(turn, call)

    def run(self, turn: holdfast.Turn, call: holdfast.CallToRun) -> None:
        turn.call(call.name, call.arguments, call.call_id)  # durable: now the tool may run
        print(f"[{call.name} {call.arguments['path']}]", flush=True)
        try:
            turn.result(call.call_id, self.read_file(**call.arguments))
        except OSError as error:
            turn.result(call.call_id, str(error), error=True)

    def make_room(self, turn: holdfast.Turn) -> None:
        """Compacts when the context grows too long, in the middle of the turn; the turn goes on."""
        size = sum(len(str(message.get("content"))) for message in turn.context("openai.chat"))
        if size > CONTEXT_LIMIT:
            done = self.session.compact(summarise, keep_turns=0)
            if done is not None:
                print(f"[compacted {len(done.covered)} messages]", flush=True)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.py"))

    def read_file(self, path: str) -> str:
        text = (self.folder / path).read_text(encoding="utf-8")
        return f"{path}: {text.count(chr(10))} lines\n{text}"


def summarise(messages: list[holdfast.Message]) -> str:
    """What is worth keeping: what was asked, which may be covered too, and what was found. A real
    agent asks its model. An earlier summary is among the messages, so that nothing of it is lost.
    """
    lines = []
    for message in messages:
        if message.role == "user" and not message.text.startswith("Summary"):
            lines.append(f"Asked: {message.text}")
        else:
            lines += re.findall(r"^Asked: .*$", message.text, re.M)
        lines += FOUND.findall(message.text)
    return "\n".join(dict.fromkeys(lines))


FOUND = re.compile(r"^\S+\.py: \d+ lines$", re.M)


def main() -> None:
    arguments = argparse.ArgumentParser(description="A coding agent with a scripted model.")
    arguments.add_argument("--store", default="coding.db", help="the store's file")
    arguments.add_argument(
        "--folder", type=Path, default=Path(__file__).parent, help="the files to look at"
    )
    arguments.add_argument(
        "--delay", type=float, default=0.0, help="seconds between two words of the model"
    )
    given = arguments.parse_args()
    with holdfast.open(given.store) as store:
        session = store.session(f"code:{given.folder.resolve().name}")
        session.instructions("You are a coding agent. Be brief.")
        agent = Agent(session, given.folder, given.delay)
        for prompt in PROMPTS:  # with a person: iter(lambda: input("> "), "")
            print(f"> {prompt}", flush=True)
            try:
                agent.ask(prompt)
                print(flush=True)
            except KeyboardInterrupt:
                print("\n[interrupted: what you have seen is kept]", flush=True)


# The scripted model
# --------------------------------------------------------------------------------------------------

COUNTER = itertools.count()


def model(
    messages: list[dict[str, Any]], files: list[str], delay: float
) -> Iterator[dict[str, Any]]:
    """Reads file after file, as far as the context does not tell of it, then says what it has
    found.
    """
    seen = "\n".join(str(message.get("content")) for message in messages)
    known = dict(line.removesuffix(" lines").split(": ") for line in FOUND.findall(seen))
    missing = [name for name in files if name not in known]
    if missing:
        function = {"name": "read_file", "arguments": json.dumps({"path": missing[0]})}
        call = {"index": 0, "id": f"call_{next(COUNTER)}", "type": "function", "function": function}
        yield {
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "tool_calls": [call]},
                    "finish_reason": None,
                }
            ]
        }
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        return
    text = ", ".join(f"{name} has {known[name]} lines" for name in files) + "."
    if "longest" in [message["content"] for message in messages if message["role"] == "user"][-1]:
        text = f"{max(known, key=lambda name: int(known[name]))} is the longest."
    for word in re.findall(r"\S+\s*", text):
        time.sleep(delay)
        yield {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}
            ]
        }
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


if __name__ == "__main__":
    main()
