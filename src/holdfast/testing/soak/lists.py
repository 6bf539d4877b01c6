"""What callers of a soak do with lists and cursors of their own: recording a list of any shape,
following a session.

A list begins as a context and goes on as its owner likes: cut at its head or its tail, two messages
merged into one, copied, a tool's output shortened, new messages at its end, recorded twice. Nothing
is lost or doubled by that (I-12).
"""

import contextlib
import copy
import itertools
from collections.abc import Callable
from typing import Any

from holdfast.runtime.catalog.follow_session import following, next_events
from holdfast.runtime.plans.plan import News
from holdfast.runtime.session import Session
from holdfast.testing.soak.differential import Broken, Pair, begin
from holdfast.testing.soak.world import Desk, HeldSession, Reader, SoakWorld

READERS_MAX = 6

Shape = Callable[[list[Any], int, str], None]
"""Changes a list where it is, at a place and with words that chance has chosen."""


def record(world: SoakWorld, desk: Desk) -> bool:
    """A list is recorded; recorded again at once, nothing in it is new."""
    if not desk.sessions:
        return False
    held = world.dice.pick(desk.sessions)
    lists = held.lists
    if lists is None or world.dice.happens(0.4):
        answer = world.ask(lambda session: list(session.context()), held.faces)
        if answer.values is None:
            return True
        lists = answer.values
    lists = held.lists = _reshaped(world, lists)
    new = [world.word("record") for _ in range(world.dice.below(3))]
    for role, text in zip(itertools.cycle(("user", "assistant")), new, strict=False):
        for messages in lists:
            messages.append({"role": role, "content": text})
    answer = world.ask(Session.record, held.faces, lists)
    if answer.error is not None:
        return True
    _recorded(world, held, lists[1], new, answer.value.new)
    # At once, and with the same objects: nothing can be new in it.
    again = world.ask(Session.record, held.faces, lists)
    if again.error is None and again.value.new:
        raise Broken(f"recorded twice, {again.value.new} is new (I-12)")
    return True


def _recorded(
    world: SoakWorld,
    held: HeldSession,
    messages: list[Any],
    new: list[str],
    ids: list[str],
) -> None:
    """These texts were in the list, and these messages are stored for them."""
    for id in ids:
        world.acknowledged.said(held.id, id, None)
    if len(ids) < len(new):
        raise Broken(f"of {new} only {ids} was new (I-12)")
    # Instructions at the head of a list are recorded as the session's.
    if messages and messages[0]["role"] == "system":
        world.acknowledged.instructed(held.id, messages[0]["content"])


def _reshaped(world: SoakWorld, lists: Pair) -> Pair:
    """The same list in another shape, on both sides."""
    shape = world.dice.weighted(SHAPES)
    place = world.dice.below(1 << 30)
    text = world.word("…")
    # Drawn once, for both sides: the same change in the same place.
    disk, reference = (_shaped(messages, shape, place, text) for messages in lists)
    return disk, reference


def _shaped(messages: list[Any], shape: Shape, place: int, text: str) -> list[Any]:
    """The list in this shape, the instructions at its head left alone."""
    begins = 1 if messages and messages[0]["role"] == "system" else 0
    body = messages[begins:]
    shape(body, place, text)
    return messages[:begins] + body


def _as_it_is(body: list[Any], place: int, text: str) -> None:
    """Nothing is done to it."""


def _copied(body: list[Any], place: int, text: str) -> None:
    """Equal messages, and other objects: they are known by what they say."""
    body[:] = copy.deepcopy(body)


def _without_head(body: list[Any], place: int, text: str) -> None:
    cut = place % (len(body) + 1)
    # No list begins with the result of a call that it does not have.
    while cut < len(body) and body[cut]["role"] == "tool":
        cut += 1
    del body[:cut]


def _without_tail(body: list[Any], place: int, text: str) -> None:
    cut = len(body) - place % 3
    # A call and its results stay together.
    while 0 < cut < len(body) and "tool" in (body[cut]["role"], body[cut - 1]["role"]):
        cut -= 1
    del body[max(cut, 0) :]


def _shortened(body: list[Any], place: int, text: str) -> None:
    """One of the outputs of tools has other words."""
    outputs = [at for at, message in enumerate(body) if message["role"] == "tool"]
    if outputs:
        at = outputs[place % len(outputs)]
        body[at] = {**body[at], "content": text}


def _merged(body: list[Any], place: int, text: str) -> None:
    """Two neighbours with words and nothing else become one, as agents do that want roles to
    alternate.
    """
    pairs = [at for at in range(len(body) - 1) if _can_merge(body[at], body[at + 1])]
    if pairs:
        at = pairs[place % len(pairs)]
        one = body[at]
        two = body.pop(at + 1)
        words = "\n\n".join([one["content"], two["content"]])
        body[at] = {"role": one["role"], "content": words}


def _can_merge(one: Any, two: Any) -> bool:
    return (
        one["role"] == two["role"] == "user"
        and isinstance(one["content"], str)
        and isinstance(two["content"], str)
    )


SHAPES: dict[Shape, int] = {
    _as_it_is: 4,
    _copied: 2,
    _without_head: 2,
    _without_tail: 2,
    _merged: 2,
    _shortened: 2,
}
"""What its owner does to a list, and how often."""


def follow(world: SoakWorld, desk: Desk) -> bool:
    """A reader goes on from its cursor, wherever that was, through this desk; it may leave in the
    middle of a page.
    """
    if not world.known:
        return False
    has_room = len(world.readers) < READERS_MAX
    if has_room and world.dice.happens(0.5) or not world.readers:
        left = [id for id in sorted(world.known) if not world.is_lost(id)]
        if not left:
            return False
        world.readers.append(Reader(world.dice.pick(left)))
    reader = world.dice.pick(world.readers)
    logs = world.ask(lambda store: store.get(reader.session)._log, desk.stores).values
    assert logs is not None
    # On this desk, wherever the cursor was made: it holds for any process.
    begun = begin(lambda log: following(log, reader.cursor), logs)
    begun.run()
    followers = begun.answer.values
    if followers is None:
        why = begun.answer.plain
        raise Broken(f"cursor {reader.cursor} was refused: {why} (I-15)")
    with contextlib.ExitStack() as listening:
        disk, reference = (
            listening.enter_context(News(log.engine, log.id)) for log in logs
        )
        _read_on(world, reader, logs, followers, (disk, reference))
    return True


def _read_on(world: SoakWorld, reader: Reader, *pairs: Pair) -> None:
    """Some pages, or the beginning of one, as long as there is news."""
    for _ in range(3):
        flight = begin(next_events, *pairs)
        if not flight.run():
            flight.close()
            return
        world.note(flight.answer.plain)
        events = flight.answer.value
        count = len(events)
        if not world.dice.happens(0.7):
            count = world.dice.below(len(events) + 1)
        reader.hear(events[:count])
        if count < len(events) or not events:
            return
