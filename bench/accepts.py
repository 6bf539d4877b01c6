"""`Store.accept` beside `Session.append`: a receipt is an append that also stands in the inbox."""

import asyncio
import time

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median, ratio
from bench.sample import message


def measure(run: Run) -> list[Figure]:
    return _one(run) + _many(run)


def _one(run: Run) -> list[Figure]:
    """One caller, one after the other. Between rounds a turn takes what waits, as it
    would in life.
    """
    count = run.some(400, 100)
    with shim.scratch() as folder, holdfast.open(folder + "/holdfast.db") as store:
        session = store.session("accepted")

        def accepts() -> float:
            took = _timed(lambda number: store.accept("accepted", message(number, "user")), count)
            session.turn().interrupt()
            return took

        appended = store.session("appended")
        rounds = {
            "accept": accepts,
            "append": lambda: _timed(lambda n: appended.append(message(n, "user")), count),
        }
        found = interleaved(run.repeats, rounds)
    return [_figure(run, "1 caller", found, count)]


def _many(run: Run) -> list[Figure]:
    """256 keys at once, one receipt each in every round; half of the messages come with an event
    id, on both sides.
    """
    count = 256
    with shim.scratch() as folder:
        found = asyncio.run(_rounds(run, folder + "/holdfast.db", count))
    return [_figure(run, "256 keys", found, count)]


async def _rounds(run: Run, path: str, count: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"accept": [], "append": []}
    async with holdfast.open_async(path) as store:
        sessions = [await store.session(f"appended {number}") for number in range(count)]
        for repeat in range(run.repeats * 4 + 1):
            began = time.perf_counter()
            await asyncio.gather(*(_accept(store, repeat, number) for number in range(count)))
            accepted = time.perf_counter() - began
            began = time.perf_counter()
            await asyncio.gather(
                *(_append(session, repeat, number) for number, session in enumerate(sessions))
            )
            appended = time.perf_counter() - began
            if repeat:
                found["accept"].append(accepted)
                found["append"].append(appended)
    return found


async def _accept(store: holdfast.AsyncStore, repeat: int, number: int) -> None:
    event = f"{repeat} {number}" if number % 2 else None
    await store.accept(f"accepted {number}", message(repeat, "user"), event_id=event)


async def _append(session: holdfast.AsyncSession, repeat: int, number: int) -> None:
    await session.append(
        message(repeat, "user"), event_id=f"{repeat} {number}" if number % 2 else None
    )


def _timed(work: object, count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        work(number)  # type: ignore[operator]
    return time.perf_counter() - began


def _figure(run: Run, who: str, found: dict[str, list[float]], count: int) -> Figure:
    us = {name: median(took) / count * 1e6 for name, took in found.items()}
    by = f"{us['accept']:.0f} µs against {us['append']:.0f} µs"
    return run.figure(
        f"accept ÷ append, {who}", ratio(found["accept"], found["append"]), "×", at_most=1.2, by=by
    )
