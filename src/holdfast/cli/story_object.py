"""A story as one object for programs: the fields that sessions, turns, messages and calls have in the library."""

from typing import Any

import msgspec

import holdfast
from holdfast.cli import story as stories
from holdfast.cli.story import Scene, Story
from holdfast.domain.repair import Seen
from holdfast.runtime.message import Message

MESSAGE = "id seq at turn role state late text parts format event_id reply_to finish model usage"


def story_object(
    session: holdfast.Session, info: holdfast.SessionInfo, story: Story, scenes: list[Scene]
) -> dict[str, Any]:
    """These scenes, and what waits; ready to be encoded."""
    wanted, pending = [seen for scene in scenes for seen in scene.messages], story.pending
    messages = stories.told(session, [*wanted, *pending])
    said = [seen for seen in wanted if seen.id not in story.covers]
    numbers = {scene.turn.number for scene in scenes if scene.turn is not None}
    parent, parent_seq = story.parent or (None, None)
    return {
        "session": info,
        "parent": parent,
        "parent_seq": parent_seq,
        "instructions": story.instructions,
        "turns": [turn for turn in session.turns() if turn.number in numbers],
        "messages": [_message(messages[seen.id], seen, story) for seen in said],
        "calls": [call for seen in said for call in story.calls.get(seen.id, ())],
        "summaries": [_summary(messages[seen.id], story) for seen in wanted if seen.id in story.covers],
        "pending": [_message(messages[seen.id], seen, story) for seen in pending],
        "erased": story.erased,
    }


def _message(message: Message, seen: Seen, story: Story) -> dict[str, Any]:
    view = story.view(seen)
    state = "pending" if view == "waiting" else message.state
    return {**_fields(message, MESSAGE), "state": state, "labels": story.labels(seen.id), "view": view}


def _summary(message: Message, story: Story) -> dict[str, Any]:
    return {**_fields(message, "id seq at text"), "covers": story.covered(message.id)}


def _fields(thing: Any, names: str) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(thing, name)) for name in names.split()}
