"""Server-sent events, read as the HTML standard says: an event counts when its empty line has come."""

import json
from typing import Any


class EventLines:
    """What comes of a stream, piece by piece. `last_id` is what its reader comes back with."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.comments = 0
        self.retry_ms: int | None = None
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The events that are whole with this: `event`, `id`, and `data` as JSON, or as it is where
        it is none.
        """
        # The last piece is not a line yet, however complete it looks.
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            if line:
                self._take(line.decode())
                continue
            fields, self._fields = self._fields, {}
            # An id without data moves the cursor, and is no event.
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                name = fields.get("event", "message")
                value = _value(fields["data"])
                found.append({"event": name, "id": self.last_id, "data": value})
        return found

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if not name:
            self.comments += 1
        elif name == "retry":
            self.retry_ms = int(value)
        else:
            self._fields[name] = value.removeprefix(" ")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
