"""How the view words its messages, which decides what is an edit."""

from collections.abc import Mapping
from functools import cached_property

from holdfast.domain.message import Payload
from holdfast.domain.record.atoms import GLUE
from holdfast.domain.record.fingerprint import (
    Stamps,
    fingerprint,
    is_same,
    stamp_of,
    stamps_in,
)
from holdfast.domain.record.grouping import Refs, View
from holdfast.domain.record.matching import ByStamp


class Wordings:
    """How the view words its messages: as shown, or as known before repair."""

    def __init__(
        self,
        shown: View,
        known: Mapping[str, Payload],
        stored: Mapping[str, Payload],
    ) -> None:
        self.view = shown
        self.known = known
        self.stored = stored

    @cached_property
    def shown(self) -> dict[str, Payload]:
        return {refs[0]: payload for payload, refs in self.view if len(refs) == 1}

    def single(self, ref: str) -> Payload | None:
        return self.shown[ref] if ref in self.shown else self.known.get(ref)

    def differ(
        self, refs: Refs, payload: Payload, *, believed: Payload | None = None
    ) -> bool:
        """Whether the caller words these messages otherwise; no, where nobody knows. `known` has
        the last word: repair may show a message otherwise than the view has it, again and again.
        """
        if len(refs) > 1:
            if believed is not None and not is_same(believed, payload):
                return True
            said = fingerprint(payload)
            return self.read(refs) not in (None, said.text) or self.call_twice(refs)
        shown = self.shown.get(refs[0])
        if shown is not None and is_same(shown, payload):
            return False
        for stored in (self.known.get(refs[0]), shown, believed):
            if stored is not None:
                return not is_same(stored, payload)
        return False

    def call_twice(self, refs: Refs) -> bool:
        """Whether one of these messages is worded with a call that another one makes: somebody has
        put all of them into one meanwhile.
        """
        calls: list[str] = []
        for ref in refs:
            payload = self.known.get(ref, self.shown.get(ref))
            if payload is not None:
                calls += [id for id, _, _ in fingerprint(payload).calls]
        return len(set(calls)) < len(calls)

    def read(self, refs: Refs, *, believed: Payload | None = None) -> str | None:
        """What the view says for these messages together; None where nobody knows."""
        stored = [self.known.get(ref, self.shown.get(ref)) for ref in refs]
        if len(refs) == 1 and stored[0] is None:
            stored[0] = believed
        texts = []
        for payload in stored:
            if payload is None:
                return None
            texts.append(fingerprint(payload).text)
        return GLUE.join(filter(None, texts))

    def are_said_beside_made(self, refs: Refs, payload: Payload, said: Payload) -> bool:
        """Whether the view says for these messages what is `said` in this payload beside what
        repair had made; the real results may have come since.
        """
        left = fingerprint(said)
        made = set(fingerprint(payload).answers).difference(left.answers)
        others = []
        for ref in refs:
            known = self.known.get(ref, self.shown.get(ref))
            if known is None or made.isdisjoint(fingerprint(known).answers):
                others.append(ref)
        return self.read(tuple(others)) == left.text

    def stamps(self, ref: str) -> Stamps:
        """The ids that the payload of a message has of its own: as the view shows it, or as it was
        stored, if somebody has recorded it without them since.
        """
        found: Stamps = ()
        for payload in (self.shown.get(ref), self.stored.get(ref)):
            if payload is not None:
                found += stamps_in(payload)
        return found

    def stamped(self, used: set[str]) -> ByStamp:
        """Finds messages out of view by their payload's own id; each only once."""
        places: dict[str, str] | None = None
        gone = set(used)

        def find(stamp: str) -> Refs | None:
            nonlocal places
            # Read when a stamp is first looked for: most payloads have none.
            if places is None:
                places = {}
                for wording in (self.stored, self.shown, self.known):
                    for id, payload in wording.items():
                        if own := stamp_of(payload):
                            places[own] = id
            ref = places.get(stamp)
            if ref is None or ref in gone:
                return None
            # A second payload with this stamp is another message.
            gone.add(ref)
            return (ref,)

        return find
