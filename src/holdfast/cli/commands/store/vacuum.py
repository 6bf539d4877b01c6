"""`holdfast store vacuum`: the room that erased words took is given back."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import insist, insist_on_store_itself
from holdfast.runtime.catalog.maintenance import vacuum


def options(parser: Parser) -> None:
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Rewrite a store, without what was erased and without free room.

    A SQLite file does not get smaller by itself: the room of what was erased is filled with zeros and used for what
    comes next. This gives it back, while others use the store; it needs as much free room as the file takes.

    PostgreSQL keeps what was erased in its files until the room is used again. This locks one table after the other,
    needs as much free room as the largest of them takes, and the rights of their owner. The server's log, its archives
    and backups are not touched.

    With --json, one object: `freed`, in bytes.
    """
    insist_on_store_itself(options.store)
    insist(options.store)
    freed = vacuum(options.store)
    # What is written meanwhile may make the file larger than it was.
    sentence = f"Rewrote the store; {max(freed, 0):,} bytes were freed."
    out.report({"freed": freed}, sentence)
    return DONE
