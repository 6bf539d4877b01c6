"""Following on PostgreSQL: one poller for all who watch, hints that make it sooner, and neither is
missed (I-15).
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import holdfast
import procs
from deaf_proxy import DeafProxy, asks
from holdfast.engine.postgres.background.notifier import SESSIONS_MAX, is_meant, payload
from holdfast.engine.postgres.background.poller import news
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.postgres.queries import QUERIES
from holdfast.engine.protocol import Write
from holdfast.errors import StoreUnavailable
from holdfast.testing.conformance.builders import did, drafts, named, opened
from holdfast.testing.reference import Ticks
from pooling_proxy import PoolingProxy

LIMIT_S = 60.0
MANY = range(0x10000000, 0x20000000)
LOOKS = asks("SELECT session.id, session.stamp")
HINTS = asks("SELECT WHERE set_config")

Open = Callable[[str], PostgresEngine]


@pytest.fixture
def proxy(postgres: str) -> Iterator[DeafProxy]:
    given = conninfo_to_dict(postgres)
    with DeafProxy(int(given["port"] or 5432), host=str(given["host"])) as made:
        yield made


@pytest.fixture
def opening() -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def make(dsn: str) -> PostgresEngine:
            engine = PostgresEngine(dsn, durability="process", tick=Ticks(), chance=os.urandom)
            stack.callback(engine.close)
            return engine

        yield make


def tell(engine: PostgresEngine, *sessions: str) -> None:
    for session in sessions:
        did(engine, Write(session, drafts=drafts()))


# One poller.


def test_all_who_watch_are_served_by_one_query_and_only_they_are_woken(
    databases: Callable[..., str], proxy: DeafProxy, opening: Open
) -> None:
    place = databases(schema=True)
    elsewhere, here = opening(place), opening(proxy.through(place))
    *moving, still = [opened(elsewhere, number) for number in MANY[:40]]
    third = proxy.hold(LOOKS, nth=3)  # those before it have told what was so in the beginning
    told: dict[str, list[threading.Event]] = {
        session: [threading.Event() for _ in range(5)] for session in moving
    }
    told[still] = [threading.Event()]
    for session, events in told.items():
        for event in events:
            here.watch(session, event.set)
    third.wait()
    for events in told.values():
        for event in events:
            event.clear()
    fifth = proxy.hold(LOOKS, nth=2)
    tell(elsewhere, *moving)
    third.release()
    fifth.wait()  # all that the fourth has found was told
    assert all(event.is_set() for session in moving for event in told[session])
    assert not told[still][0].is_set()
    fifth.release()


@pytest.mark.slow
def test_when_nobody_watches_nobody_is_asked(database: str, opening: Open) -> None:
    elsewhere, here = opening(database), opening(database)
    session = opened(elsewhere, 1)
    pollers = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%session.stamp%' "
        "AND pid <> pg_backend_pid() AND datname = current_database()"
    )
    with psycopg.connect(database, autocommit=True) as looking:
        for _ in range(2):  # and it begins anew for whoever comes next
            told = threading.Event()
            stop = here.watch(session, told.set)
            assert told.wait(LIMIT_S)
            assert looking.execute(pollers).fetchall() == [(1,)]
            stop()
            until(lambda: looking.execute(pollers).fetchall() == [(0,)])


def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT_S / 0.05)):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not come about")


def test_what_this_engine_has_written_itself_is_no_news_to_its_poller() -> None:
    known, found = {"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4, "d": 5}
    assert news(known, found, is_ours=lambda stamp: stamp == 5) == ["b", "c"]
    assert news(known, found, is_ours=lambda stamp: True) == []


def test_a_writer_knows_its_own_stamps(databases: Callable[..., str], opening: Open) -> None:
    place = databases(schema=True)
    engine, other = opening(place), opening(place)
    session = opened(engine, 1)
    for writer, stranger in ((engine, other), (other, engine)):
        tell(writer, session)
        with psycopg.connect(place) as connection:
            [[stamp]] = connection.execute("SELECT stamp FROM session").fetchall()
        assert any(scribe.wrote(stamp) for scribe in writer._batch_writers)
        assert not any(scribe.wrote(stamp) for scribe in stranger._batch_writers)


# Another process.

FOLLOWER = """
    import holdfast, json
    from holdfast.engine.postgres.background import poller
    from holdfast.engine.postgres.engine import PostgresEngine
    from holdfast.engine.postgres.queries import QUERIES

    PostgresEngine.look_s = 600.0  # nothing is found by looking for oneself
    if sys.argv[3] == "no LISTEN":
        QUERIES["listen"] = "LISTEN is not known here"
    if sys.argv[3] == "hints only":
        poller.LIVELY_S = poller.CALM_S = 600.0
    with holdfast.open(sys.argv[1]) as store:
        for event in store.get(sys.argv[2]).follow():
            seq = event.entry.seq if event.entry else None
            say("event", json.dumps([event.kind, seq, event.message_id, event.text]))
"""


class Heard:
    """What a follower in another process has told so far."""

    def __init__(self, other: procs.Child) -> None:
        self._other = other
        self.seqs: list[int] = []
        self.texts: dict[str, str] = {}

    def until_chunk(self, text: str) -> None:
        while self.take(json.loads(self._other.wait_for("event"))) != ("chunk", text):
            pass

    def rest(self) -> None:
        for line in self._other.end():
            self.take(json.loads(line.partition(" ")[2]))

    def take(self, event: list[Any]) -> tuple[str, str]:
        kind, seq, message, text = event
        if seq is not None:
            self.seqs.append(seq)
        if message is not None:
            self.texts[message] = self.texts.get(message, "") + text
        return kind, text


def follow_and_speak(
    store: holdfast.Store, dsn: str, how: str, between: Callable[[int], None]
) -> None:
    """A follower in another process hears each word before the next one is spoken, and each thing
    once.
    """
    session = store.session("k")
    with procs.child(FOLLOWER, dsn, session.id, how) as other:
        heard = Heard(other)
        with session.turn("speak") as turn:
            for number, text in enumerate(turn.deliver(f"<{n}>" for n in range(8))):
                heard.until_chunk(text)
                between(number)
        session.append("an entry of its own")
        session.end("done")
        heard.rest()
    assert heard.seqs == [entry.seq for entry in session.entries()]
    assert heard.texts == {message.id: message.text for message in session.transcript()}


@pytest.mark.slow
def test_a_follower_elsewhere_hears_each_thing_once_though_its_connections_are_lost(
    databases: Callable[..., str], proxy: DeafProxy
) -> None:
    place = databases(schema=True)
    with holdfast.open(place) as store:
        cut = {1, 4, 6}
        follow_and_speak(
            store, proxy.through(place), "as usual", lambda n: proxy.cut() if n in cut else None
        )


@pytest.mark.slow
def test_without_listen_and_notify_looking_serves(
    databases: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a pooler in between, or a database that knows neither."""
    monkeypatch.setitem(QUERIES, "notify", "SELECT no_such_function(%(payload)s::text)")
    place = databases(schema=True)
    with holdfast.open(place) as store:
        follow_and_speak(store, place, "no LISTEN", lambda number: None)
        assert store._work.engine._notifier._mute  # type: ignore[attr-defined]


@pytest.mark.slow
def test_behind_a_pooler_looking_serves(database: str) -> None:
    """LISTEN is said to one server, and the next question goes to another."""
    with PoolingProxy(database, servers=3) as pooler, holdfast.open(database) as store:
        follow_and_speak(store, pooler.through(database), "as usual", lambda number: None)


def test_a_follower_that_waits_is_told_when_its_store_is_closed(
    databases: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresEngine, "look_s", 10 * LIMIT_S)
    caught_up, over = threading.Event(), threading.Event()

    def follow() -> None:
        with contextlib.suppress(StoreUnavailable):
            for _ in session.follow():
                caught_up.set()
        over.set()

    with holdfast.open(databases(schema=True)) as store:
        session = store.session("k")
        session.append("hello")
        threading.Thread(target=follow, daemon=True).start()
        assert caught_up.wait(LIMIT_S)
    assert over.wait(LIMIT_S)


@pytest.mark.slow
def test_a_hint_is_enough(databases: Callable[..., str]) -> None:
    """Here the next look by itself would come much too late."""
    place = databases(schema=True)
    with holdfast.open(place) as store:
        follow_and_speak(store, place, "hints only", lambda number: None)


# Hints.


@pytest.mark.slow
def test_no_commit_waits_for_a_hint_and_those_that_come_meanwhile_are_one(
    databases: Callable[..., str], proxy: DeafProxy, opening: Open
) -> None:
    place = databases(schema=True)
    sessions = [opened(opening(place), number) for number in MANY[:30]]
    engine = opening(proxy.through(place))
    first = proxy.hold(HINTS)
    with psycopg.connect(place, autocommit=True) as other:
        tell(engine, sessions[0])
        first.wait()
        other.execute("LISTEN holdfast")
        tell(engine, *sessions)
        first.release()
        one, two = (hint.payload for hint in other.notifies(timeout=LIMIT_S, stop_after=2))
    assert one == sessions[0]
    assert two.split(" ") == sorted(sessions)


def test_a_hint_names_sessions_while_they_are_few() -> None:
    few = {named(number) for number in MANY[:SESSIONS_MAX]}
    assert len(payload(few)) < 8000
    assert is_meant(payload(few), {named(MANY[7])}) and not is_meant(payload(few), {named(2)})
    many = payload(few | {named(MANY[SESSIONS_MAX])})
    assert is_meant(many, {named(2)})
