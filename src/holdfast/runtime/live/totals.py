"""What a session comes to: counts, turns and usage, added up page by page (I-17, I-24).

Sums are derived: nothing stores them. A handle remembers how far it has added, so that asking again
costs only what is new.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from holdfast.domain.entry import End, Entry, note_of
from holdfast.domain.message import Usage
from holdfast.domain.turn import FORKED
from holdfast.engine.protocol import SessionState
from holdfast.errors import Damaged
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.transcript import opening

OPENING = 8
"""Among so many entries from the beginning, the first message of a session is looked for."""


class SessionInfo(msgspec.Struct, frozen=True):
    """A session at a glance. `state` is "open", "running" or "ended"; `title` is its first words;
    `head` is the seq of its last entry; `messages` and `turns` count what it has had, `pending`
    what waits in its inbox; `running` is the id of the turn that runs; `usage` is the sum of all
    tokens. Times are in milliseconds since 1970.
    """

    id: str
    key: str | None
    epoch: int
    tenant: str
    state: str
    title: str
    head: int
    messages: int
    turns: int
    pending: int
    running: str | None
    usage: Usage
    opened_at: int
    active_at: int


class TurnInfo(msgspec.Struct, frozen=True):
    """What became of a turn. `number` grows from turn to turn of a session, and leaves numbers out:
    stopping a turn, or ending one that was left, uses one up. `end` is None while it runs,
    `reason` and `error` say why it ended; `messages` and `usage` are those of the turn. `reply_to`
    is whom it answers: its own, or that of the first message it took that has one. Times are in
    milliseconds since 1970.
    """

    id: str
    number: int
    started_at: int
    ended_at: int | None = None
    end: End | None = None
    reason: str | None = None
    error: str | None = None
    messages: int = 0
    usage: Usage = Usage()
    reply_to: str | None = None


class RunningTotals(msgspec.Struct):
    """What was added up so far, up to entry `seq`."""

    seq: int = 0
    messages: int = 0
    turns: int = 0
    usage: Usage = Usage()


def info(session: SessionLog, state: SessionState) -> SessionInfo:
    """State, counts, title and usage; what a fork shares is counted as messages, and its usage only
    where it was spent (FAULTS J3).
    """
    # One at a time, and on a copy: what is interrupted, or meets an entry that can't be
    # read, must not leave a page half counted.
    with session.lock:
        sums = _added_up(
            session, msgspec.structs.replace(session.sums or RunningTotals())
        )
        session.sums = sums
    return SessionInfo(
        id=session.id,
        key=session.key,
        epoch=session.epoch,
        tenant=session.tenant,
        state=state_of(state),
        title="" if state.erased else title(session),
        head=state.head,
        messages=sums.messages,
        turns=sums.turns,
        pending=len(session.engine.inbox(session.id)),
        running=session.turn_name(state.turn),
        usage=sums.usage,
        opened_at=state.opened_at,
        active_at=state.last_at,
    )


def turns(session: SessionLog, *, after: int, limit: int | None) -> list[TurnInfo]:
    """The turns with numbers above `after`, in order."""
    found: dict[int, TurnInfo] = {}
    asked = _Addresses()
    seq = 0
    while page := session.page(seq, bodies=False):
        seq = page[-1].seq
        for entry in page:
            if entry.kind == "opened":
                _part(found, entry)
            elif entry.turn is not None and entry.turn > after:
                _add_to_turn(session, found, entry, asked)
            # Accepted outside a turn: its address counts for the turn that takes it.
            elif entry.kind == "message":
                address = note_of("message", entry.note).reply_to
                if address is not None:
                    asked.waiting[entry.id.hex()] = address
    # Turns start in the order of their numbers, but for those that a fork took over.
    numbers = sorted(found)[:limit]
    return [found[number] for number in numbers]


class _Addresses:
    """Where answers to messages go that came in outside a turn, as long as a turn may take them:
    what a turn has taken, it may give back with its end.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}
        self._taken: dict[int, dict[str, str]] = {}

    def take(self, number: int, ids: Iterable[str]) -> list[str]:
        """The addresses of those that this turn takes, in their order."""
        taken = {id: self.waiting.pop(id) for id in ids if id in self.waiting}
        self._taken.setdefault(number, {}).update(taken)
        return list(taken.values())

    def give_back(self, number: int, ids: Iterable[str]) -> None:
        """The turn is over, and another one takes these."""
        taken = self._taken.pop(number, {})
        self.waiting.update((id, taken[id]) for id in ids if id in taken)


def _part(found: dict[int, TurnInfo], opened: Entry) -> None:
    """A fork begins: turns that were running in its parent never go on here, and end
    as forked.
    """
    end, reason = FORKED
    for number, known in found.items():
        if known.end is None:
            found[number] = replace(known, end=end, reason=reason, ended_at=opened.at)


def _add_to_turn(
    session: SessionLog, found: dict[int, TurnInfo], entry: Entry, asked: _Addresses
) -> None:
    """Adds what an entry says of its turn."""
    number = entry.turn
    assert number is not None
    if entry.kind == "turn":
        found[number] = TurnInfo(session.turn_name(number) or "", number, entry.at)
    known = found.get(number)
    if known is None or entry.kind not in ("message", "turn", "take", "end"):
        return
    note: Any = note_of(entry.kind, entry.note)
    if entry.kind == "message":
        found[number] = replace(
            known,
            messages=known.messages + 1,
            usage=_sum(known.usage, note.usage),
            reply_to=_first(known.reply_to, note.reply_to),
        )
    elif entry.kind in ("turn", "take"):
        addresses = [known.reply_to]
        if entry.kind == "turn":
            addresses.append(note.reply_to)
        addresses += asked.take(number, note.takes)
        found[number] = replace(
            known,
            messages=known.messages + len(note.takes),
            reply_to=_first(*addresses),
        )
    elif known.end is None:
        asked.give_back(number, note.returns)
        found[number] = replace(
            known,
            ended_at=entry.at,
            # What it gives back, another turn takes.
            messages=known.messages - len(note.returns),
            end=note.end,
            reason=note.reason,
            error=note.error,
        )


def _first(*addresses: str | None) -> str | None:
    for address in addresses:
        if address is not None:
            return address
    return None


def _added_up(session: SessionLog, sums: RunningTotals) -> RunningTotals:
    while page := session.page(sums.seq, bodies=False):
        sums.seq = page[-1].seq
        for entry in page:
            if entry.kind == "turn":
                sums.turns += 1
            elif entry.kind == "message":
                sums.messages += 1
                usage = note_of("message", entry.note).usage
                if usage is not None and entry.seq > session.origin:
                    sums.usage = _sum(sums.usage, usage)
    return sums


def _sum(one: Usage, other: Usage | None) -> Usage:
    if other is None:
        return one
    fields = zip(astuple(one), astuple(other), strict=True)
    return Usage(*(mine + theirs for mine, theirs in fields))


def state_of(state: SessionState) -> str:
    """How a session stands, in the word that users see."""
    if state.ended:
        return "ended"
    return "open" if state.turn is None else "running"


def title(session: SessionLog, beginning: list[Entry] | None = None) -> str:
    """What the session is called: in the store that it comes from, or by the first thing that a
    user said. `beginning` are its first entries, if they were read.
    """
    try:
        page = session.page(0, OPENING) if beginning is None else beginning
    except Damaged:
        # Its past is not there. A list shows it without a name, and all others.
        return ""
    try:
        first = opening(session, page)
    except Damaged:
        first = opening(session, [readable(entry) for entry in page])
    return " ".join((_given_title(first) or _first_words(first)).split())[:80]


def _given_title(messages: list[Message]) -> str:
    """The title that an import has noted, if there is one to read."""
    for message in messages:
        if "story" in message.labels:
            story = message.labels["story"]
            named = story.get("title") if isinstance(story, dict) else None
            # A label is any JSON: what others put there may be no text.
            return named.strip() if isinstance(named, str) else ""
    return ""


def _first_words(messages: list[Message]) -> str:
    for message in messages:
        if message.role == "user":
            return message.text
    return ""
