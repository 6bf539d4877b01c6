"""What befalls the callers of a soak: clocks, keepers, sleep, restarts, and being left behind."""

from holdfast.testing.soak.world import Desk, SoakWorld

HOUR_MS = 3_600_000


def pass_time(stage: SoakWorld, desk: Desk) -> bool:
    """A moment, or longer than any lease."""
    seconds = stage.dice.pick([0.001, 0.5, 2.0, 6.0, 40.0, 400.0, 8 * 3600.0])
    stage.twins.move_worlds(lambda world: world.pass_time(seconds))
    return True


def step_the_clock(stage: SoakWorld, desk: Desk) -> bool:
    """Somebody sets the wall clock; no order may depend on it (FAULTS B8)."""
    by = (stage.dice.below(2 * HOUR_MS) - HOUR_MS) * stage.dice.pick([1, 1, 24])
    stage.twins.move_worlds(lambda world: world.step_clock(by))
    return True


def keep(stage: SoakWorld, desk: Desk) -> bool:
    """The keeper of this desk makes its round: forgotten turns are found, leases renewed."""
    for store in desk.stores:
        store._work.keeper.round()
    stage.calm(desk)
    return True


def fall_asleep(stage: SoakWorld, desk: Desk) -> bool:
    """This desk stands still with all it has in hand, and its leases run."""
    if sum(not other.asleep for other in stage.desks) < 2:
        return False
    desk.asleep = True
    return True


def wake_up(stage: SoakWorld, desk: Desk) -> bool:
    """A desk goes on where it stood, and finds out what was done without it (I-7)."""
    sleepers = [other for other in stage.desks if other.asleep]
    if not sleepers:
        return False
    stage.dice.pick(sleepers).asleep = False
    return True


def restart(stage: SoakWorld, desk: Desk) -> bool:
    """This desk is closed and opened again; its turns end."""
    stage.close(desk)
    stage.replace(desk)
    return True


def vanish(stage: SoakWorld, desk: Desk) -> bool:
    """This desk is never heard of again, wherever its calls had got to; another takes its place."""
    stage.leave_behind(desk)
    stage.replace(desk)
    return True
