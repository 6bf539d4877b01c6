"""The power fails: before and after every sync point, with what was not synced dropped or torn
(FAULTS G1, G2, G5).

A whole life is written down on a tape, and from the tape the files are computed as they would be
found after a cut; then a new engine opens them. An ordinary run looks at every
fifth cut; `HOLDFAST_EXPLORE=1` at all of them, each torn in eight ways.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import holdfast
from aftermath import FORMATS, Later, fresh, unsound, wrong
from holdfast import Store
from holdfast.engine.sqlite import engine as sqlite_engine
from holdfast.testing.faults.disk import Faults
from holdfast.testing.faults.power_cut import Cut, Disk, DiskEvent, How, Tape
from holdfast.testing.faults.scripted_workload import ScriptedWorkload, go_on
from holdfast.testing.oracle import Acknowledged, judge
from thorough import EXPLORE

SEEDS = range(1, 9) if EXPLORE else range(1, 2)
STEP = 1 if EXPLORE else 5
Logs = dict[str, list[tuple[int, str, bytes]]]


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """No real sync: the tape knows what each would have done, and those who look afterwards need
    none.
    """
    with Faults():
        yield


def lived(place: Path, **options: Any) -> tuple[Tape, ScriptedWorkload]:
    """A life on the tape."""
    life = ScriptedWorkload(large_bytes=40_000)
    with Tape(moment=lambda: len(life.acts), only=lambda path: "-search" not in path) as tape:
        life.live(place, **options)
    assert life.troubles == []
    return tape, life


def logs(store: Store) -> Logs:
    """What is in the log of each session, read without settling anything."""
    engine = store._work.engine
    return {
        state.id: [
            (entry.seq, entry.kind, entry.id) for entry in engine.entries(state.id, limit=100_000)
        ]
        for state in engine.find(store.tenant, "", 100_000)
    }


def strays(store: Store, whole: Logs) -> list[str]:
    """Sessions here whose log is not a beginning of the whole one."""
    found = logs(store)
    return [
        f"{id} has what was never written (I-1)"
        for id in found
        if found[id] != whole.get(id, [])[: len(found[id])]
    ]


def laid(tmp_path: Path, cuts: Iterator[Cut], step: int = STEP) -> Iterator[tuple[Cut, Path]]:
    """Each cut, and the store as it is found after it; in an ordinary run every fifth one, which is
    one at least of those before and after a sync point. The fair lock's file may hold anything.
    """
    for cut in islice(cuts, 0, None, step):
        folder = fresh(tmp_path / "cut")
        cut.lay(folder)
        if cut.how == "torn":
            (folder / "agent.db-lock").write_bytes(b"\0" * 7)
        yield cut, folder / "agent.db"


@pytest.fixture
def short_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is often brought into the database and started anew."""
    monkeypatch.setattr(sqlite_engine, "WAL_PAGES_MAX", 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_survives_a_power_cut_at_every_sync_point(
    tmp_path: Path, short_wal: None, seed: int
) -> None:
    """I-3, I-1, I-5, I-6, I-21: durability="power"; nothing is lost, nothing is damaged, what was
    erased stays erased, and the store goes on.
    """
    tape, life = lived(fresh(tmp_path / "life") / "agent.db")
    with holdfast.open(tmp_path / "life" / "agent.db") as store:
        whole = logs(store)
    count = 0
    for cut, place in laid(tmp_path, tape.cuts(seed=seed)):
        count += 1
        if count % 5 == 0:
            with holdfast.open(place, durability="process", world=Later()) as store:
                assert strays(store, whole) == [], str(cut)
        assert (
            wrong(place, life.acts[: cut.acts], life, world=Later(), again=count % 5 == 1) == []
        ), str(cut)
    assert count > (150 if EXPLORE else 30)


@pytest.mark.slow
def test_a_log_that_grows_long_survives_a_power_cut_as_well(tmp_path: Path) -> None:
    """I-3: the same life, without a checkpoint until the store is closed."""
    tape, life = lived(fresh(tmp_path / "life") / "agent.db")
    for cut, place in laid(
        tmp_path, tape.cuts(seed=2, ways=["torn", "dropped", "kept"] if EXPLORE else ["torn"])
    ):
        assert wrong(place, life.acts[: cut.acts], life, world=Later()) == [], str(cut)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_with_durability_process_a_power_cut_leaves_a_beginning(
    tmp_path: Path, short_wal: None, seed: int
) -> None:
    """I-1, I-3: the last of what was acknowledged may be gone; what is there is consistent, and the
    store goes on.
    """
    tape, life = lived(fresh(tmp_path / "life") / "agent.db", durability="process")
    with holdfast.open(tmp_path / "life" / "agent.db") as store:
        whole = logs(store)
    lost = 0
    for cut, place in laid(tmp_path, tape.cuts(seed=seed, every_act=True)):
        with holdfast.open(place, durability="process", world=Later()) as store:
            assert strays(store, whole) == [], str(cut)  # before the judge settles a turn
            found = judge(store, Acknowledged(life.acts[: cut.acts]), formats=FORMATS)
            missing = [sentence for sentence in found if sentence.startswith("acknowledged")]
            assert found == missing, str(cut)
            lost += missing != []
            go_on(store, "The next one")
        assert unsound(place) == []
    assert lost > 0, "a store that does not sync can be told from one that does"


@pytest.mark.slow
def test_the_making_of_a_store_can_be_cut_anywhere(tmp_path: Path) -> None:
    """G1, G9: torn in many ways; the next one makes the store, or goes on with it."""
    with Tape() as tape:
        with holdfast.open(fresh(tmp_path / "life") / "agent.db") as store:
            store.session("k")
    tried = 0
    for seed in range(8):
        for cut, place in laid(tmp_path, tape.cuts(seed=seed, ways=["torn"])):
            tried += 1
            with holdfast.open(place, durability="process") as store:
                store.session("k").append(str(cut))
    assert tried > (100 if EXPLORE else 20)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [40, 90, 140] if not EXPLORE else range(10, 200, 10))
def test_the_power_can_fail_again_while_a_store_recovers(tmp_path: Path, nth: int) -> None:
    """I-3: the first opening after a cut is cut itself, at each of its sync points."""
    tape, life = lived(fresh(tmp_path / "life") / "agent.db")
    first = list(tape.cuts(seed=nth, ways=["torn"]))[nth // 2]
    place = fresh(tmp_path / "first") / "agent.db"
    first.lay(place.parent)
    with Tape(only=lambda path: "-search" not in path) as second:
        with holdfast.open(place, world=Later()) as store:
            assert judge(store) == []
            go_on(store, "The first one")
    for cut, again in laid(tmp_path, second.cuts(seed=nth)):
        assert wrong(again, life.acts[: first.acts], life, world=Later(days=2)) == [], (
            f"{first}, then {cut}"
        )


# The judges can fail
# ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_store_that_acknowledges_before_it_syncs_is_found_out(tmp_path: Path) -> None:
    """G5: the life of durability="process", judged as if it had promised more."""
    tape, life = lived(fresh(tmp_path / "life") / "agent.db", durability="process")
    losses = 0
    for cut, place in laid(tmp_path, tape.cuts(every_act=True, ways=["dropped"]), step=1):
        with holdfast.open(place, durability="process", world=Later()) as store:
            losses += any(
                "acknowledged" in loss
                for loss in judge(store, Acknowledged(life.acts[: cut.acts]), formats=())
            )
        if losses > 10:
            return
    pytest.fail("too little was lost")


@pytest.mark.slow
def test_a_disk_that_lies_about_its_syncs_is_found_out(tmp_path: Path) -> None:
    """G2: without the syncs that SQLite asked for, acknowledged words are lost and torn files are
    damaged ones.
    """
    tape, life = lived(fresh(tmp_path / "life") / "agent.db")
    # The store is made on an honest disk, so that there is something to lose.
    begun = next(number for number, event in enumerate(tape.events) if event.acts)
    tape.events = [e for n, e in enumerate(tape.events) if n < begun or e.verb != "sync"]
    found = 0
    for cut, place in laid(tmp_path, tape.cuts(ways=["torn"], every_act=True), step=1):
        try:
            found += wrong(place, life.acts[: cut.acts], life, world=Later()) != []
        except holdfast.HoldfastError:
            found += 1
        if found > 10:
            return
    pytest.fail("too little was found")


# The tape and the disk
# ----------------------------------------------------------------------------------------------


def test_a_tape_played_to_its_end_gives_the_files_as_they_are(tmp_path: Path) -> None:
    """The tape leaves nothing out: all of it kept is byte for byte what lies on the real disk."""
    folder = fresh(tmp_path / "life")
    tape, _ = lived(folder / "agent.db")
    disk = Disk()
    for event in tape.events:
        disk.take(event)
    real = {
        str(path): path.read_bytes()
        for path in folder.iterdir()
        if path.name in ("agent.db", "agent.db-wal")
    }
    assert disk.left("kept", "") == real


def left(events: Sequence[DiskEvent], how: How = "dropped", seed: str = "") -> dict[str, bytes]:
    disk = Disk()
    for event in events:
        disk.take(event)
    return disk.left(how, seed)


MADE = DiskEvent("make", "a", 1, 0, folder=True)


def written(data: bytes, offset: int = 0) -> DiskEvent:
    return DiskEvent("write", "a", 1, 0, offset=offset, data=data)


SYNC = DiskEvent("sync", "a", 1, 0)


def test_what_was_not_synced_is_dropped_and_what_was_is_kept() -> None:
    events = [MADE, written(b"one"), SYNC, written(b"two", 3)]
    assert left(events) == {"a": b"one"}
    assert left([*events, SYNC]) == {"a": b"onetwo"}
    assert left(events, "kept") == {"a": b"onetwo"}


def test_a_length_that_was_not_synced_comes_back() -> None:
    events = [MADE, written(b"secret"), SYNC, DiskEvent("truncate", "a", 1, 0, offset=0)]
    assert left(events) == {"a": b"secret"}
    assert left([*events, SYNC]) == {"a": b""}


def test_a_name_is_there_once_its_folder_was_synced() -> None:
    made = DiskEvent("make", "a", 1, 0)
    assert left([made, written(b"one"), SYNC]) == {}, "the file is synced, its name is not"
    assert left([made, written(b"one"), DiskEvent("sync", "a", 1, 0, folder=True)]) == {"a": b"one"}
    gone = DiskEvent("delete", "a", 1, 0)
    assert left([MADE, written(b"one"), SYNC, gone]) == {"a": b"one"}
    assert left([MADE, written(b"one"), SYNC, gone._replace(folder=True)]) == {}


def test_another_file_of_the_same_name_is_another_file() -> None:
    again = DiskEvent("make", "a", 2, 0)
    events = [
        MADE,
        written(b"old"),
        SYNC,
        DiskEvent("delete", "a", 1, 0),
        again,
        DiskEvent("write", "a", 2, 0, data=b"new"),
    ]
    assert left(events) == {"a": b"old"}
    assert left(events, "kept") == {"a": b"new"}
    assert {
        content for seed in "abcdefghij" for content in left(events, "torn", seed).values()
    } >= {b"old"}


def test_a_torn_write_keeps_whole_sectors_only_and_the_same_ones_for_the_same_seed() -> None:
    old, new = b"o" * 4096, b"n" * 4096
    events = [MADE, written(old), SYNC, written(new)]
    seen = set()
    for seed in range(20):
        content = left(events, "torn", str(seed))["a"]
        assert content == left(events, "torn", str(seed))["a"]
        sectors = [content[at : at + 512] for at in range(0, 4096, 512)]
        assert set(sectors) <= {b"o" * 512, b"n" * 512} and len(content) == 4096
        seen.add(content)
    assert len(seen) > 15


def test_a_torn_file_may_have_grown_without_its_bytes() -> None:
    """G2: zeros where the bytes should be."""
    found = {left([MADE, written(b"x" * 1024)], "torn", str(seed))["a"] for seed in range(40)}
    assert bytes(1024) in found and b"" in found
