"""Names for what was kept elsewhere first.

They are derived from what it is called there, never minted: whoever brings it over again names it the same, and what is
here already is known by its name (I-2).
"""

import hashlib
from collections.abc import Sequence


def session_name(kind: str, id: str, first: Sequence[str]) -> str:
    """The id of the session that was `id` in a store of this kind. Such ids are often a date and a number and the same
    in many stores; who said what first tells them apart.
    """
    raw = bytearray(_digest(kind, id, *first)[:16])
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def entry_name(session: str, origin: str, at: int) -> bytes:
    """The id of the entry that was `origin` there; as all ids it begins with its time."""
    return max(at, 0).to_bytes(8, "big")[-6:] + _digest(session, origin)[:10]


def _digest(*parts: str | bytes) -> bytes:
    whole = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.digest()
