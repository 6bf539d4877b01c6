"""Three PostgreSQL servers with quorum synchronous replication, for tests that kill the primary.

    cluster = Cluster(shelter.folder)
    cluster.start()
    cluster.dsn("app")                # all three hosts, target_session_attrs=read-write
    dead = cluster.kill()             # SIGKILL of every process of the primary
    cluster.promote()                 # the most advanced standby takes over, the other one follows it
    cluster.rejoin(dead)              # rewound, it follows too

Three rules stand behind `promote`; home-made fail-overs that lose acknowledged rows break one of
them.

* `synchronous_standby_names` is the same on every server and names all of them. Set on the first primary only, the
  cluster would be silently asynchronous after its first fail-over.
* A standby may be promoted if it was seen streaming the dead primary's timeline. Log positions of different timelines
  can't be compared: one that never followed may be ahead, and lack what was acknowledged.
* Positions are compared when nobody receives any more, among all that followed: one of them has every acknowledged
  commit, and it is the one that has most.

This is a stage for tests and no way to run a database. In production, let Patroni do it.
"""

import os
import signal
from pathlib import Path
from typing import Any

from servers import USER, Server, dsn

NAMES = ("a", "b", "c")

SETTINGS = {
    "wal_level": "replica",
    "hot_standby": "on",
    "max_wal_senders": 10,
    "wal_keep_size": "512MB",  # in place of slots, which don't survive a fail-over
    "wal_log_hints": "on",  # so that a server can be rewound
    "synchronous_standby_names": f"ANY 1 ({', '.join(NAMES)})",
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_status_interval": "1s",
}

STREAMING = (
    "SELECT state = 'streaming' AND sync_state = 'quorum' FROM pg_stat_replication WHERE "
    "application_name = %s"
)
RECEIVING = "SELECT pid IS NOT NULL AND received_tli = %s FROM pg_stat_wal_receiver"
SILENT = "SELECT count(*) = 0 FROM pg_stat_wal_receiver WHERE status = 'streaming'"
POSITION = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn"
TIMELINE = "SELECT timeline_id FROM pg_control_checkpoint()"


class Cluster:
    """Three servers, one of them the primary. `followers` are those that were seen streaming from
    it, up or down.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.nodes = [Server(folder / name) for name in NAMES]
        self.primary = self.nodes[0]
        self.followers: list[Server] = []
        self.settings = {**SETTINGS, **settings}

    def start(self) -> None:
        """From nothing to three servers in sync. The standbys begin as copies of the primary's
        folder before its first start, which is as good as a base backup and sooner made.
        """
        self.primary.create()
        for node in self.nodes[1:]:
            node.copy(self.primary)
            (node.data / "standby.signal").touch()
        for node in self.nodes:
            self._point(node)
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self._wait_followed(self.nodes[1:])

    def dsn(self, database: str = "postgres", **options: Any) -> str:
        """Every host; a client looks for the one that can be written to."""
        return dsn(
            self.nodes,
            database,
            **{"target_session_attrs": "read-write", "connect_timeout": 3, **options},
        )

    @property
    def standbys(self) -> list[Server]:
        return [node for node in self.nodes if node is not self.primary and node.alive]

    def kill(self) -> Server:
        """SIGKILL of every process of the primary, which is given back. Nobody takes over before
        `promote`.
        """
        self.primary.kill()
        return self.primary

    def promote(self) -> Server:
        """Makes the most advanced follower the primary, and lets the others follow it."""
        assert not self.primary.alive, "two primaries at once: kill or stop the old one first"
        candidates = [node for node in self.followers if node.alive]
        assert candidates, "no standby that followed this primary is left"
        for node in candidates:
            node.wait_until(SILENT)
        self.primary = max(candidates, key=lambda node: node.ask(POSITION)[0][0])
        self.followers = []
        self.primary.ask("SELECT pg_promote(wait => true)")
        others = [node for node in candidates if node is not self.primary]
        for node in others:
            self._point(node)
            node.reload()
        self._wait_followed(others)
        return self.primary

    def rejoin(self, node: Server) -> None:
        """A dead server comes back and follows."""
        assert not node.alive
        if node in self.followers:
            node.start()  # it followed this primary when it died, and goes on where it was
            self._wait_followed([node])
        elif (node.data / "standby.signal").exists():
            self.rebuild(node)  # it followed another one; only a primary's folder can be rewound
        else:
            self.rewind(node)

    def rewind(self, node: Server) -> None:
        """A dead primary follows: what it has and nobody else has is undone."""
        (node.data / "postmaster.pid").unlink(missing_ok=True)
        node.run(
            "pg_rewind",
            "--no-sync",
            "--target-pgdata",
            node.data,
            "--source-server",
            self._source(node),
        )
        # which points it at its primary: rewinding took the primary's configuration along
        self._follow(node)

    def rebuild(self, node: Server) -> None:
        """A new base backup, for a server whose folder is of no use any more."""
        node.discard()
        node.run(
            "pg_basebackup",
            "--no-sync",
            "--checkpoint=fast",
            "-D",
            node.data,
            "--dbname",
            self._source(node),
        )
        self._follow(node)

    def _follow(self, node: Server) -> None:
        (node.data / "standby.signal").touch()
        self._point(node)
        node.start()
        self._wait_followed([node])

    def mute(self, *nodes: Server) -> None:
        """No standby, or none of these, receives anything: they don't answer the primary, and are
        not told. They can be asked, and promoted after `unmute`.
        """
        for node in nodes or self.standbys:
            [[receiver]] = node.ask("SELECT pid FROM pg_stat_wal_receiver")
            os.kill(receiver, signal.SIGSTOP)

    def unmute(self) -> None:
        """The standbys receive again, from where they stood."""
        for node in self.standbys:
            node.thaw()

    def heal(self) -> None:
        """All three are up and in sync, whatever happened before."""
        self.unmute()
        self._point(self.primary)
        if self.primary.alive:
            self.primary.reload()
        else:
            self.primary.start()
        for node in self.nodes:
            if not node.alive:
                self.rejoin(node)
        self._wait_followed(self.standbys)

    def restart(self, mode: str = "fast") -> None:
        """The primary stops and comes back; its standbys find it again."""
        self.primary.restart(mode)
        self._wait_followed(self.standbys)

    def _wait_followed(self, nodes: list[Server]) -> None:
        """Returns when these stream from the primary, on its timeline, and count for its quorum."""
        # A promoted server's last checkpoint may still be of the timeline before.
        self.primary.ask("CHECKPOINT")
        [[timeline]] = self.primary.ask(TIMELINE)
        for node in nodes:
            self.primary.wait_until(STREAMING, node.name)
            node.wait_until(RECEIVING, timeline)
        self.followers += [node for node in nodes if node not in self.followers]

    def _point(self, node: Server) -> None:
        source = {} if node is self.primary else {"primary_conninfo": self._source(node)}
        node.configure(**self.settings, **source)

    def _source(self, node: Server) -> str:
        return (
            f"host=127.0.0.1 port={self.primary.port} user={USER} dbname=postgres "
            f"application_name={node.name}"
        )
