"""Appending to a session outside a turn: messages, labels, the system prompt.

Each is one commit of new entries; a session that has ended takes none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Draft, Labelled
from holdfast.domain.message import Spoken, freeze
from holdfast.engine.protocol import Commit, Outcome, Refused, Write
from holdfast.formats import registry
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.live.transcript import find, no_message
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.turns.start_turn import refuse_accepted


def append(
    session: SessionLog,
    message: Any,
    *,
    format: str,
    event_id: Checked,
    also: Commit = (),
) -> Plan[str]:
    """Stores one message and gives its id. An event id that came before raises
    `AlreadyAccepted`. `also` is stored with it, in the same commit or not at all.
    """
    # Frozen here and not in the generator: the caller may change it before the plan runs (I-3).
    facts = {"event": event_id} if event_id else {}
    return _append(session, speak(message, format, **facts), event_id, also)


def _append(
    session: SessionLog, spoken: Spoken, event_id: str | None, also: Commit
) -> Plan[str]:
    draft = session.message(spoken, turn=None)
    event = None if event_id is None else session.event(event_id)
    write = Write(session.id, (draft,), event=event)
    # Not by `wait_for`: its generator is two of the hundred calls that an append makes.
    outcome: Outcome = yield session.engine.submit((write, *also))
    if isinstance(outcome, Refused):
        if outcome.why == "accepted":
            yield from refuse_accepted(session, event_id, outcome.detail)
        # The event is its only guard: any other refusal says that the session has
        # ended.
        raise (yield from read(session.ended))
    if not also:
        session.note_stored(write.drafts, outcome)
    return draft.id.hex()


def append_all(
    session: SessionLog,
    messages: Sequence[Any],
    *,
    format: str,
    event_id: Checked = None,
    also: Commit = (),
) -> Plan[list[str]]:
    """Stores several messages in one commit, all or none, and gives their ids. An event id is that
    of the first of them; one that came before raises `AlreadyAccepted`.
    """
    # Frozen before the plan runs, as in `append`; and all of them before any is stored,
    # so one that is no message keeps the others out.
    facts: dict[str, Any] = {}
    if event_id:
        facts = {"event": event_id, "batch": len(messages) if len(messages) > 1 else 0}
    spoken: list[Spoken] = []
    for message in messages:
        spoken.append(speak(message, format, **facts))
        facts = {}
    return _append_all(session, spoken, event_id, also)


def _append_all(
    session: SessionLog, spoken: list[Spoken], event_id: str | None, also: Commit
) -> Plan[list[str]]:
    drafts = tuple(session.message(each, turn=None) for each in spoken)
    # Nothing to store costs no commit, and is no error in a session that has ended.
    if drafts:
        yield from _store(session, drafts, also, event_id)
    return [draft.id.hex() for draft in drafts]


def instructions(session: SessionLog, text: str | None) -> Plan[str | None]:
    """The system prompt; a text is its new version."""
    if text is not None:
        yield from _store(session, (session.draft("instructions", body=freeze(text)),))
        return text
    log = yield from read(session.log)
    return log.instructions


def label(
    session: SessionLog, message_id: Checked, labels: dict[str, Any]
) -> Plan[None]:
    """Puts labels on a message of the session."""
    labels = registry.plain(labels)
    freeze(labels)  # refuses what is not JSON before anything is read
    known = yield from read(partial(find, session, message_id))
    if known is None:
        raise no_message(message_id)
    note = Labelled(message_id, labels, known.seq)
    yield from _store(session, (session.draft("label", note),))


def _store(
    session: SessionLog,
    drafts: tuple[Draft, ...],
    also: Commit = (),
    event_id: str | None = None,
) -> Plan[None]:
    write = Write(session.id, drafts=drafts, event=session.event(event_id))
    outcome = yield from wait_for(session.engine.submit((write, *also)))
    if isinstance(outcome, Refused):
        if outcome.why == "accepted":
            yield from refuse_accepted(session, event_id, outcome.detail)
        raise (yield from read(session.ended))
