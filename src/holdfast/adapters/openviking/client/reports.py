"""What became of messages and commits, read from a delivery log."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.adapters.openviking.client.deliveries import DeliveryLog, LoggedRecord
from holdfast.adapters.openviking.client.position import (
    AnyRecord,
    CommitAccepted,
    CommitEnded,
    CommitRequested,
    MessageRefused,
    MessagesLost,
    Position,
)


class CommitReport(msgspec.Struct, frozen=True):
    """A commit. "owed": OpenViking has not accepted it yet. "accepted": its messages are archived,
    and a task works on them. "failed": nothing was made of them; they are in Holdfast, and after
    the archiving in no context of OpenViking's.
    """

    id: str
    state: Literal["owed", "accepted", "completed", "skipped", "failed"] = "owed"
    problem: str = ""
    archive: str | None = None
    task_id: str | None = None
    again: str = ""
    """The failed commit that this one does once more."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will become of it."""
        return self.state in ("completed", "skipped", "failed")


class DeliveryReport(msgspec.Struct, frozen=True):
    """How far a session has come. `unsent` counts messages; `problem` is what stands in the way now,
    if anything does. `refused` are messages that OpenViking does not take. `lost` are times at which
    it had lost what it had acknowledged; and what was not there when the client got another address,
    until it gets the next one.
    """

    session_id: str
    viking_id: str
    unsent: int
    problem: str
    refused: list[MessageRefused]
    commits: list[CommitReport]
    lost: list[MessagesLost]


def delivery_report(log: DeliveryLog, problem: str) -> DeliveryReport:
    """All that is to be said of a session. It reads the delivery log whole."""
    logged = list(log.records(0))
    # Asked once more: a sender may have come further since the records were read.
    sent = log.position().sent.seq
    unsent = 0
    for _ in log.session.transcript(after=sent):
        unsent += 1
    records = [each.record for each in logged]
    return DeliveryReport(
        log.session.id,
        log.viking_id,
        unsent,
        problem,
        [record for record in records if isinstance(record, MessageRefused)],
        list(commit_reports(logged).values()),
        _losses(records),
    )


def _losses(records: Iterable[AnyRecord]) -> list[MessagesLost]:
    """The losses that still count. What was missing at another address is no loss any more when the
    client has turned to the next one: that one was looked at anew.
    """
    found: list[MessagesLost] = []
    address = ""
    for record in records:
        if isinstance(record, MessagesLost):
            found.append(record)
        # It is stored after what was missing there.
        elif isinstance(record, Position) and record.address != address:
            address = record.address
            found = [lost for lost in found if lost.address in ("", address)]
    return found


def commit_reports(logged: Iterable[LoggedRecord]) -> dict[str, CommitReport]:
    """The commits among these records by their ids, in the order in which they were asked for."""
    found: dict[str, CommitReport] = {}
    for each in logged:
        record = each.record
        # Its place among the others is that of its first record.
        if isinstance(record, CommitRequested):
            found[each.id] = CommitReport(each.id, again=record.again)
        elif isinstance(record, CommitAccepted):
            known = found.get(record.request, CommitReport(record.request))
            found[record.request] = msgspec.structs.replace(
                known, state="accepted", archive=record.archive, task_id=record.task
            )
        elif isinstance(record, CommitEnded):
            known = found.get(record.request, CommitReport(record.request))
            found[record.request] = msgspec.structs.replace(
                known, state=record.state, problem=record.problem
            )
    return found
