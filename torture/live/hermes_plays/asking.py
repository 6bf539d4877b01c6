"""What a row asks: what was shown, what is stored, what is sent next."""

import time

from holdfast.testing.providers import check
from torture.live.hermes_lab.model import words_of
from torture.live.table import Outcome

WORDS = " ".join(f"word{number}" for number in range(40)) + "."
NEXT = "And now?"


def judged(lab, *, shown, stored, sent, problems):
    """The outcome of a row; `sent` are the messages of the request that followed."""
    valid = None
    if sent is not None:
        wrong = refused(sent)
        valid = not wrong
        problems = [*problems, *wrong]
    return Outcome(shown, stored, valid, not problems, "; ".join(problems))


def refused(messages):
    """What a provider would refuse in these messages."""
    return check("openai.chat", [_with_words(each) for each in messages])


def _with_words(message):
    """A turn that Hermes resumes by itself has a question without words, which is its own affair."""
    if message["role"] == "user" and not words_of(message["content"]):
        return {**message, "content": "(nothing)"}
    return message


def sent_next(lab, text=NEXT, answer=None, seconds=90):
    """Says one thing more, and what was sent to the model for it."""
    lab.turn(text, answer, seconds)
    asked = lab.model.asked(text)
    return asked[0] if asked else None


def texts(messages, role):
    return [words_of(each.get("content")) for each in messages or () if each["role"] == role]


def glued(messages, *asked):
    """Which of these questions stand in one message with another of them."""
    found = []
    for text in texts(messages, "user"):
        if sum(words in text for words in asked) > 1:
            found.append(f"sent as one question: {text[:60]!r}")
    return found


def one_each(said, wanted, what):
    """What of these texts is missing or doubled among all that was said."""
    problems = []
    for text in wanted:
        count = sum(text in each for each in said)
        if count != 1:
            problems.append(f"{what} {text[:40]!r} is stored {count} times")
    return problems


def is_quiet(lab, seconds=3):
    """Whether the screen and the model's log stand still."""
    before = len(lab.chat.events), len(lab.model.requests)
    time.sleep(seconds)
    return before == (len(lab.chat.events), len(lab.model.requests))


def is_resumed(lab, asked):
    """Whether Hermes has gone on by itself with what a kill had cut."""
    return len(lab.model.requests) > asked
