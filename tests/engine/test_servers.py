"""The servers that other tests stand on: they start, they hold what they acknowledge, and they
leave nothing behind.
"""

import socket
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

import procs
from clusters import Cluster
from servers import LIMIT_S, Server, waiting_until


def test_every_test_gets_an_empty_database_of_its_own(databases):
    for place in (databases(), databases(), databases(schema=True), databases(schema=True)):
        with psycopg.connect(place) as connection:
            connection.execute("CREATE TABLE only_here (id int)")
            [schema] = connection.execute("SELECT current_schema()").fetchone()
            assert schema == "public" or schema.startswith("holdfast_")


@pytest.mark.slow
def test_a_killed_server_has_all_that_it_acknowledged(cluster: Cluster, replicated: str):
    """Every process of a node is gone at once, and nothing answers at its port; it recovers by
    itself.
    """
    node = cluster.primary
    with psycopg.connect(replicated, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
        node.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", node.port))
    node.start()
    with psycopg.connect(replicated) as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]


KILLED = """
    from servers import Server
    from shelter import Shelter
    shelter = Shelter()
    server = Server(shelter.folder / "single")
    server.create()
    server.start()
    say("up", shelter.folder, server.port)
    hear()
"""


@pytest.mark.slow
def test_a_killed_test_run_leaves_no_server_and_no_folder():
    with procs.child(KILLED) as run:
        folder, port = run.wait_for("up").split()
        socket.create_connection(("127.0.0.1", int(port))).close()
        run.kill()
    for _ in waiting_until("the folder is gone"):
        if not Path(folder).exists():
            break
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


class Writer(threading.Thread):
    """Adds numbers to a table, one transaction each, and knows which were acknowledged. After a
    lost connection it sends the same number again, since nobody knows whether it was written.
    """

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__(daemon=True)
        self.dsn, self.tag = dsn, name
        self.acknowledged = 0
        self.reached = threading.Condition()
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True) as connection:
                    while not self.stopping.is_set():
                        row = (self.tag, self.acknowledged + 1)
                        connection.execute(
                            "INSERT INTO rows VALUES (%s, %s) ON CONFLICT DO NOTHING", row
                        )
                        with self.reached:
                            self.acknowledged += 1
                            self.reached.notify_all()
            except psycopg.OperationalError:
                self.stopping.wait(0.02)

    def go_on(self, rows: int = 20) -> None:
        with self.reached:
            goal = self.acknowledged + rows
            assert self.reached.wait_for(lambda: self.acknowledged >= goal, LIMIT_S), (
                f"{self.tag} does not go on"
            )

    def finish(self) -> None:
        self.stopping.set()
        self.join(LIMIT_S)


@pytest.mark.slow
def test_no_acknowledged_row_is_lost_or_doubled_over_fail_overs(cluster: Cluster, replicated: str):
    """Two fail-overs, one right after the other: the cluster is still synchronous after
    the first.
    """
    with psycopg.connect(replicated, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE rows (writer text, number int, PRIMARY KEY (writer, number))"
        )
    writers = [Writer(replicated, f"w{number}") for number in range(8)]
    for _ in range(2):
        for writer in writers:
            writer.go_on()
        dead = cluster.kill()
        assert cluster.promote() is not dead
        for writer in writers:
            writer.go_on()
        cluster.rejoin(dead)
        assert sync_states(cluster) == ["quorum", "quorum"]
    for writer in writers:
        writer.finish()
    with psycopg.connect(replicated) as connection:
        found = dict(
            connection.execute(
                "SELECT writer, array_agg(number ORDER BY number) FROM rows GROUP BY writer"
            )
        )
    for writer in writers:
        rows = found[writer.tag]
        assert rows == list(range(1, len(rows) + 1))
        assert len(rows) - writer.acknowledged in (0, 1), (
            "at most the one that was under way is there besides"
        )


def test_a_server_that_nobody_follows_acknowledges_nothing(cluster: Cluster, replicated: str):
    """The quorum is real: without a standby a commit waits, and when the wait is cancelled it can
    be seen.
    """
    for node in cluster.standbys:
        node.kill()
    with psycopg.connect(replicated, autocommit=True) as connection:
        insert = threading.Thread(
            target=connection.execute, args=("CREATE TABLE waiting (id int)",), daemon=True
        )
        insert.start()
        cluster.primary.wait_until(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        assert insert.is_alive()
        connection.cancel_safe()
        insert.join(LIMIT_S)
        assert connection.execute(
            "SELECT count(*) FROM pg_class WHERE relname = 'waiting'"
        ).fetchone() == (1,)


@pytest.mark.slow
def test_a_server_comes_back_by_a_base_backup_too(cluster: Cluster):
    dead = cluster.kill()
    cluster.promote()
    cluster.rebuild(dead)
    assert sync_states(cluster) == ["quorum", "quorum"]


def test_a_restarted_primary_is_followed_again(cluster: Cluster):
    before = cluster.primary
    cluster.restart("immediate")
    assert cluster.primary is before
    assert sync_states(cluster) == ["quorum", "quorum"]


def sync_states(cluster: Cluster) -> list[Any]:
    return [state for (state,) in cluster.primary.ask("SELECT sync_state FROM pg_stat_replication")]


@pytest.mark.slow
def test_a_server_that_can_not_start_says_why(tmp_path, cluster: Cluster):
    broken = Server(cluster.nodes[0].folder.parent / "broken")
    broken.create()
    broken.configure(shared_buffers="nonsense")
    with pytest.raises(AssertionError, match="shared_buffers"):
        broken.start()
