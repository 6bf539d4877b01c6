"""`holdfast sessions list`: sessions, newest activity first, a page at a time."""

import shlex
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.confirm import again
from holdfast.cli.output import Output, Piece
from holdfast.cli.parser import Parser, count
from holdfast.cli.render.table import Column, table
from holdfast.cli.targets import SHORT, opened
from holdfast.exporters import units

STATES = ("open", "running", "ended")
STYLES = {"running": "tool", "ended": "quiet", "open": "good"}


def options(parser: Parser) -> None:
    parser.add_argument(
        "--key", metavar="KEY", help="only the sessions of this key, all epochs"
    )
    state = "only sessions in this state: open, running or ended"
    parser.add_argument("--state", metavar="STATE", choices=STATES, help=state)
    parser.add_argument(
        "--text", metavar="TEXT", help="only sessions in which this was said"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=50,
        help="sessions per page (default: 50)",
    )
    parser.add_argument(
        "--after",
        metavar="CURSOR",
        help="continue after an earlier page; the cursor is its `next`",
    )
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """List sessions, newest activity first.

    The command that shows the next page is printed on stderr.

    With --json, one object: `sessions`, a list with the fields of `Store.sessions()`, and `next`, the cursor for
    --after, or null.
    """
    with opened(options) as store:
        page = store.sessions(
            key=options.key,
            state=options.state,
            text=options.text,
            after=options.after,
            limit=options.limit,
        )
    if out.is_json:
        out.json({"sessions": list(page), "next": page.next})
        return DONE
    columns = [
        Column("ID"),
        Column("KEY", shrinks=2),
        Column("EPOCH", right=True, leaves=1),
        Column("STATE", leaves=3),
        Column("ENTRIES", right=True, leaves=2),
        Column("ACTIVE", leaves=4),
        Column("TITLE", shrinks=1),
    ]
    rows: list[list[Piece]] = [
        [
            (each.id[:SHORT], "strong"),
            each.key or "",
            str(each.epoch),
            (each.state, STYLES[each.state]),
            f"{each.head:,}",
            (units.moment(each.active_at)[:-3], "quiet"),
            each.title,
        ]
        for each in page
    ]
    for line in table(columns, rows, width=out.width):
        out.line(*line)
    if not rows:
        out.say(_nothing(options))
    if page.next is not None:
        out.say("More: ", (shlex.join(_line(options, page.next)), "strong"))
    return DONE


def _nothing(options: Any) -> str:
    if options.after is not None:
        return "No more sessions."
    return (
        "No matches."
        if options.key or options.state or options.text
        else "No sessions yet."
    )


def _line(options: Any, cursor: str) -> list[str]:
    line = again(options, "sessions", "list")
    for name in ("key", "state", "text"):
        if getattr(options, name) is not None:
            line.append(f"--{name}={getattr(options, name)}")
    if options.limit != 50:
        line.append(f"--limit={options.limit}")
    return [*line, f"--after={cursor}"]
