"""Names for what was kept elsewhere first.

They are derived from what it is called there, never minted: whoever brings it over again names it
the same, and what is here already is known by its name (I-2).
"""

import hashlib
import re
from collections.abc import Sequence

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UNIQUE = {
    "claude": re.compile(rf"{_UUID}(/agent-.+)?", re.DOTALL),
    "codex": re.compile(_UUID),
    "hermes": re.compile(r"[0-9]{8}_[0-9]{6}_[0-9a-f]{6,}"),
}
"""Ids that a program draws by chance: they mean the same session wherever its files lie. What a
subagent of Claude Code is called is drawn within its session.
"""


def is_drawn(kind: str, id: object) -> bool:
    """Whether a program drew this id by chance, so that it means the same session wherever it is
    met.
    """
    drawn = _UNIQUE.get(kind)
    return drawn is not None and isinstance(id, str) and drawn.fullmatch(id) is not None


def session_name(
    tenant: str,
    kind: str,
    id: str,
    first: Sequence[str],
    *,
    source: str = "",
    number: int = 0,
) -> str:
    """The id that the session `id` of a store of this kind gets when this tenant brings it over.

    Most such ids are a date and a number, or a user's name, and the same in many stores: `source`,
    where the store lies, tells them apart, and so does who said what first. Where the program draws
    its ids by chance the place does not count, so that a session is known again when its files have
    moved. `number` counts conversations that are alike in all of this and yet are not one.
    """
    where = "" if is_drawn(kind, id) else source
    # The first has none, so that its name does not change when another like it comes.
    more = [str(number)] if number else []
    raw = bytearray(_digest(tenant, kind, where, id, *first, *more)[:16])
    # The bits that make it a random UUID (version 4), as ids of sessions are.
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def entry_name(session: str, origin: str, at: int) -> bytes:
    """The id of the entry that was `origin` there; as all ids it begins with its time."""
    # An id has no sign: what was said before 1970 gets the first time there is.
    return max(at, 0).to_bytes(8, "big")[-6:] + _digest(session, origin)[:10]


def _digest(*parts: str) -> bytes:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        # With its length, so that no two rows of parts run together to the same bytes.
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.digest()
