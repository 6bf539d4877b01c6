"""A gateway for a chat platform: accept, answer, ask a person, send; kill it anywhere and start it
again.

    python examples/gateway.py [--store gateway.db] [--delay 0.0]

    webhook ──accept──► inbox ──turn──► outbox ──claim──► platform
                                 │
                                 └── a refund waits until a person has decided

Each step is durable before the next one begins, so the program has no recovery code of its own:
`main` does the same after a crash as on the first day. The platform and the model are scripted. The
platform delivers one update twice, as real ones do, and knows a message that is sent again by its
idempotency key.
"""

import argparse
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import holdfast

UPDATES = [
    {"update_id": 1, "chat": 42, "text": "Where is order 17?"},
    {"update_id": 2, "chat": 7, "text": "I want a refund for order 23."},
    {"update_id": 1, "chat": 42, "text": "Where is order 17?"},  # delivered twice
    {"update_id": 3, "chat": 42, "text": "Thank you!"},
]
NEEDS_APPROVAL = {"refund"}


# The webhook
# ---------------------------------------------------------------------------------------------------------


def on_update(store: holdfast.Store, update: dict[str, Any]) -> None:
    """What the HTTP handler calls before it answers 200: durable, fast, and the same event only
    once.
    """
    chat = update["chat"]
    receipt = store.accept(
        f"chat:{chat}", update["text"], event_id=update["update_id"], reply_to=chat
    )
    print(
        f"accepted update {update['update_id']}" + (" (again)" if receipt.again else ""), flush=True
    )


# The agent
# -----------------------------------------------------------------------------------------------------------


def answer(
    store: holdfast.Store,
    key: str,
    delay: float,
    reply_to: int | None = None,
    take: list[str] | None = None,
) -> None:
    """One turn: takes what waits for this key, or just these, and goes on with calls that were
    approved.
    """
    with store.turn(key, reply_to=reply_to, take=take) as turn:
        run_tools(turn)  # calls that a person has approved since the last turn
        while True:
            stream = model(turn.context("openai.chat"), delay)
            # With the real client:
            #   stream = client.chat.completions.create(
            #       model="gpt-5", messages=turn.context("openai.chat"), tools=TOOLS, stream=True)
            for text in turn.deliver(stream, format="openai.chat"):
                print(f"  {key}: {text}", flush=True)  # durable already
            if not run_tools(turn):
                break


def run_tools(turn: holdfast.Turn) -> int:
    """Runs what the model has asked for; how many calls there were. What waits for approval is not
    run.
    """
    calls = turn.calls()
    for call in calls:
        started = turn.call(
            call.name, call.arguments, call.call_id, needs_approval=call.name in NEEDS_APPROVAL
        )
        if started.waiting:
            print(f"  {call.name} {call.arguments} waits for approval", flush=True)
        else:
            turn.result(call.call_id, TOOLS[call.name](**call.arguments))
    return len(calls)


def find_order(order: int) -> str:
    return f"order {order} arrives tomorrow"


def refund(order: int, euros: int) -> str:
    return f"{euros} euros for order {order} were refunded"


TOOLS: dict[str, Callable[..., str]] = {"find_order": find_order, "refund": refund}


# The person
# ----------------------------------------------------------------------------------------------------------


def on_decision(store: holdfast.Store, key: str, call_id: str, approved: bool, by: str) -> None:
    """What a button calls. The decision is for this call and its exact arguments, and is
    used once.
    """
    store.session(key).decide(call_id, approved, by=by)
    print(f"{by} has {'approved' if approved else 'denied'} a call of {key}", flush=True)


def waiting_calls(store: holdfast.Store) -> list[tuple[str, str]]:
    """Key and id of every call that waits. A real gateway notes them when it puts the question to
    somebody.
    """
    sessions = open_sessions(store)
    return [
        (key, call.call_id)
        for key, session in sessions
        for call in session.calls()
        if call.state == "waiting"
    ]


# The sender
# ----------------------------------------------------------------------------------------------------------


class Platform:
    """Stands for the chat platform: a file of what arrived, one message for each
    idempotency key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def send(self, chat: str, text: str, idempotency_key: str) -> str:
        arrived = (
            [json.loads(line) for line in self.path.read_text().splitlines()]
            if self.path.exists()
            else []
        )
        if idempotency_key not in {message["key"] for message in arrived}:
            with self.path.open("a") as file:
                file.write(json.dumps({"key": idempotency_key, "chat": chat, "text": text}) + "\n")
            print(f"sent to {chat}: {text}", flush=True)
        return f"platform-{idempotency_key[:8]}"


def send_replies(store: holdfast.Store, platform: Platform) -> None:
    """Sends what is owed. With claims, any number of senders may do this at once."""
    for owed in store.outbox(claim_s=5):
        try:
            owed.sent(platform.send(owed.reply_to, owed.text, idempotency_key=owed.id))
        except OSError as error:
            owed.failed(str(error))  # stays owed, and may be claimed again at once


# All of it
# -----------------------------------------------------------------------------------------------------------


def work(store: holdfast.Store, platform: Platform, delay: float) -> None:
    """Goes on with what was begun, answers what waits, sends what is owed: after a webhook, and
    after a restart.
    """
    for key, session in open_sessions(store):
        if is_unfinished(session):
            # By itself: a question that waits has an answer of its own.
            answer(store, key, delay, reply_to=int(key.removeprefix("chat:")), take=[])
    while page := store.pending():
        for key in dict.fromkeys(message.key for message in page if message.key is not None):
            answer(store, key, delay)
    while store.outbox():  # what a killed sender had claimed is free again after a few seconds
        send_replies(store, platform)
        time.sleep(0.1)


def is_unfinished(session: holdfast.Session) -> bool:
    """Whether a process was killed in the middle of an answer here, or an approved call was not run
    yet.
    """
    if any(call.state == "approved" for call in session.calls()):
        return True
    turns = session.turns()
    if not turns or turns[-1].end != "abandoned":
        return False
    # One that had not said anything has given its message back: it waits.
    said = [message for message in session.transcript() if message.turn == turns[-1].id]
    return any(message.role == "assistant" for message in said)


def open_sessions(store: holdfast.Store) -> Iterator[tuple[str, holdfast.Session]]:
    """All of them, by key; a real gateway stops at those without activity since its last start
    (`active_at`).
    """
    page = store.sessions()
    while True:
        for listed in page:
            if listed.key is not None and listed.state != "ended":
                yield listed.key, store.get(listed.id)
        if page.next is None:
            return
        page = store.sessions(after=page.next)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description="A gateway with a scripted platform and a scripted model."
    )
    arguments.add_argument(
        "--store", default="gateway.db", help="the store's file, or postgresql://…"
    )
    arguments.add_argument(
        "--delay", type=float, default=0.0, help="seconds between two words of the model"
    )
    given = arguments.parse_args()
    with holdfast.open(given.store) as store:
        platform = Platform(Path(f"{given.store}.sent.jsonl"))
        work(store, platform, given.delay)  # whatever a process before this one has left
        for update in UPDATES:
            on_update(store, update)
        work(store, platform, given.delay)
        for key, call_id in waiting_calls(store):
            on_decision(store, key, call_id, approved=True, by="ann")
        work(store, platform, given.delay)


# The scripted model
# --------------------------------------------------------------------------------------------------


def model(messages: list[dict[str, Any]], delay: float) -> Iterator[dict[str, Any]]:
    """What a chat model would stream for this context."""
    outcomes = [message["content"] for message in messages if message["role"] == "tool"]
    last, order = messages[-1], re.findall(r"order (\d+)", str(messages[-1]["content"]))
    if last["role"] == "tool" or "Continue" in last["content"]:
        text = f"Good news: {outcomes[-1]}."
        if "waiting for approval" in outcomes[-1]:
            text = "I have asked a colleague. You will hear from us."
        elif (
            "unknown" in outcomes[-1]
        ):  # the process was killed while the tool ran; it is not run again by itself
            text = "I can't tell whether that went through. A colleague will look."
    elif order and "refund" in last["content"]:
        yield from tool_call("refund", {"order": int(order[0]), "euros": 20})
        return
    elif order:
        yield from tool_call("find_order", {"order": int(order[-1])})
        return
    else:
        text = "You are welcome."
    for word in re.findall(r"\S+\s*", text):
        time.sleep(delay)
        yield {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}
            ]
        }
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def tool_call(name: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {
        "index": 0,
        "id": f"call_{uuid.uuid4().hex[:12]}",
        "type": "function",
        "function": function,
    }
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


if __name__ == "__main__":
    main()
