"""Erasing on PostgreSQL: what is left in tables, and in their files."""

import psycopg

import holdfast
from holdfast.runtime.upkeep import vacuum


def tables(place: str) -> str:
    """All that is in the tables, as the server would write it."""
    with psycopg.connect(place, autocommit=True) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return "".join(str(connection.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in names)  # type: ignore[arg-type]


def test_blobs_of_an_erased_session_are_gone(database: str):
    """Its large parts lie in a table of their own, and go with it; those of others stay."""
    with holdfast.open(database) as store:
        gone, kept = store.session("gone"), store.session("kept")
        for session, letter in ((gone, "a"), (kept, "b")):
            session.append(letter * 200_000)
        with psycopg.connect(database, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM blob").fetchall() == [(2,)]
            store.erase(gone.id)
            assert [str(id) for (id,) in connection.execute("SELECT session FROM blob")] == [kept.id]
        assert "aaaa" not in tables(database)
        assert next(kept.transcript()).text == "b" * 200_000


def test_vacuum_writes_the_tables_anew_without_what_was_erased(database: str):
    with holdfast.open(database) as store:
        session = store.session("k")
        for number in range(20):
            session.append(f"{number} " + "limpet " * 500)
        store.search("limpet")
        store.erase(session.id)
        assert vacuum(database) > 0
        assert store.check() == [] and next(session.transcript()).state == "erased"
