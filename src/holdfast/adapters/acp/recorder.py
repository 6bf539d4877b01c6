"""One line at a time: it is read, stored and then passed on.

    line ──► recording: what does it mean? ──► storage: keep it ──► pass it on ──► storage: the rest

What can't be stored is not shown. A prompt or a load is answered with an error in the agent's
place. When something of a running turn can't be stored, the client's prompt is answered with an
error, the agent is told to stop, and what it still says is shown to nobody: what was shown is what
is stored. What else the client sends reaches the agent in any case; what asks for no answer (that
the agent should stop, above all) before it is stored. Each failure is told on stderr.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.adapters.acp.loading.known import SPOKEN
from holdfast.adapters.acp.recording import Recording
from holdfast.adapters.acp.steps import (
    LineVerdict,
    LoadBegan,
    Noted,
    Said,
    Steps,
    WireStep,
)
from holdfast.adapters.acp.storage import SessionStorage
from holdfast.adapters.acp.wire import (
    CANCELLED,
    Direction,
    Line,
    error_line,
    notice_line,
    read,
    result_line,
)
from holdfast.errors import HoldfastError, InvalidMessage
from holdfast.formats.reading import fields

Say = Callable[[str], None]
_REFUSED = ("session/prompt", "session/load")
_CANCEL = "session/cancel"


class PassedOn(msgspec.Struct, frozen=True):
    """What goes out because of some lines: to the other side, to the client, to the agent; and
    what is to be stored then.
    """

    forward: bytes = b""
    to_client: bytes = b""
    to_agent: bytes = b""
    after: Steps = ()
    replays: str | None = None


class Recorder:
    """The recorder of one connection. Safe to use from the threads of both directions."""

    def __init__(
        self,
        recording: Recording,
        storage: SessionStorage,
        say: Say,
    ) -> None:
        self._recording = recording
        self._storage = storage
        self._say = say
        self._lock = threading.Lock()
        self._is_over = False
        self._unsettled: list[PassedOn] = []
        """What was handed out, and of which something is still to be stored."""

    def take(self, sender: Direction, raws: Sequence[bytes]) -> Iterator[PassedOn]:
        """What is to be sent because of these lines of one side, piece by piece: each piece is
        stored when it is given. `settle` it when it has been sent.

        Chunks of one message that came together are stored together: a source that is faster than
        the disk waits for one commit for all that it has said meanwhile.
        """
        for lines in _grouped(raws):
            is_sent = sender == "client" and _is_notice(lines)
            if is_sent:
                # Not behind the store, which may be waited for: the user wants the agent to stop.
                yield PassedOn(_raw(lines))
            with self._lock:
                # What the other side has answered by now comes after all of what it was told.
                late = [self._settled(each) for each in list(self._unsettled)]
                sent = self._taken(sender, lines)
                if is_sent:
                    sent = msgspec.structs.replace(sent, forward=b"")
                if sent.after:
                    self._unsettled.append(sent)
            yield from late
            if sent.replays is not None:
                for update in self._storage.replayed(sent.replays):
                    params = {
                        "sessionId": sent.replays,
                        "update": update,
                    }
                    yield PassedOn(notice_line("session/update", params))
            yield sent

    def settle(self, sent: PassedOn) -> PassedOn:
        """Stores what was left until the lines had been passed on."""
        if not sent.after:
            return PassedOn()
        with self._lock:
            return self._settled(sent)

    def _settled(self, sent: PassedOn) -> PassedOn:
        for place, each in enumerate(self._unsettled):
            if each is sent:
                del self._unsettled[place]
                return self._attempt(
                    "agent",
                    [],
                    LineVerdict(sent.after),
                )
        # A line of the other side came first, and has seen to it.
        return PassedOn()

    def end(self, why: str) -> None:
        """The agent is gone: the turns that run are over, and nothing more is stored."""
        with self._lock:
            self._is_over = True
            for step in self._recording.cut(why):
                try:
                    self._storage.do(step)
                except HoldfastError as error:
                    self._say(f"The end of a turn could not be stored: {error}")

    def _taken(self, sender: Direction, lines: list[Line]) -> PassedOn:
        # The agent is gone, and with it every turn: what a client still sends goes where it would
        # go.
        if self._is_over:
            return PassedOn(_raw(lines))
        if len(lines) == 1:
            verdict = self._recording.take(sender, lines[0])
            return self._attempt(sender, lines, verdict)
        # All are chunks of one message: what they say is stored at once.
        before: list[WireStep] = []
        after: list[WireStep] = []
        is_shown = True
        for line in lines:
            verdict = self._recording.take(sender, line)
            is_shown = verdict.is_shown
            after += verdict.after
            for step in verdict.before:
                last = before[-1] if before else None
                if isinstance(step, Said) and isinstance(last, Said):
                    updates = (*last.updates, *step.updates)
                    before[-1] = msgspec.structs.replace(
                        last,
                        updates=updates,
                    )
                else:
                    before.append(step)
        verdict = LineVerdict(
            tuple(before),
            tuple(after),
            is_shown,
        )
        return self._attempt(sender, lines, verdict)

    def _attempt(
        self, sender: Direction, lines: list[Line], verdict: LineVerdict
    ) -> PassedOn:
        try:
            for step in verdict.before:
                self._do(step, lines)
        # A defect of ours is a failure to store as well: nothing is shown that was not stored.
        except Exception as error:
            return self._failed(
                sender,
                lines,
                verdict.before[0].session,
                error,
            )
        forward = _raw(lines) if verdict.instead is None else verdict.instead
        return PassedOn(
            forward if verdict.is_shown else b"",
            verdict.to_client,
            verdict.to_agent,
            verdict.after,
            verdict.replays,
        )

    def _do(self, step: WireStep, lines: list[Line]) -> None:
        if isinstance(step, LoadBegan):
            known = self._storage.known(step.session)
            self._recording.know(step.session, known)
            return
        try:
            self._storage.do(step)
        except InvalidMessage:
            # Nothing is wrong with the store. What JSON can't hold is kept as text.
            words = _raw(lines).decode(errors="replace")
            self._storage.do(
                Noted(
                    step.session,
                    "acp.unreadable",
                    words,
                )
            )

    def _failed(
        self,
        sender: Direction,
        lines: list[Line],
        session: str,
        error: Exception,
    ) -> PassedOn:
        code = getattr(error, "code", "defect")
        words = f"Holdfast could not store this: {error}"
        self._say(words)
        line = lines[0] if lines else None
        if line is not None and sender == "client" and line.method in _REFUSED:
            return PassedOn(to_client=self._recording.refuse(line, words, code))
        self._storage.give_up(session, error)
        # After the turn was ended in the store: what the agent says next belongs to no turn.
        to_client, to_agent = self._recording.give_up(
            session,
            words,
            code,
        )
        if line is None:
            return PassedOn(b"", to_client, to_agent)
        id: Any = line.message.get("id")
        if sender == "client":
            # The client has told it already.
            if line.method == _CANCEL:
                to_agent = b""
            return PassedOn(line.raw, to_client, to_agent)
        if line.is_answer:
            to_client += error_line(id, words, code)
        elif line.is_request:
            to_agent += _refusal(line, words, code)
        return PassedOn(b"", to_client, to_agent)


def _is_notice(lines: list[Line]) -> bool:
    """Whether nobody answers these lines, so that nothing is lost when they are passed on first."""
    return all(line.method is not None and not line.is_request for line in lines)


def _refusal(line: Line, words: str, code: str) -> bytes:
    """The answer to an agent whose request can't be stored, and is not passed on."""
    id = line.message.get("id")
    # goose waits for this very answer before it stops.
    if line.method == "session/request_permission":
        return result_line(id, CANCELLED)
    return error_line(id, words, code)


def _grouped(raws: Sequence[bytes]) -> Iterator[list[Line]]:
    """The lines in order; chunks of one message that follow each other are together."""
    held: list[Line] = []
    message: Any = None
    for raw in raws:
        line = read(raw)
        chunk = _chunk_of(line)
        if held and (chunk is None or chunk != message):
            yield held
            held = []
        held.append(line)
        message = chunk
        if chunk is None:
            yield held
            held = []
    if held:
        yield held


def _chunk_of(line: Line) -> Any:
    """Which message a line is a chunk of, as far as the line itself tells; None if of none."""
    update = fields(line.params.get("update"))
    if line.method != "session/update" or update.get("sessionUpdate") not in SPOKEN:
        return None
    return line.session, update["sessionUpdate"], update.get("messageId")


def _raw(lines: list[Line]) -> bytes:
    return b"".join(line.raw for line in lines)
