"""`holdfast hermes status`: whether Hermes runs on Holdfast, and what waits."""

from typing import Any

from holdfast.adapters.hermes.received.given_up import KEY
from holdfast.adapters.hermes.serving import FILE
from holdfast.adapters.hermes.switch import is_current
from holdfast.cli.codes import DONE, WRONG
from holdfast.cli.commands.hermes import add_environment, found, home, store_state
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.exporters import units


def options(parser: Parser) -> None:
    add_environment(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Show whether Hermes runs on Holdfast.

    The exit code is 1 when it is switched on and can't work: another release of Hermes, no Holdfast beside it, or a
    store that can't be used.

    With --json, one object: `python`, `folder`, `hermes`, `holdfast`, `is_on`, `is_current` (the hook is that of this
    Holdfast), `problem`, `store`, `waiting`: how many messages wait for a turn, and `given_up`: how many were handed in
    as often as they may be, and came to nothing; both are null where the store can't tell.
    """
    environment = found(options)
    path = home(options) / FILE
    waiting, given_up, damage = store_state(path)
    problem = environment.problem or damage
    facts = {
        **environment._asdict(),
        "is_current": is_current(environment),
        "problem": problem,
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
        waits = "what waits there is not known"
        if waiting is not None:
            waits = f"{units.many(waiting, 'message')} waiting"
        out.line(f"{path}, {waits}")
        if given_up:
            out.line(
                f"{units.many(given_up, 'message')} given up: "
                f"`holdfast sessions show {KEY} --store {path}`"
            )
        if environment.is_on and not facts["is_current"]:
            out.line(
                "The hook is that of another Holdfast: `holdfast hermes install` renews it."
            )
        for each in (environment.problem, damage):
            if each is not None:
                out.line(each)
    return WRONG if environment.is_on and problem else DONE
