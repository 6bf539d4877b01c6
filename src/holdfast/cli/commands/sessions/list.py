"""`holdfast sessions list`: sessions, newest activity first, a page at a time."""

import shlex
from typing import Any

from holdfast import Listed
from holdfast.cli.codes import DONE
from holdfast.cli.confirm import again
from holdfast.cli.output import Output, Piece
from holdfast.cli.parser import Parser, count
from holdfast.cli.render.table import Column, table
from holdfast.cli.targets import SHORT, opened
from holdfast.exporters import units

PAGE = 50
STATES = ("open", "running", "ended")
STYLES = {"running": "tool", "ended": "quiet", "open": "good"}
COLUMNS = (
    Column("ID"),
    Column("KEY", shrinks=2),
    Column("EPOCH", right=True, leaves=1),
    Column("STATE", leaves=3),
    Column("ENTRIES", right=True, leaves=2),
    Column("ACTIVE", leaves=4),
    Column("TITLE", shrinks=1),
)


def options(parser: Parser) -> None:
    parser.add_value("--key", "KEY", "only the sessions of this key, all epochs")
    state = "only sessions in this state: open, running or ended"
    parser.add_value("--state", "STATE", state, choices=STATES)
    parser.add_value("--text", "TEXT", "only sessions in which this was said")
    limit = f"sessions per page (default: {PAGE})"
    parser.add_value("--limit", "N", limit, type=count, default=PAGE)
    after = "continue after an earlier page; the cursor is its `next`"
    parser.add_value("--after", "CURSOR", after)
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
    rows = [_row(each) for each in page]
    out.lines(table(COLUMNS, rows, width=out.width))
    if not rows:
        out.say(_nothing(options))
    if page.next is not None:
        out.say("More: ", (shlex.join(_line(options, page.next)), "strong"))
    return DONE


def _row(session: Listed) -> list[Piece]:
    return [
        (session.id[:SHORT], "strong"),
        session.key or "",
        str(session.epoch),
        (session.state, STYLES[session.state]),
        f"{session.head:,}",
        (units.moment(session.active_at)[:-3], "quiet"),
        session.title,
    ]


def _nothing(options: Any) -> str:
    if options.after is not None:
        return "No more sessions."
    if options.key or options.state or options.text:
        return "No matches."
    return "No sessions yet."


def _line(options: Any, cursor: str) -> list[str]:
    line = again(options, "sessions", "list")
    for name in ("key", "state", "text"):
        wanted = getattr(options, name)
        if wanted is not None:
            # With `=`, as a key may begin with a dash.
            line.append(f"--{name}={wanted}")
    if options.limit != PAGE:
        line.append(f"--limit={options.limit}")
    return [*line, f"--after={cursor}"]
