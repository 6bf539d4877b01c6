"""Call ids and function names that a provider accepts (FAULTS E4, E12).

The log keeps ids as they were said. In a request, or wherever in it a format needs them to differ,
the first use of an id keeps it; later ones become `id-2`, `id-3`, … so that every process gives out
the same names.
"""

import re

_NAME_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")


def function_name(name: str, *, length_max: int = 64) -> str:
    """The name with what providers refuse replaced."""
    return _NAME_REFUSED.sub("_", name)[:length_max] or "tool"


class CallNames:
    """Gives out call ids, each once. `used` is shared with whoever goes on shaping the same
    dialogue.
    """

    def __init__(
        self, used: set[str], *, length_max: int, strict: bool = False
    ) -> None:
        self._used = used
        self._length_max = length_max
        self._strict = strict
        self._next: dict[str, int] = {}

    def give(self, call_id: str) -> str:
        """A fresh id, the same as `call_id` where that fits and is free."""
        name = self._fitting(call_id)
        if name not in self._used:
            self._used.add(name)
            return name
        # Where the count stands: found anew each time, a much used id would take longer and longer.
        count = self._next.get(name, 2)
        while (numbered := self._numbered(name, count)) in self._used:
            count += 1
        self._next[name] = count + 1
        self._used.add(numbered)
        return numbered

    def _fitting(self, call_id: str) -> str:
        if self._strict:
            call_id = _NAME_REFUSED.sub("_", call_id)
        elif call_id.isspace():
            # Providers refuse a blank id like a missing one.
            call_id = ""
        return call_id[: self._length_max] or "call"

    def _numbered(self, name: str, count: int) -> str:
        suffix = f"-{count}"
        # The number must survive the cut, or this would be no new id.
        return name[: self._length_max - len(suffix)] + suffix
