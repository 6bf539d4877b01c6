"""Damage done by hand, as a bad disk or another program could: the last message of a store of
Holdfast's can't be read any more.
"""

import contextlib
import json

import apsw

import holdfast

_HERE = "session = (SELECT n FROM session WHERE id = ?) AND seq = ?"


def spoil_last_message(where: str, key: str | None = None) -> str:
    """Spoils the last message that anybody has said in the store at this place, or in the session
    of a key, and gives what it said, as JSON.
    """
    with holdfast.open(where) as store:
        session = store.get(store.sessions(key=key, limit=1)[0].id)
        last = list(session.transcript())[-1]
    # A place with a scheme is an address of a database; everything else is a file.
    if "://" in where:
        _spoil_in_postgres(where, session.id, last.seq)
    else:
        _spoil_in_sqlite(where, session.id, last.seq)
    return json.dumps(last.payload)


def _spoil_in_sqlite(path: str, session: str, seq: int) -> None:
    with contextlib.closing(apsw.Connection(path)) as connection:
        query = f"SELECT kind, note, body FROM log WHERE {_HERE}"
        [whole] = connection.execute(query, (session, seq))
        # Unpacked first, as an entry whose body stands by itself.
        query = f"UPDATE entry SET kind = ?, note = ?, body = ? WHERE {_HERE}"
        connection.execute(query, (*whole, session, seq))
        query = f"UPDATE entry SET body = ? WHERE {_HERE}"
        connection.execute(query, (b'{"cut', session, seq))


def _spoil_in_postgres(address: str, session: str, seq: int) -> None:
    # Loaded here: an extra that players on SQLite need not have.
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        query = "UPDATE entry SET body = %s WHERE seq = %s AND session = %s"
        connection.execute(query, (b'{"cut', seq, session))
