"""A session as a Markdown document for people.

What was said stands in fenced blocks, whose fences are longer than any run of backticks in it: no renderer takes it for
markup or HTML (I-20), and code in it stays as it was.
"""

import re
from collections.abc import Iterator

import holdfast
from holdfast.cli import story as stories
from holdfast.cli import wording
from holdfast.cli.harmless import harmless, one_line
from holdfast.cli.showing import STATES, VIEWS
from holdfast.cli.story import Scene, Story, Told
from holdfast.domain.message import Call, Result, Text
from holdfast.domain.repair import Seen

MARKED = {"partial": "cut off: the user saw no more of it", "erased": "erased"}


def document(session: holdfast.Session) -> Iterator[str]:
    """The lines of the document."""
    info, story = session.info(), stories.read(session)
    yield f"# Session {info.id[:8]}"
    yield ""
    facts = {
        "id": info.id,
        "key": f"{info.key}, epoch {info.epoch}" if info.key is not None else "",
        "state": info.state,
        "opened": wording.moment(info.opened_at),
        "last active": wording.moment(info.active_at),
        "tokens": wording.tokens(info.usage),
        "fork of": f"{story.parent[0]}, up to {story.parent[1]}" if story.parent else "",
    }
    yield from (f"* {name}: {_code(text)}" for name, text in facts.items() if text)
    if story.instructions:
        yield from _block("Instructions", story.instructions)
    if story.erased:
        yield from ("", f"{wording.many(story.erased, 'message')} of it were erased.")
    answered = story.answered()
    for scene, messages in stories.tellings(session, story, story.scenes):
        yield from _scene(scene, story, messages, answered)
    pending = story.pending
    if pending:
        yield from ("", "## Inbox")
        yield from _scene(Scene(None, pending), story, stories.told(session, pending), answered)


def _scene(scene: Scene, story: Story, messages: Told, answered: set[str]) -> Iterator[str]:
    if scene.turn is not None:
        why = scene.turn.error or scene.turn.reason
        end = f"{scene.turn.end or 'running'}{f': {_code(why)}' if why else ''}"
        yield from ("", f"## Turn {scene.turn.number}", "", f"{wording.moment(scene.turn.started_at)}, {end}")
    for seen in scene.messages:
        if seen.id in story.covers:
            stands_for = wording.many(len(story.covered(seen.id)), "message")
            yield from _block(f"{seen.seq} summary of {stands_for}", messages[seen.id].text)
        elif seen.id not in answered or any(not isinstance(part, Result) for part in messages[seen.id].parts):
            yield from _message(seen, story, messages, is_answer=seen.id in answered)


def _message(seen: Seen, story: Story, messages: Told, *, is_answer: bool) -> Iterator[str]:
    message = messages[seen.id]
    marks = [message.state] if message.state in MARKED else []
    marks += ["late"] if message.late else []
    marks += [VIEWS[story.view(seen)][0]] if message.state != "erased" else []
    yield from ("", " · ".join([f"### {seen.seq} {message.role}", *(MARKED.get(mark, mark) for mark in marks if mark)]))
    calls = iter(story.calls.get(seen.id, ()))
    for part in message.parts if message.state != "erased" else ():
        if isinstance(part, Text):
            yield from _fenced(part.text)
        elif isinstance(part, Call):
            call = next(calls, None)
            state = STATES[call.state][0] if call is not None else "never whole"
            yield from _block(f"Call, {state}", wording.call(part))
            outcome = messages.get(call.outcome) if call is not None and call.outcome is not None else None
            said = [each for each in outcome.parts if isinstance(each, Result)] if outcome is not None else []
            for result in [each for each in said if each.call_id == part.id][:1]:
                yield from _block("Outcome", result.content)
        elif not isinstance(part, Result):
            yield from _fenced(wording.aside(part))
        elif not is_answer:
            yield from _block("Outcome", part.content)


def _block(title: str, text: str) -> Iterator[str]:
    yield from ("", f"**{title}**")
    yield from _fenced(text)


def _fenced(text: str) -> Iterator[str]:
    text = harmless(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    yield from ("", f"{fence}text", *text.split("\n"), fence)


def _code(text: str) -> str:
    """A short text as a code span, whatever stands in it."""
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"
