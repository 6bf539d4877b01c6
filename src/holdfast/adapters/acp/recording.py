"""What a line of the wire means: from what was asked before, and what has happened in its session,
to what is to be stored.

Pure: it is told of lines and gives steps. Ids of requests live in two spaces, one for each side,
and are the same in both more often than not. Whatever is not understood is passed on; what names a
session is kept with it.
"""

from typing import Any

import msgspec

from holdfast.adapters.acp.growing import ToStore
from holdfast.adapters.acp.loading.known import REPLAYED, Known
from holdfast.adapters.acp.steps import (
    LineKept,
    LineVerdict,
    Noted,
    SessionForked,
    SessionMade,
    SessionOpened,
    WireStep,
)
from holdfast.adapters.acp.talk import Talk
from holdfast.adapters.acp.wire import (
    CANCELLED,
    Direction,
    Line,
    error_line,
    line_of,
    notice_line,
    result_line,
)
from holdfast.formats.reading import fields, text

PROTOCOL = 1
PASSED = LineVerdict()
HIDDEN = LineVerdict(is_shown=False)
# Files that the client reads for the agent, and what a terminal has printed, are in the outcomes
# of tools as far as the model sees them; sessions that are listed or closed say nothing.
_UNTOLD = ("fs/read_text_file", "session/list", "session/close", "session/delete")
_OPENING = ("session/new", "session/load", "session/resume")


class PendingRequest(msgspec.Struct, frozen=True):
    """A request that waits for its answer."""

    method: str
    session: str | None
    params: dict[str, Any]
    slot: str | None = None


class Recording:
    """One connection between a client and an agent. With `serves_load`, a session that is loaded
    is replayed from the store, and what the agent replays is withheld.
    """

    def __init__(self, *, serves_load: bool = False) -> None:
        self._serves_load = serves_load
        self._can_resume = False
        self.agent: dict[str, Any] = {}
        """What the agent says it is."""
        self.is_understood = True
        """False with a version of the protocol that nobody here knows: lines are kept as they
        are.
        """
        self._asked: dict[tuple[Direction, str], PendingRequest] = {}
        self._talks: dict[str, Talk] = {}

    def talk(self, session: str) -> Talk:
        """What is known of a session."""
        # Whatever names a session is told of it, whether or not it was seen being made.
        if session not in self._talks:
            self._talks[session] = Talk(session)
        return self._talks[session]

    def know(self, session: str, known: Known) -> None:
        """What the store holds of a session that is being loaded."""
        self.talk(session).know(known)

    def take(self, sender: Direction, line: Line) -> LineVerdict:
        """What this line, which comes from this side, comes to."""
        asked = None
        if line.is_request:
            asked = PendingRequest(
                line.method or "",
                line.session,
                line.params,
            )
            self._asked[sender, line.id] = asked
        elif line.is_answer:
            # An answer goes the other way than its request.
            asked = self._asked.pop(
                (_other(sender), line.id),
                None,
            )
        if not self.is_understood:
            return self._kept(sender, line, asked)
        todo = ToStore()
        if line.is_answer and asked is not None:
            return self._answer(sender, line, asked, todo)
        # It is about the connection, not about what is said.
        if line.session is None:
            return PASSED
        talk = self.talk(line.session)
        if sender == "client":
            if talk.given_up and line.method == "session/prompt":
                words = "The agent is still stopping a turn that could not be stored."
                told = self.refuse(line, words, "session_busy")
                return LineVerdict(is_shown=False, to_client=told)
            self._from_client(line, talk, todo)
            return self._resuming(line, talk, todo)
        if talk.given_up:
            return self._unheard(line)
        is_withheld = self._is_withheld(line, talk)
        self._from_agent(line, talk, todo)
        return LineVerdict(
            tuple(todo.before),
            tuple(todo.after),
            not is_withheld,
        )

    def _is_withheld(self, line: Line, talk: Talk) -> bool:
        """Whether an agent replays what the store is going to."""
        if not self._serves_load or not talk.is_loading:
            return False
        update = fields(line.params.get("update"))
        return (
            line.method == "session/update" and update.get("sessionUpdate") in REPLAYED
        )

    def _resuming(
        self,
        line: Line,
        talk: Talk,
        todo: ToStore,
    ) -> LineVerdict:
        """An agent that can't resume is asked to load; the client does not see its replay."""
        if (
            line.method == "session/resume"
            and self._serves_load
            and not self._can_resume
        ):
            talk.load(line, todo)
            told = line_of({**line.message, "method": "session/load"})
            return LineVerdict(
                tuple(todo.before),
                instead=told,
            )
        return _verdict(todo)

    def _from_client(
        self,
        line: Line,
        talk: Talk,
        todo: ToStore,
    ) -> None:
        if line.method == "session/prompt":
            talk.prompt(line, todo)
        elif line.method == "session/load":
            talk.load(line, todo)
        elif line.method not in (*_OPENING, *_UNTOLD):
            self._note(line, todo)

    def _from_agent(
        self,
        line: Line,
        talk: Talk,
        todo: ToStore,
    ) -> None:
        if line.method == "session/update":
            talk.update(
                fields(line.params.get("update")),
                todo,
            )
        elif line.method == "session/request_permission":
            facts = {
                "id": line.message.get("id"),
                **_about(line),
            }
            call = fields(line.params.get("toolCall"))
            slot = talk.growing.ask(call, facts, todo)
            # Once more, with its slot: the answer names nothing but the id.
            asked = PendingRequest(
                line.method,
                talk.session,
                line.params,
                slot,
            )
            self._asked["agent", line.id] = asked
        elif line.method not in _UNTOLD:
            self._note(line, todo)

    def _note(self, line: Line, todo: ToStore) -> None:
        name = f"acp.{line.method}"
        todo.before.append(
            Noted(
                line.session or "",
                name,
                _about(line),
            )
        )

    def _answer(
        self, sender: Direction, line: Line, asked: PendingRequest, todo: ToStore
    ) -> LineVerdict:
        talk = self.talk(asked.session) if asked.session is not None else None
        if sender == "client":
            if asked.method == "session/request_permission" and talk is not None:
                answer = line.result if line.error is None else {"error": line.error}
                name = "acp.permission_answer"
                todo.before.append(
                    Noted(
                        talk.session,
                        name,
                        answer,
                        asked.slot,
                    )
                )
            return _verdict(todo)
        if asked.method == "initialize":
            self._meet(line)
        elif asked.method == "session/prompt" and talk is not None:
            if line.id in talk.given_up:
                # The client has its answer: that this could not be stored.
                talk.given_up.remove(line.id)
                return HIDDEN
            talk.answered(line, todo)
        elif asked.method in _OPENING:
            return self._opened(line, asked, talk, todo)
        elif asked.method == "session/fork" and talk is not None:
            # An error has none: nothing was forked then.
            into = line.result.get("sessionId")
            if isinstance(into, str):
                todo.before.append(SessionForked(talk.session, into))
        return _verdict(todo)

    def _meet(self, line: Line) -> None:
        # An agent that refuses to begin has said nothing of itself.
        if line.error is None:
            self.agent = fields(line.result.get("agentInfo"))
            capable = fields(line.result.get("agentCapabilities"))
            self._can_resume = "resume" in fields(capable.get("sessionCapabilities"))
            version = line.result.get(
                "protocolVersion",
                PROTOCOL,
            )
            self.is_understood = version == PROTOCOL

    def _opened(
        self, line: Line, asked: PendingRequest, talk: Talk | None, todo: ToStore
    ) -> LineVerdict:
        session = asked.session or text(line.result.get("sessionId"))
        replays = None
        if talk is not None and talk.is_loading:
            talk.loaded(line, todo)
            if self._serves_load and asked.method == "session/load":
                replays = session
        if line.error is not None or not session:
            return _verdict(todo)
        # Servers of tools are given keys and tokens: they are not kept.
        facts = {
            "method": asked.method,
            "cwd": asked.params.get("cwd"),
            "agent": self.agent,
            "answer": line.result,
        }
        todo.before.append(SessionMade(session))
        # Nobody waits for what was said of it: two commits, one after the other, would be waited for.
        todo.after.append(SessionOpened(session, facts))
        return LineVerdict(
            tuple(todo.before),
            tuple(todo.after),
            replays=replays,
        )

    def _kept(
        self, sender: Direction, line: Line, asked: PendingRequest | None
    ) -> LineVerdict:
        session = line.session
        if session is None and asked is not None:
            session = asked.session
        if not line.message:
            return PASSED
        facts = {"from": sender, "line": line.message}
        return LineVerdict(before=(LineKept(session or "", facts),))

    def _unheard(self, line: Line) -> LineVerdict:
        """What an agent says that was told to stop, of a turn that can't be stored."""
        if line.method == "session/request_permission":
            # goose waits for this before it stops.
            self._asked.pop(("agent", line.id), None)
            told = result_line(
                line.message.get("id"),
                CANCELLED,
            )
            return LineVerdict(is_shown=False, to_agent=told)
        if line.method == "session/update":
            return HIDDEN
        return PASSED

    def give_up(
        self,
        session: str,
        words: str,
        code: str,
    ) -> tuple[bytes, bytes]:
        """What happens in this session can't be stored: lines for the client, whose prompts are
        answered with an error, and for the agent, which is told to stop.
        """
        talk = self.talk(session)
        # Told once: each further line that can't be stored is the same failure.
        if talk.given_up or not talk.prompts:
            return b"", b""
        to_client = b""
        for id, _ in talk.prompts.values():
            to_client += error_line(id, words, code)
        talk.given_up.update(talk.prompts)
        talk.cut(words)
        return to_client, notice_line(
            "session/cancel",
            {"sessionId": session},
        )

    def refuse(
        self,
        line: Line,
        words: str,
        code: str,
    ) -> bytes:
        """This prompt or load can't be stored, and is not passed on: the client's answer."""
        self._asked.pop(("client", line.id), None)
        talk = self.talk(line.session or "")
        if line.method == "session/prompt":
            talk.unprompt(line.id)
        else:
            talk.loaded(line, ToStore())
        return error_line(
            line.message.get("id"),
            words,
            code,
        )

    def cut(self, why: str) -> list[WireStep]:
        """The agent is gone."""
        steps: list[WireStep] = []
        for talk in self._talks.values():
            steps += talk.cut(why)
        return steps


def _verdict(todo: ToStore) -> LineVerdict:
    if not todo.before and not todo.after:
        return PASSED
    return LineVerdict(
        tuple(todo.before),
        tuple(todo.after),
    )


def _about(line: Line) -> dict[str, Any]:
    """What a line says, without the name of its session."""
    params = line.params
    return {name: params[name] for name in params if name != "sessionId"}


def _other(side: Direction) -> Direction:
    return "agent" if side == "client" else "client"
