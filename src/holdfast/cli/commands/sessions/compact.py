"""`holdfast sessions compact`: a summary in the place of older turns."""

import sys
from contextlib import suppress
from typing import Any

from holdfast import Message, Session
from holdfast.cli.codes import DONE, USAGE, Stop
from holdfast.cli.confirm import again, agreed, not_done
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, whole_number
from holdfast.cli.targets import SHORT, opened_session
from holdfast.errors import SessionBusy
from holdfast.exporters import units


def options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} SESSION --summary TEXT | --summary-file PATH"
    parser.add_session()
    summary = parser.add_mutually_exclusive_group(required=True)
    summary.add_argument("--summary", metavar="TEXT", help="the summary")
    summary.add_argument(
        "--summary-file", metavar="PATH", help="a file with the summary; - is stdin"
    )
    kept = "leave the last N turns as they are (default: 4)"
    parser.add_value("--keep-turns", "N", kept, type=whole_number, default=4)
    parser.add_yes()
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Put a summary in the place of older turns, in the model's view.

    All but the last turns are covered; a call is never parted from its outcome. The transcript keeps everything,
    and rewinding brings it back. A session in which a turn is running is refused.

    With --json, one object: `done`, `session_id`, `covered` (the ids of the messages that the summary stands
    for) and, once it is done, `seq`, the number of its entry.
    """
    summary = options.summary
    if summary is None:
        summary = _read(options.summary_file)
    # `Session.compact` refuses it as well, but only after a plan was shown and agreed
    # to.
    if not summary.strip():
        raise Stop(
            USAGE,
            "The summary says nothing; the model would forget all that it covers.",
        )
    with opened_session(options) as session:
        covered = _covered(session, options.keep_turns)
        facts: dict[str, Any] = {"session_id": session.id, "covered": covered}
        if not covered:
            out.say(
                "There is nothing to cover: the last turns are kept, and there are no others."
            )
            return not_done(out, facts, DONE)
        plan = [
            f"The summary will stand for {units.many(len(covered), 'message')} of session "
            f"{session.id[:SHORT]}."
        ]
        if not agreed(options, out, plan, line=_line(options, session.id)):
            return not_done(out, facts)
        done = session.compact(summary, keep_turns=options.keep_turns)
    # None when somebody else has covered it while the plan was being read.
    if done is not None:
        facts |= {"covered": done.covered, "seq": done.seq}
    out.report({"done": True, **facts}, "Done.")
    return DONE


class _Enough(Exception):
    """What a compaction would cover is known; it is not to be made."""


def _covered(session: Session, keep_turns: int) -> list[str]:
    """The messages that a compaction would cover. A summariser that raises changes nothing, so one
    is asked.
    """
    # Said before a plan is shown: a plan that can't be carried out would only be in the way.
    running = session.info().running
    if running is not None:
        raise SessionBusy(session_id=session.id, turn_id=running)
    found: list[str] = []

    def look(messages: list[Message]) -> str:
        found.extend(message.id for message in messages)
        raise _Enough

    # The very code that would compact is asked, so the plan says what the deed would
    # do.
    with suppress(_Enough):
        session.compact(look, keep_turns=keep_turns)
    return found


def _read(path: str) -> str:
    if path == "-":
        if sys.stdin is None:
            raise Stop(USAGE, "The summary can't be read from stdin: it is closed.")
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise Stop(
            USAGE, f"The summary can't be read from `{path}`: {problem}."
        ) from error


def _line(options: Any, session_id: str) -> list[str]:
    line = again(options, "sessions", "compact", session_id)
    if options.summary is None:
        line += ["--summary-file", options.summary_file]
    else:
        line += ["--summary", options.summary]
    return [*line, "--keep-turns", str(options.keep_turns)]
