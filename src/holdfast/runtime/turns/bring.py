"""Messages that wait in another session, brought to the turn that takes them (I-4).

A gateway gets a message before it knows which session answers it. It accepts the message under a
key of its own, and the turn that takes it brings it along: in one commit the message leaves the
inbox where it waited, whose log says where it went, and stands in the log of the session that
answers it, under its own id and with its labels. A turn that dies before it has used the message
gives it back to the inbox of its own session.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.domain.entry import Draft, Taken, note_of, noted
from holdfast.domain.inbox import NamedMessage
from holdfast.engine.protocol import Waiting, Write
from holdfast.errors import Damaged, NotFound
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.turns.journey import follow, known_here


class Brought(NamedTuple):
    """What is brought, in the order of its acceptance: `drafts` are the messages and their labels
    as they will stand in the session that takes them, `leaving` takes them from where they wait.
    `origins` has the session that each of them comes from, by its id; `found`, how they wait there.
    """

    drafts: tuple[Draft, ...] = ()
    leaving: tuple[Write, ...] = ()
    origins: dict[str, str] = {}
    found: dict[str, list[Waiting]] = {}


NOTHING = Brought()


def not_waiting(id: str) -> NotFound:
    """The error for a message that was to be taken and can't be had."""
    hint = "it is not in the inbox, or another caller waits with it"
    return NotFound(what="message", name=id, hint=hint)


def bring(
    session: SessionLog,
    named: Sequence[NamedMessage] | None,
    waiting: Sequence[Waiting],
    waiter: str | None = None,
) -> Brought:
    """What of these messages waits elsewhere, for anybody or for this waiter. What can't be had is
    not in it: those who name it are told by whoever looks for all of it. Raises `NotFound` for one
    that this session's log has already, as its own or as part of the past that it shares.
    """
    elsewhere = _elsewhere(session, named, waiting)
    free = _free(session, elsewhere, waiter)
    places = {id: (place, each.seq) for id, (place, each) in free.items()}
    for id in known_here(session, places):
        # A log has each message once (I-2).
        hint = (
            f"the log of this session has it: it came through it, or through the one that it was "
            f"forked from. It waits in `{free[id][0]}`: take it there, or in a session that it has "
            "not come through"
        )
        raise NotFound(what="message", name=id, hint=hint)
    found: dict[str, list[Waiting]] = {}
    origins: dict[str, str] = {}
    # By id, which begins with its time: in the order in which they were accepted.
    for id in sorted({each.id for each in elsewhere}):
        if id in free:
            place, message = free[id]
            origins[id] = place
            found.setdefault(place, []).append(message)
    drafts: dict[str, Draft] = {}
    labels: list[Draft] = []
    leaving: list[Write] = []
    for id, leaves in found.items():
        for leaf in leaves:
            drafts[leaf.message.hex()] = _again(session, id, leaf)
        labels += labels_of(session, id, leaves)
        leaving.append(_leaving(session, id, leaves))
    messages = [drafts[id] for id in origins]
    return Brought(with_labels(messages, labels), tuple(leaving), origins, found)


def is_free(
    session: SessionLog, place: str, waiter: str | None, waiting: Waiting
) -> bool:
    """Whether a message in the inbox of `place` waits for any turn, or for that of this waiter."""
    if waiter is not None and waiting.waiter == waiter:
        return True
    return session.keeper.leases.is_free(place, waiting)


def places_of(
    session: SessionLog, named: Sequence[NamedMessage] | None
) -> dict[str, str]:
    """The sessions in which messages are that were named with the session that accepted them, by
    their ids: wherever resets and turns have taken them since.
    """
    accepted = []
    for each in named or ():
        if each.session is not None:
            accepted.append((each.id, each.session, None))
    return {id: place.session for id, place in follow(session, accepted).items()}


def _elsewhere(
    session: SessionLog,
    named: Sequence[NamedMessage] | None,
    waiting: Sequence[Waiting],
) -> list[NamedMessage]:
    """Those that were named with a session and do not wait here. This one may have accepted them
    itself, and another turn have taken them from here.
    """
    here = {each.message.hex() for each in waiting}
    found = []
    for each in named or ():
        if each.session is not None and each.id not in here:
            found.append(each)
    return found


def _free(
    session: SessionLog, named: Sequence[NamedMessage], waiter: str | None
) -> dict[str, tuple[str, Waiting]]:
    """By the id of a message, the session where it waits now and how. Each inbox is read once,
    however many of its messages are named.
    """
    # Nearly all wait where they were accepted: only the others are followed.
    accepted = {each.id: each.session or "" for each in named}
    found = _waiting(session, accepted)
    moved = [each for each in named if each.id not in found]
    if moved:
        found.update(_waiting(session, places_of(session, moved)))
    return {
        id: (place, waiting)
        for id, (place, waiting) in found.items()
        if place != session.id and is_free(session, place, waiter, waiting)
    }


def _waiting(
    session: SessionLog, places: Mapping[str, str]
) -> dict[str, tuple[str, Waiting]]:
    """Those of these messages that wait in these sessions, and how."""
    found = {}
    for place in set(places.values()):
        # An id is no credential: another tenant's inbox is as good as none.
        if owned(session.engine, session.tenant, place) is None:
            continue
        for each in session.engine.inbox(place):
            if places.get(each.message.hex()) == place:
                found[each.message.hex()] = (place, each)
    return found


def _again(session: SessionLog, place: str, waiting: Waiting) -> Draft:
    # Read by its seq: a log of receipts is long, and what waits is near its end.
    [entry] = session.engine.entries(place, after=waiting.seq - 1, limit=1)
    # Its event is known where it was accepted: a key knows its own events.
    note = replace(note_of("message", entry.note), event=None)
    return Draft("message", None, entry.id, entry.at, noted(note), entry.body)


def labels_of(
    session: SessionLog, place: str, leaves: Sequence[Waiting]
) -> list[Draft]:
    """The labels of messages that leave the inbox of `place`, as they go along with them."""
    ids = {each.message.hex() for each in leaves}
    found = []
    first = min(each.seq for each in leaves)
    for entry in session.engine.labels(place, after=first):
        try:
            note = note_of("label", entry.note)
        except Damaged:
            continue  # a label that can't be read is none (I-25)
        if note.message in ids:
            id = mint(session.world, entry.at)
            # Its seq there is another message's here.
            raw = noted(replace(note, seq=0))
            found.append(Draft("label", None, id, entry.at, raw))
    return found


def with_labels(
    messages: Sequence[Draft], labels: Sequence[Draft]
) -> tuple[Draft, ...]:
    """These messages, each with its labels right behind it: a fork that ends with it has them."""
    own: dict[str, list[Draft]] = {}
    for label in labels:
        own.setdefault(note_of("label", label.note).message, []).append(label)
    found: list[Draft] = []
    for message in messages:
        found += [message, *own.get(message.id.hex(), ())]
    return tuple(found)


def _leaving(session: SessionLog, place: str, leaves: Sequence[Waiting]) -> Write:
    ids = tuple(each.message for each in leaves)
    note = Taken(tuple(id.hex() for id in ids), session=session.id)
    # What waits in a session that has ended waits for a turn all the same.
    return Write(place, (session.draft("take", note),), takes=ids, ended_too=True)
