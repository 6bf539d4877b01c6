"""A store for the page: a few sessions, and one in which everything has happened that makes the three views differ.

Times and ids come from a clock and dice of our own, so that a picture of it is the same each time.
"""

from pathlib import Path
from typing import Any

import holdfast
from worlds import HandWorld

BEGAN = 1_773_480_360_000  # 14 March 2026, 09:26 UTC
NOW = BEGAN + 47 * 60_000
TABLE = "telegram:dm:42"
OPS = "slack:C012:ops"
SCRIPT = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
CUT = "The tasting menu has seven courses. First oysters, then a consommé of ceps, and then the"
LONG = "cron:nightly-report"
TURNS = 130


def tell(place: Path) -> dict[str, str]:
    """Writes the store; the ids of its sessions, by key."""
    world: Any = HandWorld(seed=7, now=BEGAN)
    with holdfast.open(place, durability="process", world=world) as store:
        nights(store, world)
        others(store, world)
        ops(store, world)
        table(store, world)
        return {each.key: each.id for each in store.sessions(limit=100).items if each.key}


def said(session: holdfast.Session, world: HandWorld, asked: str, answer: str) -> None:
    world.advance(seconds=40)
    with session.turn(asked) as turn:
        world.advance(seconds=3)
        turn.say(answer)


def nights(store: holdfast.Store, world: HandWorld) -> None:
    """One that is long."""
    world.advance(hours=-50)
    session = store.session(LONG)
    for number in range(1, TURNS + 1):
        said(
            session,
            world,
            f"Report of night {number}",
            f"Night {number}: all quiet, {number * 7} requests.",
        )
    world.at = BEGAN


def others(store: holdfast.Store, world: HandWorld) -> None:
    for key, asked, answer in (
        (
            "github:issue:381",
            "Why does the build of 2.4 fail on arm64?",
            "A wheel is missing; 2.4.1 has it.",
        ),
        ("whatsapp:+34600100200", "¿A qué hora abrís mañana?", "Mañana abrimos a las nueve."),
        ("mail:thread:77", "אפשר להזמין שולחן לארבעה?", "כן, בשעה שמונה."),
    ):
        session = store.session(key)
        said(session, world, asked, answer)
        world.advance(minutes=2)
    store.reset("mail:thread:77")
    world.advance(minutes=1)


def ops(store: holdfast.Store, world: HandWorld) -> None:
    """As Anthropic has it, with reasoning, and two calls at once."""
    session = store.session(OPS)
    session.instructions("You watch the servers of Casa Lola. Be brief.")
    world.advance(minutes=1)
    with session.turn(
        {"role": "user", "content": "Is anything wrong with the till?"}, format="anthropic"
    ) as turn:
        calls = [
            {"type": "tool_use", "id": f"toolu_0{place}", "name": "look", "input": {"host": host}}
            for place, host in enumerate(("till-1", "till-2"), 1)
        ]
        thinking = {
            "type": "thinking",
            "thinking": "Two tills; I look at both.",
            "signature": "c2lnbmVk",
        }
        words = {"type": "text", "text": "I look at both."}
        turn.add({"role": "assistant", "content": [thinking, words, *calls]}, format="anthropic")
        world.advance(seconds=2)
        for place, found in enumerate(("up 41 days, load 0.12", "no answer for 6 minutes"), 1):
            turn.result(f"toolu_0{place}", found, error=place == 2)
        answer = [
            {"type": "text", "text": "till-2 has not answered for six minutes. till-1 is well."}
        ]
        turn.add({"role": "assistant", "content": answer}, format="anthropic")


def table(store: holdfast.Store, world: HandWorld) -> None:
    """The one in which everything happens."""
    session = store.session(TABLE)
    session.instructions(
        "You are the concierge of Casa Lola, a restaurant in Valencia. Answer in a sentence or two."
    )
    world.advance(minutes=1)
    with session.turn("Book a table for two tonight, please.") as turn:
        call = turn.call(
            "find_tables", {"people": 2, "from": "19:00", "to": "21:30"}, call_id="call_1"
        )
        world.advance(seconds=1.4)
        turn.result(
            call,
            '{"tables": [{"at": "20:00", "room": "terrace"}, {"at": "21:15", "room": "hall"}]}',
        )
        turn.say(
            "There is a table on the terrace at eight, and one in the hall at a quarter past nine. Which one?"
        )
    world.advance(minutes=1)
    with session.turn("The terrace. My card is 4111 1111 1111 1111, in the name of Ada.") as turn:
        call = turn.call(
            "book", {"at": "20:00", "room": "terrace", "name": "Ada"}, call_id="call_2"
        )
        world.advance(seconds=2.2)
        turn.result(call, "booked: 7F3K")
        turn.say("It is booked: the terrace at eight, for Ada. The code is 7F3K.")
    [card] = [each for each in session.transcript() if "4111" in each.text]
    session.compact("Ada has booked the terrace at eight for two; the code is 7F3K.", keep_turns=0)
    session.label(card.id, visible_to_model=False)
    world.advance(minutes=3)
    with session.turn(f"Your menu page says {SCRIPT} at the bottom. What is that?") as turn:
        turn.say("I can't see the menu page.")
        turn.retract("the model had not called its tool")
        call = turn.call("read_page", {"path": "/menu"}, call_id="call_3")
        world.advance(seconds=1)
        turn.result(call, f"… <footer>{SCRIPT}</footer>")
        turn.say(
            "Somebody has put a script into the footer. I have told the owners; don't click on anything there."
        )
    world.advance(minutes=1)
    turn = session.turn("What is on the tasting menu?")
    turn.call("fetch_menu", {"menu": "tasting"}, call_id="call_4")
    words = iter(turn.deliver(iter([CUT, " never shown"])))
    next(words)
    world.advance(seconds=6.5)
    session.stop("the user pressed stop")
    world.advance(minutes=1)
    with session.turn("Sorry, I pressed the wrong button. Is there anything without fish?") as turn:
        turn.say(
            "Yes: five of the seven courses are without fish, and the kitchen changes the other two."
        )
    world.advance(minutes=2)
    store.accept(TABLE, "And can we bring the dog?")
