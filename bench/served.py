"""Streams over HTTP: 256 of them at 20 chunks a second through one `holdfast serve` on SQLite, each
with a reader, beside a Starlette application that only echoes.

Two ways to say a chunk: a request for each, and one request that is held open, a line for each.
"""

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

from bench import shim
from bench.figure import Figure, Run, median, percentile
from bench.wire_load import Load, Spoken

STREAMS = 256
P99_MS_MAX = 50
ECHO = "hf_echo"
COMMAND = ("-m", "holdfast.cli.main")


def measure(run: Run) -> list[Figure]:
    seconds = 2.0 if run.quick else 4.0
    figures: list[Figure] = []
    for held, way in ((True, "one request held open"), (False, "a request a chunk")):
        found: dict[str, list[Measured]] = {"ours": [], "echo": []}
        for _ in range(2 if run.quick else 5):
            with shim.scratch() as folder:
                found["ours"].append(ours(f"{folder}/s.db", seconds, held=held))
            found["echo"].append(echo(seconds, held=held))
        figures += _figures(run, way, found["ours"], found["echo"], has_bar=held)
    return figures


def _figures(
    run: Run, way: str, own: "list[Measured]", echo: "list[Measured]", *, has_bar: bool
) -> list[Figure]:
    name = f"{STREAMS} streams × 20/s over HTTP, {way}"
    p50, p99, cpu = (median(getattr(one, what) for one in own) for what in Measured.SHOWN)
    raw50, raw99, raw_cpu = (median(getattr(one, what) for one in echo) for what in Measured.SHOWN)
    missing = sum(one.missing for one in own)
    by = f"raw Starlette {raw50:.1f} / {raw99:.1f} ms"
    return [
        run.figure(f"{name}, chunk → reader, p50", p50, "ms", by=by),
        run.figure(
            f"{name}, chunk → reader, p99",
            p99,
            "ms",
            at_most=P99_MS_MAX if has_bar else None,
            by=by,
        ),
        run.figure(f"{name}, chunks that came too late to count", missing, "", at_most=0),
        run.figure(
            f"{name}, CPU of the server for each chunk ÷ raw Starlette",
            cpu / raw_cpu,
            "×",
            by=f"{cpu:.0f} ÷ {raw_cpu:.0f} µs",
        ),
    ]


class Measured:
    """One run of all streams against one server."""

    SHOWN = ("p50", "p99", "cpu")

    def __init__(self, load: Load, streams: int, cpu_s: float, took: float) -> None:
        ms = [each * 1e3 for each in load.latencies] or [float("inf")]
        self.p50, self.p99 = percentile(ms, 0.5), percentile(ms, 0.99)
        self.missing = streams * load.each - len(load.latencies)
        self.cpu = cpu_s / max(1, len(load.latencies)) * 1e6
        """Microseconds for each chunk."""
        self.busy = cpu_s / took
        self.rate = len(load.latencies) / took
        self.requests = load.requests

    def __repr__(self) -> str:
        return (
            f"p50 {self.p50:.1f} p99 {self.p99:.1f} ms, {self.rate:.0f} chunks/s in {self.requests}"
            f" requests, {self.cpu:.0f} µs each, busy {self.busy:.2f}, missing {self.missing}"
        )


def ours(store: str, seconds: float, *, held: bool, streams: int = STREAMS) -> Measured:
    """All streams on a new store, in turns whose messages are opened before."""
    with _process([*COMMAND, "serve", store, "--port", "0", "--json"]) as (process, told):
        said = json.loads(told)
        address, token = said["address"], said["token"]
        port = int(address.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def ask(path: str, body: Any) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("POST", path, json.dumps(body), headers)
            return json.loads(connection.getresponse().read())

        opened = []
        for number in range(streams):
            turn = ask("/v1/turns", {"key": f"s{number}", "message": "Go on.", "lease_s": 600})
            path = f"/v1/turns/{turn['id']}/streams"
            message = ask(path, {})["message_id"]
            read = f"/v1/sessions/{turn['session_id']}/stream?after=now"
            opened.append(Spoken(f"{path}/{message}", read))
        connection.close()
        return _measured(process, port, token, opened, seconds, held=held)


def echo(seconds: float, *, held: bool, streams: int = STREAMS, options: Any = ()) -> Measured:
    """The same load on an application that only echoes."""
    with _process(["-m", "bench.echo_app", *options]) as (process, told):
        port = int(told.rpartition(":")[2])
        opened = [Spoken(f"/push/{each}", f"/stream/{each}") for each in range(streams)]
        return _measured(process, port, ECHO, opened, seconds, held=held)


def _measured(
    process: psutil.Process,
    port: int,
    token: str,
    opened: list[Spoken],
    seconds: float,
    *,
    held: bool,
) -> Measured:
    load = Load(port, token, held=held, seconds=seconds)
    before: list[float] = []
    took = asyncio.run(load.run(opened, lambda: before.append(_cpu_s(process))))
    return Measured(load, len(opened), _cpu_s(process) - before[0], took)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[tuple[psutil.Process, str]]:
    """A server, and the first line that it says."""
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield psutil.Process(child.pid), child.stdout.readline()
    finally:
        child.terminate()
        child.wait(30)
