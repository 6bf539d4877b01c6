"""How the sessions of a Hermes store follow from one another, and which of them a chat is
in now.
"""

from collections.abc import Iterable, Iterator, Mapping

from holdfast.importers.foreign_session import Lineage
from holdfast.importers.hermes.records import HermesSession, Route
from holdfast.importers.reader import parents_first


def kinship(
    session: HermesSession, sessions: Mapping[str, HermesSession]
) -> tuple[str | None, Lineage | None]:
    """The parent of a session, if it is in the store, with how it follows from it."""
    # What a session notes of itself is more than what its parent's end tells.
    if session.branched_from in sessions and session.branched_from != session.id:
        return session.branched_from, "branch"
    parent = sessions.get(session.parent or "")
    if parent is None or parent.id == session.id:
        return None, None
    if session.branched_from is not None:
        return parent.id, "branch"
    if session.delegate_from is not None or session.source == "tool":
        return parent.id, "delegate"
    lineages: dict[str | None, Lineage] = {
        "compression": "continues",
        "branched": "branch",
    }
    return parent.id, lineages.get(parent.end_reason, "delegate")


def ancestors(
    session: HermesSession, sessions: Mapping[str, HermesSession]
) -> list[HermesSession]:
    """The sessions whose history goes on in this one, oldest first; it comes last itself."""
    found = [session]
    seen = {session.id}
    while True:
        parent, lineage = kinship(found[-1], sessions)
        # A damaged store may have a circle of parents.
        if parent is None or lineage != "continues" or parent in seen:
            return found[::-1]
        seen.add(parent)
        found.append(sessions[parent])


def in_order(sessions: Mapping[str, HermesSession]) -> Iterator[HermesSession]:
    """All sessions, parents before what follows from them, else as they began."""
    by_start = sorted(
        sessions.values(), key=lambda session: (session.started_at, session.id)
    )
    ids = [session.id for session in by_start]
    for id in parents_first(ids, lambda id: kinship(sessions[id], sessions)[0]):
        yield sessions[id]


def current(
    routes: Iterable[Route], sessions: Mapping[str, HermesSession]
) -> dict[str, str]:
    """The session that each key means now: the route's; without a route, the newest that has not
    ended.
    """
    found: dict[str, str] = {}
    for session in sorted(
        sessions.values(), key=lambda session: (session.started_at, session.id)
    ):
        if session.key and session.ended_at is None:
            found[session.key] = session.id
    return found | {
        route.key: route.session for route in routes if route.session is not None
    }
