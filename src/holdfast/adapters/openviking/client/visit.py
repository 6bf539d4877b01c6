"""One visit of a sender to a session: its position, the connection, and how the two are stored.

A visit is a turn of the delivery log, so there is one at a time. Whatever it is cut off by, the
newest position says what is known and what is in doubt.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from holdfast import Message, Turn
from holdfast.adapters.openviking.client.arrived import NotNow, counted
from holdfast.adapters.openviking.client.deliveries import DeliveryLog
from holdfast.adapters.openviking.client.http_connection import (
    NOT_OPENVIKINGS,
    HttpAnswer,
    HttpConnection,
)
from holdfast.adapters.openviking.client.outgoing import BATCH_MAX, Body, outgoing
from holdfast.adapters.openviking.client.position import (
    DeliveryRecord,
    LogPlace,
    MessageRefused,
    MessagesLost,
    Stretches,
)
from holdfast.domain.ids import turn_id
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turns.recovery import settle_to_read

IDLE_S = 2.0
"""A connection that was not used for so long is taken for a new one: the server may have closed
it, and have been restarted.
"""
REFUSALS = 3
"""So often in a row a message or a commit is refused before it counts as refused. OpenViking answers
400, too, when it has read one of its own files in the middle of being written.
"""
_NO_CONNECTION = (0, 0)


class RequestInDoubt:
    """What a process knows of the request that a position says was about to be sent. `is_over`: it
    arrived by now, or never will.
    """

    def __init__(self, at: int | None = None, since: float = 0.0) -> None:
        self.at, self.since = at, since
        self.is_over = False


class VisitMemory:
    """What a process remembers of a session between two visits. None of it has to last."""

    def __init__(self) -> None:
        self.checked = _NO_CONNECTION
        """The connection on which the counters were last seen to be right."""
        self.spoke_at = 0.0
        self.width = BATCH_MAX
        """How many messages go at once: fewer after a refusal, to find the one at fault."""
        self.doubt = RequestInDoubt()
        self.failures: tuple[str, int] = ("", 0)
        """A message or a commit, and how often in a row it was answered with an error."""


def _tells_count(result: dict[str, Any]) -> bool:
    return type(result.get("message_count")) is int


class Visit:
    """A session that is being sent."""

    def __init__(
        self,
        log: DeliveryLog,
        turn: Turn,
        http: HttpConnection,
        memory: VisitMemory,
        *,
        grace_s: float,
    ) -> None:
        self.log, self.http, self.memory = log, http, memory
        self.viking_id = log.viking_id
        self._turn, self._grace_s = turn, grace_s
        self._world = log.session._log.world
        # Read in the turn: another process may have been the sender since the last visit.
        self.position = self._stored = log.position()

    def store(self, *reports: DeliveryRecord) -> None:
        """Stores the position, and what there is to report with it, in one commit. How far was
        looked for commits is not news by itself: each such record would be looked at next time.
        """
        known = replace(self._stored, requests=self.position.requests)
        if reports or self.position != known:
            self.log.store(self._turn, [*reports, self.position])
            self._stored = self.position

    def about_to_send(self) -> None:
        """Stores that a request is going to be sent: from here on it may have arrived."""
        self.position = replace(self.position, doubt_at=self._world.now())
        self.store()

    def send(
        self, path: str, body: object, is_told: Callable[[dict[str, Any]], bool]
    ) -> HttpAnswer:
        """Sends the request that was announced, and remembers what is known of it. `is_told`: whether
        a result says what was done; one that does not is as good as no answer.
        """
        answer = self.http.session("POST", self.viking_id, path, body)
        if answer.ok and not is_told(answer.fields):
            answer = NOT_OPENVIKINGS
        # Whatever was answered: a server that was silent for long may be another one.
        self.memory.spoke_at = self._world.tick()
        self._doubt().is_over = not answer.may_arrive
        if not answer.was_sent:
            # There is nothing to look for, also for the next process.
            self.position = replace(self.position, doubt_at=None, committing="")
            self.store()
        return answer

    def failures(self, id: str) -> int:
        """How often in a row this message or commit was answered with an error."""
        # Of one thing at a time: an answer to anything else begins a new count.
        known, failures = self.memory.failures
        return failures if known == id else 0

    def count_failure(self, id: str) -> int:
        """Counts one more, and gives their number."""
        self.memory.failures = (id, self.failures(id) + 1)
        return self.failures(id)

    def make_sure_of(self, lost: MessagesLost, there: Collection[str]) -> MessagesLost:
        """Raises `NotNow` until a loss was seen several times in a row: a file that OpenViking is
        just writing looks empty, and what is there must not be sent again. Gives the loss as it is
        to be told; `there` are the ids of what was found.
        """
        if lost.why == "gone":
            sent = self.covered(((LogPlace(), self.position.sent),))
            lost = replace(lost, messages=len(sent.keys() - set(there)))
        if self.count_failure(f"{lost.messages} lost") < REFUSALS:
            raise NotNow(f"{lost.messages} messages are missing there")
        if self.is_elsewhere():
            lost = replace(lost, address=self.http.address)
        return lost

    def is_elsewhere(self) -> bool:
        """Whether the client has another address than the one that all was sent to so far."""
        return self.position.address not in ("", self.http.address)

    def is_doubt_over(self) -> bool:
        """Whether the request in doubt can't arrive any more. One whose end nobody saw may still be
        under way at the server, and is given time.
        """
        doubt = self._doubt()
        # Either clock will do: the calendar's may have been set, the other began with this process.
        age_s = (self._world.now() - (self.position.doubt_at or 0)) / 1000
        waited_s = self._world.tick() - doubt.since
        return doubt.is_over or max(age_s, waited_s) >= self._grace_s

    def _doubt(self) -> RequestInDoubt:
        # Another process may have been the sender in between: what is remembered of one request
        # says nothing about the next.
        if self.memory.doubt.at != self.position.doubt_at:
            tick = self._world.tick()
            self.memory.doubt = RequestInDoubt(self.position.doubt_at, tick)
        return self.memory.doubt

    def is_checked(self) -> bool:
        """Whether what OpenViking has is known: nothing is in doubt, and the server has been the
        same process since the last look at its counters.
        """
        if self.position.doubt_at is not None:
            return False
        is_idle = self._world.tick() - self.memory.spoke_at > IDLE_S
        return self.memory.checked == (id(self.http), self.http.made) and not is_idle

    def checked(self) -> None:
        """Remembers that the counters were seen on this connection."""
        self.memory.checked = (id(self.http), self.http.made)
        self.memory.spoke_at = self._world.tick()

    def unchecked(self) -> None:
        """Has the counters looked at before anything else is sent."""
        self.memory.checked = _NO_CONNECTION

    def messages(self, after: int, limit: int) -> Sequence[Message]:
        """So many messages of the transcript after this seq."""
        return list(islice(self.log.session.transcript(after=after), limit))

    def is_done(self) -> bool:
        """Whether nothing of the session is left to be sent, to be followed, or to be asked for
        again.
        """
        position = self.position
        # A message that waits for a tool's result counts: nobody else will look for it.
        if position.tasks or position.failed or self.messages(position.sent.seq, 1):
            return False
        return isinstance(
            self.log.next_request(position.requests),
            int,
        )

    def covered(self, covers: Stretches) -> dict[str, Body]:
        """The messages of these stretches by their ids, as OpenViking takes them."""
        bodies: dict[str, Body] = {}
        for first, last in covers:
            items = outgoing(self._between(first, last), running=None)
            for item in items:
                if item.body is not None and item.ids[0] not in self.position.refused:
                    bodies[item.ids[0]] = item.body
        return bodies

    def _between(self, first: LogPlace, last: LogPlace) -> list[Message]:
        messages = []
        for message in self.log.session.transcript(after=first.seq):
            if message.seq > last.seq:
                break
            messages.append(message)
        return messages

    def count(self, result: dict[str, Any], sent: int) -> None:
        """Adds what was sent to the counter. If the answer has another number, others write there,
        too, or what was there is gone: that calls for a look.
        """
        added = result.get("added")
        # A message of several tool parts becomes several there.
        if isinstance(added, int):
            sent = added
        expected = (self.position.live or 0) + sent
        self.position = replace(self.position, live=expected)
        if result["message_count"] != expected:
            self.unchecked()

    def send_messages(self, bodies: list[Body]) -> HttpAnswer:
        """Sends these messages, as it was announced."""
        return self.send("/messages/batch", {"messages": bodies}, _tells_count)

    def narrow(self, bodies: list[Body], answer: HttpAnswer) -> None:
        """A batch was refused: fewer at once, down to the one that is at fault. That one is left out
        and reported; the others go on in their order.
        """
        self.position = replace(self.position, doubt_at=None)
        if len(bodies) > 1:
            self.memory.width = len(bodies) // 2
            return
        id = bodies[0]["source_message_ids"][0]
        if self.count_failure(id) < REFUSALS:
            raise NotNow(answer)
        self._insist_on_session()
        self.position = replace(
            self.position,
            refused=(*self.position.refused, id),
        )
        self.store(MessageRefused(id, answer.status, str(answer)))

    def _insist_on_session(self) -> None:
        """A message is at fault only if its session is taken: where the id of the session is
        refused, so would be every message.
        """
        if counted(self.http, self.viking_id) is not None:
            return
        wanted = {"session_id": self.viking_id}
        made = self.http.ask("POST", "/api/v1/sessions", wanted)
        if not made.ok and made.status != 409:
            raise NotNow(made)

    def acknowledged(self) -> list[LogPlace]:
        """Our messages after `since` that OpenViking has acknowledged."""
        messages = self._between(self.position.since, self.position.sent)
        items = outgoing(messages, running=None)
        places = [item.place for item in items if item.body is not None]
        return [place for place in places if place.id not in self.position.refused]

    def running_turn(self) -> str | None:
        """The turn that runs in the session; one whose process is gone is ended first."""
        state = run(settle_to_read(self.log.session._log))
        if state.turn is None:
            return None
        return turn_id(self.log.session.id, state.turn)
