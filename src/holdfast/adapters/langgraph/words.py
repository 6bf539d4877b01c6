"""The messages of one thread, as they stand in its transcript: which there are, and which are new.

A message is known by the bytes of its payload. Equal ones without ids are told apart by how often
they stand in a list. One that says the same with other facts is the same message: a node has put a
name on it, or a channel has given an id to what came in without one. What comes in is new each time:
two equal texts are two messages (I-2).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.adapters.langchain_payloads import (
    Typed,
    body_from,
    fingerprint,
    message_of,
    payload_of,
)
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.message import MessageNote, Spoken, freeze, thaw
from holdfast.errors import HoldfastError
from holdfast.formats import registry

FORMAT = "langchain"
INPUT = "__start__"
_SAID = ("content", "tool_calls", "invalid_tool_calls", "tool_call_id")
_ANSWERING = frozenset({"assistant", "tool"})
_UNREADABLE = "[This message can't be read any more.]"

Payload = dict[str, Any]


class New(NamedTuple):
    """A message that is not in the transcript yet, with the id it is going to have."""

    id: bytes
    spoken: Spoken
    name: Any
    """The id that LangChain knows it by, if it has one."""


class _InTurn(NamedTuple):
    turn: int
    role: str
    is_partial: bool


class Words:
    """What is known of a transcript, up to entry `head`."""

    def __init__(self) -> None:
        self.head = 0
        self._payloads: dict[str, bytes | Payload] = {}
        self._by_body: dict[bytes, list[str]] = {}
        self._by_name: dict[str, str] = {}
        self._named: set[str] = set()
        self._in_turns: dict[str, _InTurn] = {}
        self._ends: dict[int, str] = {}
        self.other_wordings: dict[bytes, dict[str, Any]] = {}
        """References to messages that stand in the transcript with other facts, by their bytes."""

    def __len__(self) -> int:
        return len(self._payloads)

    def has(self, message: Any) -> bool:
        """Whether a message of this name stands in the transcript."""
        return message.id in self._by_name

    def left_behind(self, referenced: Mapping[str, bool]) -> list[str]:
        """What was said in turns that were cut off, and that the graph has not: messages that were
        not finished; and those that were, whose tasks may not have been. `referenced`: the messages
        that the graph has, and whether they are in a step.
        """
        left: dict[int, list[str]] = {}
        for id, said in self._in_turns.items():
            if self._ends.get(said.turn, "completed") == "completed":
                continue
            here = left.setdefault(said.turn, [])
            if referenced.get(id):
                # The tasks that spoke before it are over. What they have not given to
                # the graph was not meant for it.
                here[:] = [each for each in here if self._in_turns[each].is_partial]
            elif id not in referenced and said.role in _ANSWERING:
                here.append(id)
        return [id for here in left.values() for id in here]

    def learn(self, entries: Iterable[Entry]) -> None:
        """Takes the next entries of the log."""
        for entry in entries:
            self.head = entry.seq
            if entry.kind == "end" and entry.turn is not None:
                self._ends[entry.turn] = note_of("end", entry.note).end
            elif entry.kind == "message" and entry.id.hex() not in self._payloads:
                self._learn(entry)

    def _learn(self, entry: Entry) -> None:
        id, kind = entry.id.hex(), "human"
        try:
            note: MessageNote = note_of("message", entry.note)
            # Who spoke is known though the words are not: a provider wants them in turns.
            kind = "ai" if note.role == "assistant" else "human"
            payload = thaw(entry.body)
            registry.get(note.format).note(payload)
        except Exception:  # whatever a stranger's bytes cause: it is damaged (I-25)
            self._payloads[id] = _missing(kind)
            return
        if entry.turn is not None:
            self._in_turns[id] = _InTurn(entry.turn, note.role, note.partial)
        if note.format == FORMAT:
            self.add(id, entry.body, payload["data"].get("id"))
        else:
            self._payloads[id] = _in_our_words(note, entry)

    def add_all(self, new: Iterable[New]) -> None:
        """These messages stand in the transcript."""
        for each in new:
            self.add(each.id.hex(), each.spoken.body, each.name)

    def add(self, id: str, body: bytes, name: Any) -> None:
        """This message stands in the transcript."""
        self._payloads[id] = body
        self._by_body.setdefault(body, []).append(id)
        if isinstance(name, str):
            self._by_name[name] = id

    def name(self, id: str, name: Any) -> None:
        """A channel has given this message a name."""
        if isinstance(name, str):
            self._by_name[name] = id
            self._named.add(id)

    def find(
        self, id: str, other: Payload | None, loads: Callable[[Typed], Any]
    ) -> Any:
        """The message of this id, made anew: whoever gets it may change it. `other`: fields of its
        data that are not as the transcript has them.
        """
        try:
            payload = self._payload(id)
            if other is not None:
                data = {**payload["data"], **other}
                kind = data.pop("$type", payload["type"])
                kept = {key: value for key, value in data.items() if value is not None}
                payload = {**payload, "type": kind, "data": kept}
            return message_of(payload, loads)
        except (HoldfastError, KeyError, TypeError, ValueError):
            return message_of(_missing("ai"), loads)

    def _payload(self, id: str) -> Payload:
        known = self._payloads[id]
        if isinstance(known, bytes):
            payload: Payload = thaw(known)
            return payload
        return known

    def same(self, body: bytes) -> list[str]:
        """The ids of the messages with these bytes."""
        return self._by_body.get(body, [])

    def nameless(self, body: bytes) -> str | None:
        """The last message with these bytes that no channel has given a name."""
        for id in reversed(self.same(body)):
            if id not in self._named:
                return id
        return None

    def reworded(self, payload: Payload) -> tuple[str, Payload] | None:
        """The message that says the same under the same name, or under none yet; and what of its
        data is to be said otherwise.
        """
        name = payload["data"].get("id")
        if not isinstance(name, str) or "typed" in payload:
            return None
        id = self._by_name.get(name)
        if id is None:
            data = {key: value for key, value in payload["data"].items() if key != "id"}
            id = self.nameless(freeze({**payload, "data": data}))
        if id is None:
            return None
        stored = self._payload(id)
        if "typed" in stored or _role(stored) != _role(payload):
            return None
        before, after = stored["data"], payload["data"]
        if any(before.get(field) != after.get(field) for field in _SAID):
            return None
        return id, _otherwise(stored, payload)


class Keeping:
    """Gives references to messages, and gathers those that are new. `mint` makes ids. `ahead`: what
    is said before this in the same commit.
    """

    def __init__(
        self,
        words: Words,
        dumps: Callable[[Any], Typed],
        mint: Callable[[], bytes],
        ahead: Words,
    ) -> None:
        self.new: list[New] = []
        self.adds = True
        """Whether what is not known goes into the transcript."""
        self._words = words
        self._ahead = ahead
        self._dumps = dumps
        self._mint = mint
        self._met: Counter[bytes] = Counter()
        self._added: dict[bytes, list[str]] = {}
        self._channel = ""

    def begin(self, channel: str) -> None:
        """The value of this channel follows: what it holds twice is two messages."""
        self._met.clear()
        self._channel = channel

    def keep(self, message: Any) -> Any:
        """The reference to this message; None where it is new and stays out of the transcript."""
        payload = payload_of(message)
        seen = fingerprint(payload)
        if seen is not None:
            found = self._words.other_wordings.get(seen)
            found = found or self._ahead.other_wordings.get(seen)
            found = found or self._known(seen, message.id)
            if found is not None:
                return found
        body = body_from(payload, seen, self._dumps)
        # Where they are the same bytes, they were just looked for.
        found = None if body is seen else self._known(body, message.id)
        if found is not None:
            return found
        for words in (self._words, self._ahead):
            other = words.reworded(payload)
            if other is not None:
                found = {"$m": other[0], "as": other[1]}
                if seen is not None:
                    words.other_wordings[seen] = found
                return found
        # What tasks are sent may be made for them alone.
        if not self.adds or (self._channel.startswith("__") and not self._is_input):
            return None
        return {"$m": self._store(payload, body)}

    @property
    def _is_input(self) -> bool:
        return self._channel == INPUT

    def _known(self, body: bytes, name: str | None) -> dict[str, Any] | None:
        if name is None and self._is_input:
            return None
        known = self._words.same(body)
        if self._ahead or self._added:
            added = self._added.get(body, ())
            known = [*known, *self._ahead.same(body), *added]
        place = self._met.get(body, 0)
        if place >= len(known):
            return None
        self._met[body] = place + 1
        return {"$m": known[place]}

    def _store(self, payload: Payload, body: bytes) -> str:
        note = registry.get(FORMAT).note(payload)
        id = self._mint()
        self.new.append(New(id, Spoken(note, body), payload["data"].get("id")))
        self._added.setdefault(body, []).append(id.hex())
        self._met[body] += 1
        return id.hex()


def _role(payload: Payload) -> str:
    return registry.get(FORMAT).note(payload).role


def _in_our_words(note: MessageNote, entry: Entry) -> Payload:
    """A message of another format as LangChain's."""
    said = []
    for piece in registry.read(note.format, entry.body):
        words = getattr(piece.part, "text", "")
        if words:
            said.append(words)
    kind = "ai" if note.role == "assistant" else "human"
    return {"type": kind, "data": {"content": "\n".join(said), "id": entry.id.hex()}}


def _missing(kind: str) -> Payload:
    return {"type": kind, "data": {"content": _UNREADABLE}}


def _otherwise(stored: Payload, payload: Payload) -> Payload:
    """What of a payload's data is not as in the stored one; None for what it has no more."""
    before, after = stored["data"], payload["data"]
    other: Payload = {key: None for key in before if key not in after}
    if stored["type"] != payload["type"]:
        other["$type"] = payload["type"]
    for key, value in after.items():
        if key not in before or before[key] != value:
            other[key] = value
    return other
