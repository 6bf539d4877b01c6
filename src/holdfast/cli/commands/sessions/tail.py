"""`holdfast sessions tail`: a session as it happens, words as they are spoken."""

from collections.abc import Iterable
from typing import Any

import holdfast
from holdfast.cli.codes import DONE
from holdfast.cli.output import Output, Piece
from holdfast.cli.parser import Parser, whole_number
from holdfast.cli.render.session_text import ENDS, OUTCOME_MAX
from holdfast.cli.targets import opened, session_of
from holdfast.domain import cursor as cursors
from holdfast.domain.cursor import Cursor
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.message import Call, Result, Text
from holdfast.exporters import units
from holdfast.exporters.entry_json import record
from holdfast.exporters.messages import message_of
from holdfast.runtime.live.message import shown_text_of

STEP = 200


def options(parser: Parser) -> None:
    parser.add_session()
    last, after = (
        "the last N messages first (default: 10)",
        "continue after this event of --json; overrides -n",
    )
    parser.add_argument("-n", metavar="N", type=whole_number, default=10, help=last)
    parser.add_argument("--after", metavar="CURSOR", help=after)
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Follow a session live.

    The last messages first, then whatever happens, words as they are spoken, from any process. It ends when the
    session ends, or with Ctrl-C. Following stops nothing.

    With --json, one object for each event, on a line of its own: `cursor`, `kind` ("entry" or "chunk"), `entry`,
    `message_id`, `text`, as `Session.follow()` has them. Joined by `message_id`, the texts give each message once.
    """
    with opened(options) as store:
        session = session_of(store, options.session)
        cursor = (
            options.after if options.after is not None else _back(session, options.n)
        )
        _tell(session, session.follow(after=cursor), out)
    return DONE


def _back(session: holdfast.Session, wanted: int) -> str | None:
    """The cursor in front of the last messages; none when there are no more than these."""
    after = place = session.head()
    while after and wanted:
        start = max(0, after - STEP)
        for entry in reversed(list(_between(session, start, after))):
            if wanted and entry.kind == "message":
                wanted, place = wanted - 1, entry.seq - 1
        after = start
    return cursors.write(Cursor(session.id, place)) if place and not wanted else None


def _between(session: holdfast.Session, after: int, until: int) -> Iterable[Entry]:
    for entry in session.entries(after=after):
        if entry.seq > until:
            return
        yield entry


def _tell(
    session: holdfast.Session, events: Iterable[holdfast.Event], out: Output
) -> None:
    teller = _EventPrinter(session, out)
    for event in events:
        if out.is_json:
            entry = record(event.entry) if event.entry is not None else None
            told = {
                "kind": event.kind,
                "entry": entry,
                "message_id": event.message_id,
                "text": event.text,
            }
            out.json({"cursor": event.cursor, **told})
        else:
            teller.tell(event)
            out.flush()
    teller.close()


class _EventPrinter:
    """Events for people. A message is spoken on; whatever else comes begins on a line of
    its own.
    """

    def __init__(self, session: holdfast.Session, out: Output) -> None:
        self._session, self._out = session, out
        self._speaking: str | None = None

    def tell(self, event: holdfast.Event) -> None:
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

    def _message(self, event: holdfast.Event, entry: Entry) -> None:
        message = message_of(self._session, entry, turn=entry.turn)
        parts = message.parts
        # What a tool answered is told below, shortened, beside its call.
        words = (
            shown_text_of(parts)
            if any(isinstance(part, Result) for part in parts)
            else event.text
        )
        spoken = words or message.id == self._speaking
        if spoken or not any(isinstance(part, Call | Result) for part in parts):
            self._speak(message.id, message.role, words)
            if message.state == "partial":
                self._out.part(("▌ cut off", "bad"))
        for part in message.parts:
            if isinstance(part, Call):
                self._line((f"▸ {units.call(part)}", "tool"))
            elif isinstance(part, Result):
                first, *rest = units.shortened(part.content, OUTCOME_MAX).split("\n")
                self._line(("→ ", "tool"), first)
                for line in rest:
                    self._line("  ", line)
            elif not isinstance(part, Text):
                self._line((units.aside(part), "quiet"))
        self.close()

    def _fact(self, entry: Entry) -> None:
        note: Any = note_of(entry.kind, entry.note) if entry.kind in _FACTS else None
        if note is None:
            return
        told, style = _FACTS[entry.kind](entry, note)
        if told:
            self.close()
            self._out.line(
                ("── ", "quiet"),
                (told, style),
                (f" · {units.moment(entry.at)}", "quiet"),
            )

    def _line(self, *pieces: Piece) -> None:
        self.close()
        self._out.line(" " * 10, *pieces)

    def close(self) -> None:
        """What is being spoken is over, or something comes in between."""
        if self._speaking is not None:
            self._out.line()
        self._speaking = None


def _reasoned(word: str, *reasons: str | None) -> str:
    return ": ".join([word, *(reason for reason in reasons[:1] if reason)])


_FACTS: dict[str, Any] = {
    "turn": lambda entry, note: (f"turn {entry.turn}", "strong"),
    "end": lambda entry, note: (
        _reasoned(f"{note.end}", note.error or note.reason),
        ENDS[note.end],
    ),
    "ask": lambda entry, note: (f"call {note.call_id} waits for approval", "bad"),
    "decision": lambda entry, note: (
        f"call {note.call_id} was {'approved' if note.approved else 'denied'} by {note.by}",
        "good" if note.approved else "bad",
    ),
    "retract": lambda entry, note: (_reasoned("retracted", note.reason), "bad"),
    "compaction": lambda entry, note: (
        "compacted: a summary stands for what came before",
        "system",
    ),
    "view": lambda entry, note: ("the model's view has changed", "system"),
    "closed": lambda entry, note: (
        _reasoned("the session has ended", note.reason),
        "bad",
    ),
    "erased": lambda entry, note: ("the session was erased", "bad"),
    "blanked": lambda entry, note: (
        "words that had gone on to an erased session were erased here, too",
        "bad",
    ),
}
