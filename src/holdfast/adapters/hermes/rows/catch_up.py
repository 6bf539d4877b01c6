"""The last turn of a session, where a kill has cut it: what Holdfast has of it and `state.db` has not.

Hermes writes an answer after it was shown, and its own row of the user's words some seconds after they
came in. Killed in between, it finds a question without an answer, or nothing, and glues the next question
to the old one. The rows that are missing are appended when the session is loaded.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast import Message, Session
from holdfast.domain.entry import note_of
from holdfast.domain.ids import turn_id

WINDOW = 64
"""So many entries at the end of a session's log are read to find where its last turn began; more only
for a longer turn.
"""


class Row(NamedTuple):
    """A message as a row of `state.db` has it."""

    role: str
    text: str


class LastTurn(NamedTuple):
    """The messages of the last turn, in order, and how it ended."""

    messages: list[Message]
    end: str | None


def last_turn(session: Session) -> LastTurn:
    """The last turn of a session; a turn whose process is gone is ended first. What it had taken and
    not used waits in the session again, and still is what it was about.
    """
    given_back = set()
    for message in session.pending():
        given_back.add(message.id)
    head = session.head()
    window = WINDOW
    while True:
        after = max(0, head - window)
        number, started, end = _found(session, after)
        # Long turns are rare: most are within the first window.
        if number is not None or after == 0:
            break
        window *= 4
    if number is None:
        return LastTurn([], None)
    name = turn_id(session.id, number)
    messages = []
    # What it took may have come in long before it began.
    for message in session.transcript(after=max(0, started - WINDOW)):
        is_its_own = message.turn == name
        was_its_own = message.id in given_back
        if is_its_own or was_its_own or message.seq > started:
            messages.append(message)
    return LastTurn(messages, end)


def _found(session: Session, after: int) -> tuple[int | None, int, str | None]:
    """The number of the last turn that begins after this seq, where, and how it ended."""
    number: int | None = None
    started, end = 0, None
    for entry in session.entries(after):
        if entry.kind == "turn":
            number = entry.turn
            started = entry.seq
            end = None
        # Its first end counts: a turn that was taken over may end once more.
        elif entry.kind == "end" and entry.turn == number:
            if end is None:
                end = note_of("end", entry.note).end
    return number, started, end


def last_cut(session: Session) -> list[dict[str, Any]]:
    """The answers of the last turn that were cut off, as they are stored."""
    turn = last_turn(session)
    if turn.end in (None, "completed"):
        return []
    cut = []
    for message in turn.messages:
        if message.role == "assistant" and message.state == "partial":
            cut.append(dict(message.payload))
    return cut


def missing(stored: Sequence[Row], rows: Sequence[Row]) -> int:
    """How many messages at the end of `stored` have no row, given the last rows of the session.

    Rows are only ever missing at the end, for a kill cuts there: what stands before a message that has
    its row was stored by Holdfast alone, on purpose.
    """
    left = list(rows)
    known = 0
    for place, message in enumerate(stored):
        for index, row in enumerate(left):
            if _is_row_of(row, message):
                known = place + 1
                # Rows are in the order of what was said: none before this one is of what follows.
                del left[: index + 1]
                break
    return len(stored) - known


def _is_row_of(row: Row, message: Row) -> bool:
    if row.role != message.role:
        return False
    # Hermes strips what it writes, and what it loads.
    said = message.text.strip()
    written = row.text.strip()
    if written == said:
        return True
    # A row of an answer may say more than was streamed of it, never less.
    return bool(said) and written.startswith(said)
