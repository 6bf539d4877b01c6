"""What became of commits, by the ids that their senders gave them.

A commit whose answer was lost comes again under its id, perhaps while it is still being done, or
before the first try has arrived: whichever comes first is done, and both get its answer. It is
remembered for longer than anybody tries again; a server that was started since looks in the store
(`doubt`).
"""

import asyncio
from collections import OrderedDict

from holdfast.engine.protocol import Tick
from holdfast.engine.remote.verbs import CommitAnswer

# A client waits 60 seconds for an answer and asks again for 30 (PROTOCOL, section 12).
KEEP_S = 120.0
COUNT_MAX = 100_000

CommitName = tuple[str, bytes]
"""Whose it is, and its id: nobody is told of what another tenant's commit came to."""


class CommitMemory:
    """Used on the event loop alone."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._known: OrderedDict[
            CommitName, tuple[float, asyncio.Future[CommitAnswer]]
        ] = OrderedDict()

    def expect(self, name: CommitName) -> tuple[asyncio.Future[CommitAnswer], bool]:
        """The answer to this commit, when there is one, and whether the caller has to see to it."""
        self._forget()
        known = self._known.get(name)
        if known is not None:
            return known[1], False
        answer: asyncio.Future[CommitAnswer] = (
            asyncio.get_running_loop().create_future()
        )
        self._known[name] = (self._tick(), answer)
        return answer, True

    def drop(self, name: CommitName) -> None:
        """What became of it is not known: who asks again has it looked for."""
        known = self._known.pop(name, None)
        # Others may wait for the same answer; `ServedEngine.commit` tells them that
        # there is none.
        if known is not None and not known[1].done():
            known[1].cancel()

    def _forget(self) -> None:
        now = self._tick()
        while self._known:
            since, answer = next(iter(self._known.values()))
            is_old = now - since > KEEP_S or len(self._known) > COUNT_MAX
            # One that is under way is not forgotten, however many there are: a second
            # try would do it again.
            if not is_old or not answer.done():
                return
            self._known.popitem(last=False)
