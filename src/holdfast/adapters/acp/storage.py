"""Keeps what happens on the wire: steps are done with sessions, turns and streams of a store.

A step that returns is durable. Whatever is said grows as a stream of its turn, so that a kill at
any point leaves what was shown; a message that is whole becomes an entry.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins

from holdfast import Message, PushStream, Session, Store, Turn
from holdfast.adapters.acp import steps
from holdfast.adapters.acp.loading.known import Known, StoredPiece, wire_of
from holdfast.adapters.acp.loading.stored_words import (
    MESSAGE,
    PROMPT,
    THOUGHT,
    StoredWords,
    part_words,
)
from holdfast.adapters.acp.replay import is_hidden, replayed
from holdfast.adapters.acp.talk import prompt_slot
from holdfast.errors import HoldfastError, NotFound, SessionEnded
from holdfast.formats.acp.messages import NAME, WIRE, outcome_payload, record_payload
from holdfast.formats.reading import fields

OUT_OF_PLACE = {
    "visible_to_model": False,
    "acp.replayed": True,
}


class StoredSession:
    """A session of the agent's, and what is being said in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn: Turn | None = None
        self.exit = contextlib.ExitStack()
        self.streams: dict[str, PushStream] = {}
        self.ids: dict[str, str] = {}
        """The ids of messages by their slots."""
        self.waiting: dict[str, str] = {}
        """The ids of prompts that are queued."""
        self.withdrawn: list[str] = []
        """The ids of prompts that were withdrawn and are still in the inbox."""
        self.loaded: list[str] = []
        """The messages that a load has added."""
        self.last: str | None = None

    def enter(self, turn: Turn) -> None:
        """A turn begins."""
        # The block of a `with` statement, without the statement: it is left when the agent answers.
        self.exit = contextlib.ExitStack()
        self.turn = self.exit.enter_context(turn)
        # What an earlier turn left open was stored with its end.
        self.streams.clear()

    def is_whole(self, stream: PushStream) -> None:
        """Nothing more is said in this message."""
        self.last = stream.message_id
        self.loaded.append(stream.message_id)

    def leave(self) -> contextlib.ExitStack:
        """The turn is over when what this gives is closed. Its streams are held until then, and if
        that fails until the next turn begins: one that is dropped is stored by itself, before
        others that were said earlier.
        """
        self.turn = None
        return self.exit


class SessionStorage:
    """What is to be kept, by the agent's ids of sessions. `key_of` names a session in the store."""

    def __init__(self, store: Store, key_of: Callable[[str], str]) -> None:
        self._store = store
        self._key_of = key_of
        self._sessions: dict[str, StoredSession] = {}
        self._do: dict[type[steps.WireStep], Callable[[Any], None]] = {
            steps.SessionMade: self._made,
            steps.SessionOpened: self._opened,
            steps.SessionForked: self._forked,
            steps.PromptBegan: self._began,
            steps.PromptQueued: self._queued,
            steps.PromptTaken: self._taken,
            steps.PromptWithdrawn: self._withdrawn,
            steps.WithdrawnTaken: self._withdrawn_taken,
            steps.OwnTurnBegan: self._spoke_up,
            steps.Said: self._said,
            steps.MessageClosed: self._closed,
            steps.Noted: self._noted,
            steps.SaidAside: self._said_aside,
            steps.CallAnswered: self._answered,
            steps.Misplaced: self._misplaced,
            steps.LineKept: self._kept,
            steps.TurnOver: self._ended,
        }

    def do(self, step: steps.WireStep) -> None:
        """Does a step. It is durable when this returns."""
        self._do[type(step)](step)

    def known(self, session: str) -> Known:
        """What the store holds of a session."""
        found = self.stored(session)
        if found is None:
            return Known(())
        cut = {turn.id for turn in found.turns() if turn.end != "completed"}
        pieces = (_piece(each, is_cut=each.turn in cut) for each in found.transcript())
        return Known(pieces)

    def stored(self, session: str) -> Session | None:
        """The session as it is in the store; None when it was never recorded."""
        with contextlib.suppress(NotFound):
            return self._store.session(
                self._key_of(session),
                create=False,
            )
        return None

    def replayed(self, session: str) -> Iterator[dict[str, Any]]:
        """The session as the updates of a load."""
        found = self.stored(session)
        return iter(()) if found is None else replayed(found)

    def give_up(self, session: str, error: BaseException) -> None:
        """Ends the turn that can't be stored. If the store can't take even that now, it will when
        it can.
        """
        kept = self._sessions.get(session)
        if kept is None or kept.turn is None:
            return
        # They stay in the inbox, and the next turn takes them along.
        kept.waiting.clear()
        with contextlib.suppress(HoldfastError):
            kept.leave().__exit__(
                type(error),
                error,
                None,
            )

    def _kept_session(self, session: str) -> StoredSession:
        kept = self._sessions.get(session)
        if kept is None:
            handle = self._store.session(self._key_of(session))
            kept = self._sessions[session] = StoredSession(handle)
        return kept

    def _made(self, step: steps.SessionMade) -> None:
        self._kept_session(step.session)

    def _opened(self, step: steps.SessionOpened) -> None:
        kept = self._kept_session(step.session)
        # Labels need a message to stand on, and agents tell of commands and modes before anybody
        # has said anything.
        if _last_of(kept.session) is None:
            self._record(kept, step.facts)
        else:
            self._noted(
                steps.Noted(
                    step.session,
                    "acp.opened",
                    step.facts,
                )
            )

    def _forked(self, step: steps.SessionForked) -> None:
        found = self.stored(step.session)
        # An agent may give the same answer twice, over two connections.
        if found is not None and self.stored(step.into) is None:
            found.fork(key=self._key_of(step.into))

    def _began(self, step: steps.PromptBegan) -> None:
        kept = self._kept_session(step.session)
        try:
            turn = _start(kept.session, step.payload)
        except SessionEnded:
            # Its key was reset since: it goes on in the session that is current now.
            del self._sessions[step.session]
            kept = self._kept_session(step.session)
            turn = _start(kept.session, step.payload)
        kept.enter(turn)
        self._find_prompt(kept, step.prompt)

    def _queued(self, step: steps.PromptQueued) -> None:
        kept = self._kept_session(step.session)
        key = self._key_of(step.session)
        receipt = self._store.accept(
            key,
            step.payload,
            format=NAME,
        )
        kept.waiting[step.prompt] = receipt.message_id
        kept.ids[prompt_slot(step.prompt)] = receipt.message_id

    def _taken(self, step: steps.PromptTaken) -> None:
        kept = self._kept_session(step.session)
        message = kept.waiting.pop(step.prompt)
        takes = [*kept.withdrawn, message]
        turn = kept.session.turn(
            format=NAME,
            on_busy="refuse",
            take=takes,
        )
        kept.enter(turn)
        kept.withdrawn.clear()
        kept.last = message

    def _withdrawn(self, step: steps.PromptWithdrawn) -> None:
        kept = self._kept_session(step.session)
        message = kept.waiting.pop(step.prompt)
        labels = {"acp.answer": step.answer}
        if not step.is_heard:
            labels["visible_to_model"] = False
        kept.session.label(message, **labels)
        kept.withdrawn.append(message)

    def _withdrawn_taken(self, step: steps.WithdrawnTaken) -> None:
        kept = self._kept_session(step.session)
        # What waits behind it has turns of its own: the next one takes this along.
        if kept.turn is not None and not kept.waiting:
            kept.turn.inbox()
            kept.withdrawn.clear()

    def _spoke_up(self, step: steps.OwnTurnBegan) -> None:
        kept = self._kept_session(step.session)
        kept.loaded.clear()
        # What waits in the inbox is for a turn that answers it.
        kept.enter(
            kept.session.turn(
                format=NAME,
                on_busy="refuse",
                take=[],
            )
        )

    def _said(self, step: steps.Said) -> None:
        kept = self._kept_session(step.session)
        stream = kept.streams.get(step.slot)
        if stream is None:
            assert kept.turn is not None
            stream = kept.turn.stream(NAME)
            kept.streams[step.slot] = stream
            kept.ids[step.slot] = stream.message_id
        stream.push(
            {
                "as": step.kind,
                "updates": list(step.updates),
            }
        )

    def _closed(self, step: steps.MessageClosed) -> None:
        kept = self._kept_session(step.session)
        stream = kept.streams.get(step.slot)
        if stream is not None:
            stream.close()
            # Not before: see `leave`.
            del kept.streams[step.slot]
            kept.is_whole(stream)

    def _noted(self, step: steps.Noted) -> None:
        kept = self._kept_session(step.session)
        message = kept.ids.get(step.slot or "") or kept.last or _last_of(kept.session)
        if message is not None:
            # A message that says nothing is in no log: its label goes to the one before.
            with contextlib.suppress(NotFound):
                kept.session.label(
                    message,
                    **{step.name: step.value},
                )
                return
            message = _last_of(kept.session)
        if message is None:
            self._record(kept, {step.name: step.value})
        else:
            kept.session.label(
                message,
                **{step.name: step.value},
            )

    def _said_aside(self, step: steps.SaidAside) -> None:
        kept = self._kept_session(step.session)
        # One that said nothing after all is in no log.
        with contextlib.suppress(NotFound):
            kept.session.label(
                kept.ids[step.slot],
                visible_to_model=False,
            )

    def _answered(self, step: steps.CallAnswered) -> None:
        kept = self._kept_session(step.session)
        kept.session.append(
            outcome_payload(list(step.updates)),
            format=NAME,
        )

    def _misplaced(self, step: steps.Misplaced) -> None:
        kept = self._kept_session(step.session)
        for message in kept.loaded:
            with contextlib.suppress(NotFound):
                kept.session.label(message, **OUT_OF_PLACE)
        kept.loaded.clear()

    def _kept(self, step: steps.LineKept) -> None:
        self._record(
            self._kept_session(step.session),
            step.facts,
        )

    def _ended(self, step: steps.TurnOver) -> None:
        kept = self._kept_session(step.session)
        turn = kept.turn
        if turn is None:
            return
        for slot in step.whole:
            stream = kept.streams.get(slot)
            if stream is not None:
                stream._open.finish()
                kept.is_whole(stream)
        left = kept.leave()
        if step.end == "completed":
            left.close()
        elif step.end == "failed":
            turn.fail(step.why or "the agent answered with an error")
        else:
            turn.interrupt(step.why)
        kept.streams.clear()

    def _record(self, kept: StoredSession, facts: dict[str, Any]) -> None:
        kept.last = kept.session.append(
            record_payload(facts),
            format=NAME,
        )

    def _find_prompt(self, kept: StoredSession, prompt: str) -> None:
        message = _last_of(kept.session)
        if message is not None:
            kept.ids[prompt_slot(prompt)] = kept.last = message


def _start(session: Session, payload: Any) -> Turn:
    # Another program that is in this session has to be told to the client, not waited for.
    return session.turn(
        payload,
        format=NAME,
        on_busy="refuse",
    )


def _last_of(session: Session) -> str | None:
    """The id of a session's last message."""
    # A few entries stand after a message at most: the turn's start, labels.
    head = session.head()
    for back in (16, 256, head):
        found = None
        # Every message in the range is read: the last one is wanted, and a page begins at its
        # first.
        for message in session.transcript(after=max(0, head - back)):
            found = message.id
        if found is not None or back >= head:
            return found
    return None


def _piece(message: Message, *, is_cut: bool) -> StoredPiece:
    """A message to compare with; `is_cut`: its turn was, so that its words may go on."""
    return StoredPiece(
        message.role,
        message.text,
        wire_of(message.payload),
        tuple(_shown(message, is_cut)),
        is_partial=message.state == "partial",
        is_loose=is_hidden(message),
        answers=tuple(_answers(message)),
    )


def _shown(message: Message, is_cut: bool) -> Iterator[StoredWords]:
    """The words of a message, by their kinds."""
    payload = fields(message.payload)
    # Of another format, the parts that every format has.
    parts = payload["parts"] if WIRE in payload else to_builtins(message.parts)
    if message.role == "user":
        yield StoredWords(PROMPT, "".join(map(part_words, parts)))
        return
    for place, part in enumerate(parts, 1):
        kind = THOUGHT if part.get("type") == "thinking" else MESSAGE
        is_last = place == len(parts)
        yield StoredWords(kind, part_words(part), is_cut and is_last)


def _answers(message: Message) -> Iterator[str]:
    from holdfast.parts import Result

    for part in message.parts:
        if isinstance(part, Result):
            yield part.call_id
