"""Following messages through the sessions that they came through (I-2, I-4, I-21).

`follow` goes forward, from where messages were accepted to where they are now; `trace` goes back,
from where they belong to the copies that they have left behind. What a log tells of them is decided
in `domain/log/journey`. Here the logs are read: each once for all messages that are looked for in it,
from the time at which they can have come there, and no further than to where they went on. So a
journey costs what was stored while its message waited, not the length of the logs that it led
through.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.domain.entry import Entry, opened_of
from holdfast.domain.erasure import entries_about
from holdfast.domain.log.journey import Stay, Stays, brought_in, carried_in, passed_on
from holdfast.engine.protocol import SessionState
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.live.transcript import begun_before, minted_ms

_PAGE = 256
"""So many entries of a log are read at once: few come while a message waits."""
_TAIL = 64
"""What a session has passed on is told by one of its last entries: little comes after its end."""


class Whereabouts(NamedTuple):
    """Where a message is now: in this session, whose log tells this of it. Nothing, if its log does
    not have the message, or there `is_no_session` of this id.
    """

    session: str
    stay: Stay | None = None
    is_no_session: bool = False


class LeftBehind(NamedTuple):
    """What messages have left behind in a session that they came through: the entries with their
    words, by seq.
    """

    state: SessionState
    entries: list[Entry]


class _Sought:
    """What is looked for in one log: messages, each with the seq that it comes after where that is
    known; the others come after this time.
    """

    def __init__(self) -> None:
        self._after: dict[str, int | None] = {}
        self._since: int | None = None

    @property
    def ids(self) -> Collection[str]:
        return self._after

    def add(self, id: str, *, after: int | None = None, since: int = 0) -> None:
        self._after[id] = after
        if after is None:
            self._since = since if self._since is None else min(since, self._since)

    def stays(self, log: SessionLog) -> dict[str, Stay]:
        """What this log tells of them, as far as to where it has told all of it."""
        first = log.origin
        if self._since:
            first = max(first, begun_before(log, self._since))
        seqs = {id: first if seq is None else seq for id, seq in self._after.items()}
        found = _told(log, seqs, by_time=True)
        # Clocks differ: what was not met at its time is looked for in all of the log.
        missed = {}
        for id, seq in self._after.items():
            if seq is None and not found[id].is_known:
                missed[id] = log.origin
        if missed:
            found |= _told(log, missed, by_time=False)
        return found


def follow(
    session: SessionLog, accepted: Iterable[tuple[str, str, int | None]]
) -> dict[str, Whereabouts]:
    """Where these messages are now, by id. Each is given with the session that accepted it, and
    with its seq there if that is known.
    """
    ahead: dict[str, _Sought] = {}
    for id, place, seq in accepted:
        after = None if not seq else seq - 1
        ahead.setdefault(place, _Sought()).add(id, after=after, since=minted_ms(id))
    found: dict[str, Whereabouts] = {}
    read_to: dict[tuple[str, str], int] = {}
    while ahead:
        place, search = ahead.popitem()
        state = owned(session.engine, session.tenant, place)
        if state is None:
            lost = Whereabouts(place, is_no_session=True)
            found.update(dict.fromkeys(search.ids, lost))
            continue
        log = session.other(state)
        for id, stay in search.stays(log).items():
            found[id] = Whereabouts(place, stay if stay.is_known else None)
            if stay.left_by is None or not stay.is_gone:
                continue
            read_to[place, id] = stay.left_by.seq
            to = stay.to or _successor(log) or ""
            # It may have been there before: then what is new of it comes after that. A
            # reset has it among the first entries of the next log.
            is_taken = stay.left_by.kind == "take"
            since = minted_ms(stay.left_by.id.hex()) if is_taken else 0
            after = read_to.get((to, id))
            ahead.setdefault(to, _Sought()).add(id, after=after, since=since)
    return found


def _told(
    log: SessionLog, seqs: Mapping[str, int], *, by_time: bool
) -> dict[str, Stay]:
    stays = Stays(seqs)
    for _ in _read(log, stays, lambda id: stays.of[id].is_over, by_time=by_time):
        pass
    return stays.of


def _read(
    log: SessionLog, stays: Stays, is_over: Callable[[str], bool], *, by_time: bool
) -> Iterator[Entry]:
    """The entries that these messages are looked for in, added to their stays: from the first seq
    until all is told of all of them. If `by_time`, without what lies between one of which all is
    told and the time of the next.
    """
    after = min(stay.after for stay in stays.of.values())
    while page := _page(log, after):
        for entry in page:
            stays.add(entry)
            yield entry
        after = page[-1].seq
        open_ids = [id for id in stays.of if not is_over(id)]
        if not open_ids:
            return
        unmet = [id for id in open_ids if not stays.of[id].is_known]
        if by_time and len(unmet) == len(open_ids):
            after = max(after, begun_before(log, min(map(minted_ms, unmet))))


def _in_shared_past(
    session: SessionLog, waiting: Mapping[str, tuple[str, int]]
) -> set[str]:
    """Those that wait in a session that this one was forked from, before it was: by their seq, and
    no clock is asked.
    """
    known = set()
    for id, (place, seq) in waiting.items():
        for session_id, after, upto in session.lineage()[:-1]:
            if place == session_id and after < seq <= (upto or 0):
                known.add(id)
    return known


def known_here(session: SessionLog, waiting: Mapping[str, tuple[str, int]]) -> set[str]:
    """Those of these messages that the log of this session has: they have come through it, or
    through one whose past it shares. Each waits in a session, at a seq.
    """
    state = session.engine.state(session.id) if waiting else None
    if state is None:
        return set()
    known = _in_shared_past(session, waiting) if state.origin else set()
    since = min(map(minted_ms, waiting))
    after = max(0, state.head - _TAIL)
    last = session.page(after, 1, bodies=False)
    # Mostly a message is younger than the last few entries of the session that takes it.
    if after and last and minted_ms(last[0].id.hex()) >= since:
        after = begun_before(session, since)
    stays = Stays(dict.fromkeys(waiting, after))
    while page := session.page(after, _PAGE, bodies=False):
        after = page[-1].seq
        for entry in page:
            stays.add(entry)
    return known.union(id for id, stay in stays.of.items() if stay.is_known)


def trace(
    session: SessionLog, state: SessionState, log: Callable[[], Iterator[Entry]]
) -> list[LeftBehind]:
    """What the messages that came to this session from others, and belong to it, have left behind
    in those. `log` reads its own entries: several times rather than holding them (I-24).
    """
    previous, carried = carried_in(log())
    carried = _carried_from(session, previous, carried)
    ids = carried | brought_in(log())
    if not ids:
        return []
    stays = Stays(dict.fromkeys(ids, 0))
    for entry in log():
        stays.add(entry)
    # What it has passed on itself belongs to a later session.
    here = {id: stay for id, stay in stays.of.items() if not stay.is_gone}
    found: dict[str, dict[int, Entry]] = {}
    states: dict[str, SessionState] = {}
    back = _Back()
    back.add(state.id, here, previous, carried)
    for place, to, times in back:
        before = owned(session.engine, session.tenant, place)
        # What came back is erased with all else here.
        if before is None or place == state.id:
            continue
        # As it was before the first look: what is written there meanwhile was not seen.
        states.setdefault(place, before)
        past = session.other(before)
        stays_there, entries = _left_behind(past, to, times)
        found.setdefault(place, {}).update((entry.seq, entry) for entry in entries)
        previous, first = carried_in(_own(past, past.origin))
        carried = _carried_from(session, previous, first & stays_there.keys())
        back.add(place, stays_there, previous, carried)
    copies = []
    for place, by_seq in found.items():
        if by_seq and not states[place].erased:
            copies.append(
                LeftBehind(states[place], [by_seq[seq] for seq in sorted(by_seq)])
            )
    return copies


class _Back:
    """The steps back that are still to be made: from one session to another that messages came
    from, each so many times.
    """

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, str], dict[str, int]] = {}
        self._made: set[tuple[str, str, str]] = set()

    def add(
        self,
        session: str,
        stays: Mapping[str, Stay],
        previous: str | None,
        carried: Collection[str],
    ) -> None:
        for id, stay in stays.items():
            times = Counter(stay.origins)
            if previous is not None and id in carried:
                times[previous] += 1
            for origin, count in times.items():
                # A damaged note may name a session that was met: no walk goes in a circle.
                if (origin, session, id) not in self._made:
                    self._made.add((origin, session, id))
                    self._ahead.setdefault((origin, session), {})[id] = count

    def __iter__(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        while self._ahead:
            (place, to), times = self._ahead.popitem()
            yield place, to, times


def _left_behind(
    log: SessionLog, to: str, times: Mapping[str, int]
) -> tuple[dict[str, Stay], list[Entry]]:
    """Of messages that went from this log to that session, so many times each: what it tells of
    them, and the entries with their words.
    """

    def is_gone(id: str) -> bool:
        stay = stays.of[id]
        return stay.has_come and stay.left_for(to) >= times[id]

    near = max(log.origin, begun_before(log, min(map(minted_ms, times))))
    # Clocks differ: if something was not met at its time, all of the log is read.
    for first, by_time in ((near, True), (log.origin, False)):
        stays = Stays(dict.fromkeys(times, first))
        read = _read(log, stays, is_gone, by_time=by_time)
        entries = list(entries_about(read, times))
        gone = {id for id in times if is_gone(id)}
        if len(gone) == len(times):
            break
    # Only what the log itself says has gone: a note elsewhere takes no words from it.
    about = list(entries_about(entries, gone))
    # A label may have been set after its message had gone.
    about += entries_about(log.engine.labels(log.id, after=first), gone)
    return {id: stays.of[id] for id in gone}, about


def _carried_from(
    session: SessionLog, previous: str | None, ids: Collection[str]
) -> set[str]:
    """Those of these messages that a reset has carried along from this session."""
    state = owned(session.engine, session.tenant, previous) if ids else None
    if state is None:
        return set()
    log = session.other(state)
    moved = passed_on(_own(log, max(state.origin, state.head - _TAIL)))
    if not moved and state.head - _TAIL > state.origin:
        moved = passed_on(_own(log, state.origin))
    return moved.intersection(ids)


def _successor(log: SessionLog) -> str | None:
    """The key's session after this one, whose log was written before logs named it."""
    state, epoch = log.current(), None
    while state is not None and (epoch is None or state.epoch < epoch):
        epoch = state.epoch
        first = log.engine.entries(state.id, after=state.origin, limit=1, bodies=False)
        previous = opened_of(first[0]).previous if first else None
        if previous == log.id:
            return state.id
        state = owned(log.engine, log.tenant, previous)
    return None


def _own(log: SessionLog, after: int) -> Iterator[Entry]:
    """The entries of this log after this seq, which is not before its own begin."""
    while page := _page(log, after):
        after = page[-1].seq
        yield from page


def _page(log: SessionLog, after: int) -> list[Entry]:
    return log.engine.entries(log.id, after=after, limit=_PAGE, bodies=False)
