"""The past that a session shares with the one that its agent has forked it off from: all that the other
shows, in its order, up to where their lists part.

An agent that forks a conversation sends its list under a new name. So the new session begins as a fork of
the other one, with its messages, their times and their turns, and what was said before is stored once.
Codex tells which one it is. Others don't: then it is the one that has most of the list.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.domain.message import thaw
from holdfast.domain.repair import Messages
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.server.proxy.marks import Marks, marks_of

LISTED, LOOKED_AT = 200, 50
"""Among so many sessions of the store, so many of the same agent are looked at for a list."""


class Parting(NamedTuple):
    """Where a list parts from a session: after so many marks, `at` the last message that they share, which
    is None if that is all the session shows.
    """

    marks: int
    at: str | None


def parting(view: Iterable[tuple[str, Marks]], marks: Marks) -> Parting | None:
    """Where a list parts from a view, which is told by its messages' ids and marks; None if they do not
    have an answer of the model's in common.
    """
    known, last = 0, None
    for id, own in view:
        # Words and calls of one message may come in any order.
        if sorted(marks[known : known + len(own)]) != sorted(own):
            break
        known += len(own)
        # What has no marks, a reminder for example, goes with what follows it.
        last = id if own else last
    else:
        last = None
    return Parting(known, last) if has_answer(marks[:known]) else None


def has_answer(marks: Marks) -> bool:
    """Whether the model has said something in a list."""
    return any(kind in ("assistant", "call") for kind, _ in marks)


async def parting_from(session: AsyncSession, marks: Marks) -> Parting | None:
    """Where a list parts from what a session shows."""
    return await arun(read(partial(_parting_from, session._log, marks)))


def _parting_from(log: SessionLog, marks: Marks) -> Parting | None:
    folded = log.log()
    with log.lock:
        shown = list(folded.visible)
    return parting(_view(shown), marks)


def _view(shown: Messages) -> Iterator[tuple[str, Marks]]:
    for each in shown:
        body = thaw(each.body)
        # An answer of the Responses API is the list of its items.
        yield each.id, marks_of(body if isinstance(body, list) else [body])


async def closest(store: AsyncStore, client: str, marks: Marks) -> AsyncSession | None:
    """The session of this agent that has most of a list, of those that were spoken in last; None if none
    has an answer of it.
    """
    if not has_answer(marks):
        return None
    found, most = None, (0, False)
    page = await store.sessions(limit=LISTED)
    keys = [(info.key or "", info.id) for info in page]
    ids = [id for key, id in keys if is_of_agent(key, client)]
    for id in ids[:LOOKED_AT]:
        session = await store.get(id)
        parts = await parting_from(session, marks)
        # If several have it: one that goes no further.
        if parts is not None and (parts.marks, parts.at is None) > most:
            found, most = session, (parts.marks, parts.at is None)
    return found


def is_of_agent(key: str, client: str) -> bool:
    """Whether a key is one that an agent has given a conversation, and none beside it."""
    return key.startswith(f"{client}:") and "/" not in key
