"""Addresses: a password is never shown, however an address is written, and no file is
made of one.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import holdfast
from commanding import command
from holdfast.engine.address import is_postgres, shown
from holdfast.errors import HoldfastError, StoreUnavailable

SECRET = "s3cr3t"
WRONG = [
    f"postgresql://ann:{SECRET}@[::1/agents",
    f"postgresql://ann:{SECRET}@host:1/agents?nonsense=1",
    f"postgresql://ann:a/{SECRET}@host/agents?bad",
    f"postgresql://host/agents?user=ann&password={SECRET}&nonsense=1",
    f"postgresql:/ann:{SECRET}@host/agents",
    f"POSTGRESQL://ann:{SECRET}@host/agents",
    f"mysql://ann:{SECRET}@host/agents",
    f"postgres+psycopg://ann:{SECRET}@host/agents",
    f"host=127.0.0.1 password='not closed {SECRET}",
    f"host=127.0.0.1 password = {SECRET} nonsense",
    f"password={SECRET} host=127.0.0.1 nonsense=1",
]
"""Addresses that nobody can connect to."""


@pytest.mark.parametrize("address", WRONG)
def test_nothing_tells_the_password_of_an_address(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ("sessions", "list", "--store"),
        ("store", "migrate", "--store"),
        ("copy", "a.db"),
        ("copy",),
    ):
        (tmp_path / "a.db").unlink(missing_ok=True)
        done = command(*words, address, *(("a.db",) if words == ("copy",) else ()))
        assert done.code and SECRET not in done.out + done.err
    with pytest.raises(HoldfastError) as told:
        holdfast.open(address)
    assert SECRET not in f"{told.value} {told.value!r} {vars(told.value)}"
    assert [path.name for path in tmp_path.iterdir() if SECRET in path.name] == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [("sessions", "rm"), ("reset",)])
def test_a_line_to_repeat_has_no_password_in_it(
    words: tuple[str, ...], databases: Callable[..., str]
) -> None:
    where = databases(schema=True)
    with holdfast.open(where) as store:
        session = store.session("k")
        with session.turn("hi") as turn:
            turn.say("hello")
        for number in range(3):
            store.session(f"more-{number}").append("x")
    given = conninfo_to_dict(where)
    # which a server that trusts everybody does not ask for
    address = make_conninfo(**{**given, "password": SECRET})
    name = "key:k" if words[0] == "sessions" else "k"
    told = [
        command(*words, name, "--store", address),
        command("sessions", "list", "--limit", 2, "--store", address),
    ]
    assert "Nothing was done" in told[0].err and "More: " in told[1].err
    assert not [done for done in told if SECRET in done.out + done.err]
    quiet = command(*words, name, HOLDFAST_STORE=address)
    assert "Nothing was done" in quiet.err and "--store" not in quiet.err


def test_keywords_open_the_store_that_they_name(databases: Callable[..., str]) -> None:
    where = databases(schema=True)
    keywords = make_conninfo(**conninfo_to_dict(where))
    assert is_postgres(keywords) and "://" not in keywords
    with holdfast.open(keywords) as store:
        store.session("k").append("said by keywords")
    with holdfast.open(where) as store:
        assert [message.text for message in store.session("k").transcript()] == ["said by keywords"]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("agent.db", "agent.db"),
        ("/srv/a@b/agent.db", "/srv/a@b/agent.db"),
        ("sqlite:///agent.db", "sqlite:///agent.db"),
        (f"postgresql://ann:{SECRET}@host/db", "postgresql://ann@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        (f"host=a password='x {SECRET}' port=5", "host=a password=*** port=5"),
    ],
)
def test_what_is_shown_of_an_address_is_all_but_its_password(where: str, told: str) -> None:
    assert shown(where) == told


def test_an_address_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match="not known"):
        holdfast.open("redis://host/0")
    assert list(tmp_path.iterdir()) == []
