"""The soak: random worlds, each from its seed, on disk and in the reference engine at once, and
whether all holds.

    python -m holdfast.testing.soak --seed 7 --minutes 10

A world is a store with several handles on it. Step by step, callers do whatever callers do
(`turns`, `sessions`, `lists`) and things befall them (`faults`):
clocks step forward and back, leases run out, handles fall asleep, are closed or left behind, calls
are overtaken in the middle. Beside them processes work on the same file and are killed
(`killed_clients`).
Four judges look on:

    differential   the same steps on the reference engine come to the same, answer by answer and entry by entry
    acknowledged   what callers were told is there, once and in order; what was handed on is a prefix of what is stored
    invariants     every invariant holds in the store, whatever was done to it
    readers        who follows a session from one cursor to the next hears everything once

One seed, one world: a run that breaks says its seed and its step, and that seed with so many steps
breaks again. The kills are excepted, as nobody knows where a process is when it is killed; they
touch nothing of the rest.
"""

import argparse
import contextlib
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.runtime.clock import RealWorld
from holdfast.testing.soak import faults as fate
from holdfast.testing.soak import lists, sessions, turns
from holdfast.testing.soak.differential import Broken, Wraps
from holdfast.testing.soak.killed_clients import KilledClients
from holdfast.testing.soak.world import Desk, SoakWorld

STEPS = 500
"""How long a world lives, unless somebody says otherwise: long enough for trouble, short enough to
look into.
"""
# To compare is cheap; to judge reads the whole store, context by context.
COMPARED_EVERY = 5
JUDGED_EVERY = 100
FLIES = 0.3
KILLED = 0.04
"""How often a call that is under way gets further instead of something new, and how often a client
is sent that will be killed.
"""
# From none, a death at birth, to some turns.
ACTS_MAX = 40
SAID_EVERY_S = 5.0

Act = Callable[[SoakWorld, Desk], bool]

ACTS: dict[Act, int] = {
    turns.begin: 12,
    turns.say: 6,
    turns.add: 4,
    turns.speak: 20,
    turns.use_a_tool: 6,
    turns.answer_a_call: 6,
    turns.take_from_the_inbox: 3,
    turns.retract: 1,
    turns.look: 3,
    turns.leave: 8,
    turns.forget: 1,
    sessions.open_a_session: 8,
    sessions.accept: 8,
    sessions.append: 4,
    sessions.instruct: 1,
    sessions.label: 3,
    sessions.decide: 2,
    sessions.compact: 3,
    sessions.rewind: 2,
    sessions.fork: 2,
    sessions.stop: 2,
    sessions.end: 1,
    sessions.reset: 1,
    sessions.post: 4,
    sessions.look_at_a_session: 3,
    sessions.look_around: 2,
    sessions.erase: 1,
    lists.record: 5,
    lists.follow: 8,
    fate.pass_time: 6,
    fate.step_the_clock: 3,
    fate.keep: 8,
    fate.fall_asleep: 2,
    fate.wake_up: 4,
    fate.restart: 1,
    fate.vanish: 1,
}
"""Everything that can happen, and how often it does."""


class SoakReport(msgspec.Struct):
    """What a soak saw. `broken` has a sentence for everything that did not hold, and how to see it
    again. `trace` is a digest of what came of every step, `logs` of what lay on disk in the end; a
    replay has the same.
    """

    seed: int
    worlds: int = 0
    steps: Counter[str] = msgspec.field(default_factory=Counter)
    refusals: Counter[str] = msgspec.field(default_factory=Counter)
    acknowledged: int = 0
    kills: int = 0
    trace: str = ""
    logs: str = ""
    broken: list[str] = []

    @property
    def taken(self) -> int:
        return sum(self.steps.values())

    def add(self, other: "SoakReport") -> None:
        """Another world's report, after this one's."""
        self.worlds += other.worlds
        self.steps += other.steps
        self.refusals += other.refusals
        self.acknowledged += other.acknowledged
        self.kills += other.kills
        self.trace = other.trace
        self.logs = other.logs
        self.broken += other.broken


def soak(
    seed: int,
    *,
    steps: int = STEPS,
    kills: bool = True,
    wraps: Wraps = (None, None),
    say: Callable[[SoakReport], None] = lambda report: None,
) -> SoakReport:
    """One world from its first step to its last, or to the one that breaks it. `wraps` are put
    around the engines on disk and in the reference, `say` is called after every step.
    """
    report = SoakReport(seed, worlds=1)
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        place = str(Path(folder) / "soak.db")
        with contextlib.ExitStack() as ending:
            clients = KilledClients(place, seed)
            if kills:
                ending.enter_context(clients)
            # After the clients: it ends before they do, and they use its file to the last.
            world = SoakWorld(place, seed, wraps)
            ending.callback(_end, world)
            try:
                _live(world, clients if kills else None, steps, report, say)
                report.trace = world.trace
                report.logs = world.logs
            except Exception as error:
                # Any exception: the soak's own errors name their seed and step, too.
                report.broken += _failure(seed, report.taken, error)
            report.refusals += world.refusals
            report.acknowledged += world.acknowledged.count
            report.kills = clients.kills
    return report


def _end(world: SoakWorld) -> None:
    # Of a broken world nothing can be said any more.
    with contextlib.suppress(Exception):
        world.end()


def _live(
    world: SoakWorld,
    clients: KilledClients | None,
    steps: int,
    report: SoakReport,
    say: Callable[[SoakReport], None],
) -> None:
    for number in range(1, steps + 1):
        _step(world, report)
        # Drawn whether anybody is killed or not: one seed is one world either way.
        sends = world.dice.happens(KILLED)
        acts_max = world.dice.below(ACTS_MAX)
        if clients is not None and sends:
            clients.send(acts_max)
        if number % COMPARED_EVERY == 0:
            world.compare()
        if number % JUDGED_EVERY == 0 or number == steps:
            world.judge()
            broken = clients.judge() if clients is not None else []
            if broken:
                raise Broken("\n".join(broken))
        say(report)


def _step(world: SoakWorld, report: SoakReport) -> None:
    """Something happens at a desk that is awake: a call that is under way gets further,
    or an act.
    """
    # One for all tries of this step: what can't be done here is drawn again.
    desk = world.dice.pick([desk for desk in world.desks if not desk.asleep])
    while True:
        if desk.flights and world.dice.happens(FLIES):
            report.steps["go_on"] += 1
            world.fly(desk)
            return
        act = world.dice.weighted(ACTS)
        report.steps[act.__name__] += 1
        if act(world, desk):
            return
        report.steps[act.__name__] -= 1  # there was nothing to do it with


def _failure(seed: int, step: int, error: Exception) -> list[str]:
    """What broke a world, and how to see it again."""
    what = str(error)
    if not isinstance(error, Broken):
        what = "".join(traceback.format_exception(error))
    again = f"python -m holdfast.testing.soak --seed {seed} --steps {step}"
    return [f"seed {seed}, step {step}: {what}\nto see it again: {again}"]


def soak_for(
    seed: int,
    minutes: float,
    *,
    steps: int,
    say: Callable[[SoakReport], None],
    tick: Callable[[], float],
) -> SoakReport:
    """World after world, from this seed on, until so long has passed or one breaks."""
    until = tick() + 60 * minutes
    report = SoakReport(seed)

    def say_totals(now: SoakReport) -> None:
        whole = SoakReport(now.seed)
        whole.add(report)
        whole.add(now)
        say(whole)

    # At least one world, however short the time.
    while not report.broken and (report.worlds == 0 or tick() < until):
        report.add(soak(seed + report.worlds, steps=steps, say=say_totals))
    return report


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "holdfast.testing.soak",
        description="Random worlds against the reference engine.",
    )
    option = parser.add_argument
    seed_help = "the seed of the first world; the next has the next"
    option("--seed", type=int, default=0, help=seed_help)
    minutes_help = "go on with more worlds for so long (one world)"
    option("--minutes", type=float, default=0.0, help=minutes_help)
    steps_help = f"how many steps a world lives ({STEPS})"
    option("--steps", type=int, default=STEPS, help=steps_help)
    option("--json", action="store_true", help="the report as JSON")
    asked = parser.parse_args(arguments)
    report = soak_for(
        asked.seed,
        asked.minutes,
        steps=asked.steps,
        say=_ProgressLine(),
        tick=RealWorld().tick,
    )
    print(msgspec.json.encode(report).decode() if asked.json else _table(report))
    return 1 if report.broken else 0


class _ProgressLine:
    """A line every few seconds, for people."""

    def __init__(self) -> None:
        self._tick = RealWorld().tick
        self._next = self._tick() + SAID_EVERY_S

    def __call__(self, report: SoakReport) -> None:
        if self._tick() >= self._next:
            self._next = self._tick() + SAID_EVERY_S
            refusals = sum(report.refusals.values())
            line = (
                f"seed {report.seed}: {report.worlds} worlds, {report.taken} steps, "
                f"{report.kills} kills, {refusals} refusals, nothing broken"
            )
            print(line, file=sys.stderr, flush=True)


def _table(report: SoakReport) -> str:
    """The whole run: what happened how often, and what did not hold."""
    clocks = report.steps["pass_time"] + report.steps["step_the_clock"]
    rows: list[tuple[str, int | str]] = [
        ("worlds", report.worlds),
        ("steps", report.taken),
        ("acknowledged", report.acknowledged),
        ("kills", report.kills),
        ("clock steps", clocks),
        ("restarts", report.steps["restart"]),
        ("", ""),
        *report.steps.most_common(),
        ("", ""),
    ]
    for name, times in report.refusals.most_common():
        rows.append((f"refused: {name}", times))
    lines = [f"{name:<28}{times:>10}".rstrip() for name, times in rows]
    return "\n".join([*lines, "", *(report.broken or ["nothing broken"])])


if __name__ == "__main__":
    sys.exit(main())
