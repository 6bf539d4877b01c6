"""Rows that `state.db` did not take: kept in Holdfast, and written when it takes rows again.

A lock that is held too long or a damaged index refuses a row whose words Holdfast has. Hermes would log
that and forget the row for good. Here it waits in an inbox of its own, in order, through restarts, until
it is written. On a full disk, where Holdfast can't take it either, it waits in memory.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast import Message, Session, Store
from holdfast.errors import HoldfastError, NotFound
from holdfast.runtime.clock import World, mint

log = logging.getLogger("holdfast.hermes")

Make = Callable[[str, dict[str, Any]], None]
"""Makes a call of `SessionDB`; raises when it is refused."""

KEY = "hermes-backlog"
AGAIN_S = 5.0
"""So soon after a refusal, a row is not tried: each try waits for the lock, and the user with it."""


class RefusedCall(NamedTuple):
    """A call that was refused, as JSON, and the name that the store knows it by."""

    name: str
    words: str


class Backlog:
    """The calls that one `state.db` has refused."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._refused_at = float("-inf")
        self._may_wait = True
        self._lock = threading.RLock()
        self._is_tried = False
        self._unstored: list[RefusedCall] = []
        """The newest of them, which the store could not take either."""

    def add(self, call: str, named: dict[str, Any]) -> None:
        """Keeps a call that was refused. Where the store can't take it either, as on a full disk, it
        is kept in memory: the words that it is about are stored, or nobody was shown them.
        """
        kept = {"call": call, "named": named}
        # What a provider has put into a row may be any object.
        words = json.dumps(kept, default=str)
        world = self._world
        with self._lock:
            name = mint(world, world.now()).hex()
            self._unstored.append(RefusedCall(name, words))
            self._refused_at = world.tick()
            self._may_wait = True
            try:
                self._store_kept()
            except (HoldfastError, OSError) as error:
                log.warning("rows that were refused are kept in memory: %s", error)

    def _store_kept(self) -> None:
        # Those before it first: rows keep their order.
        while self._unstored:
            name, words = self._unstored[0]
            said = {"role": "user", "content": words}
            # Known by its name: the store may have taken it, and have failed to say so.
            self._store.accept(KEY, said, event_id=name)
            del self._unstored[0]

    @property
    def is_closed(self) -> bool:
        """Whether a call was refused just now, so that the next one is not tried."""
        return self._world.tick() - self._refused_at < AGAIN_S

    def write(self, make: Make, *, look: bool) -> bool:
        """Makes the calls that wait, in order; whether none is left. With `look`, those of other
        processes, too, and also soon after a refusal: a history is about to be loaded.
        """
        # One at a time: two threads would write the same rows.
        with self._lock:
            if not (look or self._may_wait):
                return True
            if self.is_closed and not look:
                return False
            # The first one that is refused ends the round: rows keep their order.
            session = self._session()
            waiting = session.pending() if session is not None else []
            for message in waiting:
                if not self._is_made(make, message.text):
                    return False
                self._settle(session, message)
            while self._unstored:
                if not self._is_made(make, self._unstored[0].words):
                    return False
                del self._unstored[0]
            self._may_wait = False
            return True

    def _is_made(self, make: Make, words: str) -> bool:
        kept = json.loads(words)
        try:
            make(kept["call"], kept["named"])
        except Exception:
            self._refused_at = self._world.tick()
            return False
        return True

    def write_later(self, make: Make) -> None:
        """Has a thread try again and again: nothing may be written for a long time."""
        with self._lock:
            if self._is_tried:
                return
            self._is_tried = True
        # It must not keep the process from ending: the next one finds what is left.
        threading.Thread(
            target=self._keep_trying, args=(make,), name="hermes-backlog", daemon=True
        ).start()

    def _keep_trying(self, make: Make) -> None:
        try:
            while True:
                time.sleep(AGAIN_S + 0.1)
                if self.write(make, look=True):
                    return
        except HoldfastError:
            # The store is closed, or fails itself.
            return
        finally:
            self._is_tried = False

    def _session(self) -> Session | None:
        try:
            return self._store.session(KEY, create=False)
        except NotFound:
            return None

    def _settle(self, session: Session | None, message: Message) -> None:
        """It is written, and waits no more; unless another process was quicker."""
        assert session is not None
        try:
            with session.turn(take=[message]):
                pass
        except NotFound:
            return
        except HoldfastError:
            # It stays: a row that is there is known when it is tried again.
            return
