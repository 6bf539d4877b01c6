"""`holdfast store vacuum`: what was erased from a store in PostgreSQL leaves its table files."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.opening import insist
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.runtime.upkeep import vacuum


def options(parser: Parser) -> None:
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Have a PostgreSQL server rewrite its tables, without what was erased.

    PostgreSQL keeps what was erased in its files until the room is used again. This locks one table after the other,
    needs as much free room as the largest of them takes, and the rights of their owner. The server's log, its archives
    and backups are not touched.

    With --json, one object: `freed`, in bytes.
    """
    insist(options.store)
    freed = vacuum(options.store)
    if out.is_json:
        out.json({"freed": freed})
    else:
        out.say(f"Rewrote the tables; {max(freed, 0):,} bytes were freed.")
    return DONE
