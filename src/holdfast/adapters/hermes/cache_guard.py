"""A cached agent is kept to its own session.

The gateway reuses an agent by the key of a chat. After a reset or a switch of the route, an agent that was
not evicted would write to the session that it was made for, and the gateway would then move the route
back to it (#3220).
"""

import functools
import inspect
import logging
from types import ModuleType
from typing import Any

log = logging.getLogger("holdfast.hermes")


def patch_gateway_run(module: ModuleType) -> None:
    """Has an agent of another session evicted before a turn is run."""
    runner: Any = module.GatewayRunner
    run = runner._run_agent
    names = list(inspect.signature(run).parameters)

    @functools.wraps(run)
    async def _run_agent(self: Any, *args: Any, **named: Any) -> Any:
        # Hermes names some of these and not others, depending on who calls.
        given = dict(zip(names[1:], args, strict=False))
        given.update(named)
        key = given.get("session_key")
        cached = _cached_session(self, key)
        if cached is not None and cached != given.get("session_id"):
            log.warning("the cached agent of %s is of session %s: evicted", key, cached)
            self._evict_cached_agent(key)
        return await run(self, *args, **named)

    runner._run_agent = _run_agent


def _cached_session(runner: Any, key: Any) -> str | None:
    """The session that the agent in the cache writes to; None without one."""
    with runner._agent_cache_lock:
        entry = runner._agent_cache.get(key)
    if not isinstance(entry, tuple) or not entry:
        return None
    # While an agent is being made, its place is held by a mark that has no session.
    session: str | None = getattr(entry[0], "session_id", None)
    return session
