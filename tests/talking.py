"""Small talk for tests of whole sessions: turns to fill them with, and what a model and a reader
see of them.
"""

from typing import Any

from holdfast import Message, Session

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
