"""Any interleaving of writes, cuts and returns: every reader of a session is told each piece once (I-15).

Without sockets, so that there are many: a connection is the bytes of a stream up to a cut, and what is
kept for readers is so little that they fall behind it all the time.
"""

import asyncio
import random

import pytest

import holdfast
from event_reader import Streamed, words
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.streams import shared_follower
from holdfast.server.streams.session_stream import begun
from holdfast.server.streams.shared_follower import SharedFollowers, StreamReader
from holdfast.testing.wire.event_lines import EventLines
from thorough import examples

LIMIT_S = 60
TEXTS = ("a", "bc ", "🦀", "é\n", "\ud83d", "\ude00", "a longer piece of text ")


class Tab:
    """A reader that is cut off after some bytes, and comes back, until it is told the end."""

    def __init__(self, followers, log, dice):
        self._followers, self._log, self._dice = followers, log, dice
        self.events, self.cuts = [], 0
        self._last_id, self._is_over = "", False

    async def read(self):
        while not self._is_over:
            left = self._dice.choice((0, 3, 200, 500, 2000, 10_000))
            lines = EventLines(self._last_id)
            async for body in self._connection():
                cut = body[:left]
                left -= len(cut)
                self.events += [Streamed(**event) for event in lines.feed(cut)]
                self._is_over = bool(self.events) and self.events[-1].event == "end"
                if left <= 0:
                    self.cuts += 1
                    break
            self._last_id = lines.last_id

    async def _connection(self):
        after = self._last_id or None
        follower, source = await arun(read(lambda: begun(self._log, after)))
        if source is None:
            # 204: it was cut off between the last entry and the end.
            self._is_over = True
            return
        yield source.first + source.written(source.found)
        taken = []

        def take(found):
            """As a connection does whose client listens, most of the time."""
            if self._dice.random() < 0.3:
                return False
            taken.append(source.written(found))
            # As long as nobody asks for it, it is on its way.
            if self._dice.random() < 0.3:
                reader._woken.set()
            return True

        takes = take if self._dice.random() < 0.7 else None
        with StreamReader(self._followers, follower, takes) as reader:
            while not reader.over:
                found = await reader.next(0.05)
                straight, taken[:] = b"".join(taken), []
                yield straight + source.written(found)
                if self._dice.random() < 0.2:
                    # A reader that is slow, or whose machine is.
                    await asyncio.sleep(self._dice.choice((0, 0.002, 0.02)))
        yield source.last(None)


async def _speak(session, dice):
    """Some turns, each with messages that are spoken at the same time, in pieces."""
    for _ in range(dice.randrange(1, 4)):
        try:
            async with session.turn("Speak.", lease_s=1e6) as turn:
                streams = [turn.stream("text") for _ in range(dice.randrange(1, 4))]
                for _ in range(dice.randrange(30)):
                    await dice.choice(streams).push(dice.choice(TEXTS))
                    if dice.random() < 0.3:
                        await asyncio.sleep(dice.choice((0, 0.001, 0.008)))
                    if dice.random() < 0.1:
                        await session.append("Beside it.")
                    if dice.random() < 0.05:
                        await turn.add("Said whole.")
                for stream in streams:
                    if dice.random() < 0.7:
                        await stream.close()
                if dice.random() < 0.2:
                    raise RuntimeError("cut")
        except RuntimeError:
            pass
    await session.end("enough")


async def _play(path, seed):
    dice = random.Random(seed)
    async with holdfast.open_async(path, durability="process") as store:
        session = await store.session("k")
        followers = SharedFollowers()
        tabs = [Tab(followers, session._log, random.Random(seed + n)) for n in range(4)]
        reading = [asyncio.create_task(tab.read()) for tab in tabs]
        async with asyncio.timeout(LIMIT_S):
            await _speak(session, dice)
            await asyncio.gather(*reading)
        assert len(followers) == followers.readers == 0
        truth = [message async for message in session.transcript()]
        return tabs, {message.id: message.text for message in truth}, await session.head()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(10)))
def test_every_reader_is_told_each_piece_once(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(shared_follower, "KEPT_MAX", 1 + seed % 5)
    monkeypatch.setattr(shared_follower, "PACE_S", 0.001)
    tabs, truth, head = asyncio.run(_play(tmp_path / "s.db", seed))
    assert sum(tab.cuts for tab in tabs) > 0
    for tab in tabs:
        said = {id: _joined(text) for id, text in words(tab.events).items()}
        assert {id: said[id] for id in truth} == truth
        seqs = [event.data["seq"] for event in tab.events if event.event == "entry"]
        assert seqs == list(range(1, head + 1))
        events = [event for event in tab.events if event.event != "end"]
        assert len(tab.events) - len(events) <= 1 and tab.events[-1].id == events[-1].id
        assert len({event.id for event in events}) == len(events)
        opened = [event.data["message_id"] for event in events if event.event == "open"]
        assert len(set(opened)) == len(opened)
        for event in events:
            if event.event == "chunk":
                assert event.data["message_id"] in opened


def _joined(text):
    """Halves of a character that came apart are one to every reader of JSON."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def test_a_reader_is_told_what_nobody_describes(tmp_path):
    """An entry is told as news of some kind: whoever has followed chunks alone has to look."""

    async def play():
        async with holdfast.open_async(tmp_path / "s.db", durability="process") as store:
            session = await store.session("k")
            follower, _ = await arun(read(lambda: begun(session._log, "now")))
            with StreamReader(SharedFollowers(), follower) as reader:
                kinds = []
                for _ in range(3):
                    # Everything was told, and all wait for news.
                    await asyncio.sleep(0.1)
                    await session.append("An entry.")
                    async with asyncio.timeout(LIMIT_S / 4):
                        kinds += [each.kind for each in await reader.next(LIMIT_S)]
                return kinds

    assert asyncio.run(play()) == ["entry"] * 3
