"""The inbox of one gateway: receipts in the store, and the book of those that are open.

A message is accepted under a key of its chat, before Hermes does anything with it. The session that
answers it is known only when a turn starts; that turn brings the message along. What Hermes does
something else with, a command or an answer to a question of its own, is settled: a turn of the inbox
itself takes it, and says nothing.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Any

from holdfast import PendingMessage, Receipt, Store
from holdfast.adapters.hermes.received.book import STARTS_MAX, TRIES_MAX, Book, Received
from holdfast.adapters.hermes.received.event_labels import (
    LABEL,
    event_id_of,
    identity_of,
    is_command,
    labels_of,
    place_of,
    words_of,
)
from holdfast.errors import AlreadyAccepted, HoldfastError
from holdfast.runtime.process_identity import is_gone, myself

log = logging.getLogger("holdfast.hermes")

INBOX = "hermes-inbox:"
"""Before the name of a chat: the key of its inbox."""
PAGE = 200
TRIES = "hermes_tries"
"""The label that counts how often a message was put back in vain."""
STARTS = "hermes_starts"
"""The label that counts the processes which have put it back."""
ATTRIBUTE = "_holdfast_received"
"""Where an event has what it was received as: several, once events were joined."""


class GatewayInbox:
    """What came in for one `state.db`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.book = Book()
        self._loading = threading.Lock()
        self._is_loaded = False

    def receive(self, event: Any, key: str) -> bool:
        """Stores a message that came in; False when it came before. It is in the caller's hands then
        (`Book.leave`).
        """
        inbox = INBOX + place_of(event)
        said = {"role": "user", "content": event.text or ""}
        if is_command(event):
            return self._note_command(inbox, said, event)
        labels = labels_of(event, key, myself())
        receipt = self.store.accept(
            inbox, said, event_id=event_id_of(event), labels=labels
        )
        if receipt.again:
            return False
        received = _received(receipt, said["content"], labels)
        self.attach(event, [received])
        self.book.add(received, is_inside=True)
        return True

    def _note_command(self, inbox: str, said: dict[str, Any], event: Any) -> bool:
        """A command is known when it comes again, and is never put back: it may be half done."""
        try:
            session = self.store.session(inbox)
            session.append(said, event_id=event_id_of(event))
        except AlreadyAccepted:
            return False
        # It has nothing to wait for, and is looked up no more.
        self.attach(event, [])
        return True

    def of(self, event: Any) -> list[Received]:
        """What is open of an event, of those joined to it, or of the one that it is a copy of."""
        some = getattr(event, ATTRIBUTE, None)
        if some is None:
            some = []
            known = None
            # A word of Hermes' own was not received, whatever it is an answer to.
            if not event.internal:
                known = self.book.of_event(identity_of(event))
            if known is not None:
                some.append(known)
            self.attach(event, some)
        return self.book.open_of(some)

    def arrival(self, event: Any) -> str:
        """The id of the first message of an event, which begins with the time of its receipt; empty
        where it has none.
        """
        messages = self.of(event)
        if not messages:
            return ""
        return messages[0].id

    def attach(self, event: Any, some: Iterable[Received]) -> None:
        """From now on the event stands for these."""
        setattr(event, ATTRIBUTE, list(some))

    def join(self, event: Any, other: Any) -> None:
        """The words of another event were joined to those of this one."""
        # By id: Hermes may join an event to a copy of itself.
        joined: dict[str, Received] = {}
        for each in self.of(event):
            joined[each.id] = each
        for each in self.of(other):
            joined[each.id] = each
        self.attach(event, joined.values())

    def settle(self, some: Iterable[Received]) -> None:
        """Hermes has done something else with these than to answer them in a turn."""
        for each in self.book.close(some):
            try:
                session = self.store.get(each.receipt.session_id)
                with session.turn(take=[each.receipt]):
                    pass
            except HoldfastError as error:
                log.warning("a message stays in the inbox: %s", error)

    def hopeful_of(
        self, some: Iterable[Received]
    ) -> tuple[list[Received], list[Received]]:
        """Those of these that are to be put back, of which the first is handed in now; and those that
        had enough tries.
        """
        hopeful: list[Received] = []
        hopeless: list[Received] = []
        for each in some:
            each.is_wanted = False
            # The others stood behind the first: Hermes has not seen them.
            if each.was_put_back:
                each.tries += 1
                each.was_put_back = False
            if each.tries >= TRIES_MAX or each.starts >= STARTS_MAX:
                hopeless.append(each)
            else:
                hopeful.append(each)
        for each in hopeful[:1]:
            # Left by another process: this one has it for the first time.
            each.starts += each.is_left
            each.was_put_back = True
        for each in (*hopeful, *hopeless):
            each.is_left = False
        return hopeful, hopeless

    def note_tries(self, some: Iterable[Received]) -> None:
        """Stores how often each was tried: the next process goes on counting."""
        for each in some:
            if each.tries or each.starts:
                session = self.store.get(each.receipt.session_id)
                session.label(each.id, **{TRIES: each.tries, STARTS: each.starts})

    def load(self) -> None:
        """Finds what earlier processes have left; once."""
        with self._loading:
            if self._is_loaded:
                return
            after = None
            while True:
                page = self.store.pending(after=after, limit=PAGE)
                for message in page:
                    self._take_over(message)
                after = page.next
                if after is None:
                    break
            self._is_loaded = True

    def _take_over(self, message: PendingMessage) -> None:
        said = message.labels.get(LABEL)
        # One that a killed turn gave back is in its session: Hermes resumes that by itself.
        if not (message.key or "").startswith(INBOX):
            return
        if not isinstance(said, dict) or "key" not in said:
            return
        # One that this process has received meanwhile, or that a living one will answer.
        holder = said.get("process")
        if holder is not None and not is_gone(holder):
            return
        receipt = Receipt(message.session_id, message.id)
        received = _received(receipt, message.text, message.labels)
        received.is_left = True
        received.tries = _count(message, TRIES)
        received.starts = _count(message, STARTS)
        self.book.add(received)


def _count(message: PendingMessage, name: str) -> int:
    count = message.labels.get(name)
    # A label may be set by anybody who has the store.
    return count if isinstance(count, int) else 0


def received_on(event: Any) -> list[Received]:
    """What an event was received as, open or not; nothing where it was not received."""
    return list(getattr(event, ATTRIBUTE, ()))


def is_received(event: Any) -> bool:
    """Whether this very event was received before: Hermes hands some in again."""
    return hasattr(event, ATTRIBUTE)


def _received(receipt: Receipt, text: str, labels: dict[str, Any]) -> Received:
    said = labels[LABEL]
    source = said["source"]
    event_id = None
    # As `identity_of` has it: a copy of the event is known by that.
    if said.get("message_id"):
        place = f"{source['platform']}:{source['chat_id']}"
        event_id = f"{place}:{said['message_id']}"
    return Received(
        receipt, key=said["key"], text=words_of(text), event_id=event_id, labels=labels
    )
