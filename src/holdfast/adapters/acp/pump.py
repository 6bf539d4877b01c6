"""The bytes of a connection: an agent as a child process, and two pipes through the recorder.

Lines are passed on as they came, whatever is in them and however long they are. The agent has the
whole environment, and standard error is its own. It is in a process group of its own, so that a
signal reaches it once: from here. The end of the client's input is the end of the agent's, and so is
that the client reads no more; the end of the agent's output is the end of ours, and its exit code is
ours.
"""

import errno
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from holdfast.adapters.acp.recorder import PassedOn, Recorder
from holdfast.adapters.acp.wire import Direction

READ_BYTES = 1 << 20
QUIET_S = 0.5
"""How long an agent that has ended is listened to: a child of it may hold its output open."""

_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class SplitLines:
    """Bytes as they are read, cut into lines."""

    def __init__(self) -> None:
        # Pieces of a line that has not ended. Joined once: a picture is one line of megabytes.
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in these bytes, each with its line break."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            lines.append(b"".join((*self._rest, piece, b"\n")))
            self._rest.clear()
        if rest:
            self._rest.append(rest)
        return lines

    def rest(self) -> list[bytes]:
        """What came after the last line break, if anything did."""
        # Passed on as it is: whoever was cut off in the middle of a line has said so much.
        return [b"".join(self._rest)] if self._rest else []


class Outlet:
    """Where bytes go out. When nobody reads there any more, they go nowhere."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._is_open = True

    def write(self, data: bytes) -> None:
        """Writes all of it; lines of two threads are not mixed."""
        with self._lock:
            left = memoryview(data)
            while left and self._is_open:
                try:
                    left = left[os.write(self._fd, left) :]
                except BlockingIOError:
                    # Whoever made the pipe may have set it so, for both ends.
                    select.select((), (self._fd,), ())
                except OSError as error:
                    if error.errno not in (errno.EPIPE, errno.EBADF, errno.ECONNRESET):
                        raise
                    self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether anybody reads there, as far as is known."""
        return self._is_open

    def close(self) -> None:
        """The end of what goes out here."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                os.close(self._fd)


class Pump:
    """A client, an agent, and a recorder between them."""

    def __init__(
        self, command: Sequence[str], recorder: Recorder, *, client: tuple[int, int]
    ) -> None:
        self._recorder = recorder
        # A group of its own, not a session: Ctrl-C reaches the recorder alone, which passes it on
        # once; without that the agent would be signalled twice, and many end hard at the second.
        self._agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        assert self._agent.stdin is not None and self._agent.stdout is not None
        self._from_client, to_client = client
        self._from_agent = self._agent.stdout.fileno()
        self._to_client = Outlet(to_client)
        # A descriptor of its own: the file object would close it a second time.
        self._to_agent = Outlet(os.dup(self._agent.stdin.fileno()))
        self._agent.stdin.close()

    def run(self) -> int:
        """Passes everything on until the agent has ended; its exit code, or minus the number of
        the signal that ended it.
        """
        with self._signals_passed_on():
            # Nobody waits for it: a client may keep its side open for ever.
            listener = threading.Thread(
                target=self._listen,
                daemon=True,
            )
            listener.start()
            self._pass_on(
                "agent",
                self._from_agent,
                self._to_client,
            )
            self._recorder.end("the agent is gone")
            return self._agent.wait()

    def _listen(self) -> None:
        """The client's side."""
        try:
            self._pass_on(
                "client",
                self._from_client,
                self._to_agent,
            )
        finally:
            # Whatever has ended this thread, nothing more comes from the client.
            self._to_agent.close()

    def _pass_on(
        self,
        sender: Direction,
        source: int,
        outlet: Outlet,
    ) -> None:
        lines = SplitLines()
        for data in self._read(source):
            self._hand_over(
                sender,
                lines.feed(data),
                outlet,
            )
        self._hand_over(
            sender,
            lines.rest(),
            outlet,
        )

    def _hand_over(
        self,
        sender: Direction,
        lines: list[bytes],
        outlet: Outlet,
    ) -> None:
        for sent in self._recorder.take(sender, lines):
            if sent.forward:
                outlet.write(sent.forward)
            self._send(sent)
            # After the line is out: nobody waits for this.
            self._send(self._recorder.settle(sent))

    def _send(self, sent: PassedOn) -> None:
        if sent.to_client:
            self._to_client.write(sent.to_client)
        if not self._to_client.is_open:
            # Whoever hears no answers is gone, though its other end may be open still.
            self._to_agent.close()
        if sent.to_agent:
            self._to_agent.write(sent.to_agent)

    def _read(self, source: int) -> Iterator[bytes]:
        is_agent = source == self._from_agent
        while True:
            ready, _, _ = select.select((source,), (), (), QUIET_S)
            if not ready:
                if is_agent and self._agent.poll() is not None:
                    return
                continue
            try:
                data = os.read(source, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # the client's terminal or socket is gone
                return
            if not data:
                return
            yield data

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        """Signals that would end us go to the agent: what it makes of them is recorded."""
        before: dict[int, Any] = {}
        # Handlers belong to the main thread; a program that embeds this has its own.
        if threading.current_thread() is threading.main_thread():
            for name in _PASSED_ON:
                number = getattr(signal, name, None)
                if number is not None:
                    before[number] = signal.signal(number, self._signalled)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._agent.send_signal(number)
