"""One session at work: load, decide, commit.

Whatever is written is one transaction, guarded by what it was decided from; if that has changed,
it is decided anew. A commit is one entry that says up to where the session is archived, so there is
nothing that could be done by half.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.adapters.openviking.server.sessions.archive import (
    ARCHIVED,
    EXTRACTED,
    SETTINGS,
    STANDING,
    Extracted,
    Json,
    SessionArchive,
    further_back,
)
from holdfast.adapters.openviking.server.sessions.served_session import (
    ServedMessage,
    ServedSession,
    added,
    payload_of,
)
from holdfast.domain.entry import Draft, Entry, Labelled, note_of
from holdfast.domain.log.compaction import covering
from holdfast.engine.protocol import PAGE_BYTES_MAX, Outcome, Refused, Write
from holdfast.errors import SessionEnded
from holdfast.formats.openviking import NAME
from holdfast.runtime.changes.compact import HEADING
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import PAGE, SessionLog, speak
from holdfast.runtime.plans.plan import run, wait_for

ARCHIVE_ONLY = "{messages} messages are in {name}."
RESET = "[The context was reset here. What was said before is in the transcript.]"


class NewMessage(msgspec.Struct, frozen=True):
    """A message to be added. With an `event`, it is added once, however often it comes."""

    payload: Json
    event: str | None = None


class SessionHandle:
    """A session of a store, and what is shown of it. Safe to share among threads: whoever writes
    has it alone, so that of two commits the second sees what the first has done.
    """

    def __init__(self, log: SessionLog, uri: str) -> None:
        self.log = log
        self.uri = uri
        self.lock = threading.RLock()
        self._served = ServedSession()
        self._is_begun = False

    def served(self) -> ServedSession:
        """What is shown, up to date. Held under `lock` by whoever looks at more than one thing."""
        with self.lock:
            # An entry that can't be read takes away nothing but itself (I-25).
            return self.log.reading(self._up_to_date)

    def _up_to_date(self) -> ServedSession:
        if not self._is_begun:
            self._served = begun(self.log, self.uri)
        # If reading fails on the way, it is begun anew.
        self._is_begun = False
        while page := self.log.page(self._served.head):
            self._served.add(page)
            # An engine ends a page early when its payloads are large.
            size = sum(len(entry.body) for entry in page)
            if len(page) < PAGE and size < PAGE_BYTES_MAX:
                break
        self._is_begun = True
        return self._served

    def has_unfinished(self) -> bool:
        """Whether an archive waits for its extraction; found without reading what was said."""
        served = begun(self.log, self.uri)
        served.add(self.log.engine.labels(self.log.id, after=served.head))
        return bool(served.unfinished)

    def append(self, messages: Sequence[NewMessage]) -> ServedSession:
        """Adds these messages in one commit, all or none, but for those that came before."""
        with self.lock:
            while True:
                # Refused means that one of them has come in by another server: looked up anew.
                writes = self._writes(messages)
                if not writes or self._commit(*writes) is not None:
                    return self.served()

    def _writes(self, messages: Sequence[NewMessage]) -> list[Write]:
        writes: list[Write] = []
        seen: set[str] = set()
        for message in messages:
            event = message.event
            if event is None:
                writes.append(Write(self.log.id, (self._message(message),)))
                continue
            # Of the session and not of its key: one that was deleted and made again is empty.
            name = f"{self.log.id} {event}"
            is_known = self.log.engine.accepted(self.log.scope, name) is not None
            if name in seen or is_known:
                continue
            seen.add(name)
            draft = self._message(message, name)
            claim = self.log.scope, name
            writes.append(Write(self.log.id, (draft,), event=claim))
        return writes

    def _message(self, message: NewMessage, event: str | None = None) -> Draft:
        # Minted before it is stored, and part of what is stored: it is the same for life.
        id = mint(self.log.world, self.log.world.now())
        payload = {"id": f"msg_{id.hex()}", **message.payload}
        facts = {"event": event} if event is not None else {}
        return self.log.message(
            speak(payload, NAME, **facts),
            turn=None,
            id=id,
        )

    def set_up(self, settings: Json) -> ServedSession:
        """Stores what the session is set to from now on."""
        with self.lock:
            while True:
                served = self.served()
                if served.settings == settings:
                    return served
                if self._commit(self._settings(served, settings)) is not None:
                    return self.served()

    def _settings(self, served: ServedSession, settings: Json) -> Write:
        labels: Json = {SETTINGS: settings}
        if served.settings_message:
            draft = self.log.draft(
                "label",
                Labelled(served.settings_message, labels),
            )
            return Write(self.log.id, (draft,), head=served.head)
        # A label needs a message to be on, and a session that is set up has none yet.
        words = speak(
            "Settings of this session.",
            NAME,
            role="system",
            origin=SETTINGS,
        )
        message = self.log.message(words, turn=None)
        labels["visible_to_model"] = False
        note = Labelled(message.id.hex(), labels, served.head + 1)
        drafts = message, self.log.draft("label", note)
        return Write(self.log.id, drafts, head=served.head)

    def archive(
        self, keep: int, *, is_finished: bool, reset: bool, **asked: Any
    ) -> SessionArchive | None:
        """Archives all live messages but the last `keep`: the commit. None when there is nothing to
        archive. If it `is_finished`, nothing is to be extracted, and the messages leave the context
        at once; so they do after a `reset`.
        """
        with self.lock:
            while True:
                served = self.served()
                # Archives are finished in order, and one may wait since there was an extractor.
                is_finished = is_finished and not served.unfinished
                archived = served.live[: max(served.live_count - keep, 0)]
                if not archived:
                    return None
                archive = self._archive_of(served, archived, reset=reset, **asked)
                if is_finished or reset:
                    write = self._closing(served, archive, is_finished=is_finished)
                else:
                    write = self._boundary(archive)
                if self._commit(write) is not None:
                    return archive

    def _archive_of(
        self, served: ServedSession, archived: list[ServedMessage], **asked: Any
    ) -> SessionArchive:
        last = archived[-1]
        outputs = tuple(message.seq for message in archived if message.outputs)
        return SessionArchive(
            number=served.commits + 1,
            first=archived[0].seq,
            last=last.seq,
            messages=len(archived),
            total=served.archived_count + len(archived),
            at=self.log.world.now(),
            message=last.id,
            outputs=outputs,
            **asked,
        )

    def _boundary(self, archive: SessionArchive) -> Write:
        """The commit whose messages stay in the context for now. It moves a number, so what comes in
        meanwhile is no reason to start over; but there is one archive of each number.
        """
        draft = self._label(archive, {ARCHIVED: archive})
        claim = self.log.scope, f"{self.log.id} {archive.name}"
        return Write(self.log.id, (draft,), event=claim)

    def _closing(
        self, served: ServedSession, archive: SessionArchive, *, is_finished: bool
    ) -> Write:
        """The commit whose messages leave the context in the same transaction."""
        labels: dict[str, Any] = {ARCHIVED: archive}
        unfinished = {**served.unfinished, archive.number: archive}
        standing = served.standing(archive)
        if is_finished:
            del unfinished[archive.number]
            labels[EXTRACTED] = self._extracted(served, archive, {})
        labels[STANDING] = msgspec.structs.replace(
            standing, unfinished=tuple(unfinished.values())
        )
        text = RESET if archive.reset else _words_for(archive)
        return self._compaction(served, archive, text, labels)

    def finish(self, archive: SessionArchive, said: Json) -> bool:
        """Puts what the extractor said in the place of an archive's messages. False when it is not
        the next one: that was done before, by this process or another.
        """
        with self.lock:
            while True:
                served = self.served()
                # In order: an overview tells of all that was said before it, too.
                if archive.number != served.extracted + 1 or served.last is None:
                    return False
                done = self._extracted(served, archive, said)
                if served.messages and served.messages[0].seq <= archive.last:
                    write = self._summary(served, done)
                else:
                    # The context was reset meanwhile: nothing is left to be replaced.
                    draft = self._label(archive, {EXTRACTED: done})
                    write = Write(self.log.id, (draft,), head=served.head)
                if self._commit(write) is not None:
                    return True

    def _summary(self, served: ServedSession, done: Extracted) -> Write:
        archive = done.archive
        assert served.last is not None
        standing = served.standing(served.last)
        unfinished = [
            each for each in standing.unfinished if each.number != archive.number
        ]
        standing = msgspec.structs.replace(
            standing,
            unfinished=tuple(unfinished),
            memories=added(served.memories, done.memories),
        )
        # A summary must say something; the client is told nothing where nothing was said.
        text = done.overview.strip() or _words_for(archive)
        labels = {EXTRACTED: done, STANDING: standing}
        return self._compaction(
            served,
            archive,
            HEADING + text,
            labels,
        )

    def _extracted(
        self, served: ServedSession, archive: SessionArchive, said: Json
    ) -> Extracted:
        # Archives are finished in order, so the last one before it is one less.
        number = served.extracted + 1
        further = 0
        if further_back(number):
            further = self._place_of(served, further_back(number))
        return Extracted(
            archive=archive,
            at=self.log.world.now(),
            previous=served.extracted_at,
            further=further,
            **said,
        )

    def _compaction(
        self,
        served: ServedSession,
        archive: SessionArchive,
        text: str,
        labels: dict[str, Any],
    ) -> Write:
        """A summary in the place of an archive's messages, and of what stood before them (I-11)."""
        log = self.log.log()
        covered = []
        with self.log.lock:
            for seen in log.visible:
                # The summary before it has a later place than what was kept then.
                if seen.note.origin == "summary" or seen.seq <= archive.last:
                    covered.append(seen.id)
            note, head = covering(log, covered), log.head
        assert note is not None, "what is covered was taken from the view"
        body = speak(text, "openai.chat", origin="summary").body
        drafts = (
            self.log.draft("compaction", note, body=body),
            self._label(archive, labels),
        )
        # What came in after `served` was read is not in its standing.
        head = min(head, served.head)
        return Write(self.log.id, drafts, head=head, base=True)

    def _label(self, archive: SessionArchive, labels: dict[str, Any]) -> Draft:
        plain = msgspec.to_builtins(labels)
        return self.log.draft(
            "label",
            Labelled(archive.message, plain, archive.last),
        )

    def extracted(self, number: int) -> Extracted | None:
        """An archive whose extraction is done; found by going back from the last one."""
        served = self.served()
        if not 0 < number <= served.extracted:
            return None
        return self._read(self._place_of(served, number))

    def _place_of(self, served: ServedSession, number: int) -> int:
        """The seq of the label that says that this archive's extraction is done."""
        at, here = served.extracted, served.extracted_at
        while at > number:
            record = self._read(here)
            if further_back(at) >= number:
                at, here = further_back(at), record.further
            else:
                at, here = at - 1, record.previous
        return here

    def _read(self, seq: int) -> Extracted:
        [entry] = self.log.page(seq - 1, 1)
        note: Labelled = note_of("label", entry.note)
        return msgspec.convert(note.labels[EXTRACTED], Extracted)

    def message_at(self, seq: int) -> tuple[ServedMessage, Json] | None:
        """The message at this place, as it is shown and whole."""
        for entry in self.log.page(seq - 1, 1):
            if entry.seq == seq and entry.kind == "message":
                held = ServedSession(self.uri)
                held.add([entry])
                for message in held.messages:
                    return message, payload_of(entry, note_of("message", entry.note))
        return None

    def messages_of(self, archive: SessionArchive) -> list[ServedMessage]:
        """The messages that an archive holds."""
        held = ServedSession(self.uri)
        for page in self._pages(archive.first - 1, archive.last):
            # Messages alone: a label or a compaction among them says where the session stood.
            held.add(entry for entry in page if entry.kind == "message")
        return held.messages

    def _pages(self, after: int, last: int) -> Iterator[list[Entry]]:
        while after < last and (page := self.log.page(after, min(PAGE, last - after))):
            yield page
            after = page[-1].seq

    def _commit(self, *writes: Write) -> Outcome | None:
        """What became of these writes together; None when they were refused because something has
        changed.
        """
        outcome: Outcome = run(wait_for(self.log.engine.submit(writes)))
        if not isinstance(outcome, Refused):
            return outcome
        # Not a reason to decide anew: the session was deleted.
        if outcome.why == "ended":
            raise SessionEnded(
                session_id=self.log.id, reason="deleted", current_id=None
            )
        return None


def begun(log: SessionLog, uri: str) -> ServedSession:
    """The session, to be read from its last compaction on."""
    served = ServedSession(uri)
    state = log.state()
    served.opened_at = state.opened_at
    if state.base:
        [entry] = log.page(state.base - 1, 1)
        if entry.kind == "compaction":
            served.begin(note_of("compaction", entry.note))
    return served


def _words_for(archive: SessionArchive) -> str:
    """What stands in the model's view for an archive without an overview."""
    return ARCHIVE_ONLY.format(
        messages=archive.messages,
        name=archive.name,
    )
