"""A hand-written loop with OpenAI's client and no framework: ten lines of Holdfast, beside a list
that is written to a file when a turn is over.
"""

import json
from pathlib import Path
from typing import Any

from openai import OpenAI

import holdfast
from holdfast.errors import AlreadyAccepted
from holdfast.testing.adapters import Show, Task

INSTALL = ["openai>=2.0", "anthropic>=0.100", "aiogram>=3.20"]
TESTS = ["tests/frameworks/test_kit.py", "tests/frameworks/test_aiogram_bot.py"]

STORE_CODE = "frameworks/plain.py"
WATER = {
    "name": "water",
    "description": "Waters a row.",
    "parameters": {
        "type": "object",
        "properties": {"row": {"type": "integer"}},
        "required": ["row"],
    },
}


def ask(task: Task, show: Show) -> None:
    client = OpenAI(base_url=task.base_url, api_key="none", max_retries=0)
    if task.is_own:
        _ask_own(task, show, client)
        return
    with holdfast.open(task.where) as store:
        session = store.session(task.session)
        try:
            with session.turn(task.prompt, event_id=task.request_id) as turn:
                _answer(task, show, client, turn)
        except AlreadyAccepted as known:
            for message in session.transcript():
                if message.turn == known.turn_id and message.role == "assistant":
                    show(message.text)


def _answer(task: Task, show: Show, client: OpenAI, turn: holdfast.Turn) -> None:
    while True:
        reply = _asked(client, list(turn.context("openai.chat")))
        for text in turn.deliver(reply, format="openai.chat"):
            show(text)
        calls = turn.calls()
        if not calls:
            return
        for call in calls:
            turn.call(call.name, call.arguments, call_id=call.call_id)
            turn.result(call.call_id, task.water(**call.arguments))


def _asked(client: OpenAI, messages: list[Any]) -> Any:
    return client.chat.completions.create(
        model="gpt-test",
        messages=messages,
        tools=[{"type": "function", "function": WATER}],  # type: ignore[list-item]
        stream=True,
    )


def _ask_own(task: Task, show: Show, client: OpenAI) -> None:
    """What many programs do: a list in memory, written when the turn is over."""
    messages = _loaded(task)
    messages.append({"role": "user", "content": task.prompt})
    while True:
        text, calls = "", {}
        for chunk in _asked(client, messages):
            for choice in chunk.choices:
                show(choice.delta.content or "")
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    known = calls.setdefault(call.index, {"id": call.id, "name": "", "words": ""})
                    known["name"] += call.function.name or ""
                    known["words"] += call.function.arguments or ""
        made = []
        for call in calls.values():
            function = {"name": call["name"], "arguments": call["words"]}
            made.append({"id": call["id"], "type": "function", "function": function})
        said = {"role": "assistant", "content": text}
        messages.append({**said, "tool_calls": made} if made else said)
        if not made:
            break
        for call in made:
            result = task.water(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    _list_file(task).write_text(json.dumps(messages))


def clear(task: Task) -> None:
    if task.is_own:
        _list_file(task).unlink(missing_ok=True)
        return
    with holdfast.open(task.where) as store:
        store.reset(task.session)


def compact(task: Task) -> None:
    if not task.is_own:
        with holdfast.open(task.where) as store:
            store.session(task.session).compact(task.summary, keep_turns=1)
        return
    messages = _loaded(task)
    # Cleared and then written, as many do it.
    place = _list_file(task)
    place.write_text("[]")
    kept = [{"role": "user", "content": task.summary}, *messages[-1:]]
    place.write_text(json.dumps(kept))


def spoil(task: Task) -> None:
    place = _list_file(task)
    place.write_text(place.read_text()[:-20])


def _list_file(task: Task) -> Path:
    return Path(task.folder) / "messages.json"


def _loaded(task: Task) -> list[Any]:
    place = _list_file(task)
    return json.loads(place.read_text()) if place.exists() else []
