"""The kill loop: real processes stream turns with tools and are killed at any point; then the store
is judged.

    report = kill_loop("agent.db", kills=200, seed=7)
    assert not report.broken, "\\n".join(report.broken)

A worker writes every act to a pipe after the store has taken it, in the words of
`oracle.Acknowledged`: a turn it started, a text it hands on, a call, a result, an end. The loop
reads along and, at a point drawn from the seed, kills it with SIGKILL; what the pipe holds is what
an observer had seen. After each kill a handle that had no part in it looks, and the oracle finds
nothing wrong; above all:

    I-4   every turn that was reported has its message, once
    I-5   what was handed on is a prefix of what is stored
    I-6   every turn has exactly one end; one that was reported as left has "completed"
    I-2   no text, no message and no event is there twice
    I-10  every call that was reported is there, every result that was reported is paired with its call
    I-1   seqs are dense
    I-9   the context is valid for every format, and the same for a fresh handle

Workers are forked from one process that has imported everything and opened nothing, so a kill costs
a few milliseconds; `where` is any place a store can be opened at.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import msgspec

from holdfast.domain.entry import note_of
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store
from holdfast.testing.oracle import FORMATS, Acknowledged, judge

KEY = "worker"

CHAPTER = 20
"""After so many kills the loop goes on under a new tenant, so that judging stays quick."""

Act = list[Any]


class KillReport(msgspec.Struct):
    """What a kill loop saw. `broken` has a sentence for every law that did not hold; `struck`
    counts the kills by the act that was reported last.
    """

    kills: int = 0
    turns: int = 0
    texts: int = 0
    calls: int = 0
    ends: Counter[str] = msgspec.field(default_factory=Counter)
    struck: Counter[str] = msgspec.field(default_factory=Counter)
    broken: list[str] = []

    def count(self, acts: list[Act]) -> None:
        """One more kill, after these acts."""
        names = Counter(name for name, *_ in acts)
        self.kills += 1
        self.turns += names["began"]
        self.texts += names["shown"]
        self.calls += names["called"]
        self.struck[acts[-1][0] if acts else "born"] += 1


def kill_loop(
    where: str | os.PathLike[str], *, kills: int, seed: int = 0, acts_max: int = 60
) -> KillReport:
    """Starts a worker, kills it after up to `acts_max` reported acts, judges the store; so many
    times.
    """
    report, place = KillReport(), os.fspath(where)
    with Nursery(place) as nursery:
        for first in range(0, kills, CHAPTER):
            tenant, ledger = f"kill:{seed}:{first}", Acknowledged()
            with open_store(place, tenant=tenant) as store:
                for number in range(first, min(first + CHAPTER, kills)):
                    acts = nursery.run(
                        tenant, f"{seed}-{number}", _roll(seed, number) % (acts_max + 1)
                    )
                    ledger.hear(acts)
                    report.count(acts)
                    # every second time the next worker finds the dead turn, not this handle
                    if number % 2:
                        report.broken += _cited(
                            f"after kill {number}", judge_chapter(store, ledger)
                        )
                last = [*judge_chapter(store, ledger), *_differs(place, store)]
                report.broken += _cited(f"at the end of {tenant}", last)
                report.ends += _ends(store.session(KEY))
    return report


def judge_chapter(store: Store, ledger: Acknowledged) -> list[str]:
    """A sentence for everything that does not hold after a kill, when no worker is alive."""
    session = store.session(KEY)
    return [*judge(store, ledger), *_unsettled(session), *_doubled(session)]


def _cited(when: str, sentences: Iterable[str]) -> list[str]:
    return [f"{when}: {sentence}" for sentence in sentences]


def _roll(seed: int, number: int) -> int:
    """Chance from a seed, the same on every machine."""
    return int.from_bytes(
        hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest(), "big"
    )


class Nursery:
    """The process that workers are forked from. `life` names the function that a worker lives by,
    of the place, a key (or a tenant) and a name; it ends only by being killed.
    """

    def __init__(
        self, place: str, life: str = "holdfast.testing.faults.kill_loop.work"
    ) -> None:
        self._place, self._life = place, life

    def __enter__(self) -> "Nursery":
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from holdfast.testing.faults.kill_loop import nurse; nurse()",
                self._place,
                self._life,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def run(self, key: str, name: str, acts_max: int) -> list[Act]:
        """A worker's acts up to its death: it is killed when so many were read, whatever it does by
        then.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([key, name]).encode() + b"\n")
        self._process.stdin.flush()
        acts: list[Act] = []
        pid = 0
        for kind, *rest in self._lines():
            if kind == "buried":
                if rest[0] != -signal.SIGKILL:
                    raise RuntimeError(
                        f"a worker ended by itself, with {rest[0]}; its error output says why"
                    )
                return acts
            if kind == "born":
                pid = rest[0]
            else:
                acts.append([kind, *rest])
            if len(acts) == acts_max:
                os.kill(pid, signal.SIGKILL)
        raise RuntimeError(
            "the process that starts workers has ended; its error output says why"
        )

    def _lines(self) -> Iterator[Act]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            yield json.loads(line)


def nurse() -> None:
    """The main loop of the process that workers are forked from: one line in, one worker's life
    out.
    """
    module, _, function = sys.argv[2].rpartition(".")
    life = getattr(import_module(module), function)
    if sys.argv[1].startswith("postgres"):
        import_module(
            "holdfast.engine.postgres.engine"
        )  # here, and not in every worker
    for line in sys.stdin.buffer:
        key, name = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(life, key, name)
        _, status = os.waitpid(pid, 0)
        write_act("buried", os.waitstatus_to_exitcode(status))


def _live(life: Any, key: str, name: str) -> None:
    try:
        write_act("born", os.getpid())
        life(sys.argv[1], key, name)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def write_act(*act: Any) -> None:
    """Reports an act to the process that may kill this one."""
    # One write, shorter than a pipe's atomic size: a kill leaves all of a line or nothing of it.
    os.write(1, json.dumps(act).encode() + b"\n")


def work(place: str, tenant: str, name: str) -> None:
    """A worker: turn after turn, until it is killed. Words are never said twice, so that a doubled
    one shows.
    """
    with open_store(place, tenant=tenant) as store:
        for number in range(1_000_000):
            _one_turn(store, f"{name}.{number}")


def _one_turn(store: Store, name: str) -> None:
    with store.turn(KEY, f"question {name}", event_id=f"event {name}") as turn:
        write_act("began", turn.id)
        write_act("said", turn.id.rpartition(":")[0], None, f"question {name}")
        for text in turn.deliver(_answer(name), format="openai.chat"):
            write_act("shown", turn.id, None, text)
        for call_id in ("call_0", "call_1"):
            turn.call("look", {"at": name}, call_id=call_id)
            write_act("called", turn.id, call_id)
            turn.result(call_id, f"result {name} {call_id}")
            write_act("answered", turn.id, call_id, f"result {name} {call_id}")
        for text in turn.deliver(f"<{name} b{number}>" for number in range(12)):
            write_act("shown", turn.id, None, text)
    write_act("ended", turn.id, "completed")


def _answer(name: str) -> Iterator[dict[str, Any]]:
    """A chat stream: words, then two parallel calls whose ids every response uses again, then its
    end.
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": f"<{name} a{number}>"} for number in range(6)]
    for index in range(2):
        function = {"name": "look", "arguments": ""}
        deltas.append(
            {
                "tool_calls": [
                    {"index": index, "id": f"call_{index}", "function": function}
                ]
            }
        )
        for piece in ('{"at": ', f'"{name}"', "}"):
            deltas.append(
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            )
    for delta in deltas:
        yield {
            "id": "c",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
    yield {
        "id": "c",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    }


def _unsettled(session: Session) -> Iterator[str]:
    """Turns of dead workers that still run: whoever looks settles them."""
    running = session.info().running
    if running is not None:
        yield f"turn {running} of a dead worker has no end (I-6)"


def _doubled(session: Session) -> Iterator[str]:
    """Words that are stored twice: no worker says a word that was said before."""
    words: Counter[str] = Counter()
    for message in session.transcript():
        if message.role == "assistant":
            words.update(word for word in message.text.split(">") if word)
    twice = [word for word, times in words.items() if times > 1]
    if twice:
        yield f"said twice: {twice[:3]} (I-2)"


def _ends(session: Session) -> Counter[str]:
    """How many turns ended in which way."""
    return Counter(
        note_of("end", entry.note).end
        for entry in session.entries()
        if entry.kind == "end"
    )


def _differs(place: str, store: Store) -> Iterator[str]:
    """A fresh handle computes the same context (I-9)."""
    with open_store(place, tenant=store.tenant) as fresh:
        mine, other = store.session(KEY), fresh.session(KEY)
        for format in FORMATS:
            if list(mine.context(format)) != list(other.context(format)):
                yield f"a fresh handle computes another context in {format} (I-9)"
