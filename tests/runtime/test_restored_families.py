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
from holdfast.runtime.transfer.restored_ids import RestoredIds
from holdfast.testing.oracle import judge
from thorough import few_cases, few_on_postgres

pytestmark = few_on_postgres(
    "what a restored family shares is decided in `runtime/transfer`; what an engine "
    "restores has its laws in the conformance suite",
    every=3,
)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "old.db", durability="process") as store:
        yield store


def written(session: holdfast.Session, to: Path) -> Path:
    place = session._log.engine.where
    to.unlink(missing_ok=True)
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


def test_a_file_that_is_nested_too_deeply_keeps_no_other_from_being_restored(
    epochs: list[holdfast.Session], where: str, tmp_path: Path
) -> None:
    files = [str(written(each, tmp_path / f"{each.epoch}.jsonl")) for each in reversed(epochs)]
    strange = tmp_path / "strange.jsonl"
    first, *rest = Path(files[0]).read_text().splitlines(keepends=True)
    deep = '{"kind": "opened", "more": ' + "[" * 9000 + "]" * 9000 + "}\n"
    strange.write_text("".join([first, deep, *rest]))
    told = command("import", str(strange), *files, "--into", where)
    assert "strange.jsonl" in told.out + told.err
    with holdfast.open(where) as new:
        assert_all_known(new, epochs)


@few_cases(every=2)
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


# Words that are erased.


@pytest.fixture
def family(old: holdfast.Store, tmp_path: Path) -> Iterator["Family"]:
    yield Family(old, tmp_path)


class Family:
    """A session, a fork of it and a fork of that, each with words of its own; and their files."""

    def __init__(self, store: holdfast.Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.parent = store.session("parent")
        self._say(self.parent, "secret")
        self.fork = self.parent.fork(key="fork")
        self._say(self.fork, "private")
        self.twig = self.fork.fork(key="twig")
        self._say(self.twig, "open")
        # What it says later is not in the past of its forks.
        self._say(self.parent, "late secret")

    def _say(self, session: holdfast.Session, word: str) -> None:
        with session.turn(f"{word} question") as turn:
            turn.say(f"{word} answer")

    def bring(self, new: holdfast.Store, *names: str) -> None:
        for name in names:
            session = getattr(self, name)
            restore(new, written(session, self.folder / f"{name}.jsonl"))


ORDERS = [
    ("parent", "fork", "twig"),
    ("twig", "fork", "parent"),
    ("fork", "parent", "twig"),
    ("twig", "parent", "fork"),
]


@few_cases(every=3)
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_a_restored_fork_loses_its_past_with_its_parent(
    family: Family, where: str, order: tuple[str, ...]
) -> None:
    """I-21: whether it shares the past again, or came first and has a copy of it."""
    with holdfast.open(where) as new:
        family.bring(new, *order)
        handles = {name: new.get(getattr(family, name).id) for name in order}
        whole = {name: texts(handle) for name, handle in handles.items()}
        contexts = {name: list(handle.context()) for name, handle in handles.items()}
        for name in order:
            assert whole[name] == texts(getattr(family, name))
            assert contexts[name] == list(getattr(family, name).context())
        forks = {family.fork.id, family.twig.id}
        assert set(new.erase(family.parent.id, preview=True).forks) == forks
        is_sound(new)
        assert set(new.erase(family.parent.id).forks) == forks
        own = ["private question", "private answer"]
        for handle in (handles["fork"], new.get(family.fork.id)):
            assert texts(handle) == ["", "", *own]
            assert "secret" not in str(list(handle.context()))
        for handle in (handles["twig"], new.get(family.twig.id)):
            assert texts(handle) == ["", "", *own, "open question", "open answer"]
            assert "secret" not in str(list(handle.context()))
        assert new.search("secret") == []
        assert new.search("private") != []
        is_sound(new)
        # What is brought again is not brought back.
        family.bring(new, *order)
        assert new.search("secret") == []
        new.erase(family.fork.id)
        assert texts(new.get(family.twig.id)) == ["", "", "", "", "open question", "open answer"]
        assert new.search("private") == []
        is_sound(new)


def test_a_restored_fork_shares_its_past_again(family: Family, where: str) -> None:
    """It opened when it was forked, and a search finds what it shares once."""
    with holdfast.open(where) as new:
        family.bring(new, "parent", "fork", "twig")
        for name in ("fork", "twig"):
            session, restored = getattr(family, name), new.get(getattr(family, name).id)
            assert restored.info() == session.info()
            assert list(restored.entries()) == list(session.entries())
        assert len(new.search("secret question")) == 2  # and one of them late
        with new.get(family.fork.id).turn("more") as turn:
            turn.say("indeed")
        family._say(family.twig, "new")
        family.bring(new, "twig")
        assert texts(new.get(family.twig.id)) == texts(family.twig)
        is_sound(new)


def test_a_fork_of_another_past_does_not_share_that_of_its_parent(
    family: Family, where: str, tmp_path: Path
) -> None:
    with holdfast.open(where) as new:
        lines = written(family.parent, tmp_path / "parent.jsonl")
        lines.write_bytes(lines.read_bytes().replace(b"secret", b"public"))
        restore(new, lines)
        family.bring(new, "fork")
        assert texts(new.get(family.fork.id)) == texts(family.fork)
        is_sound(new)


def test_what_was_erased_before_a_fork_came_is_not_brought_back_with_it(
    family: Family, where: str
) -> None:
    with holdfast.open(where) as new:
        family.bring(new, "parent")
        new.erase(family.parent.id)
        family.bring(new, "fork", "twig")
        assert new.search("secret") == []
        assert texts(new.get(family.twig.id))[4:] == ["open question", "open answer"]
        is_sound(new)


@few_cases(every=3)
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_an_erasure_where_it_comes_from_is_carried_over(
    family: Family, where: str, order: tuple[str, ...]
) -> None:
    """I-21: words that were taken out of the source do not stay here."""
    with holdfast.open(where) as new:
        family.bring(new, *order)
        handle = new.get(family.fork.id)
        list(handle.context())
        family.store.erase(family.parent.id)
        family.bring(new, "parent")
        assert new.search("secret") == []
        assert new.get(family.parent.id).info().state == "ended"
        assert "secret" not in str(list(handle.context()))
        family.bring(new, *order)
        for name in order:
            assert texts(new.get(getattr(family, name).id)) == texts(getattr(family, name))
        is_sound(new)
        # Nothing is left to be brought.
        before = {name: new.get(getattr(family, name).id).info().head for name in order}
        family.bring(new, *order)
        assert before == {name: new.get(getattr(family, name).id).info().head for name in order}


def test_words_that_a_message_lost_with_another_session_are_lost_here_too(
    old: holdfast.Store, where: str, tmp_path: Path
) -> None:
    """A message that waited went on to the next session of its key, which was erased."""
    first = old.session("k")
    old.accept("k", "secret")
    second = old.reset("k")
    with holdfast.open(where) as new:
        for session in (first, second):
            restore(new, written(session, tmp_path / f"{session.id}.jsonl"))
        old.erase(second.id)
        for session in (first, second):
            restore(new, written(session, tmp_path / f"{session.id}.jsonl"))
        assert new.search("secret") == []
        assert texts(new.get(first.id)) == texts(first) == [""]
        is_sound(new)


# Where another tenant has their ids (I-19).


@pytest.fixture
def shared(where: str) -> Iterator[holdfast.Store]:
    """A store; what is restored first is another tenant's."""
    with holdfast.open(where, tenant="other") as other:
        yield other


def here(store: holdfast.Store, session: holdfast.Session) -> str:
    """The id that a session has in this store, which is not the one that another tenant has."""
    id = RestoredIds(store._work.engine, store._work.tenant).here(session.id)
    assert id != session.id
    return id


def heads(store: holdfast.Store) -> dict[str, int]:
    return {listed.id: listed.head for listed in store.sessions(limit=100)}


@few_cases(every=3)
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_a_fork_loses_its_past_with_its_parent_where_another_tenant_has_both(
    family: Family, shared: holdfast.Store, order: tuple[str, ...]
) -> None:
    family.bring(shared, "parent", "fork", "twig")
    new = shared.for_tenant("mine")
    family.bring(new, *order)
    parent, fork, twig = (here(new, each) for each in (family.parent, family.fork, family.twig))
    for name in order:
        session = getattr(family, name)
        assert texts(new.get(here(new, session))) == texts(session)
    before = heads(new)
    # Nothing is doubled.
    family.bring(new, *order, *reversed(order))
    assert heads(new) == before and len(before) == 3
    is_sound(new)
    for preview in (True, False):
        assert set(new.erase(parent, preview=preview).forks) == {fork, twig}
    assert texts(new.get(fork)) == ["", "", "private question", "private answer"]
    assert new.search("secret") == []
    assert new.erase(fork).forks == (twig,)
    assert texts(new.get(twig)) == ["", "", "", "", "open question", "open answer"]
    family.bring(new, *order)
    assert new.search("secret") == new.search("private") == []
    is_sound(new)
    for name in order:
        session = getattr(family, name)
        assert texts(shared.get(session.id)) == texts(session)


def test_a_fork_shares_its_past_again_where_another_tenant_has_both(
    family: Family, shared: holdfast.Store
) -> None:
    with family.fork.turn("sent", reply_to="ann") as turn:
        turn.say("private, as it was sent")
        turn.sent()
    bud = family.fork.fork()
    family.bring(shared, "parent", "fork", "twig")
    restore(shared, written(bud, family.folder / "bud.jsonl"))
    new = shared.for_tenant("mine")
    family.bring(new, "parent", "fork", "twig")
    restore(new, written(bud, family.folder / "bud.jsonl"))
    for session in (family.fork, family.twig, bud):
        restored = new.get(here(new, session))
        assert restored.info().opened_at == session.info().opened_at
        assert texts(restored) == texts(session)
    assert len(new.search("secret question")) == 2  # and one of them late
    assert len(new.search("private")) == 3
    assert new.erase(here(new, family.fork), preview=True).forks == tuple(
        sorted((here(new, family.twig), here(new, bud)))
    )
    is_sound(new)


class Journeys:
    """A message that a turn of another session took, and one that a reset carried along; the
    sessions that they came through.
    """

    def __init__(self, store: holdfast.Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.queue = store.session("queue")
        taken = store.accept("queue", "secret taken", event_id="e1")
        with store.turn("desk", take=[taken]) as turn:
            turn.say("secret answer")
        self.desk = store.session("desk")
        self.first = store.session("k")
        store.accept("k", "secret carried", event_id="e2")
        self.second = store.reset("k")
        with store.turn("k") as turn:
            turn.say("secret reply")

    def bring(self, new: holdfast.Store, *names: str) -> None:
        for name in names:
            session = getattr(self, name)
            restore(new, written(session, self.folder / f"{name}.jsonl"))


@pytest.fixture
def journeys(old: holdfast.Store, tmp_path: Path) -> Journeys:
    return Journeys(old, tmp_path)


THROUGH = [("queue", "desk", "first", "second"), ("second", "first", "desk", "queue")]


@pytest.mark.parametrize("order", THROUGH, ids=" ".join)
def test_copies_go_with_the_session_that_answered_where_another_tenant_has_all_of_them(
    journeys: Journeys, shared: holdfast.Store, order: tuple[str, ...]
) -> None:
    """I-2, I-21: whichever of them came first."""
    journeys.bring(shared, *THROUGH[0])
    new = shared.for_tenant("mine")
    journeys.bring(new, *order)
    queue, desk = here(new, journeys.queue), here(new, journeys.desk)
    first, second = here(new, journeys.first), here(new, journeys.second)
    before = heads(new)
    journeys.bring(new, *order)
    assert heads(new) == before and len(before) == 4
    is_sound(new)
    # A message is found where it went.
    for key, event, where_it_is in (("queue", "e1", desk), ("k", "e2", second)):
        with pytest.raises(AlreadyAccepted) as told:
            new.turn(key, "again", event_id=event)
        assert told.value.session_id == where_it_is
    for session, through in ((desk, queue), (second, first)):
        for preview in (True, False):
            assert new.erase(session, preview=preview).copies == (through,)
        assert texts(new.get(through)) == [""]
    assert new.search("secret") == []
    journeys.bring(new, *order)
    assert new.search("secret") == []
    is_sound(new)
    assert len(shared.search("secret")) == len(journeys.store.search("secret"))


def test_an_id_that_another_tenant_takes_later_makes_no_other_history(
    journeys: Journeys, shared: holdfast.Store
) -> None:
    """What came before its relatives, when nobody had their ids, is known again."""
    new = shared.for_tenant("mine")
    journeys.bring(new, "desk", "first")
    before = heads(new)
    journeys.bring(shared, "queue", "second")
    journeys.bring(new, "desk", "first")
    assert heads(new) == before
    is_sound(new)
