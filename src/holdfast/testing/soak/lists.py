"""What callers of a soak do with lists and cursors of their own: recording a list of any shape,
following a session.

A list begins as a context and goes on as its owner likes: cut at its head or its tail, two messages
merged into one, copied, a tool's output shortened, new messages at its end, recorded twice. Nothing
is lost or doubled by that (I-12).
"""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from holdfast.runtime.live.follow import following, next_events
from holdfast.runtime.plans.plan import News, Plan
from holdfast.testing.soak.differential import Answer, Pair, Side
from holdfast.testing.soak.world import Desk, HeldSession, Reader, SoakWorld

READERS_MAX = 6


def record(stage: SoakWorld, desk: Desk) -> bool:
    """A list is recorded; recorded again at once, nothing in it is new."""
    if not desk.sessions:
        return False
    held = stage.dice.pick(desk.sessions)
    lists = held.lists
    if lists is None or stage.dice.happens(0.4):
        answer = stage.ask(lambda side: list(held.faces.of(side).context()))
        if answer.values is None:
            return True
        lists = answer.values
    lists = held.lists = _reshaped(stage, lists)
    new = [stage.word("record") for _ in range(stage.dice.below(3))]
    for number, text in enumerate(new):
        for messages in lists:
            messages.append(
                {"role": "assistant" if number % 2 else "user", "content": text}
            )
    answer = stage.ask(lambda side: held.faces.of(side).record(lists.of(side)))
    if answer.values is None:
        return True
    _recorded(stage, held, lists[1], new, answer)
    again = stage.ask(lambda side: held.faces.of(side).record(lists.of(side)))
    if again.values is not None and again.values[1].new:
        stage.objects(f"recorded twice, {again.values[1].new} is new (I-12)")
    return True


def _recorded(
    stage: SoakWorld,
    held: HeldSession,
    messages: list[Any],
    new: list[str],
    answer: Answer,
) -> None:
    assert answer.values is not None
    for id in answer.values[1].new:
        stage.ledger.said(held.id, id, None)
    if len(answer.values[1].new) < len(new):
        stage.objects(f"of {new} only {answer.values[1].new} was new (I-12)")
    if messages and messages[0]["role"] == "system":
        stage.ledger.instructed(held.id, messages[0]["content"])


def _reshaped(stage: SoakWorld, lists: Pair) -> Pair:
    """The same list in another shape, on both sides."""
    dice = stage.dice
    shape = dice.weighted(
        {"as it is": 4, "copied": 2, "head": 2, "tail": 2, "merged": 2, "shortened": 2}
    )
    place, text = dice.below(1 << 30), stage.word("…")
    return Pair([_shaped(list(messages), shape, place, text) for messages in lists])


def _shaped(messages: list[Any], shape: str, place: int, text: str) -> list[Any]:
    begins = 1 if messages and messages[0]["role"] == "system" else 0
    body = messages[begins:]
    if shape == "copied":
        return copy.deepcopy(messages)
    if shape == "head":
        cut = place % (len(body) + 1)
        while cut < len(body) and body[cut]["role"] == "tool":
            cut += 1
        del body[:cut]
    if shape == "tail":
        cut = len(body) - place % 3
        while 0 < cut < len(body) and (
            body[cut]["role"] == "tool" or body[cut - 1]["role"] == "tool"
        ):
            cut -= 1
        del body[max(cut, 0) :]
    if shape == "merged":
        _merge(body, place)
    if shape == "shortened":
        outputs = [at for at, message in enumerate(body) if message["role"] == "tool"]
        if outputs:
            at = outputs[place % len(outputs)]
            body[at] = {**body[at], "content": text}
    return messages[:begins] + body


def _merge(body: list[Any], place: int) -> None:
    """Two neighbours with words and nothing else become one, as agents do that want roles to
    alternate.
    """
    pairs = [at for at in range(len(body) - 1) if _can_merge(body[at], body[at + 1])]
    if pairs:
        at = pairs[place % len(pairs)]
        one, two = body[at], body.pop(at + 1)
        body[at] = {
            "role": one["role"],
            "content": one["content"] + "\n\n" + two["content"],
        }


def _can_merge(one: Any, two: Any) -> bool:
    return (
        one["role"] == two["role"] == "user"
        and isinstance(one["content"], str)
        and isinstance(two["content"], str)
    )


def follow(stage: SoakWorld, desk: Desk) -> bool:
    """A reader goes on from its cursor, wherever that was, through this desk; it may leave in the
    middle of a page.
    """
    if not stage.known:
        return False
    if (
        len(stage.readers) < READERS_MAX
        and stage.dice.happens(0.5)
        or not stage.readers
    ):
        left = [id for id in sorted(stage.known) if not stage.is_lost(id)]
        if not left:
            return False
        stage.readers.append(Reader(stage.dice.pick(left)))
    reader = stage.dice.pick(stage.readers)
    logs = stage.ask(lambda side: desk.stores.of(side).get(reader.session)._log).values
    assert logs is not None
    begun = stage.twins.begin(lambda side: following(logs.of(side), reader.cursor))
    begun.run()
    followers = begun.answer.values
    if followers is None:
        stage.objects(
            f"cursor {reader.cursor} was refused: {begun.answer.plain} (I-15)"
        )
        return True
    with contextlib.ExitStack() as listening:
        news = Pair([listening.enter_context(News(log.engine, log.id)) for log in logs])
        _read_on(
            stage,
            reader,
            lambda side: next_events(logs.of(side), followers.of(side), news.of(side)),
        )
    return True


def _read_on(
    stage: SoakWorld, reader: Reader, more: Callable[[Side], Plan[Any]]
) -> None:
    for _ in range(3):
        flight = stage.twins.begin(more)
        if not flight.run():
            flight.close()  # there is no news
            return
        events = flight.answer.values
        assert events is not None
        stage.note(flight.answer.plain)
        count = (
            len(events[1])
            if stage.dice.happens(0.7)
            else stage.dice.below(len(events[1]) + 1)
        )
        _heard(reader, events[1][:count])
        if count < len(events[1]) or not events[1]:
            return


def _heard(reader: Reader, events: list[Any]) -> None:
    for event in events:
        reader.cursor = event.cursor
        if event.entry is not None:
            reader.seqs.append(event.entry.seq)
        if event.message_id is not None:
            reader.texts[event.message_id] = (
                reader.texts.get(event.message_id, "") + event.text
            )
