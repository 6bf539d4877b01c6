"""`holdfast sessions fork`: a new session that shares the past of another."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, message_of, opened, session_of


def options(parser: Parser) -> None:
    parser.add_session()
    parser.add_argument(
        "--at",
        metavar="MESSAGE",
        help="up to this message: its number or id (default: all of it)",
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        help="bind the new session to this key, which must be free",
    )
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Start a new session that shares the past of one, without a copy of it.

    Nothing happens to the session that is forked. The id of the new one is printed.

    With --json, one object: `id`, `key`, `epoch` and `tenant` of the new session, and `parent` and `at`.
    """
    with opened(options) as store:
        parent = session_of(store, options.session)
        at = message_of(parent, options.at) if options.at is not None else None
        made = parent.fork(at=at.id if at is not None else None, key=options.key)
    if out.is_json:
        told = {
            "id": made.id,
            "key": made.key,
            "epoch": made.epoch,
            "tenant": made.tenant,
        }
        out.json({**told, "parent": parent.id, "at": at.id if at is not None else None})
        return DONE
    out.line(made.id)
    upto = f"up to message {at.seq}" if at is not None else "as far as it has come"
    out.say((f"It shares the past of {parent.id[:SHORT]}, {upto}.", "quiet"))
    return DONE
