"""Which session a list belongs to that names none: by the calls in it, then by its words.

A session is known by its tip, the words of its last list with the answer: a list that goes on from
there is its next one. One that goes on from an earlier place of a session, and from nobody's tip, is
that session's too, changed by its owner. Two conversations that have said the same so far can't be told
apart, and either is as good.
"""

from collections import OrderedDict

from holdfast.server.proxy.marks import Marks, calls_in, chains, endings, opening

SESSIONS_MAX = 10_000
PLACES_MAX = 64
"""So many answers, and so many calls, of a list are learned: the last ones."""
Place = tuple[str, str]
"""A scope, and what is known in it: a key, a call, a digest of words."""


class _IndexedSession:
    """Where one session is to be found."""

    def __init__(self) -> None:
        self.tip: Place | None = None
        self.opening: Place | None = None
        self.passed: set[Place] = set()
        self.endings: list[Place] = []


class ListIndex:
    """The sessions whose lists are known, by key. A scope keeps the sessions of one user apart from
    others; most have the empty one.
    """

    def __init__(self, most: int = SESSIONS_MAX) -> None:
        self._most = most
        self._known: OrderedDict[Place, _IndexedSession] = OrderedDict()
        self._tips: dict[Place, str] = {}
        self._passed: dict[Place, str] = {}
        self._openings: dict[Place, str] = {}
        self._settled: dict[Place, str] = {}
        self._endings: dict[Place, set[str]] = {}

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
        self.settle(scope, key)
        if known.tip is not None and self._tips.get(known.tip) == key:
            del self._tips[known.tip]
        known.tip = None
        whole = (*marks, *answer)
        words = [(scope, chain) for chain in chains(whole)[:PLACES_MAX]]
        calls = [(scope, f"call {id}") for id in calls_in(whole)[:PLACES_MAX]]
        for place in (*words, *calls):
            self._passed[place] = key
            known.passed.add(place)
        if words:
            known.tip = words[0]
            self._tips[words[0]] = key
        self._take_endings(known, key)
        known.endings = [(scope, ending) for ending in endings(whole)]
        for place in known.endings:
            self._endings.setdefault(place, set()).add(key)
        begun = opening(marks) if is_open else None
        if begun is not None:
            known.opening = (scope, begun)
            self._openings[scope, begun] = key
        while len(self._known) > self._most:
            self._forget()

    def _take_endings(self, known: _IndexedSession, key: str) -> None:
        """What was its end is not any more."""
        for place in known.endings:
            keys = self._endings[place]
            keys.discard(key)
            if not keys:
                del self._endings[place]

    def settle(self, scope: str, key: str) -> None:
        """The session's last list does not come again: whoever begins with the same words begins
        another.
        """
        known = self._known.get((scope, key))
        if known is not None and known.opening is not None:
            if self._openings.get(known.opening) == key:
                del self._openings[known.opening]
            self._settled[known.opening] = key
            known.passed.add(known.opening)
            known.opening = None

    def _forget(self) -> None:
        """The session that was heard of least lately is not known any more."""
        (_, key), known = self._known.popitem(last=False)
        self._take_endings(known, key)
        for place in (*known.passed, known.tip, known.opening):
            for places in (
                self._tips,
                self._passed,
                self._openings,
                self._settled,
            ):
                if place is not None and places.get(place) == key:
                    del places[place]

    def find(self, scope: str, marks: Marks, *, is_retry: bool = False) -> str | None:
        """The key of the session that this list belongs to; None if it is nobody's so far. A client
        that says that it tries again has begun before.
        """
        for id in calls_in(marks):
            known = self._passed.get((scope, f"call {id}"))
            if known is not None:
                return known
        words = chains(marks)
        for places in (self._tips, self._passed):
            for chain in words:
                if (scope, chain) in places:
                    return places[scope, chain]
        begun = opening(marks)
        if begun is None:
            return self._by_ending(scope, marks)
        found = self._openings.get((scope, begun))
        if found is None and is_retry:
            found = self._settled.get((scope, begun))
        return found

    def _by_ending(self, scope: str, marks: Marks) -> str | None:
        """The one session whose newest words are all that a list has, but for what it asks now: its head
        was cut off.
        """
        known = list(marks)
        while True:
            for ending in endings(known)[-1:]:
                keys = self._endings.get((scope, ending), set())
                if len(keys) == 1:
                    return next(iter(keys))
            # The same list again has its question, too.
            if not known or known[-1][0] != "user":
                return None
            known.pop()
