"""Brings what queries have shown into the transcript, where Claude Code's own lines of it are missing,
and notes which requests were made.
"""

from contextlib import suppress
from typing import Any

from holdfast.adapters.claude_agent.leftover import left_over
from holdfast.adapters.claude_agent.lines import (
    HIDDEN,
    SHOWN,
    TranscriptPlace,
    Transcripts,
)
from holdfast.adapters.framework import (
    Named,
    append_once,
    is_named,
    names_of,
    sessions_under,
)
from holdfast.errors import AlreadyAccepted, NotFound, SessionBusy, SessionEnded
from holdfast.formats.anthropic.claude_code import NAME
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session


def settle(transcripts: Transcripts, place: TranscriptPlace) -> None:
    """Brings what queries of this session had shown when they were cut off into its transcript."""
    names = place.project, place.session
    for state in list(sessions_under(transcripts.store, SHOWN, *names)):
        settle_one(transcripts, place, state.key or "")


def settle_one(transcripts: Transcripts, place: TranscriptPlace, key: str) -> None:
    """Brings what one query had shown, by the key of its session, unless it still runs."""
    shown = transcripts.find(key)
    if shown is None:
        return
    try:
        # Whoever runs or settles it holds its turn.
        with shown.turn(on_busy="refuse"):
            _bring(transcripts, place, shown)
    except (SessionBusy, SessionEnded):
        return
    with suppress(NotFound):
        transcripts.store.erase(shown.id)


def _bring(transcripts: Transcripts, place: TranscriptPlace, shown: Session) -> None:
    session = transcripts.store.session(place.key)
    names = names_of(shown.key or "")
    stored = transcripts.after(session, int(names[3]))
    said = [message for message in shown.transcript() if message.format == NAME]
    if left_over(said, stored):
        # Only now is all of it read: the lines hang on the last one that there is.
        before = transcripts.after(session, 0)
        lines = left_over(said, stored, place.session, before)
        transcripts.append(place, lines)
    for event_id in names[5:]:
        # Until this is stored, the session of what was shown is there, and says the same.
        note = Named(_request_note(event_id), f"request/{event_id}", HIDDEN)
        run(append_once(session, [note], format="holdfast"))


def _request_note(event_id: str) -> dict[str, Any]:
    words = f"The request {event_id} was made."
    return {"role": "system", "parts": [{"type": "text", "text": words}]}


def refuse_known(session: Session, event_id: str) -> None:
    """Raises `AlreadyAccepted` when a request of this name was made in the session."""
    if is_named(session, f"request/{event_id}"):
        raise AlreadyAccepted(
            event_id=event_id,
            message_id=None,
            session_id=session.id,
            turn_id=None,
            standing="what it has brought is in the transcript",
        )
