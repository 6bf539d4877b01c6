"""A streamed run of Agno, with what it shows durable before it is shown.

Agno stores a run when it is over. Until then it has a session of its own here: the prompt, the text
as it comes, calls before their tools run, results. When Agno has stored the run, that session is
erased. What of it Agno has not stored, since the process died or the run was left, becomes a run of
the session, by whoever loads that next. A turn of the session itself is held meanwhile: another run
of it waits, in any process.
"""

from contextlib import suppress
from typing import Any

from holdfast.adapters.agno.kept_session import SHOWN, KeptSession
from holdfast.adapters.framework import key_of
from holdfast.errors import (
    AlreadyAccepted,
    NotFound,
    ReadOnlyStore,
    SessionBusy,
    SessionEnded,
    TurnInterrupted,
)
from holdfast.formats.reading import fields, text
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

FORMAT = "openai.chat"
FACTS = "_agno"
STORED = ("COMPLETED", "PAUSED")
"""Of a run with one of these, Agno has stored all; others it leaves out of the history."""
STANDING = "a run of this name is in the session"

Block = dict[str, Any]


def prompt_of(input: Any, facts: Block) -> Block:
    """The first message of what is shown: the prompt, and whose run it is."""
    from agno.run.agent import RunInput

    words = RunInput(input_content=input).input_content_string()
    return {"role": "user", "content": words, FACTS: facts}


def refuse_known(kept: KeptSession, run_id: str) -> None:
    """Raises `AlreadyAccepted` when there is a run of this name."""
    if run_id in kept.run_ids():
        raise AlreadyAccepted(
            event_id=run_id,
            message_id=None,
            session_id=kept.holdfast_id,
            turn_id=None,
            standing=STANDING,
        )


class ShownEvent:
    """What an event of a run is to the record: some text, a call, or the result of one."""

    def __init__(self, event: Any, run_id: str) -> None:
        # Members of a team and steps of a workflow have runs of their own.
        is_own = getattr(event, "run_id", None) == run_id
        is_of_step = getattr(event, "workflow_run_id", None) == run_id
        kind = str(getattr(event, "event", "")).removeprefix("Team")
        content = getattr(event, "content", None)
        # What a workflow shows are the words of its steps.
        has_words = kind == "RunContent" and (is_own or is_of_step)
        self.text = content if has_words and isinstance(content, str) else ""
        kind = kind if is_own else ""
        tool = getattr(event, "tool", None)
        self.call = tool if kind == "ToolCallStarted" else None
        is_result = kind in ("ToolCallCompleted", "ToolCallError")
        self.result = tool if is_result else None
        self.is_told = kind == "RunContent" or not is_own or kind == ""


def shown_key(kept: KeptSession) -> str:
    """Where a run of this session is kept as it is shown: there is one at a time."""
    return key_of(SHOWN, kept.id)


def settle(store: Store, kept: KeptSession) -> None:
    """Makes a run of what was shown and not stored, unless somebody else runs or settles one now."""
    if kept.find(SHOWN) is None:
        return
    # The turn of the session itself, as a run holds it: so none begins in what is
    # erased here, and one that was deleted meanwhile is no error for who reads.
    with suppress(SessionBusy, SessionEnded, TurnInterrupted, ReadOnlyStore):
        with kept.words.turn(on_busy="refuse", take=[]):
            settle_held(store, kept)


def settle_held(store: Store, kept: KeptSession) -> None:
    """The same, for whoever holds the turn of the session."""
    shown = kept.find(SHOWN)
    if shown is None:
        return
    try:
        # A prompt whose run was killed before its first word waits: this takes it.
        with shown.turn(on_busy="refuse"):
            _bring(kept, shown)
    except (SessionBusy, SessionEnded):
        return
    # Somebody has deleted the session meanwhile.
    with suppress(NotFound):
        store.erase(shown.id)
    kept.forget(SHOWN)


def _bring(kept: KeptSession, shown: Session) -> None:
    first = [fields(message.payload) for message in shown.transcript(limit=1)]
    facts = fields(first[0].get(FACTS)) if first else {}
    run_id = text(facts.pop("run_id", ""))
    status = kept.run_ids().get(run_id)
    if status in STORED or not run_id:
        return
    # Agno has stored the run as failed or cancelled, and keeps such runs out of the
    # history: what the user saw gets a run of its own.
    name = run_id if status is None else f"{run_id}-shown"
    messages = _sendable(shown, name)
    if status is not None:
        messages = _as_stored(kept, run_id, messages) or messages
    run = {
        **{key: value for key, value in facts.items() if key != "session_type"},
        "run_id": name,
        "session_id": kept.id,
        "status": "COMPLETED",
        "content": text(messages[-1].get("content")) if len(messages) > 1 else "",
        "metadata": {"interrupted": True},
        "messages": messages,
    }
    is_workflow = facts.get("session_type") == "workflow"
    if is_workflow:
        run["input"] = text(messages[0].get("content"))
    new_row = None if kept.row() is not None else {**facts, "session_id": kept.id}
    # A run of a workflow has a question and an answer in Agno, and no messages.
    kept.put_run(run, new_row, has_messages=not is_workflow)


def _sendable(shown: Session, name: str) -> list[Block]:
    """What was shown, in Agno's words: calls without a result have one that says so."""
    found: list[Block] = []
    for payload in shown.context(FORMAT, prefill=True):
        said = {key: value for key, value in fields(payload).items() if key != FACTS}
        found.append({"id": f"{name}-{len(found)}", **said})
    return found


def _as_stored(kept: KeptSession, run_id: str, shown: list[Block]) -> list[Block]:
    """The messages of a failed or cancelled run as Agno has stored them, if all that was shown is in
    them: then there are no others of it.
    """
    found: list[Block] = []
    for run in (kept.load() or {}).get("runs") or ():
        if run["run_id"] == run_id:
            found = run.get("messages") or []
    said = []
    for message in found:
        if message.get("role") != "system" and not message.get("from_history"):
            said.append(message)
    has_all = _words(shown) in _words(said) and _answers(said) >= _answers(shown)
    return said if has_all else []


def _words(messages: list[Block]) -> str:
    spoken = [each for each in messages if each.get("role") in ("user", "assistant")]
    return "".join(text(each.get("content")) for each in spoken)


def _answers(messages: list[Block]) -> set[str]:
    return {
        text(each.get("tool_call_id"))
        for each in messages
        if each.get("role") == "tool"
    }
