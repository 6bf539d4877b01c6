"""Messages that a context shows as several payloads: gathered into one payload each before lists
are compared.

A model response of the Responses API is stored as one message and shown as its items. `reconcile`
asks of each payload which message it shows, so the items of one message are handed to it as one
payload, a list, on both sides. Recording works with this before anything else; lists of other
formats pass unchanged.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.domain.message import Payload, Payloads, freeze
from holdfast.domain.record.fingerprint import stamp_of

Refs = tuple[str, ...]
"""The ids of the messages that a payload shows: several when repair merged them, none when repair
made it.
"""
Shown = tuple[Payload, Refs]
"""A payload as the view shows it, and what it shows."""
View = Sequence[Shown]


def gather_shown(shown: View) -> list[Shown]:
    """Neighbours that show the same single message become one list of items."""
    # As nearly all are: long lists are recorded after every message.
    if not _shares_a_message(shown):
        return list(shown)
    out: list[Shown] = []
    for payload, ids in shown:
        if len(ids) == 1 and out and out[-1][1] == ids:
            items = out[-1][0]
            if not isinstance(items, list):
                items = [items]
            out[-1] = ([*items, payload], ids)
        else:
            out.append((payload, ids))
    return out


def _shares_a_message(shown: View) -> bool:
    before: Refs | None = None
    for _, ids in shown:
        if ids == before:
            return True
        before = ids
    return False


def gather(presented: Payloads, groups: Payloads) -> list[Payload]:
    """A caller's list with the items of known messages gathered. `groups`: payloads of known
    messages, of which those that are lists of items count, in the order in which they stand.

    Items are known by being equal, all of them in a row, or by their own ids where the caller has
    changed some.
    """
    known = [group for group in groups if type(group) is list and len(group) > 1]
    if not known:
        return list(presented)
    return _Gathering(presented, known).gathered()


class _Gathering:
    """One pass over a caller's list."""

    def __init__(self, presented: Payloads, known: Sequence[list[Any]]) -> None:
        self._presented = list(presented)
        # By their first item. The first group is put in last, so that its stamps win.
        self._waiting: dict[bytes, list[list[Any]]] = {}
        self._owner: dict[str, int] = {}
        for place, group in reversed(list(enumerate(known))):
            self._waiting.setdefault(freeze(group[0]), []).append(group)
            for item in group:
                stamp = stamp_of(item)
                if stamp is not None:
                    self._owner[stamp] = place

    def gathered(self) -> list[Payload]:
        out: list[Payload] = []
        place = 0
        while place < len(self._presented):
            count = self._equal_from(place) or self._owned_from(place)
            if count:
                out.append(self._presented[place : place + count])
            else:
                out.append(self._presented[place])
            place += count or 1
        return out

    def _equal_from(self, place: int) -> int:
        """How many payloads from here on are the items of a known message that is not taken yet."""
        payload = self._presented[place]
        if not isinstance(payload, dict):
            return 0
        groups = self._waiting.get(freeze(payload), [])
        for index in reversed(range(len(groups))):
            count = len(groups[index])
            if self._presented[place : place + count] == groups[index]:
                del groups[index]
                return count
        return 0

    def _owned_from(self, place: int) -> int:
        """How many payloads from here on carry ids of items of one known message."""
        owner = self._owner_at(place)
        count = 0
        while owner is not None and self._owner_at(place + count) == owner:
            count += 1
        return count

    def _owner_at(self, place: int) -> int | None:
        if place >= len(self._presented):
            return None
        stamp = stamp_of(self._presented[place])
        return None if stamp is None else self._owner.get(stamp)
