"""How far a session has come, and what follows from what was seen. Pure.

A position is a record of the delivery log; the newest one counts. `sent` names the last message of
the transcript that is done with, and `doubt_at` says that a request was about to be sent: until the
next position says otherwise, nobody knows whether it arrived. What is found at OpenViking beyond
`sent` is `known`, and not sent again.

    since ──────────────── sent ─────────── head of the transcript
      │  live at OpenViking  │  known, or to be sent
      └ what is before this lies in archives

`since` bounds what is compared after a loss: what a commit has archived is never sent again.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

FAILED_MAX = 100
"""So many failed commits are remembered: they are in every position."""


class LogPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message, and the entry it is in; none at all before the first."""

    seq: int = 0
    id: str = ""


class DeliveryRecord(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="record"
):
    """What the delivery log of a session is made of. No record holds words of a message, but for
    what a refusal of OpenViking's quotes.
    """


class CommitRequested(DeliveryRecord, frozen=True, tag="commit"):
    """A commit that was asked for when the session's head was `after`. `again`: the failed commit
    that it does once more.
    """

    after: int
    options: dict[str, Any] = {}
    again: str = ""


Stretches = tuple[tuple[LogPlace, LogPlace], ...]
"""Messages, each time those after the first place up to the second."""


class CommitAccepted(DeliveryRecord, frozen=True, tag="accepted"):
    """Phase 1 is done: the messages lie in `archive`. `task` is None where it could not be found
    after a lost answer. `kept_from`: some messages after this one may have stayed live; which ones
    is seen when the task is over. `covers` are the messages that were live before it.
    """

    request: str
    archive: str
    task: str | None = None
    kept_from: LogPlace | None = None
    covers: Stretches = ()
    options: dict[str, Any] = {}


class FailedCommit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit that came to nothing. What it covers is in an archive that can't be read, and in no
    context; nothing, where OpenViking has not even archived it.
    """

    request: str
    covers: Stretches = ()
    options: dict[str, Any] = {}


class CommitEnded(DeliveryRecord, frozen=True, tag="ended"):
    """What became of a commit. Where it failed, its messages are in no context of OpenViking's:
    Holdfast has them.
    """

    request: str
    state: Literal["completed", "skipped", "failed"]
    problem: str = ""


class MessageRefused(DeliveryRecord, frozen=True, tag="refused"):
    """OpenViking does not take this message; those after it went on."""

    message_id: str
    status: int
    problem: str = ""


class MessagesLost(DeliveryRecord, frozen=True, tag="lost"):
    """So many messages that OpenViking had acknowledged are not there any more. "wiped": they were
    live, and are sent again. "gone": archives are not there either; all of the session is sent again
    and committed again. "hidden": an archive of somebody else's commit has them, and it can't be
    read; they are left there.
    """

    messages: int
    why: Literal["wiped", "gone", "hidden"]
    misplaced: int = 0
    """How many were found there that come after some of the lost ones: these can't be put before."""
    address: str = ""
    """Where they are missing, if that is another address than the one they were sent to: they are
    lost only as long as it is the client's.
    """


class Position(DeliveryRecord, frozen=True, tag="position"):
    """How far a session has come.

    `live` and `archives` are what OpenViking said last; `live` is None before the first contact.
    `carried` are ids of results after `sent` that went along with their calls. `requests` is the seq in
    the delivery log up to which there is no commit left to do, `committing` the one in doubt;
    `tasks` are those accepted whose tasks are not over; `failed` those that have failed and were
    not asked for again. `address` is that of the OpenViking which has all this.
    """

    sent: LogPlace = LogPlace()
    since: LogPlace = LogPlace()
    carried: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    live: int | None = None
    archives: int = 0
    doubt_at: int | None = None
    requests: int = 0
    committing: str = ""
    tasks: tuple[CommitAccepted, ...] = ()
    failed: tuple[FailedCommit, ...] = ()
    address: str = ""


AnyRecord = (
    CommitRequested
    | CommitAccepted
    | CommitEnded
    | MessageRefused
    | MessagesLost
    | Position
)


class SeenThere(msgspec.Struct, frozen=True):
    """What of ours OpenViking has: the ids in its live messages, and in archives. `pending`: some
    archive is not finished yet, so its messages are shown among the live ones.
    """

    exists: bool
    count: int = 0
    archives: int = 0
    live: frozenset[str] = frozenset()
    archived: frozenset[str] = frozenset()
    pending: bool = False


def compared(
    position: Position, ours: Sequence[LogPlace], seen: SeenThere
) -> tuple[Position, MessagesLost | None]:
    """The position after a look at OpenViking. `ours` are the messages between `since` and `sent`
    that it had acknowledged.
    """
    # An id is enough: which words came with it, the server may have changed.
    there = seen.live | seen.archived
    lost = [place for place in ours if place.id not in there]
    # While an archive is pending, what was taken for live may go into it: the next look has to read
    # that archive, too.
    archives = position.archives if seen.pending else seen.archives
    after = replace(position, live=seen.count, archives=archives)
    # Archives are gone, too: the whole session was lost, or put back from a backup.
    is_older = seen.archives < position.archives
    if is_older or (not seen.exists and position.live is not None):
        return _from_the_start(after, ours, seen)
    if lost and seen.archives > position.archives:
        # Not sent again: an archive that fails whenever it is made would have it sent for ever.
        hidden = MessagesLost(len(lost), "hidden")
        return _went_on(
            replace(after, since=position.sent),
            ours,
            seen,
        ), hidden
    if lost:
        back = replace(
            after, sent=position.since, carried=(), known=tuple(sorted(there))
        )
        # These were written after the loss; messages can only be appended.
        later = [place for place in ours if place.id in there]
        misplaced = sum(place.seq > lost[0].seq for place in later)
        return back, MessagesLost(len(lost), "wiped", misplaced)
    return _went_on(after, ours, seen), None


def _from_the_start(
    position: Position, ours: Sequence[LogPlace], seen: SeenThere
) -> tuple[Position, MessagesLost | None]:
    """Everything is sent again, and committed again where it was: nothing of it is there."""
    known = tuple(sorted(seen.live | seen.archived))
    start = Position(
        live=seen.count,
        archives=seen.archives,
        known=known,
    )
    fresh = replace(start, refused=position.refused)
    if not position.sent.seq:
        return fresh, None
    # Those in archives, too: `ours` are the live ones.
    return fresh, MessagesLost(len(ours), "gone")


def _went_on(position: Position, ours: Sequence[LogPlace], seen: SeenThere) -> Position:
    sent = {place.id for place in ours}
    since = position.since
    for place in ours:
        # Archived by somebody else's commit: a later look must not miss it among the live ones.
        is_archived = place.id in seen.archived and place.id not in seen.live
        if is_archived and place.seq > since.seq:
            since = place
    # Of later messages: those that arrived without an answer, or that a younger copy of this store
    # has sent.
    known = (seen.live | seen.archived) - sent
    return replace(
        position,
        since=since,
        known=tuple(sorted(known)),
    )


def advanced(
    position: Position,
    upto: LogPlace,
    *,
    carried: Collection[str],
    known: Collection[str],
) -> Position:
    """The position after messages up to this one are done with."""
    return replace(
        position,
        sent=upto,
        carried=tuple(sorted(carried)),
        known=tuple(sorted(known)),
        doubt_at=None,
    )


def accepted(
    position: Position, accepted: CommitAccepted, *, seq: int, since: LogPlace
) -> Position:
    """The position after a commit's Phase 1."""
    return replace(
        position,
        since=since,
        # What was refused before it is not compared any more.
        refused=position.refused if since.seq < position.sent.seq else (),
        archives=archive_number(accepted.archive),
        doubt_at=None,
        committing="",
        requests=seq,
        tasks=(*position.tasks, accepted),
    )


def with_failed(position: Position, failed: FailedCommit) -> Position:
    """The position after a commit has failed."""
    return replace(
        position,
        failed=(*position.failed, failed)[-FAILED_MAX:],
    )


def without_failed(position: Position, request: str) -> Position:
    """The position after a failed commit was asked for again, and that was decided."""
    left = [failed for failed in position.failed if failed.request != request]
    return replace(position, failed=tuple(left))


def failed_commit(position: Position, request: str) -> FailedCommit:
    """What is known of a failed commit; where it is not among the failed any more, there is nothing
    to send again for it.
    """
    for failed in position.failed:
        if failed.request == request:
            return failed
    return FailedCommit(request)


def without_task(position: Position, request: str) -> Position:
    """The position after the task of a commit is over."""
    left = [task for task in position.tasks if task.request != request]
    return replace(position, tasks=tuple(left))


def archive_name(number: int) -> str:
    """Archives are numbered from 1, in the order of their commits."""
    return f"archive_{number:03d}"


def archive_number(name: str) -> int:
    """The number in the name or the address of an archive; 0 where there is none."""
    _, _, digits = name.rpartition("_")
    return int(digits) if digits.isdecimal() else 0


def source_ids(messages: Iterable[Any]) -> set[str]:
    """Our ids in messages that OpenViking showed."""
    found: set[str] = set()
    for message in messages:
        # A checkpoint names what it sums up: that is no proof that a message is there.
        if not isinstance(message, dict) or message.get("message_kind") == "checkpoint":
            continue
        ids = message.get("source_message_ids")
        for id in ids if isinstance(ids, list) else ():
            if isinstance(id, str):
                found.add(id)
    return found
