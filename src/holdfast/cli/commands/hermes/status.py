"""`holdfast hermes status`: whether Hermes runs on Holdfast, and what waits."""

from typing import Any

import holdfast
from holdfast.adapters.hermes.received.given_up import KEY, count_of
from holdfast.adapters.hermes.serving import FILE
from holdfast.adapters.hermes.switch import is_current
from holdfast.cli.codes import DONE, WRONG
from holdfast.cli.commands.hermes import add_environment, found, home
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.exporters import units


def options(parser: Parser) -> None:
    add_environment(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Show whether Hermes runs on Holdfast.

    The exit code is 1 when it is switched on and can't work: another release of Hermes, or no Holdfast beside it.

    With --json, one object: `python`, `folder`, `hermes`, `holdfast`, `is_on`, `is_current` (the hook is that of this
    Holdfast), `problem`, `store`, `waiting`: how many messages wait for a turn, and `given_up`: how many were handed in
    as often as they may be, and came to nothing.
    """
    environment = found(options)
    path = home(options) / FILE
    waiting, given_up = _counted(path) if path.exists() else (0, 0)
    facts = {
        **environment._asdict(),
        "is_current": is_current(environment),
        "problem": environment.problem,
        "store": str(path),
        "waiting": waiting,
        "given_up": given_up,
    }
    if out.is_json:
        out.json(facts)
    else:
        state = "on" if environment.is_on else "off"
        out.line((state, "strong"), f"  Hermes Agent {environment.hermes}")
        out.line(f"{environment.python}, Holdfast {environment.holdfast}")
        out.line(f"{path}, {units.many(waiting, 'message')} waiting")
        if given_up:
            out.line(
                f"{units.many(given_up, 'message')} given up: "
                f"`holdfast sessions show {KEY} --store {path}`"
            )
        if environment.is_on and not facts["is_current"]:
            out.line(
                "The hook is that of another Holdfast: `holdfast hermes install` renews it."
            )
        if environment.problem is not None:
            out.line(environment.problem)
    return WRONG if environment.is_on and environment.problem else DONE


def _counted(path: Any) -> tuple[int, int]:
    """How many messages wait in this store, and how many were given up."""
    count, after = 0, None
    with holdfast.open(path, read_only=True) as store:
        while True:
            page = store.pending(after=after, limit=1000)
            count += len(page)
            after = page.next
            if after is None:
                return count, count_of(store)
