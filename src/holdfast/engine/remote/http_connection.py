"""One connection to an HTTP server, and what can be said of a request that was not answered.

answered   a status, headers and a body, each of them whole
unreached  no connection, or none any more: nothing was sent
untrusted  somebody is there who can't show that it is who was meant: nothing was sent
lost       the connection broke: it may have been done, and is not being done any more
late       no answer in time: it may still be done

An answer is taken for whole only if it says how long it is. One whose headers were cut looks to
`http.client` like a short one without a body, and a cut 404 would be believed.
"""

import http.client
import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import SplitResult

import msgspec

from holdfast.engine.remote.verbs import PROCESS_HEADER

CONNECT_S = 5.0

Fate = Literal["answered", "unreached", "untrusted", "lost", "late"]


class RawAnswer(msgspec.Struct, frozen=True):
    """What a request came to."""

    fate: Fate
    status: int = 0
    media: str = ""
    content: bytes = b""
    problem: str = ""
    process: str = ""


class RawConnection:
    """One connection, used by one thread at a time. `made` counts how often it was opened: as long
    as it is the same, the server is the same process.
    """

    def __init__(
        self,
        parts: SplitResult,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        trusts: ssl.SSLContext | None = None,
    ) -> None:
        host, connect_s = parts.hostname or "", min(CONNECT_S, timeout_s)
        self._connection = http.client.HTTPConnection(
            host, parts.port, timeout=connect_s
        )
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, parts.port, timeout=connect_s, context=trusts
            )
        self._timeout_s = timeout_s
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers)
        self.made = 0

    @property
    def is_open(self) -> bool:
        return self._connection.sock is not None

    def connect(self) -> RawAnswer | None:
        """Opens it if it is not open, or is not fit to be used any more; what stands in the way."""
        self._close_if_stale()
        if self._connection.sock is not None:
            return None
        try:
            self._connection.connect()
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            return RawAnswer("untrusted", problem=error.verify_message)
        # A name that can be none is a ValueError.
        except (OSError, ValueError) as error:
            self._connection.close()
            why = getattr(error, "strerror", None) or type(error).__name__
            return RawAnswer("unreached", problem=f"no connection: {why}")
        # A machine that is gone without a word is noticed.
        sock: Any = self._connection.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.made += 1
        return None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        media: str = "",
        timeout_s: float | None = None,
    ) -> RawAnswer:
        """Sends a request and gives what it came to; never raises for what the other side does."""
        headers = {**self._headers, "content-type": media} if media else self._headers
        try:
            unsent = self.connect()
            if unsent is None:
                self._connection.sock.settimeout(timeout_s or self._timeout_s)
                unsent = self._send_head(method, path, body, headers)
            if unsent is not None:
                return unsent
            if body:
                self._connection.send(body)
            answer = self._read(self._connection.getresponse())
        except TimeoutError:
            answer = RawAnswer("late", problem="no answer in time")
        except (OSError, http.client.HTTPException, ValueError) as error:
            # By its kind alone: its words may quote what was sent, the token among it.
            problem = f"no whole answer: {type(error).__name__}"
            answer = RawAnswer("lost", problem=problem)
        # Interrupted: the rest of that answer would be taken for the next one, and a connection
        # that is half made for a whole one.
        except BaseException:
            self.close()
            raise
        if answer.fate != "answered":
            self.close()
        return answer

    def _send_head(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> RawAnswer | None:
        """Sends all but the body; what stands in the way. It goes to the socket in one piece, so
        where that fails the other side has nothing that it could do.
        """
        if body is not None:
            headers = {**headers, "content-length": str(len(body))}
        try:
            self._connection.request(method, self._prefix + path, headers=headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # By its kind alone: its words may quote the token.
            problem = f"not sent: {type(error).__name__}"
            return RawAnswer("unreached", problem=problem)
        return None

    def cut(self) -> None:
        """Has a request that another thread waits for come to its end, as one that was lost."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                # As a plain socket: another thread is using what encrypts.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        self._connection.close()

    def _read(self, response: http.client.HTTPResponse) -> RawAnswer:
        is_measured = response.length is not None or response.chunked
        content = response.read()
        if not is_measured:
            return RawAnswer("lost", problem="no whole answer: it has no length")
        media = response.headers.get("content-type", "")
        if response.will_close:
            self.close()
        process = response.headers.get(PROCESS_HEADER, "")
        return RawAnswer("answered", response.status, media, content, process=process)

    def _close_if_stale(self) -> None:
        """Closes a connection on which something came unasked: its end, or an answer to nothing,
        which would be taken for that to the next request.
        """
        sock = self._connection.sock
        if sock is not None and _is_readable(sock):
            self._connection.close()


def _is_readable(sock: socket.socket) -> bool:
    if isinstance(sock, ssl.SSLSocket):
        return _has_words(sock)
    try:
        # Not `select.select`: it can't look at descriptors beyond 1023.
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _has_words(sock: ssl.SSLSocket) -> bool:
    """Whether anything came but what TLS itself sends after a handshake."""
    waits = sock.gettimeout()
    try:
        sock.settimeout(0)
        sock.recv(1)
    except ssl.SSLWantReadError:
        return False
    except (OSError, ValueError):
        return True
    finally:
        with suppress(OSError):
            sock.settimeout(waits)
    return True
