"""Which session a list belongs to that names none: by the calls in it, then by its words.

    the same list        whose last list this is, and has no whole answer so far: another attempt
    calls                who has made them; ids that several have used tell that it is one of these
    tip                  whose last list with its answer this goes on from
    passed               who has the longest beginning of it: that session's too, changed by its owner

So a list that goes on from a session as it is belongs to that one, and never to another that has gone
further and would have to be changed. Two conversations that have said the same so far can't be told
apart, and either is as good.
"""

from collections import OrderedDict
from collections.abc import Iterable

from holdfast.server.proxy.marks import (
    Marks,
    asked,
    beginnings,
    calls_in,
    chains,
    endings,
    opening,
)

SESSIONS_MAX = 10_000
PLACES_MAX = 64
"""So many answers, and so many calls, of a list are learned: the last ones."""
Place = tuple[str, str]
"""A scope, and what is known in it: a key, a call, a digest of words."""


class Places:
    """Which sessions are to be found at each place, those that came last behind the others."""

    def __init__(self) -> None:
        self._keys: dict[Place, dict[str, None]] = {}

    def put(self, place: Place, key: str) -> None:
        # A key is taken out before it is set: a dict would leave it where it was.
        keys = self._keys.setdefault(place, {})
        keys.pop(key, None)
        keys[key] = None

    def take(self, place: Place, key: str) -> None:
        keys = self._keys.get(place, {})
        keys.pop(key, None)
        if not keys:
            self._keys.pop(place, None)

    def at(self, place: Place, among: Iterable[str] | None = None) -> list[str]:
        """The sessions there, the newest first; of these alone, if any are given."""
        keys = [*reversed(self._keys.get(place, {}))]
        if among is None:
            return keys
        return [key for key in keys if key in among]


class _IndexedSession:
    """Where one session is to be found."""

    def __init__(self) -> None:
        self.tip: Place | None = None
        self.open: Place | None = None
        self.opening: Place | None = None
        """How it began, once that has been answered."""
        self.words: set[Place] = set()
        self.calls: set[Place] = set()
        self.endings: list[Place] = []


class ListIndex:
    """The sessions whose lists are known, by key. A scope keeps the sessions of one user apart from
    others; most have the empty one.
    """

    def __init__(self, most: int = SESSIONS_MAX) -> None:
        self._most = most
        self._known: OrderedDict[Place, _IndexedSession] = OrderedDict()
        self._open, self._tips, self._openings = Places(), Places(), Places()
        self._words, self._calls, self._endings = Places(), Places(), Places()

    def learn(
        self,
        scope: str,
        key: str,
        marks: Marks,
        answer: Marks = (),
        *,
        is_open: bool = False,
    ) -> None:
        """A session's last list, and what was answered. While it `is_open`, the same list may come
        again.
        """
        known = self._known.setdefault((scope, key), _IndexedSession())
        self._known.move_to_end((scope, key))
        # Its last list and its tip are those of before; the new ones are put in their
        # place below.
        self.settle(scope, key)
        self.claim(scope, key)
        whole = (*marks, *answer)
        # Each exchange has two beginnings: one ends with the question, one with the
        # answer.
        for words in beginnings(whole)[: PLACES_MAX * 2]:
            known.words.add((scope, words))
            self._words.put((scope, words), key)
        for id in calls_in(whole)[:PLACES_MAX]:
            known.calls.add((scope, id))
            self._calls.put((scope, id), key)
        # What ends with a question has no answer to go on from.
        if whole and whole[-1][0] in ("assistant", "call"):
            for words in chains(whole)[:1]:
                known.tip = (scope, words)
                self._tips.put(known.tip, key)
        self._take_endings(known, key)
        known.endings = [(scope, ending) for ending in endings(whole)]
        for place in known.endings:
            self._endings.put(place, key)
        if is_open and marks:
            known.open = (scope, asked(marks))
            self._open.put(known.open, key)
        begun = opening(marks)
        if begun is not None:
            known.opening = (scope, begun)
            self._openings.put(known.opening, key)
        while len(self._known) > self._most:
            self._forget()

    def _take_endings(self, known: _IndexedSession, key: str) -> None:
        """What was its end is not any more."""
        for place in known.endings:
            self._endings.take(place, key)

    def settle(self, scope: str, key: str) -> None:
        """The session's last list does not come again: whoever begins with the same words begins
        another.
        """
        known = self._known.get((scope, key))
        if known is not None and known.open is not None:
            self._open.take(known.open, key)
            known.open = None

    def claim(self, scope: str, key: str) -> None:
        """Somebody goes on from the session as it is: nobody else does."""
        known = self._known.get((scope, key))
        if known is not None and known.tip is not None:
            self._tips.take(known.tip, key)
            known.tip = None

    def _forget(self) -> None:
        """The session that was heard of least lately is not known any more."""
        (scope, key), known = next(iter(self._known.items()))
        self.settle(scope, key)
        self.claim(scope, key)
        self._take_endings(known, key)
        for place in known.words:
            self._words.take(place, key)
        for place in known.calls:
            self._calls.take(place, key)
        if known.opening is not None:
            self._openings.take(known.opening, key)
        del self._known[scope, key]

    def find(self, scope: str, marks: Marks, *, is_retry: bool = False) -> str | None:
        """The key of the session that this list belongs to; None if it is nobody's so far. A client
        that says that it tries again has begun before.
        """
        for key in self._open.at((scope, asked(marks))):
            return key
        for id in calls_in(marks):
            callers = self._calls.at((scope, id))
            if len(callers) > 1:
                return self._by_words(scope, marks, callers) or callers[0]
            if callers:
                return callers[0]
        found = self._by_words(scope, marks)
        if found is not None:
            return found
        begun = opening(marks)
        if begun is None:
            return self._by_ending(scope, marks)
        # What was stored as answered may not have been heard: a client that says that
        # it tries again means the conversation that it has begun. Anybody else begins
        # another one.
        begun_so = self._openings.at((scope, begun))
        return begun_so[0] if begun_so and is_retry else None

    def find_tip(
        self, scope: str, marks: Marks, among: list[str] | None = None
    ) -> str | None:
        """The key of a session that this list goes on from as it is."""
        for words in chains(marks)[:1]:
            for key in self._tips.at((scope, words), among):
                return key
        return None

    def _by_words(
        self, scope: str, marks: Marks, among: list[str] | None = None
    ) -> str | None:
        on = self.find_tip(scope, marks, among)
        if on is not None:
            return on
        for words in beginnings(marks):
            for key in self._words.at((scope, words), among):
                return key
        return None

    def _by_ending(self, scope: str, marks: Marks) -> str | None:
        """The one session whose newest words are all that a list has, but for what it asks now: its head
        was cut off.
        """
        known = list(marks)
        while True:
            # The longest one, which is all of the list: words that nobody has said
            # would make it another conversation.
            for ending in endings(known)[-1:]:
                keys = self._endings.at((scope, ending))
                if len(keys) == 1:
                    return keys[0]
            # The same list again has its question, too.
            if not known or known[-1][0] != "user":
                return None
            known.pop()
