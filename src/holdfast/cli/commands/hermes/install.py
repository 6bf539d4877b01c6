"""`holdfast hermes install`: Holdfast under Hermes, until it is taken away."""

from typing import Any

from holdfast.adapters.hermes.switch import environment_of, switch_on
from holdfast.cli.codes import DONE, OPERATOR, Stop
from holdfast.cli.commands.hermes import add_environment, brought_over, usable
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser


def options(parser: Parser) -> None:
    add_environment(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Put Holdfast under Hermes.

    Two files go into the environment of Hermes: an import hook, and a `.pth` file that loads it when a Python starts
    there. Every program of Hermes uses Holdfast from its next start on; those that run go on without it until then.
    What Hermes has stored so far is brought over first. Only the release that this Holdfast knows is patched: another
    one is left alone, and says so on stderr. `holdfast hermes uninstall` takes the files away.

    With --json, one object: `python`, `folder`, `hermes`, `holdfast`, `is_on`, and `brought` with `sessions` and
    `messages`.
    """
    environment = usable(options)
    brought = brought_over(options, out)
    switch_on(environment)
    # Asked again, of a Python that starts now.
    environment = environment_of(python=environment.python)
    if not environment.is_on:
        raise Stop(
            OPERATOR,
            f"The files are in {environment.folder}, but {environment.python} does not load them.",
        )
    facts = {**environment._asdict(), "brought": brought}
    sentence = (
        f"Hermes Agent {environment.hermes} runs on Holdfast from its next start on."
    )
    out.report(facts, sentence)
    return DONE
