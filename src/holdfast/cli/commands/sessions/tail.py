"""`holdfast sessions tail`: a session as it happens, words as they are spoken."""

from collections.abc import Iterable
from typing import Any

from holdfast import Event, Session
from holdfast.cli.codes import DONE
from holdfast.cli.graceful_exit import while_somebody_reads
from holdfast.cli.output import Output, Piece
from holdfast.cli.parser import Parser, whole_number
from holdfast.cli.render.session_text import ENDS, OUTCOME_MAX
from holdfast.cli.targets import opened_session
from holdfast.domain import cursor as cursors
from holdfast.domain.cursor import Cursor
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.message import Call, Part, Result, Text
from holdfast.exporters import units
from holdfast.exporters.entry_json import record
from holdfast.exporters.messages import message_of
from holdfast.runtime.live.message import shown_text_of

STEP = 200


def options(parser: Parser) -> None:
    parser.add_session()
    last = "the last N messages first (default: 10)"
    parser.add_value("-n", "N", last, type=whole_number, default=10)
    after = "continue after this event of --json; overrides -n"
    parser.add_value("--after", "CURSOR", after)
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Follow a session live.

    The last messages first, then whatever happens, words as they are spoken, from any process. It ends when the
    session ends, with Ctrl-C, or when nobody reads its output any more. Following stops nothing.

    With --json, one object for each event, on a line of its own: `cursor`, `kind` ("entry" or "chunk"), `entry`,
    `message_id`, `text`, as `Session.follow()` has them. Joined by `message_id`, the texts give each message once.
    """
    with opened_session(options) as session:
        cursor = options.after
        if cursor is None:
            cursor = _back(session, options.n)
        if out.is_read:
            with while_somebody_reads():
                _print_events(session, session.follow(after=cursor), out)
    return DONE


def _back(session: Session, wanted: int) -> str | None:
    """The cursor in front of the last messages; none when there are no more than these."""
    after = place = session.head()
    while after and wanted:
        # A step at a time, from the end: a long session is not read from its beginning.
        start = max(0, after - STEP)
        for entry in reversed(list(_between(session, start, after))):
            if wanted and entry.kind == "message":
                wanted -= 1
                place = entry.seq - 1
        after = start
    # A follower without a cursor begins at the first entry.
    if not place or wanted:
        return None
    return cursors.write(Cursor(session.id, place))


def _between(session: Session, after: int, until: int) -> Iterable[Entry]:
    for entry in session.entries(after=after):
        if entry.seq > until:
            return
        yield entry


def _print_events(session: Session, events: Iterable[Event], out: Output) -> None:
    printer = _EventPrinter(session, out)
    for event in events:
        if out.is_json:
            out.json(_event_json(event))
        else:
            printer.show(event)
            # Words are shown as they are spoken, also through a pipe.
            out.flush()
    printer.close()


def _event_json(event: Event) -> dict[str, Any]:
    entry = None
    if event.entry is not None:
        entry = record(event.entry)
    return {
        "cursor": event.cursor,
        "kind": event.kind,
        "entry": entry,
        "message_id": event.message_id,
        "text": event.text,
    }


class _EventPrinter:
    """Events for people. Chunks of one message continue its line; anything else begins a
    line of its own.
    """

    def __init__(self, session: Session, out: Output) -> None:
        self._session = session
        self._out = out
        self._speaking: str | None = None

    def show(self, event: Event) -> None:
        if event.entry is None:
            self._speak(event.message_id, "assistant", event.text)
        elif event.entry.kind == "message":
            self._message(event, event.entry)
        else:
            self._fact(event.entry)

    def _speak(self, message_id: str | None, role: str, text: str) -> None:
        if message_id != self._speaking:
            self.close()
            self._out.part((f"{role:<10}", role))
            self._speaking = message_id
        if text:
            self._out.part(text.replace("\n", "\n" + " " * 10))

    def _message(self, event: Event, entry: Entry) -> None:
        message = message_of(self._session, entry, turn=entry.turn)
        kinds = {type(part) for part in message.parts}
        words = event.text
        if Result in kinds:
            # What a tool answered is told below, shortened, beside its call.
            words = shown_text_of(message.parts)
        # A message whose words were all told as chunks has none left: it still has a
        # line to end.
        spoken = words or message.id == self._speaking
        if spoken or not kinds & {Call, Result}:
            self._speak(message.id, message.role, words)
            if message.state == "partial":
                self._out.part(("▌ cut off", "bad"))
        for part in message.parts:
            self._part(part)
        self.close()

    def _part(self, part: Part) -> None:
        if isinstance(part, Call):
            self._line((f"▸ {units.call(part)}", "tool"))
        elif isinstance(part, Result):
            first, *rest = units.shortened(part.content, OUTCOME_MAX).split("\n")
            self._line(("→ ", "tool"), first)
            for line in rest:
                self._line("  ", line)
        elif not isinstance(part, Text):
            self._line((units.aside(part), "quiet"))

    def _fact(self, entry: Entry) -> None:
        fact = _fact_of(entry)
        if fact is not None:
            self.close()
            when = f" · {units.moment(entry.at)}"
            self._out.line(("── ", "quiet"), fact, (when, "quiet"))

    def _line(self, *pieces: Piece) -> None:
        self.close()
        self._out.line(" " * 10, *pieces)

    def close(self) -> None:
        """What is being spoken is over, or something comes in between."""
        if self._speaking is not None:
            self._out.line()
        self._speaking = None


_FACTS = {
    "compaction": ("compacted: a summary stands for what came before", "system"),
    "view": ("the model's view has changed", "system"),
    "erased": ("the session was erased", "bad"),
    "blanked": (
        "words that had gone on to an erased session were erased here, too",
        "bad",
    ),
}


_NOTED = ("turn", "end", "ask", "decision", "retract", "closed")
"""Entries whose notes have more to say."""


def _fact_of(entry: Entry) -> tuple[str, str] | None:
    """An entry that is no message, in words and with their style; None when nobody needs to be
    told of it.
    """
    kind = entry.kind
    if kind not in _FACTS and kind not in _NOTED:
        return None
    note: Any = note_of(kind, entry.note)
    if kind in _FACTS:
        return _FACTS[kind]
    if kind == "turn":
        return f"turn {entry.turn}", "strong"
    if kind == "end":
        return _reasoned(note.end, note.error or note.reason), ENDS[note.end]
    if kind == "ask":
        return f"call {note.call_id} waits for approval", "bad"
    if kind == "decision" and note.approved:
        return f"call {note.call_id} was approved by {note.by}", "good"
    if kind == "decision":
        return f"call {note.call_id} was denied by {note.by}", "bad"
    if kind == "retract":
        return _reasoned("retracted", note.reason), "bad"
    return _reasoned("the session has ended", note.reason), "bad"


def _reasoned(word: str, reason: str | None) -> str:
    if reason:
        return f"{word}: {reason}"
    return word
