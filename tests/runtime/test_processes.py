"""Several threads, tasks and processes on one file: nothing lost, no turn within another (I-3, I-6,
FAULTS F1-F8).
"""

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

import holdfast
import procs
from holdfast import Session, Store
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Opening, Refused, Write, Written
from holdfast.errors import StoreUnavailable
from holdfast.runtime.clock import RealWorld, mint
from holdfast.testing.reference import Ticks
from looking import patient
from thorough import SWEEP

LIMIT_S = 60
TURNS_EACH = 2 if SWEEP else 1


def assert_turns_are_whole(session: Session, turns: dict[str, int]) -> None:
    """Each writer's messages are there, in its own order, each with its answer, and no turn lies
    within another.
    """
    open_turn = None
    for entry in session.entries():
        if entry.kind == "turn":
            assert open_turn is None, f"turn {entry.turn} began within turn {open_turn}"
            open_turn = entry.turn
        elif entry.kind == "end":
            assert entry.turn == open_turn
            open_turn = None
        elif entry.turn is not None:
            assert entry.turn == open_turn, f"an entry of turn {entry.turn} within turn {open_turn}"
    assert open_turn is None
    taken: dict[str, list[str]] = {}
    for message in session.transcript():
        if message.role == "user":
            taken.setdefault(message.text.partition("/")[0], []).append(message.text)
            assert message.turn is not None
    assert taken == {name: [f"{name}/{n}" for n in range(count)] for name, count in turns.items()}
    said = [message.text for message in session.transcript()]
    for name, count in turns.items():
        for n in range(count):
            assert said.count(f"{name}/{n}") == 1
            assert said.count(f"re {name}/{n}") == 1
    assert [entry.seq for entry in session.entries()] == list(range(1, session.info().head + 1))


TURNS = """
    import holdfast
    name, count = sys.argv[2], int(sys.argv[3])
    with holdfast.open(sys.argv[1], durability="process") as store:
        say("ready")
        hear()
        for n in range(count):
            with store.turn("k", f"{name}/{n}") as turn:
                for _ in turn.deliver(iter([f"re {name}", f"/{n}"])):
                    pass
"""


@pytest.mark.slow
def test_turns_of_two_processes_do_not_mix(path: Path, store: Store) -> None:
    """F1: two processes, two hundred turns each, one session."""
    with procs.child(TURNS, path, "a", 200) as a, procs.child(TURNS, path, "b", 200) as b:
        for each in (a, b):
            each.wait_for("ready")
        for each in (a, b):
            each.tell()
        for each in (a, b):
            each.end()
    assert_turns_are_whole(store.session("k"), {"a": 200, "b": 200})


@pytest.mark.slow
def test_turns_of_eight_threads_do_not_mix(store: Store) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(15):
                with store.turn("k", f"{name}/{n}") as turn:
                    turn.say(f"re {name}/{n}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert errors == []
    assert_turns_are_whole(store.session("k"), {f"t{n}": 15 for n in range(8)})


@pytest.mark.slow
def test_turns_of_fifty_tasks_do_not_mix(path: Path) -> None:
    async def work() -> None:
        async with holdfast.open_async(path, durability="process") as store:

            async def one(name: str) -> None:
                for n in range(TURNS_EACH):
                    async with store.turn("k", f"{name}/{n}") as turn:
                        async for _ in turn.deliver(iter(["re ", f"{name}/{n}"])):
                            pass

            await asyncio.gather(*(one(f"t{n}") for n in range(50)))

    asyncio.run(work())
    with holdfast.open(path, durability="process") as store:
        assert_turns_are_whole(store.session("k"), {f"t{n}": TURNS_EACH for n in range(50)})


APPENDS = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.session("k")
        say("ready")
        hear()
        for n in range(int(sys.argv[3])):
            session.append(f"{sys.argv[2]}/{n}")
            say("did", n)
"""


@pytest.mark.slow
def test_what_any_process_was_told_is_stored_is_stored(path: Path, store: Store) -> None:
    """F2, I-3: three processes and this one append to one session; one of them is killed on its
    way.
    """
    session = store.session("k")
    with procs.child(APPENDS, path, "a", 150) as a, procs.child(APPENDS, path, "b", 150) as b:
        for each in (a, b):
            each.wait_for("ready")
            each.tell()
        for n in range(50):
            session.append(f"here/{n}")
        while b.wait_for("did") != "60":
            pass
        b.kill()
        told = [int(line.split()[1]) for line in b.lines() if line.startswith("did ")]
        a.end()
    said = [message.text for message in session.transcript()]
    assert [text for text in said if text.startswith("a/")] == [f"a/{n}" for n in range(150)]
    assert [text for text in said if text.startswith("here/")] == [f"here/{n}" for n in range(50)]
    of_b = [text for text in said if text.startswith("b/")]
    assert of_b == [f"b/{n}" for n in range(len(of_b))]
    assert len(of_b) >= max(told, default=60) + 1
    assert len(set(said)) == len(said)


RECORDS = """
    import holdfast
    name = sys.argv[2]
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.session("k")
        say("ready")
        hear()
        for n in range(40):
            messages = list(session.context())
            messages.append({"role": "assistant", "content": f"{name}/{n}"})
            session.record(messages)
"""


@pytest.mark.slow
def test_lists_recorded_by_two_processes_at_once_lose_nothing(path: Path, store: Store) -> None:
    """F2, B5: a recording is guarded by the head it was computed from, and computed again when it
    moved.
    """
    store.session("k").append("go")
    with procs.child(RECORDS, path, "a") as a, procs.child(RECORDS, path, "b") as b:
        for each in (a, b):
            each.wait_for("ready")
        for each in (a, b):
            each.tell()
        for each in (a, b):
            each.end()
    said = [message.text for message in store.session("k").transcript()]
    for name in "ab":
        assert [text for text in said if text.startswith(name)] == [
            f"{name}/{n}" for n in range(40)
        ]
    assert len(said) == 81


def test_of_two_commits_on_one_head_one_is_refused_and_leaves_no_trace(path: Path) -> None:
    """F2: race two writers: one commits, one is told what the head is."""
    engine = open_engine(path, durability="process", tick=Ticks())
    other = open_engine(path, durability="process", tick=Ticks())
    world = RealWorld()

    def draft(text: str) -> tuple[holdfast.domain.entry.Draft, ...]:
        return (
            holdfast.domain.entry.Draft("message", None, mint(world, 0), 0, b"", text.encode()),
        )

    opening = Write("s", draft("opened"), open=Opening("default", "k", 1))
    assert isinstance(engine.commit([(opening,)])[0], Written)
    one = engine.submit((Write("s", draft("one"), head=1),))
    two = other.submit((Write("s", draft("two"), head=1),))
    outcomes = [one.result(LIMIT_S), two.result(LIMIT_S)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert [(outcome.why, outcome.detail) for outcome in refused] == [("moved", 2)]
    assert len(engine.entries("s")) == 2
    for each in (engine, other):
        each.close()


# Locks
# ---------------------------------------------------------------------------------------------------------------

HOLDS_SQLITE = """
    import apsw
    connection = apsw.Connection(sys.argv[1])
    connection.execute("BEGIN IMMEDIATE")
    say("held")
    hear()
    connection.execute("ROLLBACK")
    say("released")
    hear()
"""

HOLDS_FILE = """
    import fcntl, os
    file = os.open(sys.argv[1] + "-lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    say("held")
    hear()
    fcntl.flock(file, fcntl.LOCK_UN)
    say("released")
    hear()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "holder", [HOLDS_SQLITE, HOLDS_FILE], ids=["SQLite's lock", "the fair lock"]
)
def test_a_lock_held_too_long_is_told_to_the_caller_and_nothing_is_lost(
    path: Path, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8, A11: an error, never a silent loss; and all is well once the other program has let go."""
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.2))
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        session.append("before")
        with procs.child(holder, path) as other:
            other.wait_for("held")
            for attempt in (lambda: session.append("refused"), lambda: session.turn("refused"),
                            lambda: session.record([{"role": "user", "content": "refused"}])):  # fmt: skip
                with pytest.raises(StoreUnavailable) as caught:
                    attempt()
                assert caught.value.code == "store_unavailable"
                assert str(path) in str(caught.value)
            assert [message.text for message in session.transcript()] == ["before"], (
                "reading goes on"
            )
            other.tell()
            other.wait_for("released")
            session.append("after")
        assert [message.text for message in session.transcript()] == ["before", "after"]
    with holdfast.open(path, durability="process") as again:
        assert [message.text for message in again.session("k").transcript()] == ["before", "after"]


def test_a_turn_under_way_survives_a_lock_held_for_a_while(path: Path) -> None:
    """F8: within the patience of the store, a caller only waits."""
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        turn = session.turn("hello")
        with procs.child(HOLDS_FILE, path) as other:
            other.wait_for("held")
            answered: list[str] = []
            thread = threading.Thread(target=lambda: answered.append(turn.say("hi")))
            thread.start()
            other.tell()
            thread.join(LIMIT_S)
        turn.__exit__(None, None, None)
        assert answered == ["hi"]
        assert [message.text for message in session.transcript()] == ["hello", "hi"]


@pytest.mark.slow
def test_a_store_can_not_be_opened_while_another_program_holds_its_lock_for_longer_than_it_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8"""
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.2))
    holdfast.open(path, durability="process").close()
    with procs.child(HOLDS_FILE, path) as other:
        other.wait_for("held")
        with pytest.raises(StoreUnavailable, match="lock"):
            holdfast.open(path, durability="process")
        other.tell()
        other.wait_for("released")
        with holdfast.open(path, durability="process") as store:
            store.session("k").append("works again")


def test_a_process_killed_while_it_holds_the_lock_leaves_it_free(path: Path, store: Store) -> None:
    with procs.child(HOLDS_FILE, path) as other, procs.child(HOLDS_SQLITE, path) as another:
        other.wait_for("held")
        another.wait_for("held")
        other.kill()
        another.kill()
        store.session("k").append("free")
    assert [message.text for message in store.session("k").transcript()] == ["free"]


# Frozen, forked, owned
# -----------------------------------------------------------------------------------------------


def test_a_payload_changed_after_the_call_is_stored_as_it_was(path: Path) -> None:
    """F7, I-3: frozen to bytes before anything waits."""

    async def change() -> list[object]:
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            payload = {"role": "user", "content": [{"type": "text", "text": "as it was"}]}
            writes = [session.append(payload), session.record([payload])]
            starting = session.turn(payload)
            payload["content"][0]["text"] = "as it became"  # type: ignore[index]
            for write in writes:
                await write
            async with starting as turn:
                answer = {"role": "assistant", "content": "an answer"}
                adding = turn.add(answer)
                arguments = {"path": "/"}
                calling = turn.call("ls", arguments, call_id="c1")
                answer["content"], arguments["path"] = "another", "/etc"
                await adding
                await calling
                result = {"files": ["bin"]}
                resulting = turn.result("c1", result)
                result["files"].append("etc")
                await resulting
            return [message.payload async for message in session.transcript()]

    text = str(asyncio.run(change()))
    assert "became" not in text
    assert "another" not in text
    assert "etc" not in text
    assert text.count("as it was") == 2


def test_a_store_used_after_a_fork_says_what_to_do(path: Path, store: Store) -> None:
    """A forked child has no writer thread: it must be told, not hang and not write."""
    session = store.session("k")
    session.append("before")
    head = session.info().head
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        words = []
        uses = [
            lambda: session.append("from the child"),
            lambda: session.turn("x"),
            lambda: session.context(),
            lambda: store.session("other"),
            lambda: store.close(),
        ]
        for use in uses:
            try:
                use()
                words.append("done")
            except StoreUnavailable as error:
                words.append("forked" if "fork" in str(error) else str(error))
            except BaseException as error:
                words.append(repr(error))
        os.write(writer, "|".join(words).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        words = pipe.read().split("|")
    os.waitpid(child, 0)
    assert words == ["forked"] * 4 + ["done"]
    assert session.info().head == head
    session.append("after")
    assert [message.text for message in session.transcript()] == ["before", "after"]


def test_the_files_of_a_store_are_their_owners_alone(path: Path) -> None:
    """K5: 0600, side files too, whatever the umask says."""
    before = os.umask(0)
    try:
        with holdfast.open(path) as store:
            store.session("k").append("secret")
            files = sorted(path.parent.iterdir())
            assert {file.name for file in files} >= {"agent.db", "agent.db-wal", "agent.db-lock"}
            assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in files} == {
                file.name: 0o600 for file in files
            }
    finally:
        os.umask(before)


def test_a_store_can_be_used_from_several_threads_and_closed_twice(store: Store) -> None:
    session = store.session("k")
    threads = [threading.Thread(target=session.append, args=(f"m{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(message.text for message in session.transcript()) == sorted(
        f"m{n}" for n in range(20)
    )
    store.close()
    store.close()
    for use in (lambda: session.append("x"), session.context, lambda: store.session("k")):
        with pytest.raises(StoreUnavailable, match="closed"):
            use()
