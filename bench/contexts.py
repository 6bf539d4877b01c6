"""`context()` of a 10 000-message session: its first load in a new process, and what it adds to a
warm turn.

The first load is measured inside a child after its imports, beside another child that reads the
same rows with raw SQLite, all seven columns of an entry, from a plain table, and parses their
payloads. This module is those children too: `python -m bench.contexts ours|raw|stdlib PATH` prints
seconds.
"""

import json
import subprocess
import sys
import time

import apsw
import msgspec

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median, ratio
from bench.sample import message

MESSAGES = 10_000
KEY = "long"
TABLE = """CREATE TABLE entry (n INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, kind TEXT, turn INTEGER, id BLOB,
                               at INTEGER, note BLOB, body BLOB);
           CREATE UNIQUE INDEX entry_by_seq ON entry (session, seq)"""
ROWS = (
    "SELECT seq, kind, turn, id, at, note, body FROM entry WHERE session = ? AND kind = "
    "'message' ORDER BY seq"
)


def measure(run: Run) -> list[Figure]:
    with shim.scratch() as folder:
        path = folder + "/holdfast.db"
        with holdfast.open(path) as store:
            store.session(KEY).record([message(number) for number in range(MESSAGES)])
        _write_raw(path)
        return _first(run, path) + _warm(run, path)


def _first(run: Run, path: str) -> list[Figure]:
    names = ("ours", "iterated", "raw", "stdlib")
    found = interleaved(run.repeats, {name: lambda name=name: _child(name, path) for name in names})
    ms = {name: median(took) * 1e3 for name, took in found.items()}
    rate = ratio(found["ours"], found["raw"])
    return [
        run.figure(
            "context() of 10 000, first load ÷ raw + msgspec",
            rate,
            "×",
            at_most=1.5,
            by=f"{ms['ours']:.0f} ms against {ms['raw']:.0f} ms",
        ),
        run.figure(
            "context() of 10 000, first load ÷ raw + json",
            ratio(found["ours"], found["stdlib"]),
            "×",
            at_most=1.5,
            by=f"json {ms['stdlib']:.0f} ms",
        ),
        run.figure(
            "context() of 10 000, first load, then iterated",
            ratio(found["iterated"], found["raw"]),
            "×",
            by=f"{ms['iterated']:.0f} ms",
        ),
    ]


def _warm(run: Run, path: str) -> list[Figure]:
    """Time of `Turn.context` in each of some turns, the loads before them left aside."""
    with holdfast.open(path) as store:
        sessions = {key: store.session(key) for key in (KEY, "short")}
        rounds = {key: lambda key=key: _turn(sessions[key], False) for key in sessions}
        rounds["iterated"] = lambda: _turn(sessions[KEY], True)
        found = interleaved(run.repeats * 6, rounds)
    long, short, iterated = (median(found[key]) * 1e3 for key in (KEY, "short", "iterated"))
    return [
        run.figure(
            "context() of 10 000, warm, added to a turn",
            long,
            "ms",
            at_most=0.2,
            by=f"in a new session {short:.2f} ms",
        ),
        run.figure("context() of 10 000, warm, then iterated", iterated, "ms"),
    ]


def _turn(session: holdfast.Session, iterate: bool) -> float:
    with session.turn("And then?") as turn:
        began = time.perf_counter()
        context = turn.context("openai.chat")
        if iterate:
            for _ in context:
                pass
        took = time.perf_counter() - began
        turn.say("Then the tide turned.")
    return took


def _child(name: str, path: str) -> float:
    command = [sys.executable, "-m", "bench.contexts", name, path]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _load(path: str, *, iterate: bool = False) -> float:
    with holdfast.open(path) as store:
        session = store.session(KEY)
        began = time.perf_counter()
        context = session.context("openai.chat")
        if iterate:
            for _ in context:
                pass
        took = time.perf_counter() - began
        assert len(context) == MESSAGES
    return took


def _write_raw(path: str) -> None:
    connection = apsw.Connection(path + ".raw")
    connection.execute(TABLE)
    with connection:
        fixed = (1_700_000_000_000, b'{"role":"assistant"}')
        rows = (
            (number, bytes(16), *fixed, msgspec.json.encode(message(number)))
            for number in range(MESSAGES)
        )
        connection.executemany(
            "INSERT INTO entry VALUES (NULL, 1, ?, 'message', NULL, ?, ?, ?, ?)", rows
        )
    connection.close()


def _load_raw(path: str, *, stdlib: bool = False) -> float:
    connection = apsw.Connection(path + ".raw", flags=apsw.SQLITE_OPEN_READONLY)
    parse = json.loads if stdlib else msgspec.json.decode
    began = time.perf_counter()
    payloads = [parse(row[-1]) for row in connection.execute(ROWS, (1,)).fetchall()]
    took = time.perf_counter() - began
    assert len(payloads) == MESSAGES
    return took


if __name__ == "__main__":
    _, what, where = sys.argv
    if what in ("ours", "iterated"):
        print(_load(where, iterate=what == "iterated"))
    else:
        print(_load_raw(where, stdlib=what == "stdlib"))
