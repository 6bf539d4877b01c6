"""The list that an agent of Hermes keeps, as payloads for `Session.record`.

A message of Hermes is a dict without an id, which says more than was said: row marks, times, sidecars
of the provider. So it is recorded as a copy that holds what counts, and `record` knows a copy by its
object, as long as the dict that it was made of is in the list.

What Holdfast has stored by itself (the user's message at the start of a turn, a streamed answer) may be
worded otherwise than the dict that Hermes makes of it later: a stream ends with a blank, a gateway puts
a name before the text. Such a dict is bound to the stored words, presented with them once, and reworded
then: the copy is known by that time, and another wording of it is an edit, not a message.
"""

import json
from typing import Any, NamedTuple

Live = dict[str, Any]
Payload = dict[str, Any]
Said = tuple[Live, Payload]
"""A dict of Hermes' list, and what it says."""

ROLES = frozenset({"user", "assistant", "tool", "system"})
"""Whose messages are recorded: `session_meta` and the like were said by nobody."""

_KEPT = (
    "tool_calls",
    "tool_call_id",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
"""What a row of Hermes keeps of a message besides its role and content, so that a list is the same
when it was loaded again. The reason for its end is not among them: a stream notes that beside it.
"""


def plain(live: Live, content: Any = None) -> Payload:
    """What a dict of Hermes says; with a `content`, that in the place of its own."""
    words = content
    if content is None:
        words = live.get("content")
    said: Payload = {"role": live.get("role")}
    said["content"] = _content(words)
    for key in _KEPT:
        value = live.get(key)
        if value:
            said[key] = _json(value)
    return said


def unmerged(said: list[Said]) -> list[Said]:
    """The list with each of the user's messages in its own words.

    Hermes joins two of them for the model by changing the first in place. Its other lists have the
    same dict, and the second one still behind it: there the second stands twice.
    """
    apart: list[Said] = []
    after: Payload | None = None
    # From the end: what was joined to one may itself be joined to the next.
    for live, words in reversed(said):
        is_user = words["role"] == "user"
        if is_user and after is not None and after["role"] == "user":
            own = _before(words["content"], after["content"])
            words = {**words, "content": own}
        apart.append((live, words))
        after = words
    apart.reverse()
    return apart


def _is_joined(copies: list[Payload], words: Payload) -> bool:
    """Whether one of these two wordings of a user's message is the other with more joined to it."""
    before = copies[0]["content"]
    now = words["content"]
    if words["role"] != "user":
        return False
    # Parts with pictures are never joined.
    if not isinstance(before, str) or not isinstance(now, str):
        return False
    if now.startswith(f"{before}\n\n"):
        return True
    return before.startswith(f"{now}\n\n")


def _before(text: Any, after: Any) -> Any:
    """What of a text stands before another one that was joined to it."""
    if not isinstance(text, str):
        return text
    if not isinstance(after, str) or not after:
        return text
    own, glue, _ = text.partition(f"\n\n{after}")
    # A text that is nothing but the other one was said twice, not joined.
    if glue and own:
        return own
    return text


def _content(words: Any) -> Any:
    if words is None or isinstance(words, str):
        return words
    # A tool's result with pictures in it: its row has the summary, too.
    if isinstance(words, dict):
        summary = words.get("text_summary")
        if isinstance(summary, str):
            return summary
        return json.dumps(_json(words))
    return _json(words)


def _json(value: Any) -> Any:
    """Plain data of our own: the agent may change its dicts at any time, and may have put an object
    of a provider's library there.
    """
    return json.loads(json.dumps(value, default=str))


class _Known(NamedTuple):
    """A dict of the list, kept so that its address can't be another's, and the copies that it was
    last presented as.
    """

    live: Live
    copies: list[Payload]
    is_presented: bool = False


class LiveList:
    """The copies of one agent's list."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def has(self, live: Live) -> bool:
        """Whether this dict was in the list that was presented last, or was bound since."""
        return id(live) in self._known

    def bind(self, live: Live, stored: list[Payload]) -> None:
        """This dict is what these messages, which are stored, have become."""
        self._known[id(live)] = _Known(live, stored)

    def presented(self, said: list[Said]) -> list[Payload]:
        """The list to record. What is not in it is forgotten."""
        known: dict[int, _Known] = {}
        payloads: list[Payload] = []
        for live, words in said:
            entry = self._known.get(id(live))
            if entry is None:
                entry = _Known(live, [words])
            # Joined to another since, or taken apart again: as a copy of its own it is known by its
            # parts, while a known object would be one message that was reworded.
            if entry.is_presented and _is_joined(entry.copies, words):
                entry = _Known(live, [words.copy()])
            known[id(live)] = entry._replace(is_presented=True)
            payloads += entry.copies
        self._known = known
        return payloads

    def reword(self, said: list[Said]) -> bool:
        """Makes each copy say what its dict says now; whether any said something else."""
        changed = False
        for live, words in said:
            copies = self._known[id(live)].copies
            if copies == [words]:
                continue
            changed = True
            # The same object in other words: that is how `record` tells an edit.
            first = copies[0]
            first.clear()
            first.update(words)
            del copies[1:]
        return changed
