"""Which session of the store is meant by an agent's session id.

A client that reconnects names nothing but the id, so the key is made of what is the same then: the
agent's name and the id. Ids that are UUIDs are unique. goose counts its sessions by the day, and
begins anew in every home: there, where the agent keeps its data is part of the key.
"""

import hashlib
import re
import socket
from collections.abc import Mapping

NAME_MAX = 400
_HOMES = ("HOME", "USERPROFILE", "XDG_DATA_HOME", "GOOSE_PATH_ROOT")
_UUID = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)


def session_key(agent: str, session: str, *, place: str | None) -> str:
    """The key of an agent's session; `place` tells apart agents whose ids are the same."""
    agent, session = _short(agent), _short(session)
    # Nobody else has the same one, so a session that is carried to another home stays one session.
    if place is None or _UUID.fullmatch(session):
        return f"acp:{agent}:{session}"
    return f"acp:{agent}@{place}:{session}"


def _short(name: str) -> str:
    """The name, or what stands for one that can be no part of a key: an agent may call its sessions
    anything, and what it says in them is stored all the same.
    """
    plain = name.encode(errors="backslashreplace")
    if name.isprintable() and 0 < len(plain) <= NAME_MAX:
        return name
    return f"~{hashlib.sha256(plain).hexdigest()[:32]}"


def place_of(environment: Mapping[str, str]) -> str:
    """A short name of this machine and home, the same each time."""
    facts = [socket.gethostname()]
    # An agent that is told to keep its data elsewhere begins its numbers anew there.
    for name in _HOMES:
        facts.append(f"{name}={environment.get(name, '')}")
    return hashlib.sha256("\n".join(facts).encode(errors="replace")).hexdigest()[:8]
