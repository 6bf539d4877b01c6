"""How values travel: MessagePack, or JSON where a text is none that UTF-8 can hold.

A name from another platform may hold half of a surrogate pair. MessagePack has no way to write it;
JSON has, as an escape. So what can't be written as the one is written as the other, and the media
type says which it is.
"""

import json
from typing import Any

import msgspec

PACKED = "application/vnd.msgpack"
PLAIN = "application/json"

_pack = msgspec.msgpack.Encoder().encode


def written(value: Any) -> tuple[str, bytes]:
    """The value as bytes, and their media type."""
    try:
        return PACKED, _pack(value)
    except UnicodeEncodeError:
        # Bytes are base64 in there; `read` takes them back, for it knows the types.
        plain = msgspec.to_builtins(value, str_keys=True)
        return PLAIN, json.dumps(plain, separators=(",", ":")).encode()


def read(media: str, content: bytes, kind: Any) -> Any:
    """The value of this kind that these bytes are; `ValueError` when they are none."""
    media = media.partition(";")[0].strip().lower()
    if media == PACKED:
        return msgspec.msgpack.decode(content, type=kind)
    if media != PLAIN:
        raise ValueError(f"the media type {media:.40} is not known")
    try:
        return msgspec.convert(json.loads(content), kind, strict=False)
    # Python's own limit is met before any of ours.
    except RecursionError:
        raise ValueError("it is nested too deep") from None
