"""Opening a store while its servers change: who can be waited for is waited for, and who refuses is
told at once.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from clusters import Cluster
from holdfast.engine.postgres.engine import bring_up
from holdfast.engine.postgres.server.driver_errors import refusal
from holdfast.errors import StoreUnavailable
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from looking import Hasty
from servers import dsn, free_port

LIMIT_S = 60

# Right after a fail-over no standby may have found the new primary yet, which is said.
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.errors.WeaklyReplicated")


class Waiting(RealWorld):
    """A world that tells when somebody has tried in vain and throws the dice for how long
    to wait.
    """

    def __init__(self) -> None:
        self.waits = threading.Event()

    def chance(self, size: int) -> bytes:
        if size == 1:
            self.waits.set()
        return super().chance(size)


class Impatient(RealWorld):
    """A world in which nobody may wait."""

    def chance(self, size: int) -> bytes:
        assert size > 1, "it waits for something that won't come"
        return super().chance(size)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as started:
        yield started


def migrate(where: str, world: RealWorld) -> tuple[int, int]:
    return bring_up(where, tick=world.tick, chance=world.chance)


@pytest.mark.slow
def test_opening_and_migrating_wait_through_a_fail_over(
    cluster: Cluster, replicated: str, pool: ThreadPoolExecutor
):
    """The primary is dead, and nobody has taken over yet."""
    with holdfast.open(replicated) as store:
        store.session("k").append("before")
    opens, migrates = Waiting(), Waiting()
    cluster.kill()
    opening = pool.submit(open_store, replicated, world=opens)
    migrating = pool.submit(migrate, replicated, migrates)
    assert opens.waits.wait(LIMIT_S) and migrates.waits.wait(LIMIT_S)
    cluster.promote()
    before, after = migrating.result(LIMIT_S)
    assert before == after
    with opening.result(LIMIT_S) as store:
        assert [message.text for message in store.session("k").transcript()] == ["before"]


@pytest.mark.slow
def test_a_standby_that_lags_behind_does_not_speak_for_the_others(
    cluster: Cluster, pool: ThreadPoolExecutor
):
    """It has not heard of the database yet, and is asked first; the one that has is not promoted
    yet.
    """
    behind, ahead = cluster.standbys
    cluster.mute(behind)
    cluster.primary.ask("CREATE DATABASE newly_made TEMPLATE template0 STRATEGY wal_log")
    cluster.kill()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        behind.connect("newly_made")
    world = Waiting()
    where = dsn([behind, ahead, cluster.primary], "newly_made", target_session_attrs="read-write")
    opening = pool.submit(open_store, where, world=world)
    assert world.waits.wait(LIMIT_S)
    cluster.unmute()
    cluster.promote()
    opening.result(LIMIT_S).close()


@pytest.mark.slow
def test_a_server_that_only_reads_is_waited_for(
    cluster: Cluster, replicated: str, pool: ThreadPoolExecutor
):
    """Though the address says that any will do: a store can't be made there, until it is
    promoted.
    """
    standby, other = cluster.standbys
    world = Waiting()
    name = str(psycopg.conninfo.conninfo_to_dict(replicated)["dbname"])
    standby.wait_until("SELECT count(*) = 1 FROM pg_database WHERE datname = %s", name)
    opening = pool.submit(open_store, standby.dsn(name, target_session_attrs="any"), world=world)
    assert world.waits.wait(LIMIT_S)
    other.kill()
    cluster.kill()
    assert cluster.promote() is standby
    cluster.rejoin(other)  # for no commit is answered before a second server has it
    opening.result(LIMIT_S).close()


@pytest.mark.slow
def test_when_nobody_can_be_written_all_are_told_of(cluster: Cluster, replicated: str):
    """The one that is dead, and those that only read."""
    cluster.kill()
    with pytest.raises(StoreUnavailable, match="refused") as told:
        open_store(replicated, world=Hasty())
    assert "read-only" in str(told.value)


def test_that_there_is_no_server_is_told_at_once():
    """With its address, and what to do."""
    port = free_port()
    where = f"postgresql://me:secret@127.0.0.1:{port}/x"
    for act in (lambda: open_store(where, world=Impatient()), lambda: migrate(where, Impatient())):
        with pytest.raises(StoreUnavailable, match="nobody listens there") as told:
            act()
        assert (
            f"me@127.0.0.1:{port}/x" in told.value.where
            and "Check host and port" in told.value.remedy
        )
        assert "secret" not in str(told.value)


@pytest.fixture
def guarded(cluster: Cluster) -> Callable[..., str]:
    """The primary's address for somebody who needs a password there. The next test finds nothing of
    it.
    """
    cluster.primary.ask("DROP ROLE IF EXISTS guarded")
    cluster.primary.ask("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = cluster.primary.data / "pg_hba.conf"
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    cluster.primary.reload()
    cluster.primary.wait_until(
        "SELECT count(*) > 0 FROM pg_hba_file_rules WHERE user_name = '{guarded}'"
    )

    def address(user: str, database: str) -> str:
        return f"postgresql://{user}@127.0.0.1:{cluster.primary.port}/{database}"

    return address


@pytest.mark.parametrize(
    "user, database, said",
    [
        ("guarded:wrong", "postgres", "Check user and password"),
        ("guarded", "postgres", "Check user and password"),
        ("stranger", "postgres", "Check user and password"),
        ("postgres", "nowhere", "there is no such database.*Create it"),
    ],
    ids=["a wrong password", "no password", "no such role", "no such database"],
)
def test_who_is_not_let_in_is_told_at_once(
    guarded: Callable[..., str], user: str, database: str, said: str
):
    where = guarded(user, database)
    for act in (lambda: open_store(where, world=Impatient()), lambda: migrate(where, Impatient())):
        with pytest.raises(StoreUnavailable, match=said):
            act()


REFUSED = 'connection to server at "{}" failed: Connection refused'
WRONG = 'connection to server at "{}" failed: FATAL:  password authentication failed for user "me"'
ABSENT = 'connection to server at "{}" failed: FATAL:  database "x" does not exist'
READS = 'connection to server at "{}" failed: session is read-only'


@pytest.mark.parametrize(
    "attempts, reason",
    [
        ([("a", WRONG)], "28"),
        ([("a", ABSENT)], "3D"),
        ([("a", REFUSED)], "nobody"),
        ([("a", REFUSED), ("b", REFUSED)], "nobody"),
        ([("a", REFUSED), ("b", READS)], ""),
        ([("a", ABSENT), ("b", REFUSED)], ""),
        ([("a", ABSENT), ("b", READS)], ""),
        ([("a", WRONG), ("b", WRONG)], "28"),
        ([("localhost", REFUSED), ("localhost", WRONG)], "28"),
        ([("localhost", WRONG), ("localhost", REFUSED), ("b", READS)], ""),
    ],
)
def test_only_what_all_servers_say_is_a_refusal(attempts: list[Any], reason: str):
    """In the driver's words for several attempts. One server may have several addresses."""
    said = [text.format(host) for host, text in attempts]
    if len(said) > 1:
        each = [
            f"- host: {host!r}, port: '5432', hostaddr: '::{number}': {text}"
            for number, ((host, _), text) in enumerate(zip(attempts, said, strict=True))
        ]
        said = [said[-1], "Multiple connection attempts failed. All failures were:", *each]
    assert refusal(psycopg.OperationalError("\n".join(said))) == reason
