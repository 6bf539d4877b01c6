"""Sessions to look at: what can be in a log, in a few turns, for tests of the faces that
show it.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b]52;c;aGk=\x07 \x9b2J \x90q\x9c "
    "\rover\x08 \x00 \x7f "
    "\u202egnp.exe\u202c \u2066x\u2069 \u200f"
)
"""What would steer a terminal: CSI, OSC 8 and 52, C1, carriage return, backspace, NUL, DEL,
directions.
"""


class World(NamedTuple):
    """A store, and the ids of the sessions in it."""

    path: Path
    table: str
    long: str
    fork: str
    other: str


def fill_table(store: holdfast.Store, session: holdfast.Session) -> None:
    """Tools in every state, a stream that was cut, a retraction, a label, an inbox; all of it in a
    few turns.
    """
    session.instructions("You book tables.\nBe brief.")
    with session.turn("Book a table for two.") as turn:
        find, weather = (
            call("c1", "find_table", '{"people": 2}'),
            call("c2", "weather", '{"city": "Ö"}'),
        )
        turn.add(said("Let me look.", find, weather))
        turn.call("find_table", '{"people": 2}', call_id="c1")
        turn.result("c1", "Casa Lola: table 12.")
        turn.call("weather", '{"city": "Ö"}', call_id="c2")
        turn.result("c2", "no network", error=True)
        list(turn.deliver(["Casa Lola has a table ", "at eight."]))
    with pytest.raises(RuntimeError), session.turn("Hold it.") as turn:
        turn.add(said(None, call("c3", "hold_table", '{"place": "Casa Lola"}')))
        turn.call("hold_table", '{"place": "Casa Lola"}', call_id="c3")
        for text in turn.deliver(["As soon as they ", "have conf", "irmed it"]):
            if "conf" in text:
                raise RuntimeError("the provider went away")
    with session.turn("Pay the bill.") as turn:
        turn.call("pay", {"euros": 80}, call_id="c4", needs_approval=True)
    with session.turn("Tip them.") as turn:
        turn.call("tip", {"euros": 8}, call_id="c5", needs_approval=True)
    session.decide("c5", False, by="ann")
    with session.turn("Again.") as turn:
        turn.say("First try.")
        turn.retract("empty answer")
        turn.say("Second try.")
    with session.turn(f"hostile: {HOSTILE}") as turn:
        turn.say("I will not.")
    asked = next(message for message in session.transcript() if message.text == "Second try.")
    session.label(asked.id, visible_to_model=False, topic="food")
    store.accept("telegram:dm:42", "Are you there?", event_id="update-1", reply_to="telegram:42")


def fill_long(session: holdfast.Session) -> holdfast.Session:
    """Eight turns, compacted, one more, rewound; and an ended fork of it."""
    for number in range(8):
        with session.turn(f"Question {number}.") as turn:
            turn.say(f"Answer {number}.")
    session.compact("Six questions were asked.", keep_turns=2)
    with session.turn("One more.") as turn:
        turn.say("Fine.")
    messages = list(session.transcript())
    session.rewind(messages[-3].id)
    fork = session.fork(at=messages[5].id, key="cli:fork")
    with fork.turn("Elsewhere.") as turn:
        turn.say("Yes.")
    fork.end("done with it")
    return fork


def said(text: str | None, *calls: dict[str, object]) -> dict[str, object]:
    """An assistant's message with calls."""
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def call(id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
