"""An old primary that comes back and was not told that it has been replaced: nobody follows it
(I-3, I-6).

It takes connections and calls itself writable, and it is the first in the address. What it does not
know was acknowledged by its successor.
"""

from collections.abc import Iterator
from functools import partial

import pytest

import holdfast
import procs
from clusters import Cluster
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.postgres.server.primary import Outdated, Primary, ServerIdentity
from holdfast.errors import StoreUnavailable
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.store import open_store
from loading import loading
from looking import Hasty
from servers import Server, dsn
from thorough import SWEEP

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.errors.WeaklyReplicated")


ANSWER_S = 2.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is alone never answers a commit; stores that are opened now wait less long for
    it than by themselves.
    """
    hasty = partial(PostgresEngine, answer_s=ANSWER_S)
    monkeypatch.setattr("holdfast.engine.postgres.engine.PostgresEngine", hasty)


@pytest.fixture
def old(cluster: Cluster) -> Iterator[list[Server]]:
    """Servers that the test brings back unfenced; afterwards they follow again."""
    back: list[Server] = []
    yield back
    for server in back:
        server.kill()
        cluster.rejoin(server)


def brought_back(cluster: Cluster, old: list[Server]) -> Server:
    """The primary is killed and replaced, and comes back as it was."""
    server = cluster.kill()
    cluster.promote()
    server.start()
    old.append(server)
    return server


def first(server: Server, cluster: Cluster, place: str) -> str:
    """The address of a database in which this server is named first."""
    others = [node for node in cluster.nodes if node is not server]
    return dsn([server, *others], place.rpartition("/")[2].partition("?")[0], connect_timeout=3)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_nobody_follows_a_primary_that_was_replaced(
    cluster: Cluster, replicated: str, old: list[Server]
):
    """Neither a store that is opened now, nor one that was open all the time."""
    address = first(cluster.primary, cluster, replicated)
    with holdfast.open(address) as store:
        session = store.session("k")
        session.append("before")
        brought_back(cluster, old)
        session.append("after")
        assert [message.text for message in session.transcript()] == ["before", "after"]
        with holdfast.open(address) as fresh:
            again = fresh.session("k")
            again.append("from another")
            assert [message.text for message in again.transcript()] == [
                "before",
                "after",
                "from another",
            ]
        assert [message.text for message in session.transcript()] == [
            "before",
            "after",
            "from another",
        ]


HOLDS = """
    from functools import partial
    import holdfast
    from holdfast.engine.postgres import engine
    engine.PostgresEngine = partial(engine.PostgresEngine, answer_s=float(sys.argv[2]))
    store = holdfast.open(sys.argv[1])
    turn = store.turn("k", "tell me")
    pieces = turn.deliver(iter([f"piece {number} " for number in range(20)]))
    shown = next(pieces)
    say("ready")
    hear()
    shown += "".join(pieces)
    say("shown", len(shown))
    hear()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_turn_that_is_settled_after_a_fail_over_keeps_all_that_was_shown(
    cluster: Cluster, replicated: str, old: list[Server]
):
    """I-5, I-6: its writer went on at the new primary and was killed; the old one knows only the
    beginning.
    """
    address = first(cluster.primary, cluster, replicated)
    with procs.child(HOLDS, address, ANSWER_S) as writer, holdfast.open(address) as store:
        writer.wait_for("ready")
        session = store.session("k")
        brought_back(cluster, old)
        writer.tell("go")
        shown = int(writer.wait_for("shown").split()[-1])
        writer.kill()
        session.stop("for good")
        said = [message for message in session.transcript() if message.role == "assistant"]
        assert [len(message.text) for message in said] == [shown]
        assert [entry.kind for entry in session.entries()].count("end") == 1


@pytest.mark.slow
def test_loads_go_on_and_nothing_is_wrong_with_an_unfenced_primary_about(
    cluster: Cluster, replicated: str, old: list[Server]
):
    """I-1 to I-6, by the ledger of what was acknowledged."""
    address = first(cluster.primary, cluster, replicated)
    with loading(address, sessions=8 if SWEEP else 4) as loads:
        loads.go_on(turns=2)
        brought_back(cluster, old)
        loads.go_on(turns=2)
    with holdfast.open(address) as store:
        assert loads.wrong(store) == []


@pytest.mark.slow
def test_a_server_that_knows_less_than_was_acknowledged_is_refused(database: str):
    """One server, brought back to an earlier moment: nothing tells it from its successor but what
    it knows.
    """
    with open_store(database, world=Hasty()) as store:
        session = store.session("k")
        session.append("one")
        session.append("two")
        engine: PostgresEngine = store._work.engine  # type: ignore[assignment]
        engine._acknowledged.note([(session.id, engine.state(session.id).head + 1)])  # type: ignore[union-attr]
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            store.session("k")
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            list(session.transcript())


def test_the_newest_timeline_wins_and_older_ones_are_refused():
    primary = Primary(RealWorld().tick)
    primary.admit(ServerIdentity(7, 1))
    primary.admit(None)
    primary.admit(ServerIdentity(7, 3))
    with pytest.raises(Outdated):
        primary.admit(ServerIdentity(7, 2))
    assert primary.is_outdated(ServerIdentity(7, 1)) and not primary.is_outdated(
        ServerIdentity(7, 3)
    )
    primary.admit(ServerIdentity(8, 1))  # the store was moved to another cluster
    assert not primary.is_outdated(None)
