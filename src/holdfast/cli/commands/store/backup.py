"""`holdfast store backup`: a copy of a store that is in use."""

from typing import Any

from holdfast.cli.codes import DONE, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import insist_on_store_itself, opened
from holdfast.errors import StoreUnavailable
from holdfast.exporters import units


def options(parser: Parser) -> None:
    parser.add_value("to", "TO", "the file to create; it must not exist yet")
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Copy a store while it is in use, and verify the copy.

    The copy is a store of its own, as of one moment.

    With --json, one object with the fields of `Store.backup()`.
    """
    insist_on_store_itself(options.store)
    with opened(options) as store:
        try:
            backup = store.backup(options.to)
        except StoreUnavailable as error:
            # As for every file that a command is to write: nothing is wrong but the name.
            if isinstance(error.__cause__, FileExistsError):
                raise Stop(USAGE, str(error)) from error
            raise
    if out.is_json:
        out.json(backup)
    else:
        out.line(backup.path)
        sessions = units.many(backup.sessions, "session")
        entries = units.many(backup.entries, "entry", "entries")
        size = units.size(backup.bytes)
        out.say((f"Verified: {sessions}, {entries}, {size}.", "quiet"))
    return DONE
