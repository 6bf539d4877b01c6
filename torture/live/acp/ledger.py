"""What a client was shown, told from its ledger; and what was lost or doubled of it in a store.

Everything here is a function of what was written down: a ledger is lines, `>` what the client said
and `<` what it was shown, of one connection after the other. Prompts begin with a number, `P7: `,
and commands print words with a number, `out-7`, so that each can be known again wherever it turns up.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

NUMBER = re.compile(r"\bP\d+(?=: )")
OUTPUT = re.compile(r"\bout-\d+")
Json = dict[str, Any]


@dataclass
class Turn:
    """A prompt and what came of it. `output` has the words that commands printed so far, by call,
    and `results` those of commands that have ended; `end` is how the prompt was answered, "refused"
    for one that was not taken, empty while it is open. `late`: what was said of its messages when
    it was over. An agent may answer a cancel, and then go on with what it was saying.
    """

    prompt: str
    words: str = ""
    thoughts: str = ""
    calls: list[str] = field(default_factory=list)
    results: dict[str, set[str]] = field(default_factory=dict)
    end: str = ""
    is_seen: bool = False
    output: dict[str, set[str]] = field(default_factory=dict, compare=False)
    late: list[str] = field(default_factory=list)
    messages: set[str] = field(default_factory=set, compare=False)

    @property
    def number(self) -> str:
        found = NUMBER.search(self.prompt)
        return found[0] if found else self.prompt[:40]

    def __str__(self) -> str:
        said = ["prompt"]
        for count, name in (
            (len(self.words.split()), "word"),
            (len(self.calls), "call"),
            (len(self.results), "result"),
        ):
            if count:
                said.append(f"{count} {name}{'s' if count > 1 else ''}")
        return ", ".join(said) if len(said) > 1 else "prompt only"


@dataclass
class Told:
    """The turns that a client was shown, and the turns of each replay it asked for."""

    turns: list[Turn] = field(default_factory=list)
    replays: list[list[Turn]] = field(default_factory=list)


def told(lines: Iterable[bytes], session: str) -> Told:
    """What is in a ledger about one session."""
    reader = _Reader(session)
    for line in lines:
        try:
            message = json.loads(line[1:])
        except ValueError:
            continue  # the client was killed while it wrote this down
        if line[:1] == b">":
            reader.said(message)
        else:
            reader.was_shown(message)
    return reader.told


class _Reader:
    def __init__(self, session: str) -> None:
        self.told = Told()
        self._session = session
        self._open: dict[Any, Turn] = {}
        self._loads: set[Any] = set()

    def said(self, message: Json) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            # A new connection: what was open on the last one stays open for ever.
            self._open, self._loads = {}, set()
        elif params.get("sessionId") != self._session:
            return
        elif method == "session/prompt":
            words = "".join(block.get("text", "") for block in params["prompt"])
            turn = self._open[message["id"]] = Turn(words)
            self.told.turns.append(turn)
        elif method == "session/load":
            self._loads.add(message["id"])
            self.told.replays.append([])

    def was_shown(self, message: Json) -> None:
        params = message.get("params") or {}
        if "method" not in message:
            self._answered(message)
        elif params.get("sessionId") != self._session or "update" not in params:
            return
        elif self._loads:
            replay(self.told.replays[-1], params["update"])
        else:
            self._news(params["update"])

    def _answered(self, message: Json) -> None:
        self._loads.discard(message["id"])
        turn = self._open.pop(message["id"], None)
        if turn is None:
            return
        turn.is_seen = True
        if "result" in message:
            turn.end = message["result"]["stopReason"]
        else:
            turn.end = "refused"

    def _news(self, update: Json) -> None:
        message = update.get("messageId")
        for turn in self.told.turns:
            # The next prompt may be on its way when the rest of a cancelled answer comes.
            if turn.end and message in turn.messages:
                turn.late.append(_words(update))
                return
        # A tool that was cancelled may end when the next turn runs.
        call = update.get("toolCallId")
        turns = [turn for turn in self.told.turns if call in turn.calls]
        # No update names its prompt. A prompt that is taken while another runs waits for it.
        turns += list(self._open.values()) or self.told.turns[-1:]
        if turns and take(turns[0], update):
            turns[0].is_seen = True


def replay(turns: list[Turn], update: Json) -> None:
    """Takes an update of a replay: a prompt begins a turn, all else belongs to the last one."""
    if update["sessionUpdate"] == "user_message_chunk":
        words = _words(update)
        if NUMBER.search(words):
            turns.append(Turn(words, end="replayed", is_seen=True))
    elif turns:
        take(turns[-1], update)


def take(turn: Turn, update: Json) -> bool:
    """Adds an update to a turn; whether it says something."""
    kind = update["sessionUpdate"]
    if "messageId" in update:
        turn.messages.add(update["messageId"])
    if kind == "agent_message_chunk":
        turn.words += _words(update)
    elif kind == "agent_thought_chunk":
        turn.thoughts += _words(update)
    elif kind in ("tool_call", "tool_call_update"):
        _take_call(turn, update)
    else:
        return False
    return True


def _take_call(turn: Turn, update: Json) -> None:
    id = update["toolCallId"]
    if id not in turn.calls:
        turn.calls.append(id)
    elif update["sessionUpdate"] == "tool_call":
        turn.calls.append(id)  # announced twice
    # Its title and its input hold the command, which holds the words too.
    said = [update.get(name) for name in ("content", "rawOutput", "_meta")]
    printed = turn.output.setdefault(id, set())
    printed.update(OUTPUT.findall(json.dumps(said)))
    if update.get("status") in ("completed", "failed"):
        turn.results[id] = printed


def _words(update: Json) -> str:
    content = update.get("content") or {}
    return content.get("text") or "" if content.get("type") == "text" else ""


def missing(shown: Iterable[Turn], stored: list[Turn]) -> Iterator[str]:
    """What a store lacks of what was shown, whatever else it has; white space aside. So is an
    agent judged by its own replay: it may word what it kept in its own way.
    """
    for turn in shown:
        if not turn.is_seen or turn.end == "refused":
            continue
        found = [each for each in stored if each.number == turn.number]
        if not found:
            yield f"{turn.number}: the prompt"
            continue
        if "".join(turn.words.split()) not in "".join(found[0].words.split()):
            yield f"{turn.number}: words"
        for name, ids, kept in (
            ("call", turn.calls, found[0].calls),
            ("result", list(turn.results), list(found[0].results)),
        ):
            gone = [id for id in ids if id not in kept]
            if gone:
                yield f"{turn.number}: {len(gone)} {name}{'s' if len(gone) > 1 else ''}"


def doubled(stored: list[Turn]) -> Iterator[str]:
    """What a store has twice."""
    numbers = [turn.number for turn in stored]
    calls = [id for turn in stored for id in turn.calls]
    for name, things in (("prompt", numbers), ("call", calls)):
        twice = {thing for thing in things if things.count(thing) > 1}
        for thing in sorted(twice):
            yield f"{name} {thing} {things.count(thing)} times"


def differences(shown: list[Turn], stored: list[Turn]) -> Iterator[str]:
    """Where a store differs from what was shown. What is stored before it is shown may be more than
    was shown where somebody was killed, and nothing else.
    """
    taken = [turn for turn in shown if turn.end != "refused"]
    expected = {turn.number: turn for turn in taken}
    numbers = [turn.number for turn in stored if NUMBER.search(turn.prompt)]
    for turn in taken:
        if turn.is_seen and turn.number not in numbers:
            yield f"{turn.number}: the prompt is lost"
    order = [turn.number for turn in taken if turn.number in numbers]
    if order != numbers:
        yield f"the prompts are {numbers}, not {order}"
    for turn in stored:
        if turn.number in expected:
            for problem in _parted(expected[turn.number], turn):
                yield f"{turn.number}: {problem}"
        elif not NUMBER.search(turn.prompt):
            yield from _said_again(turn, taken)


def _parted(shown: Turn, stored: Turn) -> Iterator[str]:
    if stored.prompt != shown.prompt:
        yield f"the prompt is {stored.prompt!r}"
    is_whole = bool(shown.end)
    for name, said, kept in (
        ("words", shown.words, stored.words),
        ("thoughts", shown.thoughts, stored.thoughts),
    ):
        if kept != said and (is_whole or not kept.startswith(said)):
            yield f"the {name} are {_short(kept)}, not {_short(said)}"
    if not "".join(stored.late).startswith("".join(shown.late)):
        yield f"what came late is {stored.late}, not {shown.late}"
    for words in stored.late:
        if len(words) > 2 and words in shown.words:
            yield f"something of it is stored again, {_short(words)}"
    if len(set(stored.calls)) < len(stored.calls):
        yield "a call is stored twice"
    strange = set(stored.calls) - set(shown.calls)
    if set(shown.calls) - set(stored.calls) or (is_whole and strange):
        yield f"the calls are {stored.calls}, not {shown.calls}"
    for id, words in shown.results.items():
        if id not in stored.results:
            yield f"the result of {id} is lost"
        elif not words <= stored.results[id]:
            yield f"the result of {id} is {stored.results[id]}, not {words}"


def _said_again(stray: Turn, shown: list[Turn]) -> Iterator[str]:
    """What an agent says of itself, or has from elsewhere, is stored in turns without a number;
    nothing that was shown in another turn may be there once more.
    """
    for turn in shown:
        is_said = len(stray.words) > 2 and stray.words in turn.words
        if is_said or set(stray.calls) & set(turn.calls):
            yield f"{turn.number}: something of it is stored again, {_short(stray.words)}"


def _short(words: str) -> str:
    return repr(words if len(words) <= 120 else f"{words[:60]} … {words[-60:]}")
