"""A session as OpenViking's clients know it, folded from the entries of its log; pure.

A load begins with the last compaction: what lies before it is in archives whose extraction is done,
and is read only by who asks for one of them. So an append, a context and a commit cost what is
shown, however long the history is.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from holdfast.adapters.openviking.server.sessions.archive import (
    ARCHIVED,
    EXTRACTED,
    SETTINGS,
    STANDING,
    Extracted,
    Json,
    SessionArchive,
    Standing,
)
from holdfast.adapters.openviking.server.sessions.tool_output import (
    ToolOutput,
    long_outputs,
    shortened,
)
from holdfast.domain.entry import Compacted, Entry, Labelled, note_of
from holdfast.domain.message import MessageNote, freeze, thaw
from holdfast.formats import registry
from holdfast.formats.openviking import NAME
from holdfast.runtime.live.message import parts_of, text_of

_LETTERS_PER_TOKEN = 4


class ServedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is shown: its place in the log, its id there, and what a client is given. Long
    outputs of tools are shown in part, and are not held.
    """

    seq: int
    id: str
    payload: Json
    tokens: int
    at: int
    outputs: list[ToolOutput]


class ServedSession:
    """What is shown of a session: messages of archives whose extraction is under way, then the live
    ones.
    """

    def __init__(self, uri: str = "") -> None:
        self.uri = uri
        self.head = 0
        self.closed = False
        self.opened_at = 0
        self.changed_at = 0
        self.messages: list[ServedMessage] = []
        self.last: SessionArchive | None = None
        self.unfinished: dict[int, SessionArchive] = {}
        self.extracted = 0
        self.extracted_at = 0
        self.overview = ""
        self.memories: dict[str, int] = {}
        self.settings: Json = {}
        self.settings_message = ""
        self.live_tokens = 0
        # Of what has come since the last commit: what it kept is not counted again.
        self.new_tokens = 0
        self._live_from = 0

    @property
    def live(self) -> list[ServedMessage]:
        """The messages that no commit has archived yet."""
        return self.messages[self._live_from :]

    @property
    def live_count(self) -> int:
        return len(self.messages) - self._live_from

    @property
    def archived_count(self) -> int:
        """How many messages its archives hold, all together."""
        return self.last.total if self.last is not None else 0

    @property
    def commits(self) -> int:
        return self.last.number if self.last is not None else 0

    def standing(self, last: SessionArchive) -> Standing:
        """Where it stands, to be written with a compaction."""
        return Standing(
            last=last,
            unfinished=tuple(self.unfinished.values()),
            extracted=self.extracted,
            extracted_at=self.extracted_at,
            memories=self.memories,
            settings=self.settings,
            settings_message=self.settings_message,
        )

    def begin(self, base: Compacted) -> None:
        """Begins with a compaction instead of the first entry."""
        self.head = base.since - 1

    def add(self, entries: Iterable[Entry]) -> None:
        """Folds entries that follow what was folded."""
        for entry in entries:
            self.head = entry.seq
            self.changed_at = entry.at
            if entry.kind == "message":
                self._say(entry, note_of("message", entry.note))
            elif entry.kind == "label":
                self._label(entry, note_of("label", entry.note))
            elif entry.kind == "compaction":
                self._compact(note_of("compaction", entry.note))
            elif entry.kind in ("closed", "erased"):
                self.closed = True

    def _say(self, entry: Entry, note: MessageNote) -> None:
        # A label needs a message to be on: the settings have one of their own, which nobody said.
        if note.erased or note.origin == SETTINGS:
            return
        whole = payload_of(entry, note)
        outputs = long_outputs(whole, entry.seq)
        payload = shortened(whole, outputs, self.uri)
        tokens = tokens_in(payload)
        id = entry.id.hex()
        self.messages.append(
            ServedMessage(
                entry.seq,
                id,
                payload,
                tokens,
                entry.at,
                outputs,
            )
        )
        self.live_tokens += tokens
        self.new_tokens += tokens

    def _label(self, entry: Entry, note: Labelled) -> None:
        labels = note.labels
        if labels.get("visible_to_model") is False:
            shown = [each for each in self.messages if each.id != note.message]
            self.messages = shown
        # Its messages stay where they are: what moves is where the live ones begin.
        if ARCHIVED in labels:
            archive = msgspec.convert(labels[ARCHIVED], SessionArchive)
            self.last = archive
            self.unfinished[archive.number] = archive
            self.new_tokens = 0
        if SETTINGS in labels:
            self.settings, self.settings_message = labels[SETTINGS], note.message
        # Before the one that says what was extracted: its seq is not known when it is written.
        if STANDING in labels:
            self._stand(msgspec.convert(labels[STANDING], Standing))
        if EXTRACTED in labels:
            done = msgspec.convert(labels[EXTRACTED], Extracted)
            number = done.archive.number
            self.unfinished.pop(number, None)
            self.extracted, self.extracted_at = number, entry.seq
            if STANDING in labels:
                self.overview = done.overview
            else:
                # The context was reset before it was done. (A standing has them added up.)
                self.memories = added(self.memories, done.memories)
        self._part()

    def _stand(self, standing: Standing) -> None:
        self.last = standing.last
        self.unfinished = {each.number: each for each in standing.unfinished}
        self.extracted = standing.extracted
        self.extracted_at = standing.extracted_at
        # What stands for all that is not shown; after a reset, nothing does.
        self.overview = ""
        self.memories = standing.memories
        self.settings = standing.settings
        self.settings_message = standing.settings_message

    def _compact(self, note: Compacted) -> None:
        # Its ranges say what is still shown; all else is covered by the summary.
        kept = []
        for message in self.messages:
            if any(first <= message.seq <= last for first, last in note.ranges):
                kept.append(message)
        self.messages = kept
        self._part()

    def _part(self) -> None:
        """Finds where the live messages begin: after the last one that was archived."""
        boundary = self.last.last if self.last is not None else 0
        self._live_from = bisect_right(self.messages, boundary, key=_seq)
        self.live_tokens = sum(message.tokens for message in self.live)


def added(totals: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Counts by name, with these added."""
    sums = dict(totals)
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count
    return sums


def tokens_in(payload: Json) -> int:
    """About how many tokens a message takes, counted as OpenViking does."""
    letters = 0
    for part in payload.get("parts") or ():
        for name in ("text", "abstract", "tool_name", "tool_output"):
            value = part.get(name)
            letters += len(value) if isinstance(value, str) else 0
        if part.get("tool_input"):
            letters += len(freeze(part["tool_input"]))
    return tokens_of(letters)


def tokens_of(letters: int) -> int:
    return -(-letters // _LETTERS_PER_TOKEN)


def _seq(message: ServedMessage) -> int:
    return message.seq


def payload_of(entry: Entry, note: MessageNote) -> Json:
    """A message as a client is given it. One that was stored in another format, by another program,
    is told in words.
    """
    if note.format == NAME:
        payload: Json = thaw(entry.body)
        return payload
    said = registry.get(NAME).say(
        note.role,
        text_of(parts_of(note, entry.body)),
    )
    assert isinstance(said, dict)
    return {"id": f"msg_{entry.id.hex()}", **said}
