"""`holdfast store migrate`: a store of an older release is brought up to date."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import insist, insist_on_store_itself
from holdfast.runtime.catalog.maintenance import migrate


def options(parser: Parser) -> None:
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Bring a store of an older release up to date.

    Opening a store does this too, by itself; this does it at a moment of your choosing, and says so.

    With --json, one object: `before` and `after`, the numbers of the store's format.
    """
    # Not `opened`: opening a store migrates it, and there would be nothing to tell.
    insist_on_store_itself(options.store)
    insist(options.store)
    migrated = migrate(options.store)
    before, after = migrated.before, migrated.after
    sentence = f"Migrated the store from format {before} to {after}."
    if before == after:
        sentence = f"The store is up to date (format {after})."
    out.report({"before": before, "after": after}, sentence)
    return DONE
