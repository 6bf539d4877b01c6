"""One damaged cell that says whose something is takes away nothing else, and is told (I-18, I-19,
I-23).
"""

from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from commanding import command
from holdfast.testing.oracle import judge
from thorough import few_cases


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three sessions, each with a reply that is owed and a message that waits."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for key in ("k0", "k1", "k2"):
            with store.turn(key, f"question of {key}", reply_to=key) as turn:
                turn.say(f"answer to {key}")
            store.accept(key, f"waits in {key}")
    return path


def tamper(path: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


def flip(path: Path) -> None:
    """Flips a bit of the tenant in the row of one session."""
    connection = apsw.Connection(str(path))
    id = connection.execute("SELECT id FROM session WHERE key = 'k0'").get
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    raw = bytearray(path.read_bytes())
    place = raw.index(id.encode() + b"default") + len(id) + 6
    raw[place] ^= 1
    path.write_bytes(raw)


ROWS = {
    "session": "UPDATE session SET tenant = ? WHERE key = 'k0'",
    "inbox": "UPDATE inbox SET tenant = ? WHERE session = (SELECT n FROM session WHERE key = 'k0')",
    "outbox": "UPDATE outbox SET tenant = ? WHERE session = "
    "(SELECT n FROM session WHERE key = 'k0')",
}


def owed(store: holdfast.Store) -> list[str]:
    return [reply.reply_to for reply in store.outbox()]


def waits(store: holdfast.Store) -> list[str | None]:
    return [message.key for message in store.pending()]


@few_cases(every=3)
@pytest.mark.parametrize(
    "table, value",
    [
        *(("session", value) for value in (7, "", b"x", "zz", flip)),
        *((table, value) for table in ("inbox", "outbox") for value in (7, "", b"x", "zz")),
    ],
)
def test_a_damaged_tenant_is_told_and_healed(
    path: Path, tmp_path: Path, table: str, value: Any
) -> None:
    if value is flip:
        flip(path)
    else:
        tamper(path, ROWS[table], value)
    with holdfast.open(path) as store:
        assert set(owed(store)) >= {"k1", "k2"}
        assert [reply.reply_to for reply in store.outbox(claim_s=1)] == owed(store)
        assert set(waits(store)) >= {"k1", "k2"}
        assert len(store.search("question")) >= 2
        rules = {problem.rule for problem in store.check()}
        assert "other-tenants" in rules
    out = tmp_path / "healed.db"
    told = command("doctor", path, "--heal", out)
    assert "other-tenants" in told.out
    with holdfast.open(out) as store:
        assert store.check() == []
        assert judge(store) == []
        assert sorted(owed(store)) == ["k0", "k1", "k2"]
        assert sorted(map(str, waits(store))) == ["k0", "k1", "k2"]
        assert len(store.sessions()) == 3


def test_a_session_of_another_tenant_stays_with_that_tenant(path: Path, tmp_path: Path) -> None:
    """I-19: where somebody is named whom the store knows, their session is not given away."""
    with holdfast.open(path, tenant="ann") as store:
        store.accept("hers", "waits for ann", reply_to="ann")
    tamper(path, ROWS["session"], "ann")
    out = tmp_path / "healed.db"
    command("doctor", path, "--heal", out)
    with holdfast.open(out) as store:
        assert waits(store) == ["k1", "k2"]
        assert sorted(map(str, waits(store.for_tenant("ann")))) == ["hers", "k0"]
        assert store.check() == []


def fork_some(path: Path) -> None:
    with holdfast.open(path) as store:
        store.session("k0").fork(key="f").append("in the fork")
        # What nothing speaks for but its forks: its inbox and its outbox are empty.
        store.session("plain").append("plain")
        store.session("plain").fork(key="g").append("in another fork")


@few_cases(every=3)
@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.parametrize("key", ["plain", "g"])
def test_a_shared_past_under_another_tenant_is_told_and_healed(
    path: Path, tmp_path: Path, key: str, tenant: str
) -> None:
    fork_some(path)
    tamper(path, "UPDATE session SET tenant = ? WHERE key = ?", tenant, key)
    with holdfast.open(path) as store:
        problems = store.check()
        assert "other-tenants" in {problem.rule for problem in problems}
        assert tenant or any("its tenant" in problem.problem for problem in problems)
    out = tmp_path / "healed.db"
    assert "other-tenants" in command("doctor", path, "--heal", out).out
    with holdfast.open(out) as store:
        assert store.check() == []
        fork = store.session("g", create=False)
        assert [message.text for message in fork.transcript()] == ["plain", "in another fork"]
        assert len(store.sessions()) == 6


def test_a_past_of_which_nobody_can_tell_whose_it_is_is_given_to_nobody(tmp_path: Path) -> None:
    """I-19: of two who have nothing but each other, either may be the one that is wrong."""
    path, out = tmp_path / "agent.db", tmp_path / "healed.db"
    with holdfast.open(path, durability="process") as store:
        store.session("plain").append("plain")
        store.session("plain").fork(key="g").append("in the fork")
    tamper(path, "UPDATE session SET tenant = 'acme' WHERE key = 'plain'")
    command("doctor", path, "--heal", out)
    with holdfast.open(out) as store:
        assert store.check() == []
        fork = store.session("g", create=False)
        assert "plain" not in [message.text for message in fork.transcript()]
        assert [message.text for message in fork.transcript()][-1] == "in the fork"
        other = store.for_tenant("acme").session("plain", create=False)
        assert [message.text for message in other.transcript()] == ["plain"]


def test_a_session_without_a_tenant_is_told(tmp_path: Path) -> None:
    path, out = tmp_path / "agent.db", tmp_path / "healed.db"
    with holdfast.open(path, durability="process", tenant="ann") as store:
        store.session("one").append("one")
        store.session("two").append("two")
    tamper(path, "UPDATE session SET tenant = '' WHERE key = 'one'")
    with holdfast.open(path) as store:
        [problem] = store.check()
        assert problem.rule == "damaged-page" and "its tenant" in problem.problem
    command("doctor", path, "--heal", out)
    with holdfast.open(out, tenant="ann") as store:
        assert store.check() == []
        assert sorted(info.key or "" for info in store.sessions()) == ["one", "two"]
    copied = holdfast.copy(path, tmp_path / "copy.db")
    assert copied.sessions == 1
    [left] = copied.differences
    assert left.key == "one" and "its tenant is damaged" in left.problem
