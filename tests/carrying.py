"""Messages that waited while their session was reset, and were answered in a later one."""

from typing import Any

import holdfast

CANARY = "Xanthocephalus"
LARGE = f"{CANARY} " * 5_000
PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": LARGE}}]}
HOWS = ["reset", "reset, reset", "policy", "reset, reset, policy"]


def carried(
    store: holdfast.Store, world: Any, how: str
) -> tuple[holdfast.Session, list[holdfast.Session]]:
    """Two messages with the canary that came through as many resets: the session they were answered
    in, and those that they waited in before, oldest first. The first one has words of its own.
    """
    before = [store.session("k")]
    before[0].append("kept where it is")
    store.accept("k", f"Hello {CANARY}", event_id=f"event {CANARY}", reply_to=f"to {CANARY}")
    store.accept("k", PICTURE)
    for _ in range(how.count("reset")):
        store.reset("k")
        before.append(store.session("k"))
    world.ahead_s += 7200
    with store.turn(
        "k", "and now?", reset=holdfast.Idle(hours=1) if "policy" in how else None
    ) as turn:
        turn.say(f"Yes, {CANARY}.")
    session = store.session("k")
    return session, [each for each in before if each.id != session.id]
