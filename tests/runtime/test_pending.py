"""What waits in all sessions: asked of the store, by age, at a cost that is that of what waits
(I-4, I-27).
"""

import asyncio
import re

import apsw
import pytest

import holdfast
from holdfast.engine.sqlite.queries import QUERIES
from holdfast.errors import BadArgument
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres(
    "what waits is paged in `runtime/catalog`; an engine's pages have their laws in the "
    "conformance suite",
    every=3,
)


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


def all_of(store, limit):
    found, after = [], None
    while True:
        page = store.pending(after=after, limit=limit)
        found += page
        if page.next is None:
            return found
        after = page.next


def test_what_waits_is_told_oldest_first_with_its_key_and_session(store):
    for number in range(12):
        store.accept(
            f"k{number % 3}", f"message {number}", event_id=f"e{number}", reply_to=f"chat {number}"
        )
    with store.turn("k1") as turn:
        turn.say("These are taken.")
    found = all_of(store, 3)
    left = [number for number in range(12) if number % 3 != 1]
    assert [(one.text, one.key) for one in found] == [(f"message {n}", f"k{n % 3}") for n in left]
    assert [(one.event_id, one.reply_to) for one in found] == [(f"e{n}", f"chat {n}") for n in left]
    assert {one.session_id for one in found} == {store.session("k0").id, store.session("k2").id}
    assert {one.state for one in found} == {"pending"}
    assert [one.id for one in store.pending()] == [one.id for one in found]
    assert store.pending().next is None


def test_messages_of_one_moment_keep_the_order_of_their_session(store):
    ids = [store.accept("k", f"message {number}").message_id for number in range(40)]
    assert [one.id for one in all_of(store, 7)] == ids


@pytest.mark.slow
def test_a_page_that_is_cut_by_its_bytes_says_that_it_goes_on(store):
    """I-24: a page ends when what is in it grows large, whatever its limit."""
    ids = [store.accept("k", f"{number}" * (17 << 20)).message_id for number in range(3)]
    page = store.pending(limit=10)
    assert 0 < len(page) < 3 and page.next is not None
    assert [one.id for one in all_of(store, 10)] == ids


@pytest.mark.slow
def test_what_a_killed_turn_had_taken_waits_again(store, where):
    script = """
        import holdfast
        store = holdfast.open(sys.argv[1])
        store.accept("k", "one")
        turn = store.session("k").turn("two")
        say("taken")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("taken")
        assert store.pending().items == []
        other.kill()
    assert [one.text for one in store.pending()] == ["one", "two"]


def test_what_a_reset_has_carried_waits_in_the_new_session(store):
    store.accept("k", "hello")
    session = store.reset("k")
    [one] = store.pending()
    assert (one.session_id, one.text) == (session.id, "hello")


def test_tenants_see_what_waits_for_them(store, where):
    store.accept("k", "ours")
    with holdfast.open(where, tenant="another") as other:
        assert list(other.pending()) == []
        other.accept("k", "theirs")
        assert [one.text for one in other.pending()] == ["theirs"]
    assert [one.text for one in store.pending()] == ["ours"]


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": "5"}, {"after": "nonsense"}, {"after": 5}]
)
def test_wrong_arguments_are_refused(store, wrong):
    with pytest.raises(BadArgument):
        store.pending(**wrong)


def test_asyncio_tells_the_same(where):
    async def story():
        async with holdfast.open_async(where) as store:
            await store.accept("k", "hello")
            return [(one.text, one.key) for one in await store.pending()]

    assert asyncio.run(story()) == [("hello", "k")]


@pytest.mark.parametrize("name", ["pending", "running", "outbox"])
def test_a_file_is_asked_through_indexes(tmp_path, name):
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        store.accept("k", "hello")
    connection = apsw.Connection(str(path))
    query = QUERIES[name]
    values = dict.fromkeys(re.findall(r":(\w+)", query))
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + query, values)]
    assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], plan


@pytest.mark.parametrize("name", ["pending", "running", "outbox"])
def test_a_server_is_asked_through_indexes(databases, name):
    import psycopg

    from holdfast.engine.postgres.queries import QUERIES as ASKED

    place = databases(schema=True)
    with holdfast.open(place) as store:
        store.accept("k", "hello")
    nobody = "00000000-0000-0000-0000-000000000000"
    values = {"tenant": b"default", "message": b"", "session": nobody, "seq": 0, "limit": 10}
    values |= {"at": 0, "turn": 0, "id": b"", "free": True}
    with psycopg.connect(place) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_sort = off")
        connection.execute("SET enable_bitmapscan = off")
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + ASKED[name], values))
    assert "Seq Scan" not in plan and "Sort" not in plan, plan
    assert "Index" in plan, plan
