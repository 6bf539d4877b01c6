"""Events that were accepted: whatever the source knows of the sessions that were copied, the target
knows too (I-2).

Entries bring their events along, but an erased session's entries don't tell them any more, and an
id that JSON can't hold is not what it was. So at the end both stores are asked for all they know,
in the same order, page by page.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.engine.protocol import Engine, Laid, SessionState, Write
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.transfer.compare_logs import paged

PAGE = 1000


def bring_events(
    here: Engine, there: Engine, is_copied: Callable[[SessionState], bool]
) -> None:
    """Stores the events that the target lacks, of sessions that are copied as far as that."""
    for page in paged(_lacking(here, there), PAGE):
        of_session: dict[str, list[AcceptedEvent]] = {}
        for event in page:
            of_session.setdefault(event.session, []).append(event)
        for session, events in of_session.items():
            state = there.state(session)
            if state is None or not is_copied(state):
                continue
            # A store says of its own sessions alone what was accepted in them: not of somebody
            # else's with that id.
            if owned(here, state.tenant, session) is None:
                continue
            _add_events(
                there, state, [event for event in events if _is_there(there, event)]
            )


def _lacking(here: Engine, there: Engine) -> Iterator[AcceptedEvent]:
    """Both stores give their events in the order of their names, so one pass finds them."""
    known = _all(there)
    last = next(known, None)
    for event in _all(here):
        while last is not None and last.name < event.name:
            last = next(known, None)
        if last is None or last.name != event.name:
            yield event


def _all(engine: Engine) -> Iterator[AcceptedEvent]:
    after = b""
    while page := engine.events(after=after, limit=PAGE):
        yield from page
        after = page[-1].name


def _is_there(there: Engine, event: AcceptedEvent) -> bool:
    """Whether the entry that it became is."""
    found = there.entries(event.session, after=event.seq - 1, limit=1)
    return [entry.id for entry in found] == [event.message]


def _add_events(
    there: Engine, state: SessionState, events: list[AcceptedEvent]
) -> None:
    """If the session has news meanwhile, it is in use there: then it is no copy any more, and is
    left.
    """
    if not events:
        return
    # Inbox and outbox are stored as a whole, so they are given back as they are.
    inbox = [replace(waiting, waiter=None) for waiting in there.inbox(state.id)]
    laid = Laid(
        state.fence,
        state.active_at,
        state.base,
        state.ended,
        state.erased,
        tuple(inbox),
        tuple(there.debts(state.id)),
        tuple(events),
    )
    write = Write(state.id, head=state.head, idle=True, ended_too=True, lay=laid)
    there.submit((write,)).result()
