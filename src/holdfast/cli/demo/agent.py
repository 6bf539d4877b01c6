"""The demo's agent: a loop of model and tools, as agents have it. Run as a program, it is the
process that is killed.

    python -m holdfast.cli.demo.agent STORE SESSION QUESTION PACE_S

It answers one question and writes to stdout what it hands on to the user, each piece as soon as it
may be shown.
"""

import sys
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.cli.demo import model

TOOLS: dict[str, str | None] = {
    "find_table": "Casa Lola: table 12, by the window, free at 20:00.",
    # slow: it goes on in the background, and is still running when the process is killed
    "hold_table": None,
    "look_up_hold": "table 12 at Casa Lola is yours, held until 20:15.",
}


def answer(
    session: holdfast.Session,
    question: str,
    *,
    pace_s: float,
    show: Callable[[str], None],
) -> list[holdfast.Context]:
    """One turn, from the question to the last word. Returns the contexts that the model
    was sent.
    """
    sent = []
    with session.turn(question) as turn:
        while True:
            sent.append(turn.context("openai.chat"))
            chunks = model.stream(sent[-1], pace_s=pace_s)
            for text in turn.deliver(chunks, format="openai.chat"):
                show(text)
            calls: list[dict[str, Any]] = []
            for message in turn.context("openai.chat"):
                if message["role"] == "assistant":
                    calls = message.get("tool_calls") or []
            if not calls:
                return sent
            for call in calls:
                _run(turn, call)


def _run(turn: holdfast.Turn, call: dict[str, Any]) -> None:
    """Stored before the tool runs; its outcome after (I-22)."""
    name = call["function"]["name"]
    turn.call(name, call["function"]["arguments"], call_id=call["id"])
    outcome = TOOLS[name]
    if outcome is not None:
        turn.result(call["id"], outcome)


def main() -> None:
    """The process that is killed."""
    store, session, question, pace_s = sys.argv[1:]
    # Never closed: this process is killed in the middle of the answer.
    answer(
        holdfast.open(store).get(session), question, pace_s=float(pace_s), show=_show
    )


def _show(text: str) -> None:
    # Flushed piece by piece: what stays in a buffer is lost with the process, and was
    # not shown.
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
