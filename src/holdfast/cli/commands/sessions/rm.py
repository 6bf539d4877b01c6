"""`holdfast sessions rm`: sessions are erased for good, after a look at what that takes (I-21)."""

import argparse
from collections.abc import Sequence
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.confirm import again, agreed, not_done
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, opened, session_of
from holdfast.exporters import units

SHOWN_MAX = 20


def options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} SESSION | --idle-days N [options]"
    which = parser.add_mutually_exclusive_group(required=True)
    help = "an id, the beginning of one, key:KEY for the current session of a key, or @latest"
    which.add_argument("session", metavar="SESSION", nargs="?", help=help)
    idle = "all sessions without activity for N days"
    which.add_argument("--idle-days", metavar="N", type=days, help=idle)
    parser.add_yes()
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Erase sessions for good.

    All words of a session are taken out of the store: messages, large parts, search index. Its entries stay as
    tombstones, and one of them says when it was erased. Sessions that were forked off lose the past they share
    with it. With --idle-days, sessions that are running are left alone.

    With --json, one object: `done` and `erasures`, a list with the fields of `Store.erase()`.
    """
    with opened(options) as store:
        running = False
        if options.session is not None:
            session = session_of(store, options.session)
            found = [store.erase(session.id, preview=True)]
            running = session.info().running is not None
            # The whole id, not the word that was typed: `@latest` may mean another
            # session by then.
            line = again(options, "sessions", "rm", session.id)
        else:
            found = store.retain(options.idle_days, preview=True)
            line = again(
                options, "sessions", "rm", "--idle-days", f"{options.idle_days:g}"
            )
        if not found:
            out.say("No session has been idle that long.")
            return not_done(out, {"erasures": []}, DONE)
        plan = _plan(found)
        if running:
            plan.append("A turn is running in it, which will be stopped.")
        if not agreed(options, out, plan, line=line):
            return not_done(out, {"erasures": found})
        # Asked again, not taken from the plan: a session may have become active meanwhile.
        if options.session is not None:
            done = [store.erase(session.id)]
        else:
            done = store.retain(options.idle_days, preview=False)
    sentence = f"Erased: {units.many(len(done), 'session')}, {_amount(done)}."
    out.report({"done": True, "erasures": done}, sentence)
    return DONE


def _plan(found: Sequence[Any]) -> list[str]:
    """What would go, session by session, and what forks and earlier sessions would lose."""
    lines = [
        f"{units.many(len(found), 'session')} will be erased for good, {_amount(found)}:"
    ]
    for each in found[:SHOWN_MAX]:
        key = f"{each.key} · " if each.key else ""
        active = f"{key}last active {units.moment(each.active_at)}"
        lines.append(f"  {each.session_id[:SHORT]}  {active} · {_amount([each])}")
    if len(found) > SHOWN_MAX:
        lines.append(f"  and {len(found) - SHOWN_MAX:,} more")
    forks: set[str] = set()
    copies: set[str] = set()
    for each in found:
        forks.update(each.forks)
        copies.update(each.copies)
    erased = {each.session_id for each in found}
    # Not those that are erased themselves: they lose everything.
    lines += _losing(
        forks - erased, "session", "forked off will lose the past they share"
    )
    carried = "will lose messages that a reset carried on"
    lines += _losing(copies - erased, "earlier session", carried)
    return lines


def _losing(ids: set[str], noun: str, what: str) -> list[str]:
    """A line of the plan about sessions that stay, and are no longer whole."""
    if not ids:
        return []
    named = ", ".join(id[:SHORT] for id in sorted(ids)[:SHOWN_MAX])
    return [f"{units.many(len(ids), noun)} {what}: {named}"]


def _amount(found: Sequence[Any]) -> str:
    messages = units.many(sum(each.messages for each in found), "message")
    return f"{messages}, {units.size(sum(each.bytes for each in found))}"


def days(text: str) -> float:
    """A number of days, more than none."""
    # 0 would take every session.
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of days")
    return number
