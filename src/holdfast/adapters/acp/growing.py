"""Messages and tool calls of one session while they grow: which update belongs to which message,
and when a message is whole.

Nothing on the wire says that a message is whole. It is when another one begins, when a tool is
called, and when its turn is over. A call is begun when its input is known, or when the tool is at
work; from then on, what is said of it is about its outcome, unless it is another input. It is whole
when it has an outcome, or when something else is said after it was begun.
"""

from typing import Any

import msgspec

from holdfast.adapters.acp.loading.known import SPOKEN, USER
from holdfast.adapters.acp.steps import (
    CallAnswered,
    MessageClosed,
    Noted,
    OwnTurnBegan,
    Said,
    SaidAside,
    WireStep,
)
from holdfast.formats.acp.messages import As
from holdfast.formats.acp.tool_calls import PERMISSION, has_input, is_final
from holdfast.formats.reading import Block, fields, text


class ToStore(msgspec.Struct):
    """Steps that a line asks for, before it is passed on and after."""

    before: list[WireStep] = []
    after: list[WireStep] = []

    def say_more(self, said: Said) -> None:
        """One more update of a message; with the one before it, where that is of the same one."""
        last = self.before[-1] if self.before else None
        if isinstance(last, Said) and last.slot == said.slot:
            updates = (*last.updates, *said.updates)
            said = Said(
                said.session,
                said.slot,
                said.kind,
                updates,
            )
            self.before.pop()
        self.before.append(said)


class GrowingCall(msgspec.Struct):
    """A tool call that has no outcome yet. `takes_input`: its message is not whole. `is_begun`: its
    input is known, or the tool is at work. `said`: what was told of its outcome so far.
    """

    id: str
    slot: str
    turn: int
    takes_input: bool = True
    is_begun: bool = False
    input: Any = None
    outcome: str | None = None
    said: list[Block] = []


class Growing:
    """What grows in one session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.turn = 0
        """Counts the turns of this connection; what belongs to an earlier one comes late."""
        self.is_in_turn = False
        self.prompt = ""
        """What the user has asked in this turn."""
        self._gives_ids = False
        """Whether the agent has given ids to messages of its model."""
        self._unnamed: list[str] = []
        self._slots = 0
        self._speaking: tuple[str, Any] | None = None
        self._calls: dict[str, GrowingCall] = {}
        self._done: dict[str, str] = {}

    def begin(self, prompt: str = "") -> None:
        """A turn begins."""
        self.turn += 1
        self.is_in_turn = True
        self.prompt = prompt

    def end(self) -> None:
        """The turn is over; its calls may still be answered."""
        self.is_in_turn = False
        self.prompt = ""
        self._speaking = None
        self._unnamed.clear()

    def begun_calls(self, *, but: GrowingCall | None = None) -> tuple[str, ...]:
        """The calls of this turn that were begun are whole: the slots of those that were not
        before.
        """
        slots = []
        for call in self._calls.values():
            if call is not but and call.is_begun and self._is_growing(call):
                call.takes_input = False
                slots.append(call.slot)
        return tuple(slots)

    def aside(self) -> list[WireStep]:
        """What no model has said. An agent that gives its model's messages ids says other things,
        such as warnings, without one: those are shown to people alone.
        """
        steps: list[WireStep] = []
        # Only known at the end of a turn: a first message without an id may be the model's.
        if self._gives_ids:
            for slot in self._unnamed:
                steps.append(SaidAside(self.session, slot))
        return steps

    def expect(self, calls: set[str]) -> None:
        """These calls are stored without an outcome, which may still come."""
        for id in calls:
            if id not in self._calls:
                self._calls[id] = GrowingCall(id, "", -1, takes_input=False)

    def close_all(self) -> list[WireStep]:
        """The steps after which all that was said is whole."""
        return self._close(self.end_all())

    def end_all(self) -> tuple[str, ...]:
        """All that was said is whole: the slots of messages that were not whole before."""
        slots = []
        if self._speaking is not None:
            slots.append(self._speaking[0])
            self._speaking = None
        for call in self._calls.values():
            if call.turn == self.turn and call.takes_input:
                call.takes_input = False
                slots.append(call.slot)
        return tuple(slots)

    def slot_of(self, call_id: str) -> str | None:
        """The slot of a call's message."""
        call = self._calls.get(call_id)
        slot = self._done.get(call_id, "") if call is None else call.slot
        return slot or None

    def update(self, update: Block, todo: ToStore) -> None:
        """An update of the agent's."""
        kind = text(update.get("sessionUpdate"))
        if kind in SPOKEN and not self._is_echo(update):
            self._speak(update, todo)
        elif kind in ("tool_call", "tool_call_update") and update.get("toolCallId"):
            self._tool(update, todo)
        else:
            todo.before.append(Noted(self.session, f"acp.{kind}", update))

    def ask(
        self,
        call: Block,
        facts: Block,
        todo: ToStore,
    ) -> str | None:
        """The agent asks for permission to run this call, which may be the first that is heard of
        it; the slot of its message.
        """
        id = text(call.get("toolCallId"))
        known = self._calls.get(id)
        is_new = bool(id) and known is None and id not in self._done
        if is_new:
            known = self._announce_asked(id, call, todo)
        slot = self.slot_of(id)
        noted = Noted(
            self.session,
            "acp.permission",
            facts,
            slot,
        )
        is_growing = known is not None and self._is_growing(known)
        if known is None or not (is_new or is_growing):
            todo.before.append(noted)
            return slot
        # A label needs a message that is in the log. This one is not: the request is stored with it,
        # in the commit that is waited for anyway, and noted as a label afterwards.
        request = {
            "sessionUpdate": PERMISSION,
            "toolCallId": id,
            "request": facts,
        }
        updates = (*_asked_input(known, call), request)
        todo.say_more(
            Said(
                self.session,
                known.slot,
                "call",
                updates,
            )
        )
        if known.takes_input:
            known.takes_input = False
            todo.after.append(MessageClosed(self.session, known.slot))
        todo.after.append(noted)
        return slot

    def _announce_asked(
        self,
        id: str,
        call: Block,
        todo: ToStore,
    ) -> GrowingCall:
        update = {**call, "sessionUpdate": "tool_call"}
        # What waits for permission has no outcome, whatever the request says.
        if is_final(update):
            del update["status"]
        self._announce(id, update, todo)
        return self._calls[id]

    def _is_growing(self, call: GrowingCall) -> bool:
        return self.is_in_turn and call.turn == self.turn and call.takes_input

    def _is_echo(self, update: Block) -> bool:
        """Whether an agent says back what the user has asked, which is stored."""
        if update.get("sessionUpdate") != USER or not self.prompt:
            return False
        words = text(fields(update.get("content")).get("text")).strip()
        return words in self.prompt

    def _speak(self, update: Block, todo: ToStore) -> None:
        kind: As = "message"
        if update.get("sessionUpdate") == USER:
            kind = "user"
        id = update.get("messageId")
        # Without an id, what is thought and what is said are two messages.
        key = (kind, id) if id is not None else (update.get("sessionUpdate"), None)
        self._need_turn(todo)
        if self._speaking is None or self._speaking[1] != key:
            # Only after the line is out: that another message has ended keeps nobody waiting.
            todo.after += self._hush()
            todo.after += self._close(self.begun_calls())
            self._speaking = (self._slot(kind), key)
            if kind == "message" and id is None:
                self._unnamed.append(self._speaking[0])
        self._gives_ids = self._gives_ids or id is not None
        slot = self._speaking[0]
        todo.before.append(Said(self.session, slot, kind, (update,)))

    def _close(self, slots: tuple[str, ...]) -> list[WireStep]:
        return [MessageClosed(self.session, slot) for slot in slots]

    def _hush(self) -> list[WireStep]:
        """What is being said is whole."""
        if self._speaking is None:
            return []
        slot, self._speaking = self._speaking[0], None
        return [MessageClosed(self.session, slot)]

    def _tool(self, update: Block, todo: ToStore) -> None:
        id = text(update["toolCallId"])
        call = self._calls.get(id)
        # Some agents number the calls of each turn anew; one that was cut off has no outcome.
        if call is not None and call.turn != self.turn and _is_first(update):
            call = None
        if call is None:
            is_new = update["sessionUpdate"] == "tool_call" or id not in self._done
            if is_new:
                self._announce(id, update, todo)
            else:
                slot = self._done[id] or None
                name = "acp.tool_call_update"
                todo.before.append(Noted(self.session, name, update, slot))
        # Turns are over for good: nothing can be written into one of them.
        elif call.turn != self.turn or not self.is_in_turn:
            self._late(call, update, todo)
        elif call.takes_input:
            self._grow(call, update, todo)
        else:
            self._go_on(call, update, todo)

    def _announce(
        self,
        id: str,
        update: Block,
        todo: ToStore,
    ) -> None:
        self._need_turn(todo)
        call = self._calls[id] = GrowingCall(
            id,
            self._slot("call"),
            self.turn,
        )
        todo.after += self._hush()
        todo.after += self._close(self.begun_calls(but=call))
        self._grow(call, update, todo)

    def _grow(
        self,
        call: GrowingCall,
        update: Block,
        todo: ToStore,
    ) -> None:
        """More of a call whose message is not whole."""
        is_over = is_final(update)
        # An outcome alone says nothing of the call, unless nothing was said of it before.
        is_of_call = has_input(update) or _is_first(update)
        is_of_outcome = is_over or (call.is_begun and not is_of_call)
        if is_of_call or not is_of_outcome:
            said = Said(
                self.session,
                call.slot,
                "call",
                (update,),
            )
            todo.before.append(said)
            call.input = update.get("rawInput") or call.input
        if is_over:
            # Those that came before it stand before it.
            todo.after += self._close(self.begun_calls(but=call))
            call.takes_input = False
            todo.after.append(MessageClosed(self.session, call.slot))
        # From here on a kill leaves a call that was made: a model is told so, and that its outcome is
        # unknown.
        is_at_work = update.get("status") == "in_progress"
        if has_input(update) or is_at_work:
            call.is_begun = True
        if is_of_outcome or (call.outcome is not None and is_of_call):
            self._go_on(call, update, todo)

    def _go_on(
        self,
        call: GrowingCall,
        update: Block,
        todo: ToStore,
    ) -> None:
        """A tool that is at work says something, or has come to its end."""
        if call.outcome is None:
            call.outcome = self._slot("outcome")
        call.said.append(update)
        todo.before.append(
            Said(
                self.session,
                call.outcome,
                "outcome",
                (update,),
            )
        )
        if is_final(update):
            todo.after += self._close(self.begun_calls(but=call))
            # What was said until now was said before it. A message with an id goes on after it.
            if self._speaking is not None and self._speaking[1][1] is None:
                todo.after += self._hush()
            todo.after.append(MessageClosed(self.session, call.outcome))
            self._finish(call)

    def _late(
        self,
        call: GrowingCall,
        update: Block,
        todo: ToStore,
    ) -> None:
        """Something about a call of a turn that is over."""
        # What it printed came before its end, in this turn or in its own.
        call.said.append(update)
        if is_final(update):
            updates = tuple(call.said)
            todo.before.append(
                CallAnswered(
                    self.session,
                    call.id,
                    updates,
                )
            )
            self._finish(call)
        else:
            slot = call.slot or None
            todo.before.append(
                Noted(
                    self.session,
                    "acp.tool_call_update",
                    update,
                    slot,
                )
            )

    def _finish(self, call: GrowingCall) -> None:
        del self._calls[call.id]
        # Kept: agents go on telling of a call that is over, and that is noted on its message.
        self._done[call.id] = call.slot

    def _need_turn(self, todo: ToStore) -> None:
        """Nobody has asked: the agent speaks of itself, in a turn of its own."""
        if not self.is_in_turn:
            self.begin()
            todo.before.append(OwnTurnBegan(self.session))

    def _slot(self, kind: As) -> str:
        self._slots += 1
        return f"{kind}:{self._slots}"


def _asked_input(call: GrowingCall, asked: Block) -> tuple[Block, ...]:
    """The input of a call that is told where permission for it is asked, if it is another."""
    if not has_input(asked) or asked["rawInput"] == call.input:
        return ()
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call.id,
        "rawInput": asked["rawInput"],
    }
    return (update,)


def _is_first(update: Block) -> bool:
    return update.get("sessionUpdate") == "tool_call"
