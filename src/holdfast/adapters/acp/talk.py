"""One session on the wire: its prompts, open and queued; a load that replays it; and what grows in
it.

No update names the prompt it answers. Prompts are answered in the order in which they were given,
so updates belong to the first one that is open. One that is refused while another runs has no
turn.
"""

from typing import Any, Literal

from holdfast.adapters.acp.growing import Growing, ToStore
from holdfast.adapters.acp.loading.known import REPLAYED, Known
from holdfast.adapters.acp.loading.replayed_calls import ReplayedCalls
from holdfast.adapters.acp.loading.replayed_words import Told
from holdfast.adapters.acp.steps import (
    LoadBegan,
    Misplaced,
    Noted,
    PromptBegan,
    PromptQueued,
    PromptTaken,
    PromptWithdrawn,
    TurnOver,
    WireStep,
    WithdrawnTaken,
)
from holdfast.adapters.acp.wire import Line
from holdfast.formats.acp.messages import prompt_payload
from holdfast.formats.reading import Block, fields, text


class Talk:
    """What has happened in one session, as far as what comes next depends on it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.prompts: dict[str, tuple[Any, str]] = {}
        """Prompts without an answer, in order: id as it is on the wire, and words."""
        self.growing = Growing(session)
        self.known: Known | None = None
        self._calls = ReplayedCalls()
        self.given_up: set[str] = set()
        """Prompts that were answered in the agent's place. Until the agent has answered them too,
        what it says is passed on to nobody.
        """
        self._load: str | None = None
        self._added = False

    def prompt(self, line: Line, todo: ToStore) -> None:
        """The user asks something."""
        payload = prompt_payload(line.params)
        words = _words(payload)
        if self.prompts:
            todo.before.append(
                PromptQueued(
                    self.session,
                    line.id,
                    payload,
                )
            )
        else:
            # The agent was speaking of itself. What it says from now on answers the prompt.
            if self.growing.is_in_turn:
                todo.before += self._complete()
            todo.before.append(PromptBegan(self.session, line.id, payload))
            self.growing.begin(words)
        self.prompts[line.id] = (line.message.get("id"), words)

    def unprompt(self, id: str) -> None:
        """This prompt could not be stored: it was never given."""
        # One that was queued has no turn to end.
        is_running = next(iter(self.prompts), None) == id
        self.prompts.pop(id, None)
        if is_running:
            self.growing.end()

    def answered(self, line: Line, todo: ToStore) -> None:
        """The agent answers a prompt."""
        # It was answered in the agent's place, or by an agent that answers twice.
        if line.id not in self.prompts:
            return
        is_running = next(iter(self.prompts)) == line.id
        del self.prompts[line.id]
        # An error is an answer, too: what the agent said of it is kept.
        answer = line.result if line.error is None else {"error": line.error}
        if not is_running:
            is_heard = line.error is None and not _is_cancelled(line)
            todo.before.append(
                PromptWithdrawn(
                    self.session,
                    line.id,
                    answer,
                    is_heard,
                )
            )
            todo.after.append(WithdrawnTaken(self.session))
            return
        todo.after += self.growing.aside()
        todo.before += self._ended(line)
        slot = prompt_slot(line.id)
        todo.after.append(
            Noted(
                self.session,
                "acp.answer",
                answer,
                slot,
            )
        )
        # The one that waited longest is next. Its turn begins before another line is read.
        for id, (_, words) in self.prompts.items():
            todo.after.append(PromptTaken(self.session, id))
            self.growing.begin(words)
            break

    def _ended(self, line: Line) -> list[WireStep]:
        if line.error is not None:
            return [self._cut_off("failed", text(line.error.get("message")))]
        if _is_cancelled(line):
            return [self._cut_off("interrupted", "cancelled")]
        return self._complete()

    def _cut_off(self, end: Literal["interrupted", "failed"], why: str) -> TurnOver:
        """What was being said is not whole; calls that were begun are."""
        whole = self.growing.begun_calls()
        self.growing.end()
        return TurnOver(self.session, end, why, whole)

    def _complete(self) -> list[WireStep]:
        whole = self.growing.end_all()
        self.growing.end()
        return [
            TurnOver(
                self.session,
                "completed",
                whole=whole,
            )
        ]

    def cut(self, why: str) -> list[WireStep]:
        """The agent is gone: nothing more will be said."""
        self.prompts.clear()
        if not self.growing.is_in_turn:
            return []
        return [self._cut_off("interrupted", why)]

    def load(self, line: Line, todo: ToStore) -> None:
        """The client asks for a replay."""
        # Only the answer to this request ends the replay; others may be under way.
        self._load = line.id
        self._added = False
        # What the agent was saying of itself is in the log before the log is looked at.
        if self.growing.is_in_turn and not self.prompts:
            todo.before += self._complete()
        todo.before.append(LoadBegan(self.session))

    def know(self, known: Known) -> None:
        """What the store holds of this session, which is going to be replayed."""
        self.known = known
        # A call that was cut off here may have come to its end at the agent.
        self.growing.expect(known.unanswered)

    def loaded(self, line: Line, todo: ToStore) -> None:
        """The replay is over."""
        if self._load != line.id:
            return
        # A call whose output never came is told all the same.
        for update in self._calls.rest():
            self._take(update, todo)
        if self.known is not None:
            self._tell(self.known.rest(), todo)
        self._load = self.known = None
        if self.growing.is_in_turn and not self.prompts:
            todo.after += self.growing.aside()
            todo.before += self._complete()

    @property
    def is_loading(self) -> bool:
        """Whether what comes is a replay."""
        return self._load is not None

    def update(self, update: Block, todo: ToStore) -> None:
        """The agent says something."""
        updates = [update] if self._load is None else self._calls.take(update)
        for each in updates:
            self._take(each, todo)

    def _take(self, update: Block, todo: ToStore) -> None:
        if self.known is not None and update.get("sessionUpdate") in REPLAYED:
            self._tell(self.known.take(update), todo)
        else:
            self.growing.update(update, todo)

    def _tell(self, told: Told, todo: ToStore) -> None:
        """Stores what is new in a replay."""
        for news in told:
            if news is not None:
                # From here on, what is known would stand after what is new: see `Misplaced`.
                self._added = True
                self.growing.update(news, todo)
            elif self._added:
                todo.before += self.growing.close_all()
                todo.before.append(Misplaced(self.session))
                self._added = False


def prompt_slot(id: str) -> str:
    """The slot of a prompt's message."""
    return f"prompt:{id}"


def _is_cancelled(line: Line) -> bool:
    return line.result.get("stopReason") == "cancelled"


def _words(payload: Any) -> str:
    words = [text(part.get("text")) for part in fields(payload)["parts"]]
    return "\n".join(words)
