"""Erasing on PostgreSQL: what is left in tables, and in their files."""

import psycopg
import pytest

import holdfast
from carrying import CANARY, HOWS, PICTURE, carried
from commanding import command
from holdfast.runtime.catalog.maintenance import vacuum
from looking import HandWorld


def tables(place: str) -> str:
    """All that is in the tables, as the server would write it."""
    with psycopg.connect(place, autocommit=True) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        return "".join(
            str(connection.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in names
        )  # type: ignore[arg-type]


def test_blobs_of_an_erased_session_are_gone(database: str):
    """Its large parts lie in a table of their own, and go with it; those of others stay."""
    with holdfast.open(database) as store:
        gone, kept = store.session("gone"), store.session("kept")
        for session, letter in ((gone, "a"), (kept, "b")):
            session.append(letter * 200_000)
        with psycopg.connect(database, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM blob").fetchall() == [(2,)]
            store.erase(gone.id)
            assert [str(id) for (id,) in connection.execute("SELECT session FROM blob")] == [
                kept.id
            ]
        assert "aaaa" not in tables(database)
        assert next(kept.transcript()).text == "b" * 200_000


def test_words_of_an_erased_session_are_gone_from_the_index(database: str):
    """They lie in a table of their own once somebody has searched."""
    with holdfast.open(database) as store:
        gone, kept = store.session("gone"), store.session("kept")
        for session, word in ((gone, "Xanthocephalus"), (kept, "Zygodactyl")):
            session.append(word)
        assert len(store.search("Xanthocephalus")) == len(store.search("Zygodactyl")) == 1
        assert "xanthocephalus" in tables(database).lower()
        store.erase(gone.id)
        left = tables(database).lower()
        assert "xanthocephalus" not in left and "zygodactyl" in left


def test_vacuum_writes_the_tables_anew_without_what_was_erased(database: str):
    with holdfast.open(database) as store:
        session = store.session("k")
        for number in range(20):
            session.append(f"{number} " + "limpet " * 500)
        store.search("limpet")
        store.erase(session.id)
        assert vacuum(database) > 0
        assert store.check() == [] and next(session.transcript()).state == "erased"


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_what_was_carried_along_goes_with_the_session_that_answered_it(database: str, how: str):
    """In every table, and in the answers of every process; the sessions it came through keep all
    else.
    """
    world = HandWorld()
    with holdfast.open(database, world=world) as store, holdfast.open(database) as far:
        session, before = carried(store, world, how)
        # pictures have no words
        assert len(store.search(CANARY)) == 3 + 2 * len(before) - (1 + len(before))
        assert store.erase(session.id).copies == tuple(sorted(each.id for each in before))
        assert CANARY.lower() not in tables(database).lower()
        for place in (store, far):
            assert place.search(CANARY) == []
            assert [hit.session_id for hit in place.search("kept")] == [before[0].id]
            states = [
                [message.state for message in place.get(each.id).transcript()] for each in before
            ]
            assert states == [
                ["complete"] * (at == 0) + ["erased"] * 2 for at in range(len(before))
            ]
        assert store.erase(session.id).done and store.check() == []
        assert CANARY.lower() not in tables(database).lower()


def test_words_that_are_being_read_when_they_are_blanked_do_not_come_back(database: str):
    """Who reads words for the index finds its mark moved, and reads again."""
    world = HandWorld()
    with holdfast.open(database, world=world) as store:
        session, [old] = carried(store, world, "reset")
        with psycopg.connect(database, autocommit=True) as connection:
            marks = "SELECT seq FROM mark WHERE session = %s"
            store.search(CANARY)
            read = connection.execute(marks, (old.id,)).fetchall()
            store.erase(session.id)
            assert connection.execute(marks, (old.id,)).fetchall() != read
        assert store.search(CANARY) == [] and CANARY.lower() not in tables(database).lower()


def test_a_picture_that_the_old_session_has_said_too_stays_there(database: str):
    with holdfast.open(database) as store:
        old = store.session("k")
        old.append(PICTURE)
        store.accept("k", PICTURE)
        new = store.reset("k")
        with new.turn() as turn:
            turn.say("I see.")
        store.erase(new.id)
        assert [message.payload for message in old.transcript()] == [PICTURE, None]
        store.erase(old.id)
        assert CANARY not in tables(database)


def test_the_command_says_how_much_was_freed(database: str):
    with holdfast.open(database) as store:
        store.session("k").append("A word.")
    done = command("store", "vacuum", "--store", database, "--json")
    assert (done.code, [set(told) for told in done.lines]) == (0, [{"freed"}]), done.err
