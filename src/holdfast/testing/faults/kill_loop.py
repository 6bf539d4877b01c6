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

import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec

from holdfast.domain.entry import note_of
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store
from holdfast.testing.completions import Payload, call_deltas, completions_chunks
from holdfast.testing.dice import Dice
from holdfast.testing.oracle import FORMATS, Acknowledged, Act, judge

KEY = "worker"

CHAPTER = 20
"""After so many kills the loop goes on under a new tenant, so that judging stays quick."""


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

    def count(self, acts: Sequence[Act]) -> None:
        """One more kill, after these acts."""
        names = Counter(name for name, *_ in acts)
        self.kills += 1
        self.turns += names["began"]
        self.texts += names["shown"]
        self.calls += names["called"]
        # Where kills struck: a loop that only ever kills at one act proves little.
        self.struck[acts[-1][0] if acts else "born"] += 1

    def cite(self, when: str, sentences: Iterable[str]) -> None:
        """What did not hold then."""
        self.broken += [f"{when}: {sentence}" for sentence in sentences]


def kill_loop(
    where: str | os.PathLike[str], *, kills: int, seed: int = 0, acts_max: int = 60
) -> KillReport:
    """Starts a worker, kills it after up to `acts_max` reported acts, judges the store; so many
    times.
    """
    report = KillReport()
    place = os.fspath(where)
    with Nursery(place) as nursery:
        for first in range(0, kills, CHAPTER):
            tenant = f"kill:{seed}:{first}"
            acknowledged = Acknowledged()
            with open_store(place, tenant=tenant) as store:
                for number in range(first, min(first + CHAPTER, kills)):
                    dies_after = Dice(seed, number).below(acts_max + 1)
                    acts = nursery.run(tenant, f"{seed}-{number}", dies_after)
                    acknowledged.hear(acts)
                    report.count(acts)
                    # Every second time the next worker finds the dead turn, not this handle.
                    if number % 2:
                        found = judge_chapter(store, acknowledged)
                        report.cite(f"after kill {number}", found)
                last = f"at the end of {tenant}"
                report.cite(last, judge_chapter(store, acknowledged))
                report.cite(last, _differs(place, store))
                report.ends += _ends(store.session(KEY))
    return report


def judge_chapter(store: Store, acknowledged: Acknowledged) -> list[str]:
    """A sentence for everything that does not hold after a kill, when no worker is alive."""
    session = store.session(KEY)
    return [*judge(store, acknowledged), *_unsettled(session), *_doubled(session)]


class Nursery:
    """The process that workers are forked from. `life` names the function that a worker lives by,
    of the place, a key (or a tenant) and a name; it ends only by being killed.
    """

    def __init__(
        self, place: str, life: str = "holdfast.testing.faults.kill_loop.work"
    ) -> None:
        self._place = place
        self._life = life

    def __enter__(self) -> "Nursery":
        script = "from holdfast.testing.faults.kill_loop import nurse; nurse()"
        command = [sys.executable, "-c", script, self._place, self._life]
        path = os.pathsep.join(path for path in sys.path if path)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, env={**os.environ, "PYTHONPATH": path}
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders = self._process.stdin
        self._reports = self._process.stdout
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        self._reports.close()
        # It waits for orders, and its pipe is closed; the kill is for one that hangs.
        self._process.kill()
        self._process.wait()

    def run(self, key: str, name: str, acts_max: int) -> list[Act]:
        """A worker's acts up to its death: it is killed when so many were read, whatever it does by
        then.
        """
        self._orders.write(json.dumps([key, name]).encode() + b"\n")
        self._orders.flush()
        acts: list[Act] = []
        pid = 0
        while line := self._reports.readline():
            act = json.loads(line)
            if act[0] == "buried":
                if act[1] != -signal.SIGKILL:
                    raise RuntimeError(
                        f"a worker ended by itself, with {act[1]}; its error output says why"
                    )
                return acts
            if act[0] == "born":
                pid = act[1]
            else:
                acts.append(act)
            if len(acts) == acts_max:
                os.kill(pid, signal.SIGKILL)
        raise RuntimeError(
            "the process that starts workers has ended; its error output says why"
        )


def nurse() -> None:
    """The main loop of the process that workers are forked from: one line in, one worker's life
    out.
    """
    # By name: the process was started anew, and has nothing of its parent's.
    module, _, function = sys.argv[2].rpartition(".")
    life = getattr(import_module(module), function)
    engine = "postgres" if sys.argv[1].startswith("postgres") else "sqlite"
    # Here, and not in every worker: what a store loads when it is first used.
    for loaded in (
        f"holdfast.engine.{engine}.engine",
        "holdfast.formats.openai.chat_stream",
    ):
        import_module(loaded)
    for line in sys.stdin.buffer:
        key, name = json.loads(line)
        # Before anything is opened: no connection and no lock is shared with a worker.
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
        # Not `sys.exit`: what the parent has to do at its end is not for a worker to do.
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
        # The same two ids in every turn, as some providers give them (FAULTS E4).
        for call_id in ("call_0", "call_1"):
            turn.call("look", {"at": name}, call_id=call_id)
            write_act("called", turn.id, call_id)
            turn.result(call_id, f"result {name} {call_id}")
            write_act("answered", turn.id, call_id, f"result {name} {call_id}")
        # A second message after the calls, so that kills strike there as well.
        for text in turn.deliver(f"<{name} b{number}>" for number in range(12)):
            write_act("shown", turn.id, None, text)
    write_act("ended", turn.id, "completed")


def _answer(name: str) -> Iterator[Payload]:
    """A chat stream: words, then two parallel calls whose ids every response uses again, then its
    end.
    """
    deltas: list[Payload] = [{"role": "assistant"}]
    deltas += [{"content": f"<{name} a{number}>"} for number in range(6)]
    for index in range(2):
        pieces = ('{"at": ', f'"{name}"', "}")
        deltas += call_deltas(index, f"call_{index}", "look", pieces)
    return completions_chunks(deltas, "tool_calls", id="c")


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
            # Every chunk ends in ">" and is said once: a chunk that is stored twice shows.
            words.update(word for word in message.text.split(">") if word)
    twice = [word for word, times in words.items() if times > 1]
    if twice:
        yield f"said twice: {twice[:3]} (I-2)"


def _ends(session: Session) -> Counter[str]:
    """How many turns ended in which way."""
    ends: Counter[str] = Counter()
    for entry in session.entries():
        if entry.kind == "end":
            ends[note_of("end", entry.note).end] += 1
    return ends


def _differs(place: str, store: Store) -> Iterator[str]:
    """A fresh handle computes the same context (I-9)."""
    with open_store(place, tenant=store.tenant) as fresh:
        mine = store.session(KEY)
        other = fresh.session(KEY)
        for format in FORMATS:
            if list(mine.context(format)) != list(other.context(format)):
                yield f"a fresh handle computes another context in {format} (I-9)"
