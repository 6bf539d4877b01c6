"""A call of `run_conversation` is a turn: opened before Hermes does anything, ended before it answers.

The turn is bound to the session that the agent names at that moment; what the call writes later goes
there, whatever the agent names by then. Hermes' own rows are written where they always were, after
Holdfast has what they say.
"""

import functools
import logging
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from holdfast import Message, Receipt, Session, Turn
from holdfast.adapters.hermes import receipts, unusable
from holdfast.adapters.hermes.projection import recorded
from holdfast.adapters.hermes.rows.catch_up import WINDOW, last_cut
from holdfast.adapters.hermes.serving import (
    Serving,
    running_turn,
    serving_of,
    set_running_turn,
)
from holdfast.adapters.hermes.spoken import left_threads, steered
from holdfast.adapters.hermes.spoken.conversation import Conversation
from holdfast.adapters.hermes.spoken.live_list import (
    ROLES,
    Live,
    Payload,
    Said,
    plain,
    unmerged,
)
from holdfast.adapters.hermes.spoken.speech import FORMAT
from holdfast.adapters.hermes.streams import (
    conversation_of,
    not_answered,
    notice,
    set_conversation,
    stop,
)
from holdfast.domain.ids import turn_id
from holdfast.errors import HoldfastError, NotFound, SessionBusy
from holdfast.runtime.clock import World

log = logging.getLogger("holdfast.hermes")

LOOK_S = 0.05
LEFT_BEHIND_S = 10
"""How long a call that Hermes has interrupted, or let go of, may take to return before the next one
takes its turn over.
"""
PATIENCE_S = 1800
"""How long a turn of somebody else is waited for; the gateway waits as long for its own."""

DELIVERED = "hermes_delivered"
"""The label of an answer that the user got in other words."""

_NUDGES = ("_verification_stop_synthetic", "_pre_verify_synthetic")
"""Hermes' marks on words that it says to the model itself, and takes away before it writes."""

_NOTE = "[System note:"
_CONTINUE = (
    "[System: The previous response was cut off",
    "[System: Your previous response was truncated",
)
"""How Hermes begins when it asks the model to go on, in the user's name."""

_NAMES = (
    "system_message",
    "conversation_history",
    "task_id",
    "stream_callback",
    "persist_user_message",
    "persist_user_timestamp",
    "moa_config",
)
"""The parameters of `run_conversation` after the user's message (see `pins`)."""

_at_work: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()
"""The agent of this process that runs the turn of a session, by the session's id."""


def patch_run_agent(module: ModuleType) -> None:
    """Makes a turn of each call, and has what Hermes writes recorded first."""
    agent: Any = module.AIAgent
    run = agent.run_conversation
    flush = agent._flush_messages_to_session_db_unlocked
    is_scaffolding = module._is_ephemeral_scaffolding
    make = agent.__init__

    @functools.wraps(make)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        _check_store(self)

    @functools.wraps(run)
    def run_conversation(self: Any, user_message: Any, *more: Any, **named: Any) -> Any:
        call = AgentCall(run, user_message, more, named)
        try:
            serving = serving_of(self)
        except (HoldfastError, OSError) as error:
            return call.refused(self, error)
        # A call inside a call of the same agent is part of that one's turn.
        if serving is None or running_turn(self) is not None:
            return run(self, user_message, *more, **named)
        return call.made(self, serving)

    @functools.wraps(flush)
    def _flush_messages_to_session_db_unlocked(
        self: Any, messages: list[Live], conversation_history: Any = None
    ) -> Any:
        if serving_of(self) is None:
            return flush(self, messages, conversation_history)
        record(self, messages, is_scaffolding)
        # Also where that has failed: then at least Hermes' own rows have it.
        with recorded(steered.rows_of(self)):
            return flush(self, messages, conversation_history)

    agent.__init__ = __init__
    agent.run_conversation = run_conversation
    agent._flush_messages_to_session_db_unlocked = (
        _flush_messages_to_session_db_unlocked
    )
    agent._holdfast_is_scaffolding = staticmethod(is_scaffolding)


def _check_store(agent: Any) -> None:
    """A command whose agent has a store that can't be opened ends here; in other threads, a gateway's
    above all, each message is refused until that is put in order.
    """
    try:
        serving_of(agent)
    except (HoldfastError, OSError) as error:
        if unusable.is_command():
            unusable.end_command(error)
        log.error("nothing will be answered: %s", error)


def patch_turn_finalizer(module: ModuleType) -> None:
    """Has the last answer recorded before Hermes tears down what the turn has used: it writes its own
    row after that.
    """
    finalize: Any = module.finalize_turn

    @functools.wraps(finalize)
    def finalize_turn(agent: Any, *, messages: list[Live], **named: Any) -> Any:
        if running_turn(agent) is not None:
            record(agent, messages, agent._holdfast_is_scaffolding)
        return finalize(agent, messages=messages, **named)

    module.finalize_turn = finalize_turn  # type: ignore[attr-defined]


def record(
    agent: Any, messages: list[Live], is_scaffolding: Callable[[Any], bool]
) -> None:
    """Stores what is new in an agent's list. If that can't be done, the agent is stopped; Hermes'
    own rows are written all the same.
    """
    serving = serving_of(agent)
    if serving is None:
        return
    conversation = _conversation(agent, serving)
    try:
        conversation.record(_said(agent, messages, is_scaffolding))
    except (HoldfastError, OSError) as error:
        log.error("what Hermes says can't be recorded: %s", error)
        stop(agent, conversation, error)


def _said(
    agent: Any, messages: list[Live], is_scaffolding: Callable[[Any], bool]
) -> list[Said]:
    """What the list of an agent says, without what Hermes says to the model by itself."""
    said: list[Said] = []
    for index, live in enumerate(messages):
        if not isinstance(live, dict):
            continue
        if live.get("role") not in ROLES:
            continue
        if is_scaffolding(live) or _is_nudge(live):
            continue
        words = plain(live, _overriding(agent, live, index))
        if words["role"] != "user":
            said.append((live, words))
            continue
        asked = words["content"]
        if isinstance(asked, str):
            asked = without_notes(asked)
            words["content"] = asked
        if _is_asked(asked):
            said.append((live, words))
    return unmerged(said)


def _is_nudge(live: Live) -> bool:
    for mark in _NUDGES:
        if live.get(mark):
            return True
    return False


def without_notes(text: str) -> str:
    """What a user has said, without the notes that Hermes puts before and after it. It keeps them out
    of its rows, but not of a question that it joins to an unanswered one.
    """
    while text.startswith(_NOTE) and "]\n\n" in text:
        text = text.partition("]\n\n")[2]
    while text.endswith("]") and f"\n\n{_NOTE}" in text:
        text = text.rpartition(f"\n\n{_NOTE}")[0]
    # Where Hermes resumes a turn by itself, there is nothing but a note.
    if text.startswith(_NOTE) and text.endswith("]"):
        return ""
    return text


def _is_asked(content: Any) -> bool:
    """Whether a user has said this: not where Hermes resumes a turn by itself, or has the model go
    on with an answer that was cut.
    """
    if isinstance(content, str) and content.startswith(_CONTINUE):
        return False
    return bool(content)


def _overriding(agent: Any, live: Live, index: int) -> Any:
    """What the user has really said, where the model is told more: Hermes' rows have it, too."""
    own = getattr(agent, "_persist_user_message_override", None)
    at = getattr(agent, "_persist_user_message_idx", None)
    if own is None or at != index:
        return None
    if live.get("role") != "user":
        return None
    # A text can't stand for parts: what is beside it, a picture, would be gone.
    has_parts = isinstance(live.get("content"), list)
    if has_parts and not isinstance(own, list):
        return None
    return own


def _conversation(agent: Any, serving: Serving) -> Conversation:
    """Where this agent speaks: in its running turn's session, else in the one that it names."""
    named = agent.session_id
    conversation = conversation_of(agent)
    if conversation is not None:
        # A turn stays in its session, though a compaction may give the agent another one.
        if conversation.turn is not None or conversation.session_id == named:
            return conversation
    conversation = Conversation(serving.conversation(named), named)
    conversation.remember_cut(last_cut(conversation.session))
    set_conversation(agent, conversation)
    return conversation


class AgentCall:
    """One call of `run_conversation`."""

    def __init__(
        self,
        run: Callable[..., Any],
        user_message: Any,
        more: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        self._run = run
        self._user_message = user_message
        # By name: some of them are read, and one may be replaced.
        self._named = dict(zip(_NAMES, more, strict=False))
        self._named.update(named)

    def made(self, agent: Any, serving: Serving) -> Any:
        """What Hermes answers, once all of it is stored."""
        try:
            conversation = _conversation(agent, serving)
            known_to = _known_to(conversation, serving)
            self._keep_history(agent, conversation)
            turn = self._open(agent, conversation, serving.world)
            is_behind = _is_behind(conversation, turn, known_to)
        except (HoldfastError, OSError) as error:
            return self.refused(agent, error)
        if is_behind:
            self._load_again(agent, conversation)
        return self._inside(agent, conversation, turn)

    def _keep_history(self, agent: Any, conversation: Conversation) -> None:
        """What was said while Holdfast was not there stands before what is said now."""
        history = self._named.get("conversation_history")
        # An agent that has had a turn here was served by Holdfast since then.
        if not history or conversation.known_to is not None:
            return
        # In the words of Hermes' own rows: what overrides a question is not of the history.
        said = []
        for live, _ in _said(agent, history, agent._holdfast_is_scaffolding):
            said.append((live, plain(live)))
        session = conversation.session
        first = next(session.transcript(limit=1), None)
        if first is None or _goes_on_from(session, said):
            conversation.record(said)

    def _open(self, agent: Any, conversation: Conversation, world: World) -> Turn:
        """A turn for this call, after those of others."""
        session = conversation.session
        asked = self._asked()
        taken = receipts.claim(agent, self._user_message)
        started = world.tick()
        on_busy = "refuse"
        while True:
            # What a turn took that died before it spoke: Hermes has its row, and it is in the list.
            before = session.pending()
            try:
                turn = _turn(session, asked, taken, before, on_busy)
                break
            except SessionBusy:
                waited_s = world.tick() - started
                on_busy = _patience(conversation.session_id, waited_s)
                time.sleep(LOOK_S)
        known = set()
        for message in before:
            known.add(message.id)
        conversation.begin(turn, _asked_in(session, turn, known))
        return turn

    def _asked(self) -> Payload | None:
        """What the user says; None in a turn that Hermes resumes by itself."""
        words = self._named.get("persist_user_message")
        if words is None:
            words = self._user_message
        if not words:
            return None
        return plain({"role": "user"}, words)

    def _load_again(self, agent: Any, conversation: Conversation) -> None:
        """The history was loaded before another's turn had ended, and has not its words."""
        self._named["conversation_history"] = (
            agent._session_db.get_messages_as_conversation(
                conversation.session_id, repair_alternation=True
            )
        )

    def _inside(self, agent: Any, conversation: Conversation, turn: Turn) -> Any:
        result: Any = None
        # Where receipts that steer it look for the turn, and a second call finds out who is at work.
        set_running_turn(agent, turn)
        _at_work[conversation.session_id] = agent
        threads = left_threads.begin(agent)
        try:
            with turn:
                try:
                    result = self._run(agent, self._user_message, **self._named)
                finally:
                    # One that has raised was cut, too.
                    cut = result is None
                    if result is not None:
                        cut = bool(result.get("interrupted"))
                    conversation.finish(cut=cut)
                _note_delivered(turn, conversation, result)
                _end(turn, conversation, result)
        except HoldfastError as error:
            # Hermes has its answer; that the turn's end is not stored is for the next one who looks.
            if result is None:
                raise
            log.warning("the end of a turn can't be stored: %s", error)
        finally:
            left_threads.end(agent, threads)
            steered.forget_rows(agent)
            set_running_turn(agent, None)
            conversation.turn = None
        return _told(result, conversation)

    def refused(self, agent: Any, error: Exception) -> dict[str, Any]:
        """The answer to a message that can't be stored: the model is not asked."""
        log.error("a message of the user can't be stored: %s", error)
        words = not_answered(error)
        return {
            "final_response": words,
            "messages": list(self._named.get("conversation_history") or ()),
            "api_calls": 0,
            "completed": False,
            "failed": True,
            "partial": False,
            "interrupted": False,
            "error": words,
            "session_id": agent.session_id,
        }


def _goes_on_from(session: Session, said: list[Said]) -> bool:
    """Whether a history has more after what the session shows last: Hermes stores nothing before
    Holdfast does, so it was by itself then.
    """
    # What a killed turn gave back is in the history, too, and is taken with the next turn.
    if session.pending():
        return False
    shown = session.context(FORMAT)
    if not shown:
        return False
    last = _words(shown[-1])
    places = []
    for place, (_, payload) in enumerate(said):
        if _words(payload) == last:
            places.append(place)
    return bool(places) and places[-1] < len(said) - 1


def _words(payload: Any) -> tuple[Any, Any]:
    return payload.get("role"), payload.get("content")


def _known_to(conversation: Conversation, serving: Serving) -> int:
    """Up to where in the log an agent knows the session that it is called in: as far as its history
    was loaded, or its own last turn.
    """
    loaded_at = serving.loaded_at(conversation.session_id)
    known_to = conversation.known_to
    # An agent that was given its history by its caller knows what is there now, as far as we know.
    if loaded_at is None and known_to is None:
        return conversation.session.head()
    return max(loaded_at or 0, known_to or 0)


def _is_behind(conversation: Conversation, turn: Turn, known_to: int) -> bool:
    """Whether somebody else has had a turn here since then. Having waited is no sign of it: one may
    have ended after the history was loaded and before it would have been waited for.
    """
    session = conversation.session
    own = (turn.id, conversation.last_turn)
    is_behind = False
    for entry in session.entries(after=known_to):
        known_to = entry.seq
        if entry.turn is None:
            continue
        name = turn_id(session.id, entry.turn)
        if name not in own:
            is_behind = True
    conversation.known_to = known_to
    conversation.last_turn = turn.id
    return is_behind


def _turn(
    session: Session,
    asked: Payload | None,
    taken: list[Receipt],
    before: list[Message],
    on_busy: Any,
) -> Turn:
    if taken:
        try:
            # What a killed turn gave back has its row by now, and stands before what is asked now.
            wanted: list[Any] = [*before]
            wanted += taken
            return session.turn(take=wanted, on_busy=on_busy)
        except NotFound:
            log.warning("a receipt waits no more: its words are stored anew")
    return session.turn(asked, on_busy=on_busy)


def _patience(session_id: str, waited_s: float) -> str:
    """Whether to go on waiting for the turn that runs in this session, or to take over."""
    other = _at_work.get(session_id)
    limit_s = PATIENCE_S
    # Only of an agent of this process it is known that it was told to stop.
    if other is not None and getattr(other, "_interrupt_requested", False):
        limit_s = LEFT_BEHIND_S
    return "interrupt" if waited_s > limit_s else "refuse"


def _asked_in(session: Session, turn: Turn, known: set[str]) -> list[Payload]:
    """What the user says in this turn that has just been opened, without what is `known`."""
    asked = []
    # It has just begun: what it took or was given stands at the end of the log.
    after = max(0, session.head() - WINDOW)
    for message in session.transcript(after=after):
        if message.turn != turn.id:
            continue
        if message.id not in known:
            asked.append(dict(message.payload))
    return asked


def _end(turn: Turn, conversation: Conversation, result: dict[str, Any]) -> None:
    """Ends the turn as Hermes says that it ended; completed, if it says nothing else."""
    if conversation.failure is not None:
        turn.fail(conversation.failure)
    elif result.get("interrupted"):
        turn.interrupt("interrupted")
    elif result.get("failed"):
        # Which of the two is there depends on where Hermes has given up.
        reason = result.get("error") or result.get("turn_exit_reason")
        turn.fail(str(reason or "failed"))


def _note_delivered(
    turn: Turn, conversation: Conversation, result: dict[str, Any]
) -> None:
    """Keeps what the user gets beside what the model has said, where a plug-in or Hermes itself has
    changed that after its row was written (F37). The next request has the model's words.
    """
    delivered = result.get("final_response")
    if not isinstance(delivered, str) or not delivered:
        return
    # What was cut has no last words to be changed.
    if result.get("interrupted"):
        return
    # The list has what the model has said: nearly always that is what is delivered.
    messages = result.get("messages") or [{}]
    if messages[-1].get("content") == delivered:
        return
    session = conversation.session
    answer: Message | None = None
    for message in session.transcript(after=conversation.known_to or 0):
        if message.turn != turn.id:
            continue
        if message.role == "assistant":
            answer = message
    if answer is None:
        return
    if answer.text.strip() == delivered.strip():
        return
    session.label(answer.id, **{DELIVERED: delivered})


def _told(result: Any, conversation: Conversation) -> Any:
    """What the caller is told: an answer that could not be stored is not given out."""
    if conversation.failure is not None:
        result["final_response"] = notice(conversation.failure)
        result["completed"] = False
        result["failed"] = True
    return result
