"""Taking over what another session service of the kit has."""

from functools import partial
from typing import Any

from holdfast.adapters.adk.events import spoken_of
from holdfast.adapters.adk.places import AdkPlace
from holdfast.adapters.adk.service import HoldfastSessionService
from holdfast.adapters.adk.sessions import AdkSessions, changes_of
from holdfast.adapters.framework import Named, append_once
from holdfast.domain.message import thaw
from holdfast.engine.protocol import Commit
from holdfast.formats.frameworks.adk import NAME
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session


async def take_over(
    service: HoldfastSessionService, old: Any, *, app_name: str
) -> list[str]:
    """Brings all sessions of an app from another service, each in one commit, with their events and
    the states as they stand; their ids. Done again, it brings what is new.
    """
    listed = await old.list_sessions(app_name=app_name)
    taken = []
    for each in listed.sessions:
        theirs = await old.get_session(
            app_name=app_name, user_id=each.user_id, session_id=each.id
        )
        if theirs is not None:
            await arun(_taken(service._sessions, theirs))
            taken.append(theirs.id)
    return taken


def _taken(sessions: AdkSessions, theirs: Any) -> Plan[None]:
    place = AdkPlace.of(theirs.app_name, theirs.user_id, theirs.id)
    if (yield from sessions.load(place)) is None:
        yield from sessions.create(place, {})
    log = yield from read(partial(sessions.current_log, place))
    named = []
    for event in theirs.events:
        named.append(Named(thaw(spoken_of(event).body), event.id))
    while True:
        also = yield from read(partial(_changes, sessions, place, theirs.state))
        if (yield from append_once(Session(log), named, format=NAME, also=also)):
            return
        sessions.forget_states(place)


def _changes(sessions: AdkSessions, place: AdkPlace, state: Any) -> Commit:
    """What makes the states here as they are there."""
    known = sessions.merged(place)
    new = {}
    for name, value in state.items():
        if name not in known or known[name] != value:
            new[name] = value
    return tuple(sessions.states.writes(changes_of(place, new)))
