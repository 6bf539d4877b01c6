"""What happens in the demo, and what it proves: the run, the facts it leaves, and the checks on
them.

    child process    answers the first question ──► pipe ──► what the user sees
         ╳           SIGKILL, in the middle of a sentence
    this process     opens the store again: what is stored, what the model will be sent; then a second turn

Whoever watches is told as it happens. The checks are a pure function of the facts.
"""

import os
import subprocess
import sys
import threading
from typing import Any

import msgspec

import holdfast
from holdfast import Context, Message, Session
from holdfast.cli.demo import agent, model
from holdfast.domain.entry import note_of
from holdfast.domain.ids import turn_id
from holdfast.domain.message import Call, Result
from holdfast.domain.repair import INTERRUPTED
from holdfast.runtime.clock import RealWorld
from holdfast.testing import providers

KEY = "holdfast:demo"
QUESTION = "Book a table for two at eight, somewhere quiet."
SECOND_QUESTION = "Are you still there?"
LIMIT_S = 20
FORMATS = ("openai.chat", "openai.responses", "anthropic")


class Audience:
    """Whoever watches the demo; this one looks away."""

    def asked(self, question: str) -> None: ...

    def started(self, pid: int) -> None: ...

    def heard(self, text: str) -> None: ...

    def killed(self, seen: str) -> None: ...

    def reopened(self, facts: "Facts") -> None: ...

    def ended(self, turn: "TurnFact") -> None: ...


class MessageFact(msgspec.Struct):
    """A stored message."""

    seq: int
    role: str
    state: str
    turn: str | None
    text: str
    calls: list[Call]
    results: list[Result]


class CallFact(msgspec.Struct):
    """A stored tool call and what is known of its outcome."""

    call_id: str
    name: str
    state: str


class TurnFact(msgspec.Struct):
    """A turn and all the ends the log has for it: one, if all is well."""

    id: str
    ends: list[str] = []
    reason: str | None = None


class SecondTurn(msgspec.Struct):
    """The turn that carries on. `sent` is the first context of it, `refused` what providers would
    refuse in any.
    """

    question: str
    sent: list[dict[str, Any]]
    answer: str
    refused: list[str]


class Stored(msgspec.Struct):
    """What the store held of the first turn. `text` is that of the answer."""

    text: str
    messages: list[MessageFact]
    calls: list[CallFact]


class Facts(msgspec.Struct):
    """What the run left, first when the store was opened again, and in the end with the second
    turn.
    """

    session: str
    exit_code: int
    seen: str
    stored: Stored
    context: list[dict[str, Any]]
    turns: list[TurnFact]
    reopened_ms: float
    second_turn: SecondTurn | None = None


def play(where: str, audience: Audience, *, pace_s: float) -> Facts:
    """Runs the demo on the store at `where` and returns what it left."""
    with holdfast.open(where) as store:
        # A session of its own, also in a store that has seen the demo before.
        session_id = store.reset(KEY, reason="demo").id
    audience.asked(QUESTION)
    seen, exit_code = _speak_and_die(where, session_id, audience, pace_s)
    audience.killed(seen)
    tick = RealWorld().tick
    began = tick()
    with holdfast.open(where) as store:
        session = store.get(session_id)
        context = session.context("openai.chat")
        facts = _look(
            session,
            context,
            seen=seen,
            exit_code=exit_code,
            reopened_ms=(tick() - began) * 1000,
        )
        audience.reopened(facts)
        audience.asked(SECOND_QUESTION)
        facts.second_turn = _carry_on(session, audience, pace_s)
        facts.turns = _turns(session)
        audience.ended(facts.turns[-1])
    return facts


def _speak_and_die(
    where: str, session_id: str, audience: Audience, pace_s: float
) -> tuple[str, int]:
    """The first turn, in a process of its own that is killed when it has said enough; what came out
    of it.
    """
    program = [sys.executable, "-m", agent.__name__]
    command = [*program, where, session_id, QUESTION, str(pace_s)]
    # A session of its own: Ctrl-C at the terminal is not meant for the child.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        # A child that says nothing is killed, too: the demo always ends.
        guard = threading.Timer(LIMIT_S, child.kill)
        guard.start()
        try:
            audience.started(child.pid)
            return _listen(child, audience), child.wait()
        finally:
            guard.cancel()
            child.kill()


def _listen(child: "subprocess.Popen[bytes]", audience: Audience) -> str:
    assert child.stdout is not None
    seen = b""
    # os.read gives what is there; a buffered read would wait for more than was said.
    while piece := os.read(child.stdout.fileno(), 4096):
        seen += piece
        audience.heard(piece.decode(errors="replace"))
        if model.MIDDLE.encode() in seen:
            child.kill()
    # Read to the end, also after the kill: what is in the pipe by then was handed on to
    # the user, and has to be in the store.
    return seen.decode(errors="replace")


def _look(session: Session, context: Context, **seen: Any) -> Facts:
    stored = Stored("", [], [])
    for message in session.transcript():
        stored.messages.append(_message(message))
        if message.state == "partial":
            stored.text += message.text
    for call in session.calls():
        stored.calls.append(CallFact(call.call_id, call.name, call.state))
    return Facts(
        session=session.id,
        stored=stored,
        context=list(context),
        turns=_turns(session),
        **seen,
    )


def _message(message: Message) -> MessageFact:
    fact = MessageFact(
        message.seq, message.role, message.state, message.turn, message.text, [], []
    )
    for part in message.parts:
        if isinstance(part, Call):
            fact.calls.append(part)
        elif isinstance(part, Result):
            fact.results.append(part)
            fact.text = ""  # what a tool answered has a place of its own
    return fact


def _turns(session: Session) -> list[TurnFact]:
    turns: dict[int, TurnFact] = {}
    for entry in session.entries():
        if entry.turn is None:
            continue
        fact = TurnFact(turn_id(session.id, entry.turn))
        turn = turns.setdefault(entry.turn, fact)
        if entry.kind == "end":
            note = note_of("end", entry.note)
            turn.ends.append(note.end)
            turn.reason = note.reason
    return list(turns.values())


def _carry_on(session: Session, audience: Audience, pace_s: float) -> SecondTurn:
    spoken: list[str] = []

    def show(text: str) -> None:
        spoken.append(text)
        audience.heard(text)

    sent = agent.answer(session, SECOND_QUESTION, pace_s=pace_s, show=show)
    refused: list[str] = []
    for context in sent:
        refused += providers.check("openai.chat", context)
    # In all formats, though the demo speaks one: what was cut off has to be valid in
    # each.
    for format in FORMATS:
        refused += providers.check(format, session.context(format))
    return SecondTurn(SECOND_QUESTION, list(sent[0]), "".join(spoken), refused)


CHECKS = {
    "killed_in_the_middle": "the process was killed in the middle of a sentence",
    "question_is_stored": "the user's message is stored, once",
    "delivered_is_a_prefix_of_stored": "what the user saw is a prefix of what is stored",
    "dead_turn_has_one_end": "the dead turn has one end: abandoned",
    "calls_are_accounted_for": "the tool that answered is done, the one that did not is unknown",
    "open_call_is_closed_in_the_context": "the model is told so: each call has one result, the "
    "open one is interrupted",
    "model_is_sent_what_was_seen": "the model is sent what the user saw",
    "context_is_valid": "no provider would refuse what it is sent",
    "second_turn_is_completed": "the second turn carried on and has one end: completed",
}


def check(facts: Facts) -> dict[str, bool]:
    """What Holdfast promises, judged on these facts, by the names in `CHECKS`."""
    stored = facts.stored
    second = facts.second_turn
    assert second is not None
    sent = [message.get("content") for message in second.sent]
    asked = [message.text for message in stored.messages if message.role == "user"]
    ends = [turn.ends for turn in facts.turns]
    answers = [each["content"] for each in facts.context if each["role"] == "tool"]
    is_closed = len(answers) == 2 and INTERRUPTED not in answers[0]
    # In the order of `CHECKS`, one for one; `strict` sees to the number.
    held = (
        facts.exit_code == -9 and 0 < len(facts.seen) < len(model.ANSWER),
        asked == [QUESTION],
        bool(facts.seen) and stored.text.startswith(facts.seen),
        ends[:1] == [["abandoned"]],
        [call.state for call in stored.calls] == ["done", "unknown"],
        is_closed and answers[1] == INTERRUPTED,
        stored.text in sent and sent[-1] == SECOND_QUESTION,
        not second.refused,
        ends[1:] == [["completed"]] and bool(second.answer),
    )
    return dict(zip(CHECKS, held, strict=True))
