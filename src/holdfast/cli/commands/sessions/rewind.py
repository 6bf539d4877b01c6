"""`holdfast sessions rewind`: the model's view goes back to a message, or forward again."""

from typing import Any

from holdfast import Session
from holdfast.cli.codes import DONE
from holdfast.cli.confirm import again, agreed, not_done
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, message_of, opened_session
from holdfast.errors import SessionBusy
from holdfast.exporters import units
from holdfast.exporters.messages import outline_of
from holdfast.exporters.safe_text import cut, one_line


def options(parser: Parser) -> None:
    parser.add_session()
    last = "the last message the model is to see: its number or id"
    parser.add_value("message", "MESSAGE", last)
    parser.add_yes()
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Take the model's view back to a message, or forward again.

    From then on the model sees what was said up to this message. The transcript keeps what came after, and
    rewinding to a later message brings it back.

    With --json, one object: `done`, `session_id`, `message_id`, `seq`, and the ids of the messages that go out of
    the model's view (`hidden`) and that come back into it (`restored`).
    """
    with opened_session(options) as session:
        message = message_of(session, options.message)
        hidden, restored = _change(session, message.id)
        facts = {
            "session_id": session.id,
            "message_id": message.id,
            "seq": message.seq,
            "hidden": hidden,
            "restored": restored,
        }
        said = cut(one_line(message.text), 60)
        plan = [
            f"The model's view of session {session.id[:SHORT]} will end with message "
            f"{message.seq} ({message.role}): {said}"
        ]
        if hidden:
            plan.append(
                f"It loses {units.many(len(hidden), 'message')}; the transcript keeps them."
            )
        if restored:
            plan.append(f"{units.many(len(restored), 'message')} will be in it again.")
        # The whole id and the number, not the words that were typed: `@latest` may mean
        # another session by then.
        line = again(options, "sessions", "rewind", session.id, str(message.seq))
        if not agreed(options, out, plan, line=line):
            return not_done(out, facts)
        session.rewind(message.id)
    out.report({"done": True, **facts}, "Done.")
    return DONE


def _change(session: Session, message_id: str) -> tuple[list[str], list[str]]:
    """What goes out of the view and what comes back; what can't be rewound now is refused before a
    plan is made.
    """
    info = session.info()
    outline = outline_of(session)
    if info.state == "ended":
        session.rewind(message_id)  # it refuses, and says where to go on
    if info.running is not None:
        raise SessionBusy(session_id=session.id, turn_id=info.running)
    return outline.rewound(message_id)
