"""Following a session: its log and then what happens, waited for.

A turn whose owner is gone is settled here as for all who read: whoever waits for its end would wait
for ever if nobody else looked at the session.
"""

from collections.abc import Iterator

from holdfast.runtime.live.follow import Event, Follower
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Listen, News, Plan, read, run
from holdfast.runtime.turns.recovery import settle_to_read

SETTLE_S = 1.0
"""How often it is looked whether the owner of a running turn is gone."""


def following(session: SessionLog, after: str | None) -> Plan[Follower]:
    """A follower from this cursor on; `CursorExpired` when it can't be served."""
    return (yield from read(lambda: Follower(session, after)))


def next_events(
    session: SessionLog, follower: Follower, news: News
) -> Plan[list[Event]]:
    """The next events, waited for; nothing once the session is over and all of it was told."""
    # Whoever was told all there was to see need not look before it has waited.
    is_due = not follower.is_told
    while True:
        # Before the reading: what comes in while it reads ends the listening at once.
        rows = news.clear()
        events: list[Event] = []
        if rows and not follower.behind:
            events = follower.hear(rows)
        elif is_due or follower.behind or rows is None:
            events = yield from read(follower.step)
        if events or follower.over:
            return events
        wait_s = session.engine.look_s
        if follower.is_running:
            wait_s = min(wait_s, SETTLE_S)
            if session.world.tick() >= follower.settle_at:
                follower.settle_at = session.world.tick() + SETTLE_S
                yield from settle_to_read(session)
        yield Listen(news, wait_s)
        is_due = True


def follow(session: SessionLog, after: str | None) -> Iterator[Event]:
    """Drives a follower on the calling thread. A cursor that can't be served is told at once, not
    at the first event.
    """
    follower = run(following(session, after))
    return _events(session, follower)


def _events(session: SessionLog, follower: Follower) -> Iterator[Event]:
    with News(session.engine, session.id) as news:
        while events := run(next_events(session, follower, news)):
            yield from events
