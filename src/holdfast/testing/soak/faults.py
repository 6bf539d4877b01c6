"""What befalls the callers of a soak: clocks, keepers, sleep, restarts, and being left behind."""

from holdfast.testing.soak.world import Desk, SoakWorld

HOUR_MS = 3_600_000


def pass_time(world: SoakWorld, desk: Desk) -> bool:
    """A moment, or longer than any lease."""
    seconds = world.dice.pick([0.001, 0.5, 2.0, 6.0, 40.0, 400.0, 8 * 3600.0])
    for clocks in world.sides.worlds:
        clocks.pass_time(seconds)
    return True


def step_the_clock(world: SoakWorld, desk: Desk) -> bool:
    """Somebody sets the wall clock; no order may depend on it (FAULTS B8)."""
    by = (world.dice.below(2 * HOUR_MS) - HOUR_MS) * world.dice.pick([1, 1, 24])
    for clocks in world.sides.worlds:
        clocks.step_clock(by)
    return True


def keep(world: SoakWorld, desk: Desk) -> bool:
    """The keeper of this desk makes its round: forgotten turns are found, leases renewed."""
    for work in desk.works:
        work.keeper.round()
    world.calm(desk)
    return True


def fall_asleep(world: SoakWorld, desk: Desk) -> bool:
    """This desk stands still with all it has in hand, and its leases run."""
    # Somebody must stay awake, or nothing would happen any more.
    if sum(not other.asleep for other in world.desks) < 2:
        return False
    desk.asleep = True
    return True


def wake_up(world: SoakWorld, desk: Desk) -> bool:
    """A desk goes on where it stood, and finds out what was done without it (I-7)."""
    sleepers = [other for other in world.desks if other.asleep]
    if not sleepers:
        return False
    world.dice.pick(sleepers).asleep = False
    return True


def restart(world: SoakWorld, desk: Desk) -> bool:
    """This desk is closed and opened again; its turns end."""
    world.close(desk)
    world.replace(desk)
    return True


def vanish(world: SoakWorld, desk: Desk) -> bool:
    """This desk is never heard of again, wherever its calls had got to; another takes its place."""
    # Nothing is closed: its leases have to run out.
    world.leave_behind(desk)
    world.replace(desk)
    return True
