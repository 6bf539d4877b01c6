"""Listing: pages of any size join to the whole, newest activity first, whatever the filter (FAULTS
C6, C7, C10, J6).
"""

import asyncio

import pytest

import holdfast
from holdfast.errors import BadArgument
from holdfast.runtime.catalog import list_sessions
from looking import HandWorld, other_handle


@pytest.fixture
def world():
    return HandWorld()


@pytest.fixture
def store(path, world):
    with holdfast.open(path, durability="process", world=world) as opened:
        yield opened


def paged(store, **asked):
    """All pages, joined."""
    page = store.sessions(**asked)
    joined = list(page)
    while page.next is not None:
        page = store.sessions(**asked, after=page.next)
        assert len(page) > 0
        joined += page
    return joined


def said(store, world, key, text="hello"):
    session = store.session(key)
    session.append(text)
    world.ahead_s += 2
    return session


def test_pages_of_every_size_join_to_the_whole(store, world):
    made = [said(store, world, f"k{number}").id for number in range(11)]
    for limit in range(1, 13):
        assert [listed.id for listed in paged(store, limit=limit)] == made[::-1]


def test_sessions_made_in_the_same_instant_are_each_listed_once(store):
    made = {store.session(f"k{number}").id for number in range(20)}
    found = [listed.id for listed in paged(store, limit=3)]
    assert len(found) == 20 and set(found) == made


def test_a_session_that_has_news_comes_first(store, world):
    one, two = said(store, world, "one"), said(store, world, "two")
    assert [listed.id for listed in store.sessions()] == [two.id, one.id]
    said(store, world, "one", "again")
    assert [listed.id for listed in store.sessions()] == [one.id, two.id]
    with two.turn("work") as turn:
        turn.say("done")
    assert [listed.id for listed in store.sessions()] == [two.id, one.id]


def test_a_listed_session_says_what_it_is(store, world):
    session = store.session("k")
    session.instructions("Be kind.")
    turn = session.turn("  Book a table\n for two.  ")
    [listed] = store.sessions()
    assert (listed.id, listed.key, listed.epoch, listed.tenant) == (session.id, "k", 1, "default")
    assert (listed.state, listed.title) == ("running", "Book a table for two.")
    assert listed.head == session.info().head and listed.opened_at <= listed.active_at
    turn.interrupt()
    assert store.sessions()[0].state == "open"
    session.end("over")
    assert store.sessions()[0].state == "ended"


def test_a_list_can_be_of_a_key_and_of_a_state(store, world):
    first = said(store, world, "k")
    second = store.reset("k")
    other = said(store, world, "other")
    assert [listed.id for listed in paged(store, key="k", limit=1)] == [second.id, first.id]
    assert [listed.id for listed in paged(store, state="ended", limit=1)] == [first.id]
    assert [listed.id for listed in paged(store, state="open", limit=1)] == [other.id, second.id]
    assert paged(store, key="k", state="running") == [] == paged(store, key="nobody")


def test_a_list_can_be_of_the_sessions_in_which_something_was_said(store, world):
    """Also of old ones: the text is looked for before the page is cut (FAULTS C10)."""
    oldest = said(store, world, "oldest", "the tide comes in")
    for number in range(30):
        said(store, world, f"k{number}", "nothing of the kind")
    newer = said(store, world, "newer", "TIDE tables")
    assert [listed.id for listed in paged(store, text="tide", limit=1)] == [newer.id, oldest.id]
    assert [listed.id for listed in store.sessions(text="tide", key="oldest")] == [oldest.id]
    assert list(store.sessions(text="ebb")) == []


def test_a_fork_is_listed_under_the_words_it_shares(store, world):
    session = said(store, world, "k", "where it began")
    fork = session.fork(key="fork")
    assert {(listed.id, listed.title) for listed in store.sessions()} == {
        (session.id, "where it began"),
        (fork.id, "where it began"),
    }


def test_another_tenant_lists_nothing_of_ours(store, world, path):
    said(store, world, "k")
    with other_handle(path, tenant="else") as theirs:
        assert list(theirs.sessions()) == [] == list(theirs.sessions(key="k"))


def test_a_list_is_a_question_to_the_store_and_finds_what_another_process_wrote(store, world, path):
    with other_handle(path) as far:
        theirs = far.session("far")
        assert [listed.id for listed in store.sessions()] == [theirs.id]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "gone"},
        {"limit": 0},
        {"limit": 100_000},
        {"after": "nonsense"},
        {"after": "é"},
        {"after": "WzEsMl0"},
    ],
)
def test_what_can_not_be_listed_is_said_to_be_so(store, wrong):
    with pytest.raises(BadArgument, match=next(iter(wrong))):
        store.sessions(**wrong)


def test_an_asyncio_program_lists_and_erases_too(path):
    async def life():
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            await session.append("hello")
            [listed] = await store.sessions(key="k")
            assert listed.title == "hello"
            assert not (await store.erase(listed.id, preview=True)).done
            assert (await store.erase(listed.id)).done
            assert (await store.sessions())[0].title == ""
            assert await store.retain(1) == []

    asyncio.run(life())


def test_a_text_that_few_have_is_looked_for_no_further_than_the_last_of_them(
    store, world, monkeypatch
):
    monkeypatch.setattr(list_sessions, "LIMIT_MAX", 4)
    for number in range(12):
        said(store, world, f"k{number}", "kelp" if number == 9 else "hello")
    engine = store._work.engine
    sessions, asked = engine.sessions, []
    monkeypatch.setattr(
        engine, "sessions", lambda *given, **named: asked.append(1) or sessions(*given, **named)
    )
    assert paged(store, text="nobody said that") == []
    assert asked == []
    assert [listed.key for listed in paged(store, text="kelp")] == ["k9"]
    assert len(asked) == 1
