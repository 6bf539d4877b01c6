"""A reader of server-sent events, as a browser is one: it takes an event when its empty line has come,
and knows the `id` of the last one.

    with EventReader(port, token, f"/v1/sessions/{id}/stream") as reader:
        reader.take(3)                # the next three events
        reader.last_id                # where it goes on from
    EventReader(…, cut_after=100)     # the connection is closed after so many bytes of the body
"""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.testing.wire.event_lines import EventLines

LIMIT_S = 60


class Streamed(NamedTuple):
    """One event."""

    event: str
    id: str
    data: Any


class EventReader:
    """One connection."""

    def __init__(
        self,
        port: int,
        token: str | None,
        path: str,
        *,
        last_id: str = "",
        cut_after: int | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        self.headers = {name.lower(): text for name, text in self.answer.getheaders()}
        self.lines = EventLines(last_id)
        self._left = cut_after
        self._waiting: list[Streamed] = []
        self.bytes = 0

    @property
    def last_id(self) -> str:
        return self.lines.last_id

    def take(self, count: int) -> list[Streamed]:
        """The next events; fewer if the stream ends, or the connection is cut, before."""
        found: list[Streamed] = []
        for event in self:
            found.append(event)
            if len(found) == count:
                break
        return found

    def until(self, fits: Callable[[Streamed], bool]) -> list[Streamed]:
        """The next events, up to the first that fits."""
        found: list[Streamed] = []
        for event in self:
            found.append(event)
            if fits(event):
                break
        return found

    def all(self) -> list[Streamed]:
        """All that is left, until the stream ends."""
        return list(self)

    def read_on(self) -> list[Streamed]:
        """What one more piece of the body brings; it must not have ended."""
        data = self._read()
        assert data, "the stream has ended"
        return self._fed(data)

    def __iter__(self) -> Iterator[Streamed]:
        while True:
            while self._waiting:
                yield self._waiting.pop(0)
            data = self._read()
            if not data:
                return
            self._waiting += self._fed(data)

    def _fed(self, data: bytes) -> list[Streamed]:
        return [Streamed(**event) for event in self.lines.feed(data)]

    def _read(self) -> bytes:
        if self._left == 0:
            self.close()
            return b""
        # One read of the socket, not as many as it takes to fill the number.
        data = self.answer.read1(1 << 16 if self._left is None else self._left)
        self.bytes += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> "EventReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def words(events: list[Streamed]) -> dict[str, str]:
    """The words of each message, joined from what the events brought."""
    said: dict[str, str] = {}
    for event in events:
        if event.event in ("chunk", "entry") and event.data["message_id"]:
            id = event.data["message_id"]
            said[id] = said.get(id, "") + event.data["text"]
    return said
