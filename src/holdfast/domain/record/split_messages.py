"""Split messages: one known message that a caller's list has as several payloads, found again in it.

An answer with words and calls is one message here. Callers keep it in pieces: the words, then each
call, often with the result of that call behind it. `reconcile` asks of each payload which message it
shows, and none of these shows one. So the pieces are handed to it as one payload, a list, as
`grouping` does with the items of a message that it knows as such.

    known        "Let me look." + call 1 + call 2
    presented    "Let me look."    call 1    result 1    call 2    result 2
    gathered    ["Let me look.",   call 1,               call 2]   result 1    result 2

A text is split where it has a blank line, and only if the list doesn't have it as a whole.

All of the message has to be there, in its order, with nothing else between but what answers it, or
calls that it answers: a piece that is missing, or one too many, and each payload is looked at by
itself. A payload with an id of its own that is none of the message's is no piece of it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.atoms import GLUE, Wording
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    Stamps,
    fingerprint,
    stamp_of,
    stamps_in,
)
from holdfast.domain.record.grouping import View
from holdfast.domain.record.merged_texts import STARTS_MAX, after, is_empty

AHEAD_MAX = 16
"""So many payloads are looked through for the first call of a message that begins with words."""
_Key = tuple[str, str]
"""By what a message is looked for: its first call, the first that it answers, or its first line."""


def gather_split(presented: Payloads, known: View, single: Wording) -> list[Payload]:
    """A caller's list with the pieces of known messages gathered. `known`: as the view shows them, and
    as they were recorded; `single` words one of several that are shown together.
    """
    if not presented:
        return []
    # Most messages are there in one piece, or not at all: that is seen without a closer look.
    by_id: dict[Any, Payload] = {}
    for payload in presented:
        for id in _ids_in(payload):
            by_id.setdefault(id, payload)
    texts = _Texts(presented)

    def may_be_split(payload: Payload) -> bool:
        if _has_pieces(payload):
            return _is_torn(payload, by_id)
        return texts.have_pieces_of(payload)

    whole: list[tuple[Payload, str]] = []
    for payload, refs in known:
        if not may_be_split(payload):
            continue
        if len(refs) == 1:
            whole.append((payload, refs[0]))
            continue
        for ref in refs:
            words = single(ref)
            if words and may_be_split(words):
                whole.append((words, ref))
    if not whole:
        return list(presented)
    return _PieceSearch(presented, whole).gathered()


class _Texts:
    """The texts of a caller's list, seen at a glance."""

    def __init__(self, presented: Payloads) -> None:
        self._whole = {text for text in map(_text_of, presented) if text}
        self._lines = {text.partition("\n")[0] for text in self._whole}

    def have_pieces_of(self, payload: Payload) -> bool:
        text = _text_of(payload)
        if GLUE not in text or text in self._whole:
            return False
        return text.partition("\n")[0] in self._lines


def _text_of(payload: Payload) -> str:
    """What a payload says that is nothing but a text."""
    if isinstance(payload, list):
        return _text_of(payload[0]) if len(payload) == 1 else ""
    content = payload.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""


def _is_torn(payload: Payload, by_id: dict[Any, Payload]) -> bool:
    ids = _ids_in(payload)
    if not ids:
        return True
    there = by_id.get(ids[0])
    return there is not None and there != payload


def _ids_in(payload: Payload) -> list[Any]:
    """The ids of the calls that it makes or answers, as far as they are seen at a glance."""
    if isinstance(payload, list):
        items = payload
    else:
        parts = payload.get("parts") or payload.get("content")
        items = [payload]
        for more in (payload.get("tool_calls"), parts):
            if isinstance(more, list):
                items += more
    found = []
    for item in items:
        if isinstance(item, dict):
            id = (
                item.get("call_id")
                or item.get("tool_call_id")
                or item.get("tool_use_id")
            )
            if id is None and item.get("type") in ("function", "tool_use", "custom"):
                id = item.get("id")
            if isinstance(id, str):
                found.append(id)
    return found


def _has_pieces(payload: Payload) -> bool:
    """Whether it is made of several things that could stand by themselves."""
    if isinstance(payload, list):
        return len(payload) > 1
    blocks = payload.get("parts") or payload.get("content")
    calls = payload.get("tool_calls")
    count = len(calls) if isinstance(calls, list) else 0
    count += len(blocks) if isinstance(blocks, list) else bool(blocks)
    return count > 1


class _WholeMessage:
    """A message that may have come back in pieces."""

    def __init__(self, payload: Payload, ref: str) -> None:
        self.ref = ref
        self.print = fingerprint(payload)
        self.stamps: Stamps = stamps_in(payload)

    @property
    def key(self) -> _Key:
        print = self.print
        return _key(print.role, print.text, _first_call(print), print.answers)


def _key(role: str, text: str, call: str, answers: Sequence[str]) -> _Key:
    if call:
        return "call", call
    if answers:
        return "answer", answers[0]
    return role, text.split("\n", 1)[0]


def _first_call(print: Fingerprint) -> str:
    return print.calls[0][0] if print.calls else ""


class _GatheredPieces(NamedTuple):
    """The pieces of a message, and what stands between them: calls that they answer belong `ahead` of
    them, and what answers them `behind`. `end` is the place after all of that.
    """

    ahead: list[Payload]
    pieces: list[Any]
    behind: list[Payload]
    end: int


def _are_answered(said: Fingerprint, rest: Fingerprint) -> bool:
    """Whether all calls are answered in the rest of a message."""
    return {id for id, _, _ in said.calls}.issubset(rest.answers)


class _PieceSearch:
    """One pass over a caller's list."""

    def __init__(
        self, presented: Payloads, whole: Iterable[tuple[Payload, str]]
    ) -> None:
        self._presented = list(presented)
        self._prints: list[Fingerprint | None] = [None] * len(self._presented)
        self._waiting: dict[_Key, list[_WholeMessage]] = {}
        for payload, ref in whole:
            known = _WholeMessage(payload, ref)
            self._waiting.setdefault(known.key, []).append(known)
        self._found: set[str] = set()

    def gathered(self) -> list[Payload]:
        out: list[Payload] = []
        place = 0
        while place < len(self._presented):
            run = self._run_from(place)
            if run is None:
                out.append(self._presented[place])
                place += 1
            else:
                out += [*run.ahead, run.pieces]
                # Neighbours now, they may be pieces of one message themselves.
                count = len(run.behind)
                place = run.end - count
                self._presented[place : run.end] = run.behind
                self._prints[place : run.end] = [None] * count
        return out

    def _run_from(self, place: int) -> "_GatheredPieces | None":
        """The pieces of a message from here on; None if there are none."""
        if not isinstance(self._presented[place], dict):
            return None
        waiting = self._waiting.get(self._key_at(place), ())
        left = [known for known in waiting if known.ref not in self._found]
        for known in left[:STARTS_MAX]:
            run = self._run(known, place)
            if run is not None:
                self._found.add(known.ref)
                return run
        return None

    def _run(self, known: _WholeMessage, place: int) -> "_GatheredPieces | None":
        rest = known.print
        ahead: list[Payload] = []
        pieces: list[Any] = []
        behind: list[Payload] = []
        asked: set[str] = set()
        count = 0
        while not is_empty(rest):
            if place >= len(self._presented):
                return None
            payload = self._presented[place]
            if not isinstance(payload, dict):
                return None
            said = self._print(place)
            left = after(said, rest)
            stamp = stamp_of(payload)
            if stamp and known.stamps and stamp not in known.stamps:
                left = None
            if payload.get("type") == "reasoning":
                pieces.append(payload)
            elif left is not None:
                pieces.append(payload)
                asked.update(id for id, _, _ in said.calls)
                rest = left
                count += 1
            elif said.answers and asked.issuperset(said.answers):
                behind.append(payload)
            elif said.calls and _are_answered(said, rest):
                ahead.append(payload)
            else:
                return None
            place += 1
        # In one piece it is known as it is.
        return _GatheredPieces(ahead, pieces, behind, place) if count > 1 else None

    def _key_at(self, place: int) -> _Key:
        """By what the message is to be found whose pieces may begin here."""
        said = self._print(place)
        call = _first_call(said)
        for ahead in range(place + 1, min(place + AHEAD_MAX, len(self._presented))):
            other = self._print(ahead)
            if call or other.role != said.role or said.answers or other.answers:
                break
            call = _first_call(other)
        return _key(said.role, said.text, call, said.answers)

    def _print(self, place: int) -> Fingerprint:
        print = self._prints[place]
        if print is None:
            print = self._prints[place] = fingerprint(self._presented[place])
        return print


def is_split(payload: Payload) -> bool:
    """Whether these are pieces that are messages of their own, of which no format makes one."""
    if not isinstance(payload, list) or len(payload) < 2:
        return False
    # An item of a response has a type; several of them are a wording.
    return all(
        isinstance(piece, dict) and "role" in piece and "type" not in piece
        for piece in payload
    )
