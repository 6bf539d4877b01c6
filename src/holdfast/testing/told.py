"""What callers were told, held against the store: every answer that a call gave must be so, exactly once (I-3).

An act is a verb and the names of what was done, noted after the call has returned:

    said TEXT              a message with these words is stored         opened SESSION       a session is there
    shown TURN TEXT        a piece of an answer was handed on           called TURN CALL     a tool is about to run
    ended TURN END         the turn has this one end                    answered TURN CALL   its outcome is stored
    compacted SESSION SEQ  this entry is a compaction                   decided SESSION CALL
    instructed SESSION TEXT    labelled SESSION MESSAGE    rewound SESSION    sent SESSION OWED    erased SESSION
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from holdfast import Entry, Store
from holdfast.domain.entry import note_of

Act = tuple[str, ...]
"""What a caller was told: a verb, and what names the act."""

SESSIONS_MAX = 1_000_000


def untrue(store: Store, told: Iterable[Act], *, tried: Sequence[str] = ()) -> list[str]:
    """A sentence for everything that callers were told and that is not so in this store, and for every word of `tried`
    that is there twice. A message that a reset carried on is one message.
    """
    told, record = list(told), Record(store)
    found = [f"{' '.join(act)}: that is not so in the store (I-3)" for act in told if not record.knows(act)]
    shown: dict[str, str] = {}
    for turn, text in (act[1:] for act in told if act[0] == "shown"):
        shown[turn] = shown.get(turn, "") + text
    for turn, text in shown.items():
        if not record.spoken.get(turn, "").startswith(text):
            found.append(f"turn {turn} showed {text!r}, and {record.spoken.get(turn)!r} is stored (I-5)")
    return found + [f"{text!r} is there {record.texts[text]} times (I-2)" for text in tried if record.texts[text] > 1]


class Record:
    """What the store says, read once: by its sessions, their logs, their messages, their calls."""

    def __init__(self, store: Store) -> None:
        sessions = [store.get(state.id) for state in store._work.engine.find(store.tenant, "", SESSIONS_MAX)]
        self._entries: dict[str, list[Entry]] = {session.id: list(session.entries()) for session in sessions}
        self._owed = {debt.id.hex() for debt in store._work.engine.outbox(store.tenant, limit=SESSIONS_MAX)}
        self._calls = {(f"{s.id}:{call.turn}", call.call_id): call.state for s in sessions for call in s.calls()}
        copies = list(chain.from_iterable(session.transcript() for session in sessions))
        self._labels = {message.id for message in copies if message.labels}
        single = {message.id: message for message in copies}.values()
        self.texts = Counter(message.text for message in single)
        self.spoken: dict[str, str] = {}
        for message in copies:
            if message.role == "assistant" and message.turn is not None:
                self.spoken[message.turn] = self.spoken.get(message.turn, "") + message.text

    def knows(self, act: Act) -> bool:
        """Whether this act is in the store, once."""
        verb, *names = act
        return _KNOWN[verb](self, *names)

    def entries(self, session: str, kind: str, naming: str = "") -> list[Entry]:
        """The entries of this kind that name something."""
        of_kind = (entry for entry in self._entries.get(session, ()) if entry.kind == kind)
        return [entry for entry in of_kind if naming.encode() in entry.note + entry.body]

    def opened(self, session: str) -> bool:
        return session in self._entries

    def ended(self, turn: str, end: str) -> bool:
        session, _, number = turn.rpartition(":")
        ends = [note_of("end", e.note).end for e in self.entries(session, "end") if e.turn == int(number)]
        return ends == [end]

    def called(self, turn: str, call: str) -> bool:
        return (turn, call) in self._calls

    def answered(self, turn: str, call: str) -> bool:
        return self._calls.get((turn, call)) == "done"

    def labelled(self, session: str, message: str) -> bool:
        return message in self._labels

    def sent(self, session: str, owed: str) -> bool:
        return owed not in self._owed and len(self.entries(session, "post", owed)) == 1


_KNOWN: dict[str, Callable[..., bool]] = {
    "said": lambda record, text: record.texts[text] == 1,
    "shown": lambda record, *_: True,
    "opened": Record.opened,
    "ended": Record.ended,
    "called": Record.called,
    "answered": Record.answered,
    "decided": lambda record, session, call: len(record.entries(session, "decision", call)) == 1,
    "compacted": lambda record, session, seq: int(seq) in [e.seq for e in record.entries(session, "compaction")],
    "instructed": lambda record, session, text: len(record.entries(session, "instructions", text)) == 1,
    "labelled": Record.labelled,
    "rewound": lambda record, session: bool(record.entries(session, "rewind")),
    "sent": Record.sent,
    "erased": lambda record, session: len(record.entries(session, "erased")) == 1,
}
