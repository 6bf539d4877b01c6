"""Search on PostgreSQL: the words lie in a table beside the log, read in idle time and before each
search (I-17).
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.domain.search.query import SearchScope, asked
from holdfast.engine.postgres import search
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.protocol import Write
from holdfast.runtime.searchable_text import words_of
from holdfast.testing.conformance.builders import did, named, opened
from holdfast.testing.conformance.search import SCRIPTS, look, said, say
from holdfast.testing.reference import ReferenceEngine, Ticks
from thorough import examples

LIMIT_S = 60.0


@pytest.fixture
def place(databases: Callable[..., str]) -> str:
    return databases(schema=True)


@contextlib.contextmanager
def at(place: str, **options: Any) -> Iterator[PostgresEngine]:
    usual: dict[str, Any] = {
        "durability": "process",
        "tick": Ticks(),
        "chance": os.urandom,
        "words_of": words_of,
    }
    engine = PostgresEngine(place, **{**usual, **options})
    try:
        yield engine
    finally:
        engine.close()


def words_in(place: str) -> int:
    """How many messages are in the index."""
    with psycopg.connect(place) as connection:
        [[count]] = connection.execute("SELECT count(*) FROM words").fetchall()
        return int(count)


texts = st.one_of(
    st.lists(st.sampled_from([*SCRIPTS, "kelp", "keel", "a"]), max_size=6).map(" ".join),
    st.lists(st.sampled_from([*SCRIPTS, "kelp"]), max_size=4).map("".join),
    st.text(st.characters(), max_size=20),
)
questions = st.one_of(
    st.sampled_from([*SCRIPTS, "ke", "机器学习", '"мир kelp"', "κο", "器", ""]),
    st.lists(st.sampled_from([*SCRIPTS, "kelp"]), min_size=2, max_size=3).map(" ".join),
    texts,
    texts.map('"{}"'.format),
)
stories = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["user", "assistant"]), texts), max_size=16
)


@pytest.fixture
def engine(place: str) -> Iterator[PostgresEngine]:
    with at(place) as made:
        yield made


@pytest.mark.slow
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    story=stories,
    asks=st.lists(questions, min_size=1, max_size=5),
    role=st.sampled_from([None, "user"]),
)
def test_it_finds_what_a_plain_look_at_every_message_finds(
    engine: PostgresEngine, story: list[tuple[int, str, str]], asks: list[str], role: str | None
) -> None:
    """Each story in tenants of its own: the others must not show either."""
    reference = ReferenceEngine(words_of=words_of)
    numbers = [next(_numbers) for _ in range(3)]
    tenant = f"tenant {numbers[0]}"
    for number in numbers:
        for kept in (engine, reference):
            opened(kept, number, tenant=tenant if number != numbers[2] else "somebody else")
    for which, who, text in story:
        write = Write(named(numbers[which]), drafts=(said(text, role=who),))
        did(reference, write)
        did(engine, write)
    for text in asks:
        wanted = SearchScope(tenant, asked(text), role=role)
        for limit in (5, 100):
            assert engine.search(wanted, limit=limit) == reference.search(wanted, limit=limit)
        assert engine.matching(wanted, limit=2) == reference.matching(wanted, limit=2)


_numbers = itertools.count(0x10000000)


@pytest.mark.slow
def test_a_commit_never_touches_the_index(place: str) -> None:
    """In a store that nobody has searched there is nothing of it, also after a while."""
    asked_for = threading.Event()
    with at(place) as engine:
        advance = engine._indexer._advance
        engine._indexer._advance = lambda moved: advance(moved) or asked_for.set() or False  # type: ignore[func-returns-value]
        say(engine, opened(engine, 1), "kelp")
        assert asked_for.wait(LIMIT_S), "the indexer has looked whether there is something to do"
        assert words_in(place) == 0


@pytest.mark.slow
def test_in_idle_time_the_log_is_read_if_somebody_has_searched_before(place: str) -> None:
    read = threading.Event()

    def told(kind: str, note: bytes, body: bytes, earlier: Callable[..., Any]) -> Any:
        if b"later" in body:
            read.set()
        return words_of(kind, note, body, earlier)

    with at(place) as engine:
        say(engine, opened(engine, 1), "kelp")
        assert look(engine, "kelp") == ["kelp"]
    with at(place, words_of=told) as engine:
        say(engine, named(1), "later")
        say(engine, opened(engine, 2), "later")
        assert read.wait(LIMIT_S), "nobody searched, and it was read all the same"
        assert look(engine, "later") == ["later", "later"]


def test_who_cannot_read_messages_passes_none_over(place: str) -> None:
    """A program that was opened without `words_of` must not mark as read what it has not read."""
    with at(place) as engine:
        say(engine, opened(engine, 1), "kelp before")
        assert look(engine, "kelp") == ["kelp before"]
    with at(place, words_of=None) as blind:
        say(blind, named(1), "kelp meanwhile")
        assert look(blind, "kelp") == []
        assert not blind._searching.advance([named(1)])
    with at(place) as engine:
        assert look(engine, "kelp") == ["kelp meanwhile", "kelp before"]


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_said_after_another_machine_has_read_the_rest_is_found(
    place: str, count: int
) -> None:
    """The writer remembers its sessions as unread, and goes by that in its next batch."""
    with at(place) as writer, at(place) as reader:
        sessions = [opened(writer, number + 1) for number in range(count)]
        for words in ("kelp", "keel", "kite"):
            did(writer, *(Write(each, drafts=(said(words),)) for each in sessions))
            assert look(reader, words) == [words] * count


def test_machines_that_search_and_write_at_once_each_find_all_of_their_own(place: str) -> None:
    with at(place) as one, at(place) as two:
        troubles: list[BaseException] = []

        def work(engine: PostgresEngine, number: int) -> None:
            try:
                session = opened(engine, number)
                for count in range(1, 31):
                    say(engine, session, f"kelp mine{number} {count}")
                    if count % 5 == 0:
                        assert len(look(engine, f"mine{number}")) == count
            except BaseException as trouble:
                troubles.append(trouble)

        workers = [
            threading.Thread(target=work, args=(engine, n))
            for n, engine in enumerate((one, two, one, two), 1)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LIMIT_S)
        assert troubles == []
        assert len(look(one, "kelp")) == len(look(two, "kelp")) == 120


def test_an_index_that_was_lost_is_made_anew(place: str) -> None:
    """I-17: it holds nothing that the log does not."""
    with at(place) as engine:
        say(engine, opened(engine, 1), *(f"kelp {number}" for number in range(100)))
        before = look(engine, "kelp")
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute("TRUNCATE words, mark")
        assert look(engine, "kelp") == before
        assert words_in(place) == 100


@pytest.mark.parametrize("one_by_one", [-1, 64])
def test_what_runs_is_looked_for_in_the_sessions_that_run(
    place: str, monkeypatch: pytest.MonkeyPatch, one_by_one: int
) -> None:
    """The same is found either way; with none running, no message is looked at."""
    monkeypatch.setattr(search, "RUNNING_MAX", one_by_one)
    with holdfast.open(place, durability="process") as store:
        for number in range(6):
            store.session(f"k{number}").append(f"kelp {number}")
        searching = store._work.engine._searching  # type: ignore[attr-defined]
        read, asked = searching._read, []

        def counted(name: str, **values: Any) -> Any:
            asked.append(name)
            return read(name, **values)

        monkeypatch.setattr(searching, "_read", counted)
        assert list(store.search("kelp", state="running")) == []
        assert asked.count("found") == (0 if one_by_one > 0 else 1)
        turns = [store.session(f"k{number}").turn("kelp asked") for number in (1, 4)]
        for number in (1, 4, 1):
            store.session(f"k{number}").append(f"kelp late {number}")
        found = [hit.snippet for hit in store.search("kelp late", state="running")]
        # Sorted: of one millisecond, any may come first.
        assert sorted(found) == ["kelp late 1", "kelp late 1", "kelp late 4"]
        assert len(store.search("kelp", state="running", limit=4)) == 4
        listed = store.sessions(text="kelp", state="running")
        assert {each.key for each in listed} == {"k1", "k4"}
        assert list(store.sessions(text="nowhere", state="running")) == []
        for turn in turns:
            turn.interrupt()
