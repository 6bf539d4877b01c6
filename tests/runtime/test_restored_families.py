"""Sessions that belong together and are brought back from their files: forks and their parents, and
the sessions that a key has had one after another (I-2, I-21, I-22).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from commanding import command
from holdfast.errors import AlreadyAccepted, NotApproved
from holdfast.runtime.transfer.restore import restore
from holdfast.testing.oracle import judge


@pytest.fixture
def old(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "old.db", durability="process") as store:
        yield store


def written(session: holdfast.Session, to: Path) -> Path:
    place = session._log.engine.where
    told = command("export", session.id, "--as", "holdfast", "--out", str(to), "--store", place)
    assert told.code == 0, told
    return to


def is_sound(store: holdfast.Store) -> None:
    assert judge(store) == []
    assert store.check() == []


def take(store: holdfast.Store, key: str, event_id: str) -> None:
    with store.turn(key, f"event {event_id}", event_id=event_id) as turn:
        turn.say("taken")


def is_bound(turn: holdfast.Turn, call_id: str, arguments: dict[str, int]) -> bool:
    """Whether a call is not run unasked: it waits, or is refused."""
    try:
        return turn.call("pay", arguments, call_id=call_id).waiting
    except NotApproved:
        return True


def texts(session: holdfast.Session) -> list[str]:
    return [message.text for message in session.transcript()]


# Forks.


@pytest.mark.parametrize("order", ["parent first", "fork first", "fork alone"])
def test_an_event_of_the_parent_is_new_to_the_restored_fork(
    old: holdfast.Store, where: str, tmp_path: Path, order: str
) -> None:
    """I-2: an event is accepted once per key, and a fork has a key of its own, or none."""
    for number in ("1", "2"):
        take(old, "chat:1", number)
    parent = old.session("chat:1")
    keyed, plain = parent.fork(key="chat:2"), parent.fork()
    take(old, "chat:2", "3")
    with plain.turn("event 3", event_id="3") as turn:
        turn.say("taken")
    files = [written(keyed, tmp_path / "keyed.jsonl"), written(plain, tmp_path / "plain.jsonl")]
    if order != "fork alone":
        files.insert(0 if order == "parent first" else 2, written(parent, tmp_path / "p.jsonl"))
    with holdfast.open(where) as new:
        for file in files:
            restore(new, file)
        take(new, "chat:2", "1")
        with new.get(plain.id).turn("event 1", event_id="1") as turn:
            turn.say("taken")
        for fork in (new.session("chat:2", create=False), new.get(plain.id)):
            with pytest.raises(AlreadyAccepted):
                fork.turn("event 3", event_id="3")
        if order != "fork alone":
            with pytest.raises(AlreadyAccepted):
                new.turn("chat:1", "event 1", event_id="1")
        is_sound(new)


@pytest.mark.parametrize("order", ["parent first", "fork alone"])
def test_what_was_asked_about_before_a_fork_is_bound_in_the_restored_fork(
    old: holdfast.Store, where: str, tmp_path: Path, order: str
) -> None:
    with old.turn("k", "Pay.") as turn:
        assert turn.call("pay", {"euros": 80}, call_id="c1", needs_approval=True).waiting
    parent = old.session("k")
    fork = parent.fork(key="branch")
    files = [written(fork, tmp_path / "fork.jsonl")]
    if order == "parent first":
        files.insert(0, written(parent, tmp_path / "parent.jsonl"))
    with holdfast.open(where) as new:
        for file in files:
            restore(new, file)
        with new.turn("branch", "Pay.") as turn:
            assert is_bound(turn, "c1", {"euros": 80})
        is_sound(new)


@pytest.mark.parametrize("how", ["copy", "heal"])
def test_a_restored_fork_takes_along_its_own_events_alone(
    old: holdfast.Store, tmp_path: Path, how: str
) -> None:
    take(old, "chat:1", "1")
    fork = old.session("chat:1").fork(key="chat:2")
    take(old, "chat:2", "3")
    place, other = tmp_path / "new.db", tmp_path / "other.db"
    with holdfast.open(place) as new:
        restore(new, written(fork, tmp_path / "fork.jsonl"))
    if how == "copy":
        assert holdfast.copy(place, other).sessions == 1
    else:
        assert command("doctor", place, "--heal", other).code == 0
    with holdfast.open(other) as new:
        take(new, "chat:2", "1")
        with pytest.raises(AlreadyAccepted):
            new.turn("chat:2", "again", event_id="3")
        is_sound(new)


# The sessions of a key.


@pytest.fixture
def epochs(old: holdfast.Store) -> list[holdfast.Session]:
    """Three sessions of one key. Each has accepted an event and asked about a call."""
    found = []
    for number in (1, 2, 3):
        if found:
            old.reset("k")
        with old.turn("k", f"event {number}", event_id=f"e{number}") as turn:
            turn.call("pay", {"epoch": number}, call_id=f"c{number}", needs_approval=True)
        found.append(old.session("k"))
    return found


def assert_all_known(new: holdfast.Store, epochs: list[holdfast.Session]) -> None:
    """What the key has accepted and asked about in any of its sessions."""
    for number in (1, 2, 3):
        with pytest.raises(AlreadyAccepted) as told:
            new.turn("k", "again", event_id=f"e{number}")
        assert told.value.session_id == epochs[number - 1].id
    with new.turn("k", "Pay.") as turn:
        for number in (1, 2, 3):
            assert is_bound(turn, f"c{number}", {"epoch": number})
    is_sound(new)


@pytest.mark.parametrize("how", ["folder", "files"])
def test_files_of_one_import_come_in_the_order_of_their_sessions(
    epochs: list[holdfast.Session], where: str, tmp_path: Path, how: str
) -> None:
    """Whatever they are called: epochs of a key in order, parents before what was forked off."""
    branch = epochs[2].fork(key="branch")
    twig = branch.fork(key="twig")
    folder = tmp_path / "out"
    folder.mkdir()
    files = []
    for number, session in enumerate((twig, branch, *reversed(epochs))):
        files.append(str(written(session, folder / f"{number}.jsonl")))
    paths = [str(folder)] if how == "folder" else files
    told = command("import", *paths, "--into", where)
    assert told.code == 0 and "without" not in told.out
    with holdfast.open(where) as new:
        for session in (*epochs, branch, twig):
            restored = new.get(session.id)
            assert (restored.key, restored.epoch) == (session.key, session.epoch)
        assert new.session("k", create=False).id == epochs[2].id
        assert_all_known(new, epochs)


@pytest.mark.parametrize("order", [(3, 2, 1), (3, 1, 2), (2, 3, 1)])
def test_what_an_older_session_of_a_key_has_accepted_is_known_though_it_comes_later(
    epochs: list[holdfast.Session], where: str, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """I-2, I-22: it comes without the key, which is told; the key knows what it has accepted, and
    what somebody was asked about is bound.
    """
    with holdfast.open(where) as new:
        for number in order:
            restore(new, written(epochs[number - 1], tmp_path / f"{number}.jsonl"))
        assert new.session("k", create=False).id == epochs[2].id
        assert new.get(epochs[0].id).key is None
        assert_all_known(new, epochs)
