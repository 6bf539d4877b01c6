"""Standing between clients and PostgreSQL, on a port of one's own: what the proxies of the tests
have in common.
"""

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict


class GoBetween(ABC):
    """Listens on loopback; each client is served on a thread of its own."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def through(self, dsn: str) -> str:
        """The address of the same database, by way of this one."""
        parts = {**conninfo_to_dict(dsn), "host": "127.0.0.1", "port": str(self.port)}
        parts.pop("hostaddr", None)
        return f"postgresql:///?{urlencode(parts, quote_via=quote)}"

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """Serves one client until it is gone."""

    def close(self) -> None:
        """Listens no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()
