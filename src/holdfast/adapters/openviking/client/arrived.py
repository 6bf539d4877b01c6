"""What of ours OpenViking has: our ids, read from its live messages and its archives."""

from collections.abc import Collection
from typing import Any

from holdfast.adapters.openviking.client.http_connection import (
    HttpAnswer,
    HttpConnection,
)
from holdfast.adapters.openviking.client.position import (
    SeenThere,
    archive_name,
    source_ids,
)

ALL_TOKENS = 1_000_000_000
"""A budget that leaves no message out of a context."""
ARCHIVES_MAX = 100
"""So many archives are read at most: a session from before Holdfast may have any number."""
_LOOKS_MAX = 5


class NotNow(Exception):
    """OpenViking can't be worked with now; what is unsent waits."""

    def __init__(self, answer: HttpAnswer | str) -> None:
        super().__init__(str(answer))


def counted(http: HttpConnection, viking_id: str) -> tuple[int, int] | None:
    """How many live messages and how many archives there are; None when there is no such
    session.
    """
    answer = http.session("GET", viking_id)
    if answer.missing:
        return None
    if not answer.ok:
        raise NotNow(answer)
    return _whole(answer, "message_count"), _whole(answer, "commit_count")


def look(
    http: HttpConnection, viking_id: str, wanted: Collection[str], archives: int
) -> SeenThere:
    """What is there of the messages `wanted`. Archives after number `archives` are read when some
    are not among the live ones.
    """
    for _ in range(_LOOKS_MAX):
        # Counters, messages, counters: the three are read one after the other.
        before = counted(http, viking_id)
        if before is None:
            return SeenThere(exists=False)
        messages = _context(http, viking_id)
        # A commit in between would show a message in both places, or in none.
        if messages is not None and counted(http, viking_id) == before:
            break
    else:
        raise NotNow("the session changes faster than it can be read")
    count, commits = before
    # What pending archives hold comes before what is live.
    border = max(0, len(messages) - count)
    live = source_ids(messages[border:])
    archived = source_ids(messages[:border])
    # Fewer archives than before: the session was put back to an older state, and all are read.
    is_older = commits < archives
    first = 0 if is_older else archives
    for number in range(commits, max(first, commits - ARCHIVES_MAX), -1):
        if not is_older and live | archived >= set(wanted):
            break
        archived |= source_ids(_archived(http, viking_id, archive_name(number)) or ())
    return SeenThere(
        exists=True,
        count=count,
        archives=commits,
        live=frozenset(live),
        archived=frozenset(archived),
        pending=border > 0,
    )


def _context(http: HttpConnection, viking_id: str) -> list[Any] | None:
    answer = http.session(
        "GET",
        viking_id,
        f"/context?token_budget={ALL_TOKENS}",
    )
    if answer.missing:
        return None
    if not answer.ok:
        raise NotNow(answer)
    messages = _listed(answer)
    # Checkpoints are made for the context, and are no messages of the session.
    kept = []
    for message in messages:
        if isinstance(message, dict) and message.get("message_kind") != "checkpoint":
            kept.append(message)
    return kept


def archive_is_there(http: HttpConnection, viking_id: str, archive: str) -> bool:
    """Whether this archive is finished: only such ones can be read."""
    return _archived(http, viking_id, archive) is not None


def _archived(http: HttpConnection, viking_id: str, archive: str) -> list[Any] | None:
    answer = http.session("GET", viking_id, f"/archives/{archive}")
    if answer.missing:
        return None
    if not answer.ok:
        raise NotNow(answer)
    return _listed(answer)


def _listed(answer: HttpAnswer) -> list[Any]:
    messages = answer.fields.get("messages")
    # Without a list nothing can be told: an empty one would pass for a loss.
    if not isinstance(messages, list):
        raise NotNow("its answer has no list of messages")
    return messages


def _whole(answer: HttpAnswer, name: str) -> int:
    value = answer.fields.get(name)
    # Without its counters nothing can be told: a 0 would pass for a wiped session.
    if type(value) is not int:
        raise NotNow(f"its answer has no {name}")
    return value
