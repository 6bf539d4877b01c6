"""`holdfast demo`: an agent is killed in the middle of a sentence, and nothing that was shown is
lost.
"""

import os
import sys
import tempfile
from typing import Any

from holdfast import __version__
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser

SCHEMA = "holdfast.demo/1"
# Seconds between two chunks: slow enough to be watched, fast where nobody watches.
PACE_S = 0.03
PACE_OF_MACHINES_S = 0.004


def options(parser: Parser) -> None:
    kept = (
        "keep the store in this file, to look into it afterwards; without it, the store is "
        "removed in the end"
    )
    parser.add_argument("--store", metavar="PATH", help=kept)
    parser.add_switch("--json", "print one JSON object instead of the show")


def run(options: Any, out: Output) -> int:
    """Kill an agent in the middle of a sentence; see what is kept.

    A scripted model streams an answer inside a child process, which is killed with SIGKILL halfway. The store is
    opened again, and three columns show what the user had seen, what is stored, and what the model will be sent
    next. Then a second turn carries on. It takes a few seconds and no network.

    The exit code is 0 when every promise was kept and 1 when one was not.
    """
    if options.store is not None:
        return _demo(os.path.abspath(options.store), json=out.is_json, kept=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        return _demo(os.path.join(folder, "demo.db"), json=out.is_json, kept=False)


def _demo(where: str, *, json: bool, kept: bool) -> int:
    from holdfast.cli.demo import scenario

    if json:
        facts = scenario.play(where, scenario.Audience(), pace_s=PACE_OF_MACHINES_S)
        checks = scenario.check(facts)
        _print_json(facts, checks, where if kept else None)
    else:
        # Only here: it needs `rich`, which is an extra, and --json does without.
        from holdfast.cli.demo.screen import Screen

        screen = Screen(where if kept else None)
        pace_s = PACE_S if screen.is_live else PACE_OF_MACHINES_S
        facts = scenario.play(where, screen, pace_s=pace_s)
        checks = scenario.check(facts)
        screen.judged(checks)
    return 0 if all(checks.values()) else 1


def _print_json(facts: object, checks: dict[str, bool], store: str | None) -> None:
    import msgspec

    answer = {
        "schema": SCHEMA,
        "version": __version__,
        "store": store,
        **msgspec.to_builtins(facts),
        "checks": checks,
        "held": all(checks.values()),
    }
    pretty = msgspec.json.format(msgspec.json.encode(answer), indent=2)
    sys.stdout.write(pretty.decode() + "\n")
