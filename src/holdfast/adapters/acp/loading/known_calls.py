"""Which calls of a replayed session the store has. Ids of calls are the same in every replay, but
some agents number the calls of each turn anew: so a call is known by its id and by its place.
"""

import msgspec

from holdfast.adapters.acp.loading.stored_words import StoredTranscript
from holdfast.formats.acp.tool_calls import is_final
from holdfast.formats.reading import Block, text


class StoredCall(msgspec.Struct):
    """A call in this stretch of the stored session; `is_met`: it was replayed."""

    stretch: int
    is_answered: bool = False
    is_met: bool = False


class ReplayedCall(msgspec.Struct):
    """The call that updates of a replay are about; `stored` is None where it is new. `prompts`
    counts those that were replayed before it.
    """

    stored: StoredCall | None
    prompts: int
    is_over: bool = False


class KnownCalls:
    """The calls of a session; is told what is replayed of them, and says what is new."""

    def __init__(self, transcript: StoredTranscript) -> None:
        self._transcript = transcript
        self._stored: dict[str, list[StoredCall]] = {}
        self._replayed: dict[str, ReplayedCall] = {}

    def add(self, id: str, *, is_call: bool, is_answer: bool) -> None:
        """A stored message is a call, or tells of the outcome of one."""
        calls = self._stored.setdefault(id, [])
        if is_call:
            calls.append(StoredCall(self._transcript.last))
        elif is_answer and calls:
            # An id that is used again names the call that was made last.
            calls[-1].is_answered = True

    @property
    def unanswered(self) -> set[str]:
        """The ids of calls that have no outcome."""
        found = set()
        for id, calls in self._stored.items():
            if not all(call.is_answered for call in calls):
                found.add(id)
        return found

    def news(self, update: Block, prompts: int) -> Block | None:
        """The update, if it is new; None when the store has it."""
        id = text(update.get("toolCallId"))
        call = self._replayed.get(id)
        if call is None or _is_another(call, update, prompts):
            call = self._replayed[id] = ReplayedCall(self._find(id), prompts)
        call.is_over = call.is_over or is_final(update)
        if call.stored is None:
            return update
        # It was cut off here, and came to its end without us.
        if is_final(update) and not call.stored.is_answered:
            call.stored.is_answered = True
            return {**update, "sessionUpdate": "tool_call_update"}
        return None

    def _find(self, id: str) -> StoredCall | None:
        here, is_astray = self._transcript.stretch, self._transcript.is_astray
        unmet = [call for call in self._stored.get(id, ()) if not call.is_met]
        onward = [call for call in unmet if call.stretch >= here + is_astray]
        # After a prompt that is new, what was called before is another call.
        for call in onward or ([] if is_astray else unmet):
            call.is_met = True
            return call
        return None


def _is_another(call: ReplayedCall, update: Block, prompts: int) -> bool:
    """Whether an update tells of another call than the one that its id has named so far."""
    if update.get("sessionUpdate") != "tool_call":
        return False
    return call.is_over or call.prompts != prompts
