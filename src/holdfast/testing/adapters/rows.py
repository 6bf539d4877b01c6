"""The faults: one function each, which plays it in a `RowSetup` and judges what was left."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.adapters.process import PlayerProcess
from holdfast.testing.adapters.provider import ScriptedAnswer
from holdfast.testing.adapters.row_setup import RowSetup, marks, pieces, shown_of
from holdfast.testing.adapters.verdict import Outcome, misfits, verdict

TURNS = 4
"""How many turns each of two processes has."""

CRASHES = 5
"""At how many places of a compaction the process is killed."""


def kill_in_the_stream(setup: RowSetup) -> Outcome:
    """kill -9 after half of the answer was shown."""
    return _killed_after(setup, 2)


def kill_after_the_text(setup: RowSetup) -> Outcome:
    """kill -9 after all of its text was shown, before the stream has ended."""
    return _killed_after(setup, 4)


def _killed_after(setup: RowSetup, count: int) -> Outcome:
    setup.turns(1)
    setup.scripted(2, stalls_after=count)
    process = setup.start(2)
    process.wait_for(lambda one: len(shown_of(one, pieces(2))) == count)
    # Killed before the provider goes on: the rest of the answer can't reach it any
    # more.
    process.kill()
    setup.provider.go_on.set()
    return _after_a_cut(setup, process)


def cancel_in_the_stream(setup: RowSetup) -> Outcome:
    """The user cancels after half of the answer was shown."""
    setup.turns(1)
    setup.scripted(2, stalls_after=2)
    process = setup.start(2, cancel_after=2)
    process.wait_for(lambda one: any("cancelled" in fact for fact in one.facts))
    setup.provider.go_on.set()
    process.end()
    return _after_a_cut(setup, process)


def _after_a_cut(setup: RowSetup, process: PlayerProcess) -> Outcome:
    shown = shown_of(process, pieces(2))
    asked = setup.next_request(3)
    expected = [*marks(1), "ask-02", *shown, "ask-03"]
    return verdict(asked, expected=expected, shown=shown)


def kill_in_a_tool(setup: RowSetup) -> Outcome:
    """kill -9 while a tool runs: between its call and its result."""
    setup.turns(1)
    calls = [("water", {"row": 7})]
    setup.provider.answer(
        "ask-02", ScriptedAnswer(pieces(2, 2), calls), ScriptedAnswer(pieces(2)[2:])
    )
    process = setup.start(2, hold_tool=True)
    process.wait_for(lambda one: one.tools > 0)
    process.kill()
    shown = shown_of(process, pieces(2))
    asked = setup.next_request(3)
    # The call is part of what happened: the model must not water row seven again unasked.
    expected = [*marks(1), "ask-02", *shown, "water", "ask-03"]
    return verdict(asked, expected=expected, shown=shown)


def ask_again(setup: RowSetup) -> Outcome:
    """The same request twice: its acknowledgement was lost, so its sender sends it again."""
    setup.turns(1)
    process = setup.turns(2, request_ids=("request-2",))
    setup.turns(2, request_ids=("request-2",))
    expected = [*marks(1), *marks(2), "ask-03"]
    shown = shown_of(process, pieces(2))
    return verdict(setup.next_request(3), expected=expected, shown=shown)


def two_processes(setup: RowSetup) -> Outcome:
    """Two processes have turns in one session at the same time."""
    setup.turns(1)
    ours, theirs = range(10, 10 + TURNS), range(20, 20 + TURNS)
    setup.scripted(*ours, *theirs)
    first, second = setup.start(*ours), setup.start(*theirs)
    first.end()
    second.end()
    asked = setup.next_request(3)
    wrong, whole = list(asked.problems), 0
    for number in (*ours, *theirs):
        problems = misfits(asked.words, marks(number))
        if not problems and not _is_whole(asked.words, number, (*ours, *theirs)):
            problems = [f"the turn of ask-{number} is not in one piece"]
        wrong += problems
        whole += not problems
    acknowledged = len(first.done) + len(second.done)
    told = f"{acknowledged} turns", f"{whole} whole"
    return Outcome(*told, not asked.problems, tuple(wrong))


def _is_whole(words: str, number: int, others: tuple[int, ...]) -> bool:
    """Whether no prompt of another turn stands between this one's prompt and its last piece."""
    begin, end = words.find(marks(number)[0]), words.find(marks(number)[-1])
    between = words[begin:end]
    for other in others:
        if other != number and marks(other)[0] in between:
            return False
    return True


def crash_in_compaction(setup: RowSetup) -> Outcome:
    """kill -9 at several places of a compaction, each in a copy of the same store."""
    if "compact" not in setup.by.abilities:
        return _crashes(setup, "clear")
    return _crashes(setup, "compact")


def _crashes(setup: RowSetup, action: str) -> Outcome:
    # A store that is a folder can be copied and put back. A database at an address
    # can't.
    if action not in setup.by.abilities or setup.by.where is not None:
        return Outcome(played=False)
    setup.turns(1, 2, 4)
    whole = [*marks(1), *marks(2), *marks(4)]
    summary = "sum-01: three turns about rows."
    saved = setup.folder.with_name(setup.folder.name + "-saved")
    shutil.copytree(setup.folder, saved)
    try:
        clean = _crashed(setup, saved, action, summary, None)
        lines = clean.facts[-1]["lines"]
        wrong: list[str] = []
        for number in range(CRASHES):
            # In the middle of each of so many equal parts of the run.
            place = 1 + lines * (2 * number + 1) // (2 * CRASHES)
            _crashed(setup, saved, action, summary, place)
            setup.provider.asked.clear()
            asked = setup.next_request(3)
            wrong += [f"killed at line {place}: {each}" for each in asked.problems]
            lost = [mark for mark in whole if mark not in asked.words]
            # Clearing may have come to its end before the kill: then all is gone, as it
            # was meant.
            is_done = action == "clear" and len(lost) == len(whole)
            if lost and "sum-01" not in asked.words and not is_done:
                wrong.append(
                    f"killed at line {place} of {lines}: {len(lost)} of {len(whole)} marks are lost"
                )
        told = f"{CRASHES} crashes", f"{CRASHES - len(wrong)} whole"
        return Outcome(*told, not asked.problems, tuple(wrong))
    finally:
        shutil.rmtree(saved, ignore_errors=True)


def _crashed(
    setup: RowSetup, saved: Path, action: str, summary: str, place: int | None
) -> PlayerProcess:
    """Runs an action in a fresh copy of the store, and kills it at a line of its code."""
    shutil.rmtree(setup.folder)
    shutil.copytree(saved, setup.folder)
    process = setup.start(action=action, summary=summary, crash_at=place)
    if place is not None:
        process.end_killed()
    elif code := process.end():
        raise RuntimeError(f"{action} ended with {code}: {process.errors()}")
    return process


def stale_after_reset(setup: RowSetup) -> Outcome:
    """A turn that was running when its session was begun anew goes on with its old handle."""
    if "clear" not in setup.by.abilities:
        return Outcome(played=False)
    setup.turns(1)
    setup.scripted(2, stalls_after=2)
    stale = setup.start(2)
    stale.wait_for(lambda one: len(shown_of(one, pieces(2))) == 2)
    setup.start(action="clear").end()
    # Under the new session, while the old turn still stands in its stream.
    setup.turns(4)
    setup.provider.go_on.set()
    stale.end()
    asked = setup.next_request(3)
    forbidden = [*marks(1), *marks(2)]
    return verdict(asked, expected=[*marks(4), "ask-03"], forbidden=forbidden)


def damaged_tail(setup: RowSetup) -> Outcome:
    """The last record of the session can't be read any more."""
    setup.turns(1, 2)
    if setup.by.on == "own":
        if "spoil" not in setup.by.abilities:
            return Outcome(played=False)
        setup.start(action="spoil").end()
        gone = "".join(pieces(2))
    else:
        gone = spoil_last_message(setup.task.where)
    asked = setup.next_request(3)
    expected = []
    for mark in [*marks(1), *marks(2), "ask-03"]:
        if mark not in gone:
            expected.append(mark)
    return verdict(asked, expected=expected)


@dataclass(frozen=True)
class FaultRow:
    """A fault and its name in the matrix."""

    name: str
    play: Callable[[RowSetup], Outcome]


ROWS = (
    FaultRow("kill -9 in the stream", kill_in_the_stream),
    FaultRow("kill -9 after the whole text", kill_after_the_text),
    FaultRow("cancelled in the stream", cancel_in_the_stream),
    FaultRow("kill -9 in a tool", kill_in_a_tool),
    FaultRow("the same request twice", ask_again),
    FaultRow("two processes, one session", two_processes),
    FaultRow("kill -9 in a compaction", crash_in_compaction),
    FaultRow("stale handle after a reset", stale_after_reset),
    FaultRow("damaged tail", damaged_tail),
)
