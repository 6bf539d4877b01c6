"""The gateway of this process, the inboxes of what it serves, and what the running code is about."""

import asyncio
import contextvars
import logging
import weakref
from typing import Any

from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.inbox import GatewayInbox
from holdfast.adapters.hermes.received.queues import queued_ids
from holdfast.adapters.hermes.serving import serving_at
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.hermes")

current: contextvars.ContextVar[tuple[Received, ...]] = contextvars.ContextVar(
    "holdfast_received", default=()
)
"""What the code that runs now is about. The gateway copies it into the agent's thread."""

_runners: "weakref.WeakSet[Any]" = weakref.WeakSet()


class _Hermes:
    """The module of the platforms' base, once it is loaded: events are made of its classes."""

    base: Any = None


def set_platform_base(module: Any) -> None:
    """This is `gateway.platforms.base`."""
    _Hermes.base = module


def platform_base() -> Any:
    """`gateway.platforms.base`."""
    return _Hermes.base


def set_gateway(runner: Any) -> None:
    """This is the gateway of the process; there is one."""
    # One that was made anew takes the place of the one before.
    _runners.clear()
    _runners.add(runner)


def gateway() -> Any:
    """The gateway of the process; None where there is none."""
    return next(iter(_runners), None)


def inbox_for(source: Any) -> GatewayInbox | None:
    """The inbox of the profile that a message from here is for; None where there is no gateway, or
    it has no database, or its store can't be opened.
    """
    try:
        return open_inbox(source)
    except (HoldfastError, OSError) as error:
        log.error("what comes in is not stored: %s", error)
        return None


def open_inbox(source: Any) -> GatewayInbox | None:
    """`inbox_for`, but a store that can't be opened raises."""
    runner = gateway()
    db = getattr(getattr(runner, "_session_db", None), "_db", None)
    if db is None or db.read_only:
        return None
    path = db.db_path
    if getattr(runner.config, "multiplex_profiles", False) and source is not None:
        path = runner._resolve_profile_home_for_source(source) / "state.db"
    return serving_at(path).inbox


def inboxes() -> list[GatewayInbox]:
    """The inbox of the gateway, and those of the profiles that it serves besides."""
    found = [inbox_for(None)]
    profiles = getattr(gateway(), "_profile_adapters", None)
    if profiles:
        # Not at the top: this module is loaded while Hermes itself is being imported.
        from hermes_cli.profiles import (  # type: ignore[import-not-found]
            get_profile_dir,
        )

        for name in profiles:
            path = get_profile_dir(name) / "state.db"
            found.append(serving_at(path).inbox)
    there = []
    for inbox in found:
        if inbox is not None:
            there.append(inbox)
    return there


async def settle_unqueued(
    some: list[Received], *, adapter: Any, runner: Any, inbox: GatewayInbox
) -> None:
    """Hermes is done with these. What no turn has and no queue holds it has dealt with otherwise: it
    refused the sender, took it for an answer to a question of its own, or a plug-in has it.
    """
    queued = queued_ids(adapter, runner, inbox)
    done = []
    for each in inbox.book.open_of(some):
        is_kept = each.is_held or each.is_wanted or each.was_queued
        if each.id not in queued and not is_kept:
            done.append(each)
    if done:
        await asyncio.to_thread(inbox.settle, done)
