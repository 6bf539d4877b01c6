"""The soak: random worlds hold, one seed is one world, and what is planted is found.

An ordinary run lives in a few worlds, in tests that can be run side by side; with
`HOLDFAST_SWEEP=1` there are twenty times as many, and `./dev soak` goes on for as long as somebody
likes.
"""

import itertools
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.engine.protocol import ChunkWrite, Commit, Engine, Write
from holdfast.testing.soak.run import main, soak, soak_for
from thorough import SWEEP, few_cases, sample

WORLDS = 10 if SWEEP else 1
"""In each test of this many worlds in a row."""

STEPS = 600 if SWEEP else 300
"""In a world."""

Spoil = Callable[[Write], Write]


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("first", range(0, 80, 10 if SWEEP else 40))
def test_random_worlds_hold(first: int) -> None:
    """All invariants, on disk as in the reference engine, whatever is done to a store."""
    for seed in range(first, first + WORLDS):
        report = soak(seed, steps=STEPS)
        assert report.broken == []
        assert report.kills and report.acknowledged and report.refusals


@pytest.mark.slow
def test_one_seed_is_one_world() -> None:
    """The same steps, the same answers, the same logs, though the processes beside them die
    elsewhere.
    """
    one, again, other = (soak(seed, steps=100) for seed in (3, 3, 4))
    assert (one.trace, one.logs, one.steps, one.refusals) == (
        again.trace,
        again.logs,
        again.steps,
        again.refusals,
    )
    assert one.trace != other.trace and one.logs != other.logs


@pytest.mark.slow
def test_another_process_comes_to_the_same_world() -> None:
    """Nothing depends on where objects lie or how hashes fall."""
    told = []
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [
            sys.executable,
            "-m",
            "holdfast.testing.soak",
            "--seed",
            "3",
            "--steps",
            "100",
            "--json",
        ]
        told.append(
            json.loads(
                subprocess.run(command, env=environment, capture_output=True, check=True).stdout
            )
        )
    one, two = (
        {name: report[name] for name in ("trace", "logs", "steps", "refusals")} for report in told
    )
    assert one == two
    here = soak(3, steps=100, kills=False)
    assert (here.trace, here.logs) == (one["trace"], one["logs"])


# A soak that is blind proves nothing.
# -------------------------------------------------------------------------------


class Planted:
    """An engine with a defect: of the writes that can be spoilt some are, the same in every engine,
    and they are acknowledged all the same.
    """

    def __init__(self, engine: Engine, spoil: Spoil) -> None:
        self._engine, self._spoil = engine, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, commit: Commit) -> Any:
        return self._engine.submit(tuple(self._spoilt(write) for write in commit))

    def _spoilt(self, write: Write) -> Write:
        return self._spoil(write) if zlib.crc32(repr(write).encode()) % 3 == 0 else write


def says_something(write: Write) -> bool:
    """A message alone, of which nothing else in the write speaks."""
    return (
        [draft.kind for draft in write.drafts] == ["message"]
        and not write.admits
        and write.event is None
    )


def lose_a_message(write: Write) -> Write:
    return replace(write, drafts=()) if says_something(write) else write


def double_a_message(write: Write) -> Write:
    twin = [replace(draft, id=draft.id[::-1]) for draft in write.drafts]
    return replace(write, drafts=(*write.drafts, *twin)) if says_something(write) else write


def lose_a_chunk(write: Write) -> Write:
    if isinstance(write, ChunkWrite):
        return Write(write.session, fence=write.fence)
    return replace(write, chunk=None)


def lose_a_label(write: Write) -> Write:
    return (
        replace(write, drafts=()) if [draft.kind for draft in write.drafts] == ["label"] else write
    )


def lose_a_reply(write: Write) -> Write:
    return replace(write, owes=())


def forget_an_event(write: Write) -> Write:
    return replace(write, event=None)


def let_anybody_write(write: Write) -> Write:
    return (
        replace(write, fence=None)
        if write.drafts and not write.finish and not write.seize
        else write
    )


def take_and_leave_it_waiting(write: Write) -> Write:
    return replace(write, takes=())


SPOILS = [
    lose_a_message,
    double_a_message,
    lose_a_chunk,
    lose_a_label,
    lose_a_reply,
    forget_an_event,
    let_anybody_write,
    take_and_leave_it_waiting,
]


def found(*wraps: Callable[[Engine], Engine] | None) -> str:
    """What the first broken world of a few says."""
    for seed in range(6):
        report = soak(seed, steps=200, kills=False, wraps=wraps)  # type: ignore[arg-type]
        if report.broken:
            return report.broken[0]
    return ""


def planted(spoil: Spoil) -> Callable[[Engine], Any]:
    return lambda engine: Planted(engine, spoil)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", sample(SPOILS, every=3), ids=lambda spoil: spoil.__name__)
def test_a_defect_of_the_engine_on_disk_is_found(spoil: Spoil) -> None:
    """The reference engine does not have it."""
    assert found(planted(spoil), None)


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_defect_that_both_sides_have_is_found(spoil: Spoil) -> None:
    """As one of the runtime would be: what callers were told and what must always hold give it
    away.
    """
    assert "(I-" in found(planted(spoil), planted(spoil))


def test_what_breaks_a_world_breaks_it_again() -> None:
    """At the same step, with the same words."""
    wraps = (planted(lose_a_message), None)
    [told] = soak(1, kills=False, wraps=wraps).broken
    step = int(told.partition("step ")[2].partition(":")[0])
    assert f"--seed 1 --steps {step}" in told
    assert soak(1, steps=step, kills=False, wraps=wraps).broken == [told]


# The command
# --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_tells_what_it_saw(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--steps", "60"]) == 0
    table = capsys.readouterr().out
    assert "steps                               60" in table and table.endswith("nothing broken\n")


def test_the_command_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--steps", "20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seed"] == 2 and report["broken"] == [] and sum(report["steps"].values()) == 20


def test_it_goes_on_with_the_next_seed_for_as_long_as_it_was_told() -> None:
    minutes = itertools.count()
    report = soak_for(5, 3, steps=10, tick=lambda: 60.0 * next(minutes), say=lambda report: None)
    assert report.worlds == 3 and report.taken == 30
    assert report.trace == soak(7, steps=10, kills=False).trace
