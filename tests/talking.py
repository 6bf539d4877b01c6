"""Small talk for tests of whole sessions: turns to fill them with, and what a model and a reader
see of them.
"""

from pathlib import Path
from typing import Any

from holdfast import Message, Session
from holdfast.domain.entry import note_of
from holdfast.testing.providers import check
from looking import other_handle

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")


def talk(session: Session, *names: object) -> None:
    """Whole turns: a question and its answer each."""
    for name in names:
        with session.turn(f"ask {name}") as turn:
            turn.say(f"answer {name}")


def dialogue(*names: object) -> list[str]:
    """What `talk` says."""
    return [text for name in names for text in (f"ask {name}", f"answer {name}")]


def texts(session: Session) -> list[str]:
    """What the model sees."""
    return [message["content"] for message in session.context()]


def told(session: Session) -> list[str]:
    """What happened."""
    return [message.text for message in session.transcript()]


def named(session: Session, text: str) -> Message:
    """The message that says this."""
    return next(message for message in session.transcript() if message.text == text)


def contexts(session: Session) -> list[Any]:
    """What the model sees, in every format."""
    return [list(session.context(format)) for format in FORMATS]


def work(session: Session, name: object) -> None:
    """A turn with a tool in it."""
    with session.turn(f"ask {name}") as turn:
        turn.call("look", {"at": str(name)}, call_id=f"call_{name}")
        turn.result(f"call_{name}", f"found {name}")
        turn.say(f"answer {name}")


def bodies(session: Session) -> list[tuple[int, bytes, bytes, bytes]]:
    """The messages of the log as they lie in the store."""
    return [
        (entry.seq, entry.id, entry.note, entry.body)
        for entry in session.entries()
        if entry.kind == "message"
    ]


def assert_valid(session: Session) -> None:
    """Every provider accepts what the model sees (I-10)."""
    for format in FORMATS:
        assert check(format, session.context(format)) == []


def assert_same_everywhere(path: Path, session: Session) -> None:
    """I-9: a new handle computes what the warm one does."""
    with other_handle(path) as other:
        assert contexts(other.get(session.id)) == contexts(session)


def covered_by(session: Session) -> dict[int, list[int]]:
    """For each message or summary, the compactions whose summaries stand for it, from the entries
    alone.
    """
    found: dict[int, list[int]] = {}
    natural: list[int] = []
    for entry in session.entries():
        if entry.kind == "compaction":
            for first, last in note_of("compaction", entry.note).covers:
                for seq in natural[natural.index(first) : natural.index(last) + 1]:
                    found.setdefault(seq, []).append(entry.seq)
        if entry.kind in ("message", "compaction"):
            natural.append(entry.seq)
            found.setdefault(entry.seq, [])
    return found
