"""The messages of one agent in one session, as Strands lists them: by their places, from the first.

The list is everything that was said, however the conversation manager trims what the model sees, so
a place stays what it is. What a killed process had shown stands in it as far as it was shown. A
message that was redacted has other words in the view; the transcript keeps what was said.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from holdfast.domain.entry import Edit, Shape
from holdfast.domain.log.view import ranges
from holdfast.domain.message import thaw
from holdfast.domain.repair import StoredMessage, seqs_of
from holdfast.engine.protocol import Write
from holdfast.formats.frameworks.strands import NAME, message_of
from holdfast.formats.reading import is_blank
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read, run
from holdfast.runtime.session import Session
from holdfast.runtime.turns.recovery import settle_to_read

Record = dict[str, Any]
"""What Strands keeps of a message: `SessionMessage.to_dict()`."""


class ListedMessage(NamedTuple):
    """A message in its place, and the record of it."""

    seen: StoredMessage
    record: Record


class AgentMessages:
    """An agent's messages. Cheap to make: what was read is remembered by the session's handle."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._log = session._log

    def ids(self) -> list[str]:
        """The ids of all messages in the list."""
        return [seen.id for seen in self._standing()]

    def listed(self, limit: int | None = None, offset: int = 0) -> list[ListedMessage]:
        """So many messages from this place on."""
        end = None if limit is None else offset + limit
        found: list[ListedMessage] = []
        for place, seen in enumerate(self._standing()[offset:end], offset):
            record = self._record(seen)
            last = found[-1].record["message_id"] if found else -1
            record["message_id"] = _number(record, place, last)
            found.append(ListedMessage(seen, record))
        return found

    def find(self, message_id: int, tracking_id: Any = None) -> ListedMessage | None:
        """The message of this number. Two processes may have given one number to two messages; then
        the one with this tracking id is meant.
        """
        if message_id < 0:
            return None
        # Numbers are places, unless somebody has numbered otherwise.
        near = self.listed(limit=1, offset=message_id)
        marked = numbered = None
        for listed in chain(near, self._all()):
            is_numbered = listed.record["message_id"] == message_id
            mark = message_of(listed.record).get("tracking_id")
            is_marked = tracking_id is None or mark == tracking_id
            if is_numbered and is_marked:
                return listed
            if is_marked and tracking_id is not None:
                marked = listed
            elif is_numbered:
                numbered = listed
        return marked or numbered

    def _all(self) -> Iterator[ListedMessage]:
        # Only read when it is needed.
        yield from self.listed()

    def reword(self, seen: StoredMessage, record: Record) -> None:
        """From now on the view shows this record in the place of what was said."""
        run(_reworded(self._log, seen.seq, record))

    def _standing(self) -> list[StoredMessage]:
        """What stands in the list, in order: a summary of ours does not, nor what was hidden or
        rewound.
        """
        run(settle_to_read(self._log))
        log = self._log.log()
        # A first load begins with the last compaction. Places are counted from the
        # first message.
        if log.since > 1:
            log = self._log.history()
        with self._log.lock:
            gone = log.gone
            found = []
            for seen in log.natural:
                is_out = seen.id in log.hidden or seen.seq in gone
                if not is_out and seen.note.origin != "summary":
                    # In the words that the view has, which for a redacted message are
                    # not those that were said.
                    found.append(log.worded(seen))
        return [seen for seen in found if self._says_something(seen)]

    def _says_something(self, seen: StoredMessage) -> bool:
        # Nearly all are whole messages of Strands', which are not looked at.
        if seen.note.format == NAME and not seen.note.partial:
            return True
        return bool(self._record(seen)["message"]["content"])

    def _record(self, seen: StoredMessage) -> Record:
        message = Message(self._log.with_payload(seen), turn=None)
        payload = message.payload
        if isinstance(payload, dict) and "message" in payload:
            return payload
        if message.format == NAME and isinstance(payload, dict):
            said = _sendable(message_of(payload)) if seen.note.partial else payload
        else:
            # Said by another program, or it can't be read: its words are what is left.
            role = "assistant" if message.role == "assistant" else "user"
            words = [] if is_blank(message.text) else [{"text": message.text}]
            said = {"role": role, "content": words}
        at = datetime.fromtimestamp(seen.at / 1000, UTC).isoformat()
        return {"message": said, "created_at": at, "updated_at": at}


def _sendable(message: Record) -> Record:
    """What may be sent again of a message that was cut: its words. A call in it was never run, and
    thoughts that led to nothing are refused by those who sign them.
    """
    kept = []
    for block in message.get("content", ()):
        if not is_blank(block.get("text")):
            kept.append(block)
    return {**message, "content": kept}


def _number(record: Record, place: int, last: int) -> int:
    """The number of the message at this place: its own, unless that is not above the last one."""
    own = record.get("message_id")
    if isinstance(own, int) and own > last:
        return own
    return max(place, last + 1)


def _reworded(log: SessionLog, seq: int, record: Record) -> Plan[None]:
    spoken = speak(record, NAME)
    edits = {seq: Edit(spoken.note, thaw(spoken.body))}
    while True:
        folded = yield from read(log.log)
        with log.lock:
            shown = ranges(folded.places, seqs_of(folded.arranged))
            head = folded.head
        draft = log.draft("view", Shape(shown, edits))
        write = Write(log.id, (draft,), head=head)
        # Refused, somebody has written meanwhile: the view is to show that, too.
        if (yield from log.commit_or_retry(write)) is not None:
            return
