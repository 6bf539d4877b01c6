"""`holdfast sessions search`: messages by their words, over all sessions."""

import argparse
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output, Piece, split
from holdfast.cli.parser import Parser, count
from holdfast.cli.targets import SHORT, opened, session_of
from holdfast.exporters import units
from holdfast.exporters.safe_text import cells, harmless
from holdfast.runtime.clock import RealWorld

ROLES = ("system", "user", "assistant", "tool")
STATES = ("open", "running", "ended")
AGO_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def options(parser: Parser) -> None:
    parser.add_value("text", "TEXT", "the words to find")
    limit = "at most N messages (default: 20)"
    parser.add_value("--limit", "N", limit, type=count, default=20)
    role = "only what this role said: user, assistant, tool or system"
    parser.add_value("--role", "ROLE", role, choices=ROLES)
    parser.add_value("--tool", "NAME", "only calls of this tool and their outcomes")
    state = "only in sessions in this state: open, running or ended"
    parser.add_value("--state", "STATE", state, choices=STATES)
    parser.add_value("--key", "KEY", "only in sessions of this key")
    session = "only in this session; named as for `sessions show`"
    parser.add_value("--session", "SESSION", session)
    since = "a date, a date and time, or how long ago: 30m, 12h, 7d, 2w"
    parser.add_value("--since", "TIME", since, type=moment)
    until = "the latest time; written like --since"
    parser.add_value("--until", "TIME", until, type=moment)
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Find messages by their words, in all sessions.

    Any script; the newest first. Each match is shown with its session, its number there, its time and its role.

    With --json, one object: `hits`, a list with the fields of `Store.search()`; `marks` are the places of the
    match in `snippet`.
    """
    with opened(options) as store:
        session = None
        if options.session is not None:
            session = session_of(store, options.session).id
        hits = store.search(
            options.text,
            limit=options.limit,
            role=options.role,
            tool=options.tool,
            state=options.state,
            key=options.key,
            session=session,
            since=options.since,
            until=options.until,
        )
    if out.is_json:
        out.json({"hits": hits})
        return DONE
    for hit in hits:
        about = f"  {hit.key or ''}  {hit.seq} {hit.role}  {units.moment(hit.at)}"
        out.line((hit.session_id[:SHORT], "strong"), (about, "quiet"))
        for line in _lines(_marked(hit), out.width):
            out.line("    ", *line)
    if not hits:
        out.say("No matches.")
    return DONE


def _marked(hit: Any) -> list[Piece]:
    """The snippet on one line, what was looked for in colour."""
    pieces: list[Piece] = []
    at = 0
    for start, end in hit.marks:
        pieces += [_flat(hit.snippet[at:start]), (_flat(hit.snippet[start:end]), "hit")]
        at = end
    return [*pieces, _flat(hit.snippet[at:])]


def _flat(text: str) -> str:
    # Piece by piece, after the marks were applied: they count the characters of the
    # snippet as it was stored.
    return re.sub(r"\s+", " ", harmless(text))


def _lines(pieces: list[Piece], width: int | None) -> Iterator[list[Piece]]:
    """The pieces, broken between words where they would be wider than the screen."""
    line: list[Piece] = []
    taken = 0
    for piece in pieces:
        text, style = split(piece)
        for word in re.findall(r"\S+|\s+", text):
            # 4 columns are the margin. A word that is wider than the screen stands
            # alone.
            if width is not None and taken + cells(word) > width - 4 and taken:
                yield line
                line = []
                taken = 0
            if line or not word.isspace():
                line.append((word, style))
                taken += cells(word)
    yield line


def moment(text: str) -> int:
    """A time as somebody writes it, in milliseconds since 1970."""
    ago = re.fullmatch(r"(\d+)([mhdw])", text)
    if ago is not None:
        return RealWorld().now() - int(ago[1]) * AGO_MS[ago[2]]
    try:
        # A time without a zone is that of the clock on the wall here, as times are
        # shown; the library takes none without.
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        problem = (
            f"`{text}` is not a time; write 2026-01-31, 2026-01-31T18:00, or how long ago: "
            "30m, 12h, 7d, 2w"
        )
        raise argparse.ArgumentTypeError(problem) from None
