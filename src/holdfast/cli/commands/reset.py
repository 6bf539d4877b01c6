"""`holdfast reset`: a key's current session ends, and a new one begins."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.confirm import again, agreed, not_done
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import KEY, SHORT, opened, session_of
from holdfast.exporters import units


def options(parser: Parser) -> None:
    parser.add_value("key", "KEY", "the key, as the program knows it")
    reason = "noted in the log (default: command)"
    parser.add_value("--reason", "TEXT", reason, default="command")
    parser.add_yes()
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """End a key's current session and begin a new one.

    The next turn of this key starts from nothing. The old session stays and can be read; a turn that is running in
    it is interrupted; what waits in its inbox goes on to the new one.

    With --json, one object: `done`, `key`, `ended` (the id of the old session) and, once it is done, `id` and
    `epoch` of the new one.
    """
    with opened(options) as store:
        # As a key, whatever ids begin like it; and one that has no session is told, not
        # made.
        old = session_of(store, KEY + options.key)
        info = old.info()
        facts: dict[str, Any] = {"key": options.key, "ended": old.id}
        plan = [
            f"Session {old.id[:SHORT]} of `{options.key}` (epoch {old.epoch}, "
            f"{units.many(info.messages, 'message')}, {info.state}) will end, and a new one begin."
        ]
        if info.running is not None:
            plan.append("The turn that is running in it will be interrupted.")
        line = again(options, "reset", options.key, "--reason", options.reason)
        if not agreed(options, out, plan, line=line):
            return not_done(out, facts)
        # By the key, not the session of the plan: if another reset came first, the one
        # that is current now ends.
        new = store.reset(options.key, reason=options.reason)
    if out.is_json:
        out.json({"done": True, **facts, "id": new.id, "epoch": new.epoch})
    else:
        out.line(new.id)
    return DONE
