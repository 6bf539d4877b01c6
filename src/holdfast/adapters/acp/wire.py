"""A line of the wire: the bytes as they came, and what can be read of them.

Lines are passed on as bytes, never written anew: the order of keys, spaces and numbers are the
sender's. A line that is no JSON, or no object, is one that nothing can be read of.
"""

from typing import Any, Literal

import msgspec

from holdfast.domain.message import freeze, thaw
from holdfast.errors import HoldfastError

Direction = Literal["client", "agent"]
"""Who has sent a line."""

INTERNAL_ERROR = -32603
CANCELLED = {"outcome": {"outcome": "cancelled"}}
"""The answer to a request for permission that nobody will answer."""


class Line(msgspec.Struct, frozen=True):
    """One line. `message` is the object it holds, empty where there is none."""

    raw: bytes
    message: dict[str, Any]

    @property
    def method(self) -> str | None:
        """What is asked for or told; None in an answer."""
        method = self.message.get("method")
        return method if isinstance(method, str) else None

    @property
    def is_request(self) -> bool:
        """Whether it wants an answer."""
        return self.method is not None and "id" in self.message

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request."""
        if self.method is not None or "id" not in self.message:
            return False
        return "result" in self.message or "error" in self.message

    @property
    def id(self) -> str:
        """The id of a request, or of the one that is answered: 1 and "1" are two ids."""
        return repr(self.message.get("id"))

    @property
    def params(self) -> dict[str, Any]:
        """What it says; empty where that is no object."""
        return _object(self.message.get("params"))

    @property
    def result(self) -> dict[str, Any]:
        """What an answer brings; empty where it is an error, or no object."""
        return _object(self.message.get("result"))

    @property
    def error(self) -> dict[str, Any] | None:
        """What an answer says went wrong; None where nothing did."""
        if self.message.get("error") is None:
            return None
        return _object(self.message["error"])

    @property
    def session(self) -> str | None:
        """The agent's id of the session that this is about."""
        session = self.params.get("sessionId")
        return session if isinstance(session, str) else None


def read(raw: bytes) -> Line:
    """The line that these bytes are. Never raises: what can't be read is passed on all the same."""
    return Line(raw, _object(_value(raw)))


def _value(raw: bytes) -> Any:
    try:
        return thaw(raw)
    except HoldfastError:
        pass
    try:
        # A character that was cut in half does not keep the words round it from being stored.
        return thaw(raw.decode(errors="replace").encode())
    except HoldfastError:
        return None


def _object(value: Any) -> dict[str, Any]:
    # Agents and clients send anything; nothing here may raise over it.
    return value if isinstance(value, dict) else {}


def error_line(id: Any, words: str, code: str) -> bytes:
    """An answer of the recorder's own: it could not do what was asked."""
    # For programs: the sentence is for people, and may change.
    data = {"holdfast": code}
    error = {
        "code": INTERNAL_ERROR,
        "message": words,
        "data": data,
    }
    return line_of(
        {
            "jsonrpc": "2.0",
            "id": id,
            "error": error,
        }
    )


def result_line(id: Any, result: dict[str, Any]) -> bytes:
    """An answer of the recorder's own."""
    return line_of(
        {
            "jsonrpc": "2.0",
            "id": id,
            "result": result,
        }
    )


def notice_line(method: str, params: dict[str, Any]) -> bytes:
    """A notification of the recorder's own."""
    return line_of(
        {
            "jsonrpc": "2.0",
            "method": method,
            "params": params,
        }
    )


def line_of(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return freeze(message) + b"\n"
