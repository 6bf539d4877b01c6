"""What a commit tells of turns and tools, before it is known whether it is done. Pure.

A store writes through one verb, so all that happens in it passes here: the start of a turn, what it
says, the calls that it runs, their outcomes, and its one end.
"""

from typing import NamedTuple

from holdfast.domain.entry import Draft, TurnEnded, note_of
from holdfast.domain.message import MessageNote
from holdfast.engine.protocol import Commit, Write


class SaidMessage(NamedTuple):
    """A message that is stored, and the number of its turn; 0 in the commit that starts it."""

    turn: int
    note: MessageNote
    body: bytes


class BegunCall(NamedTuple):
    """A tool that is about to be run. Its name is not known where only the log has it."""

    turn: int
    call_id: str
    name: str | None
    body: bytes


class EndedTurn(NamedTuple):
    """A turn's one end. `is_own`: it is written by whoever runs the turn."""

    session: str
    number: int
    ending: TurnEnded
    is_own: bool


class CommitFacts(NamedTuple):
    """What a commit does, if it is done. `turn` is the one that it works in, if any."""

    session: str
    turn: int | None
    kinds: tuple[str, ...]
    starts: bool
    messages: tuple[SaidMessage, ...]
    calls: tuple[BegunCall, ...]
    ends: tuple[EndedTurn, ...]


def facts_of(commit: Commit) -> CommitFacts | None:
    """What this commit tells; None when it puts nothing into a log: a lease that is renewed, a row
    of the journal, a claim.
    """
    kinds: list[str] = []
    ends: list[EndedTurn] = []
    for write in commit:
        kinds += [draft.kind for draft in write.drafts]
        ends += _ends(write)
    if not kinds:
        return None
    # The last one is of the session that the commit is about; those before it move what it needs.
    main = commit[-1]
    said: tuple[SaidMessage, ...] = ()
    calls: tuple[BegunCall, ...] = ()
    turn = _turn_of(main)
    # What another store has kept is laid down as it is: nothing of it happens now.
    if main.lay is None and (turn is not None or main.start is not None):
        said = _said(main, turn or 0)
        calls = _calls(main, said)
    return CommitFacts(
        main.session, turn, tuple(kinds), main.start is not None, said, calls, (*ends,)
    )


def _turn_of(write: Write) -> int | None:
    if write.fence is not None and write.fence > 0 and not write.seize:
        for draft in write.drafts:
            # A seizer writes under the fence that it has raised, in the turn that it ends.
            if draft.turn is not None:
                return draft.turn
        return write.fence
    return None


def _ends(write: Write) -> list[EndedTurn]:
    if not (write.finish or write.seize):
        return []
    found = []
    for draft in write.drafts:
        if draft.kind == "end" and draft.turn is not None:
            is_own = write.fence == draft.turn and not write.seize
            ending = note_of("end", draft.note)
            found.append(EndedTurn(write.session, draft.turn, ending, is_own))
    return found


def _said(write: Write, turn: int) -> tuple[SaidMessage, ...]:
    found = []
    for draft in write.drafts:
        if draft.kind == "message":
            found.append(SaidMessage(turn, note_of("message", draft.note), draft.body))
    return tuple(found)


def _calls(write: Write, said: tuple[SaidMessage, ...]) -> tuple[BegunCall, ...]:
    """The calls that are run from this commit on: those of the model's that are started, and the
    agent's own, whose message is stored with `Turn.call`. One that is asked about is not run.
    """
    if any(draft.kind == "ask" for draft in write.drafts):
        return ()
    found = []
    for draft in write.drafts:
        if draft.kind == "call" and draft.turn:
            found.append(_of_model(draft, draft.turn))
    for message in said:
        if message.note.format == "holdfast" and message.note.role == "assistant":
            for call in message.note.calls:
                found.append(BegunCall(message.turn, call.id, call.name, message.body))
    return tuple(found)


def _of_model(draft: Draft, turn: int) -> BegunCall:
    return BegunCall(turn, note_of("call", draft.note).call_id, None, b"")
