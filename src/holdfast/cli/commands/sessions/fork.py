"""`holdfast sessions fork`: a new session that shares the past of another."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, message_of, opened_session


def options(parser: Parser) -> None:
    parser.add_session()
    at = "up to this message: its number or id (default: all of it)"
    parser.add_value("--at", "MESSAGE", at)
    key = "bind the new session to this key, which must be free"
    parser.add_value("--key", "KEY", key)
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Start a new session that shares the past of one, without a copy of it.

    Nothing happens to the session that is forked. The id of the new one is printed.

    With --json, one object: `id`, `key`, `epoch` and `tenant` of the new session, and `parent` and `at`.
    """
    at = None
    upto = "as far as it has come"
    with opened_session(options) as parent:
        if options.at is not None:
            message = message_of(parent, options.at)
            at = message.id
            upto = f"up to message {message.seq}"
        made = parent.fork(at=at, key=options.key)
    if out.is_json:
        facts = {"id": made.id, "key": made.key, "epoch": made.epoch}
        out.json({**facts, "tenant": made.tenant, "parent": parent.id, "at": at})
        return DONE
    out.line(made.id)
    out.say((f"It shares the past of {parent.id[:SHORT]}, {upto}.", "quiet"))
    return DONE
