"""Words that steered a running turn: messages of the user's, in their place among the others.

Hermes tells them to the model at the end of a tool's result, in memory alone: no message of its list
and no row is theirs, and its next turn, whose history comes from the rows, knows nothing of them. So
they are put into what is recorded, behind the results of that round, and get rows of their own there;
the tool's result stays what the tool has said.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast import Message
from holdfast.adapters.hermes.spoken.live_list import Live, Payload, Said, plain

_ROWS = "_holdfast_steered_rows"


class _Round(NamedTuple):
    """Steered words, the last dict of the list that they came after, and the result that they are told
    with, as it was before.
    """

    after: Live
    result: Live
    result_said: Payload
    words: list[Said]


class SteeredWords:
    """What has steered one agent, as long as the dicts that it came after are in its list."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []

    def note(self, messages: list[Live], words: list[Said]) -> None:
        """These words go into the last result of this list now."""
        for live in reversed(messages):
            if live.get("role") == "tool":
                said = plain(live)
                self._rounds.append(_Round(messages[-1], live, said, words))
                return

    def placed(self, said: list[Said]) -> list[Said]:
        """The list with them in their places."""
        rounds = []
        for each in self._rounds:
            behind = _end_of_results(said, each.after)
            # Made anew from the rows, or compacted: it has them as messages, or has dropped them.
            if behind is None:
                continue
            rounds.append(each)
            before = [_without_words(entry, each) for entry in said[:behind]]
            said = [*before, *each.words, *said[behind:]]
        self._rounds = rounds
        return said


def _end_of_results(said: list[Said], after: Live) -> int | None:
    """Where in a list the results of a round are over; None where the round is not in it."""
    for place, (live, _) in enumerate(said):
        if live is not after:
            continue
        end = place + 1
        while end < len(said) and said[end][1]["role"] == "tool":
            end += 1
        return end
    return None


def _without_words(entry: Said, steered: _Round) -> Said:
    live, words = entry
    before = steered.result_said["content"]
    now = words["content"]
    if live is not steered.result or type(now) is not type(before):
        return entry
    # Text and parts alike: what is told with it stands at its end.
    if now[: len(before)] != before:
        return entry
    return live, {**words, "content": before}


def results_first(messages: Iterable[Message]) -> list[Message]:
    """The messages of a turn in the order of their rows: words that came between two results of a
    round stand behind its last one.
    """
    ordered: list[Message] = []
    held: list[Message] = []
    for message in messages:
        follows_result = bool(ordered) and ordered[-1].role == "tool"
        if message.role == "user" and follows_result:
            held.append(message)
            continue
        if message.role != "tool":
            ordered += held
            held = []
        ordered.append(message)
    return ordered + held


def keep_rows(agent: Any, words: list[Said]) -> None:
    """Rows for these are to be written when the results of the round have theirs."""
    rows = agent.__dict__.setdefault(_ROWS, [])
    for _, said in words:
        rows.append(said["content"])


def rows_of(agent: Any) -> list[str]:
    """The words that have no rows yet; whoever writes them takes them out."""
    rows: list[str] = agent.__dict__.setdefault(_ROWS, [])
    return rows


def forget_rows(agent: Any) -> None:
    """The turn is over: what it has not written is written when the session is loaded."""
    agent.__dict__.pop(_ROWS, None)
