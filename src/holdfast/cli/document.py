"""A session as a document for people, piece by piece: what stands in it, in which order, whatever it is written in."""

from collections.abc import Iterator

import msgspec

import holdfast
from holdfast.cli import story as stories
from holdfast.cli import wording
from holdfast.cli.showing import STATES, VIEWS
from holdfast.cli.story import Scene, Story, Told
from holdfast.domain.message import Call, Result, Text
from holdfast.domain.repair import Seen

MARKED = {"partial": "cut off: the user saw no more of it", "erased": "erased"}


class Title(msgspec.Struct, frozen=True):
    text: str


class Fact(msgspec.Struct, frozen=True):
    """What is so of the session. Its text may be anything."""

    name: str
    text: str


class Heading(msgspec.Struct, frozen=True):
    """The beginning of a part (level 2) or of a message (level 3); `role` is whose."""

    level: int
    text: str
    role: str = ""


class Remark(msgspec.Struct, frozen=True):
    """A sentence of ours, and a text that it ends with, which may be anything."""

    text: str
    quoted: str = ""


class Words(msgspec.Struct, frozen=True):
    """What was said, which may be anything."""

    text: str
    title: str = ""


Piece = Title | Fact | Heading | Remark | Words


def document(session: holdfast.Session) -> Iterator[Piece]:
    """The pieces of the document, in order."""
    info, story = session.info(), stories.read(session)
    yield Title(f"Session {info.id[:8]}")
    facts = {
        "id": info.id,
        "key": f"{info.key}, epoch {info.epoch}" if info.key is not None else "",
        "state": info.state,
        "opened": wording.moment(info.opened_at),
        "last active": wording.moment(info.active_at),
        "tokens": wording.tokens(info.usage),
        "fork of": f"{story.parent[0]}, up to {story.parent[1]}" if story.parent else "",
    }
    yield from (Fact(name, text) for name, text in facts.items() if text)
    if story.instructions:
        yield Words(story.instructions, "Instructions")
    if story.erased:
        yield Remark(f"{wording.many(story.erased, 'message')} of it were erased.")
    answered = story.answered()
    for scene, messages in stories.tellings(session, story, story.scenes):
        yield from _scene(scene, story, messages, answered)
    pending = story.pending
    if pending:
        yield Heading(2, "Inbox")
        yield from _scene(Scene(None, pending), story, stories.told(session, pending), answered)


def _scene(scene: Scene, story: Story, messages: Told, answered: set[str]) -> Iterator[Piece]:
    if scene.turn is not None:
        why = scene.turn.error or scene.turn.reason or ""
        end = f"{scene.turn.end or 'running'}{': ' if why else ''}"
        yield Heading(2, f"Turn {scene.turn.number}")
        yield Remark(f"{wording.moment(scene.turn.started_at)}, {end}", why)
    for seen in scene.messages:
        if seen.id in story.covers:
            stands_for = wording.many(len(story.covered(seen.id)), "message")
            yield Words(messages[seen.id].text, f"{seen.seq} summary of {stands_for}")
        elif seen.id not in answered or any(not isinstance(part, Result) for part in messages[seen.id].parts):
            yield from _message(seen, story, messages, is_answer=seen.id in answered)


def _message(seen: Seen, story: Story, messages: Told, *, is_answer: bool) -> Iterator[Piece]:
    message = messages[seen.id]
    marks = [message.state] if message.state in MARKED else []
    marks += ["late"] if message.late else []
    marks += [VIEWS[story.view(seen)][0]] if message.state != "erased" else []
    heading = " · ".join([f"{seen.seq} {message.role}", *(MARKED.get(mark, mark) for mark in marks if mark)])
    yield Heading(3, heading, message.role)
    calls = iter(story.calls.get(seen.id, ()))
    for part in message.parts if message.state != "erased" else ():
        if isinstance(part, Text):
            yield Words(part.text)
        elif isinstance(part, Call):
            call = next(calls, None)
            state = STATES[call.state][0] if call is not None else "never whole"
            yield Words(wording.call(part), f"Call, {state}")
            outcome = messages.get(call.outcome) if call is not None and call.outcome is not None else None
            said = [each for each in outcome.parts if isinstance(each, Result)] if outcome is not None else []
            for result in [each for each in said if each.call_id == part.id][:1]:
                yield Words(result.content, "Outcome")
        elif not isinstance(part, Result):
            yield Words(wording.aside(part))
        elif not is_answer:
            yield Words(part.content, "Outcome")
