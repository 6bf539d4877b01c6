"""Which sessions have something left: found by their marks, so that it costs what is left, however
many sessions there are.
"""

from collections.abc import Iterator

import msgspec

from holdfast import Store
from holdfast.adapters.openviking.client.deliveries import DeliveryLog
from holdfast.adapters.openviking.client.position import CommitRequested

_PAGE = 100


class UnsentSession(msgspec.Struct, frozen=True):
    """A session of which something is left: messages that were not sent, commits that OpenViking
    has not accepted or still works on, and the ids of those that failed.
    """

    session_id: str
    key: str | None
    viking_id: str
    messages: int
    commits: int
    failed: tuple[str, ...]


def marked(logs: Store) -> Iterator[str]:
    """The ids of the sessions that are marked, oldest mark first."""
    told: set[str] = set()
    after: str | None = None
    while True:
        page = logs.pending(after=after, limit=_PAGE)
        for mark in page:
            # The key of a delivery log is the id of its session.
            if mark.key is not None and mark.key not in told:
                told.add(mark.key)
                yield mark.key
        after = page.next
        if after is None:
            return


def ever_sent(logs: Store) -> Iterator[str]:
    """The ids of all sessions of which something was ever sent, newest first."""
    # Where a sender was killed, its turn still runs: these have something unsent for sure.
    for state in ("running", "open"):
        after: str | None = None
        while True:
            page = logs.sessions(state=state, after=after, limit=_PAGE)
            for listed in page:
                if listed.key is not None:
                    yield listed.key
            after = page.next
            if after is None:
                break


def what_is_left(log: DeliveryLog) -> UnsentSession | None:
    """What is left of a session; None when nothing is."""
    position = log.position()
    messages = 0
    for _ in log.session.transcript(after=position.sent.seq):
        messages += 1
    commits = len(position.tasks)
    for logged in log.records(position.requests):
        commits += isinstance(logged.record, CommitRequested)
    # Counted apart: nothing becomes of them until somebody asks again.
    failed = tuple(each.request for each in position.failed)
    if not messages and not commits and not failed:
        return None
    session = log.session
    return UnsentSession(
        session.id, session.key, log.viking_id, messages, commits, failed
    )
