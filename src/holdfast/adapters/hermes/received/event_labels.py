"""An event of Hermes' gateway as labels of an accepted message, and an event made of them again.

What is for the model is the message; who sent it, where to, and its files lie beside it. An event
that is made again has no `raw_message`, which is the platform's own object.
"""

import contextlib
import json
from typing import Any

LABEL = "hermes"

_FIELDS = (
    "message_id",
    "platform_update_id",
    "media_urls",
    "media_types",
    "reply_to_message_id",
    "reply_to_text",
    "reply_to_author_id",
    "reply_to_author_name",
    "reply_to_is_own_message",
    "auto_skill",
    "channel_prompt",
    "channel_context",
    "metadata",
)

_WITH_WORDS = ("queue", "q", "steer")
"""Commands that carry words for the model: these are kept until a turn has the words."""


def identity_of(event: Any) -> str | None:
    """The identity of an event's message on its platform. Copies that Hermes makes have it too."""
    if not event.message_id or event.source is None:
        return None
    return f"{place_of(event)}:{event.message_id}"


def event_id_of(event: Any) -> str | None:
    """What the event is known by when it comes again. An edit of a message is another update of it,
    where the platform counts those.
    """
    name = identity_of(event)
    if name is not None and event.platform_update_id is not None:
        name += f":{event.platform_update_id}"
    return name


def place_of(event: Any) -> str:
    """The chat that an event came from, as its platform names it."""
    source = event.source
    return f"{source.platform.value}:{source.chat_id}"


def is_command(event: Any) -> bool:
    """Whether an event is a command, all of it: it has no words for the model."""
    command = event.get_command()
    return command is not None and command not in _WITH_WORDS


def words_of(text: str) -> str:
    """What the user has said, without the command that says what to do with it."""
    first, _, rest = text.partition(" ")
    if not first.startswith("/"):
        return text
    # In a group, a command may name the bot that it is for.
    command = first[1:].partition("@")[0]
    if command.lower() in _WITH_WORDS:
        return rest.strip()
    return text


def labels_of(event: Any, key: str, process: str) -> dict[str, Any]:
    """All that is needed to make this event again; `process` is who received it."""
    said: dict[str, Any] = {
        "key": key,
        "process": process,
        "source": event.source.to_dict(),
        "message_type": event.message_type.value,
        "timestamp": event.timestamp.isoformat(),
    }
    for field in _FIELDS:
        value = getattr(event, field, None)
        # What a platform has put there may be any object: such a one is left out.
        with contextlib.suppress(TypeError, ValueError):
            if value not in (None, "", [], {}, False):
                raw = json.dumps(value)
                said[field] = json.loads(raw)
    return {LABEL: said}


def event_of(text: str, labels: dict[str, Any], base: Any) -> Any:
    """The event made again; `base` is the module of `MessageEvent`. Raises what Hermes raises where a
    platform is not known any more.
    """
    said = labels[LABEL]
    # First: it is what may be unknown by now.
    source = base.SessionSource.from_dict(said["source"])
    given = {}
    for field in _FIELDS:
        # What was empty was left out: the event's own defaults are right then.
        if field in said:
            given[field] = said[field]
    kind = base.MessageType(said["message_type"])
    return base.MessageEvent(text=text, source=source, message_type=kind, **given)
