"""The kill loop: real processes stream turns with tools and are killed at any point; then the store is judged.

    report = kill_loop("agent.db", kills=200, seed=7)
    assert not report.broken, "\\n".join(report.broken)

A worker writes every act to a pipe after the store has taken it: a turn it started, a text it hands on, a call, a
result, an end. The loop reads along and, at a point drawn from the seed, kills it with SIGKILL; what the pipe holds is
what an observer had seen. After each kill a handle that had no part in it looks, and these must hold:

    I-4   every turn that was reported has its message, once
    I-5   what was handed on is a prefix of what is stored
    I-6   every turn has exactly one end; one that was reported as left has "completed"
    I-2   no text, no message and no event is there twice
    I-10  every call that was reported is there, every result that was reported is paired with its call
    I-1   seqs are dense
    I-9   the context is valid for every format, and the same for a fresh handle

Workers are forked from one process that has imported everything and opened nothing, so a kill costs a few
milliseconds; `where` is any place a store can be opened at.
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
from holdfast.testing.providers import check

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")

CHAPTER = 20
"""After so many kills the loop goes on under a new key, so that judging stays quick."""


class Report(msgspec.Struct):
    """What a kill loop saw. `broken` has a sentence for every law that did not hold; `struck` counts the kills by the
    act that was reported last."""

    kills: int = 0
    turns: int = 0
    texts: int = 0
    calls: int = 0
    ends: Counter[str] = msgspec.field(default_factory=Counter)
    struck: Counter[str] = msgspec.field(default_factory=Counter)
    broken: list[str] = []


def kill_loop(where: str | os.PathLike[str], *, kills: int, seed: int = 0, acts_max: int = 60) -> Report:
    """Starts a worker, kills it after up to `acts_max` reported acts, judges the store; so many times."""
    report, place = Report(), os.fspath(where)
    with open_store(place) as store, Nursery(place) as nursery:
        for first in range(0, kills, CHAPTER):
            key = f"kill:{seed}:{first}"
            witness = Witness()
            for number in range(first, min(first + CHAPTER, kills)):
                acts = nursery.run(key, f"{seed}-{number}", _roll(seed, number) % (acts_max + 1))
                report.kills += 1
                report.struck[acts[-1][0] if acts else "born"] += 1
                witness.hear(acts)
                if number % 2:  # every second time the next worker finds the dead turn, not this handle
                    report.broken += _cited(f"after kill {number}", witness.judge(store.session(key)))
            report.broken += _cited(f"at the end of {key}", witness.judge(store.session(key)))
            report.broken += _cited(f"at the end of {key}", _differs(place, store, key))
            witness.count(report)
    return report


def _cited(when: str, sentences: Iterable[str]) -> list[str]:
    return [f"{when}: {sentence}" for sentence in sentences]


def _roll(seed: int, number: int) -> int:
    """Chance from a seed, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest(), "big")


Act = list[Any]


class Nursery:
    """The process that workers are forked from. `life` names the function that a worker lives by, of the place, a key
    and a name; it ends only by being killed."""

    def __init__(self, place: str, life: str = "holdfast.testing.killing.work") -> None:
        self._place, self._life = place, life

    def __enter__(self) -> "Nursery":
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from holdfast.testing.killing import nurse; nurse()", self._place, self._life],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def run(self, key: str, name: str, acts_max: int) -> list[Act]:
        """A worker's acts up to its death: it is killed when so many were read, whatever it does by then."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([key, name]).encode() + b"\n")
        self._process.stdin.flush()
        acts: list[Act] = []
        pid = 0
        for kind, *rest in self._lines():
            if kind == "buried":
                if rest[0] != -signal.SIGKILL:
                    raise RuntimeError(f"a worker ended by itself, with {rest[0]}; its error output says why")
                return acts
            if kind == "born":
                pid = rest[0]
            else:
                acts.append([kind, *rest])
            if len(acts) == acts_max:
                os.kill(pid, signal.SIGKILL)
        raise RuntimeError("the process that starts workers has ended; its error output says why")

    def _lines(self) -> Iterator[Act]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            yield json.loads(line)


def nurse() -> None:
    """The main loop of the process that workers are forked from: one line in, one worker's life out."""
    module, _, function = sys.argv[2].rpartition(".")
    life = getattr(import_module(module), function)
    if sys.argv[1].startswith("postgres"):
        import_module("holdfast.engine.postgres.engine")  # here, and not in every worker
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


def work(place: str, key: str, name: str) -> None:
    """A worker: turn after turn, until it is killed. Words are never said twice, so that a doubled one shows."""
    with open_store(place) as store:
        for number in range(1_000_000):
            _one_turn(store, key, f"{name}.{number}")


def _one_turn(store: Store, key: str, name: str) -> None:
    with store.turn(key, f"question {name}", event_id=f"event {name}") as turn:
        write_act("turn", turn.id, f"question {name}")
        for text in turn.deliver(_answer(name), format="openai.chat"):
            write_act("text", turn.id, text)
        for call_id in ("call_0", "call_1"):
            turn.call("look", {"at": name}, call_id=call_id)
            write_act("call", turn.id, call_id)
            turn.result(call_id, f"result {name} {call_id}")
            write_act("result", turn.id, call_id, f"result {name} {call_id}")
        for text in turn.deliver(f"<{name} b{number}>" for number in range(12)):
            write_act("text", turn.id, text)
    write_act("end", turn.id)


def _answer(name: str) -> Iterator[dict[str, Any]]:
    """A chat stream: words, then two parallel calls whose ids every response uses again, then its end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": f"<{name} a{number}>"} for number in range(6)]
    for index in range(2):
        function = {"name": "look", "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": f"call_{index}", "function": function}]})
        for piece in ('{"at": ', f'"{name}"', "}"):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    for delta in deltas:
        yield {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


class Witness:
    """Remembers what the pipe said of one session, and holds it against the store."""

    def __init__(self) -> None:
        self._questions: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._calls: list[tuple[str, str]] = []
        self._results: list[tuple[str, str, str]] = []
        self._ended: list[str] = []
        self._kinds: Counter[str] = Counter()
        self._ends: dict[str, str] = {}

    def hear(self, acts: list[Act]) -> None:
        for kind, turn, *rest in acts:
            self._kinds[kind] += 1
            if kind == "turn":
                self._questions[turn] = rest[0]
            elif kind == "text":
                self._texts[turn] = self._texts.get(turn, "") + rest[0]
            elif kind == "call":
                self._calls.append((turn, rest[0]))
            elif kind == "result":
                self._results.append((turn, rest[0], rest[1]))
            elif kind == "end":
                self._ended.append(turn)

    def count(self, report: Report) -> None:
        """Adds what this session saw to the report, once it is done with."""
        report.turns += self._kinds["turn"]
        report.texts += self._kinds["text"]
        report.calls += self._kinds["call"]
        report.ends.update(self._ends.values())

    def judge(self, session: Session) -> Iterator[str]:
        """Looks at the session; a sentence for everything that does not hold."""
        transcript = list(session.transcript())
        yield from self._turns(session)
        yield from self._words(transcript)
        yield from self._tools(session, transcript)
        for format in FORMATS:
            for problem in check(format, session.context(format)):
                yield f"the context in {format} is not valid: {problem} (I-9)"

    def _turns(self, session: Session) -> Iterator[str]:
        seqs: list[int] = []
        ends: dict[str, list[str]] = {}
        for entry in session.entries():
            seqs.append(entry.seq)
            name = f"{session.id}:{entry.turn}"
            if entry.kind == "turn":
                ends[name] = []
            elif entry.kind == "end":
                ends.setdefault(name, []).append(note_of("end", entry.note).end)
        if seqs != list(range(1, len(seqs) + 1)):
            yield "seqs are not dense (I-1)"
        for name, found in ends.items():
            if len(found) != 1:
                yield f"turn {name} has {len(found)} ends (I-6)"
        for name in self._ended:
            if ends.get(name) != ["completed"]:
                yield f"turn {name} was left cleanly and ended as {ends.get(name)} (I-6)"
        self._ends = {name: found[0] for name, found in ends.items() if found}

    def _words(self, transcript: list[Any]) -> Iterator[str]:
        questions = Counter(message.text for message in transcript if message.role == "user")
        for name, question in self._questions.items():
            if questions[question] != 1:
                yield f"the message of turn {name} is there {questions[question]} times (I-2, I-4)"
        said: dict[str, str] = {}
        for message in transcript:
            if message.role == "assistant":
                said[message.turn] = said.get(message.turn, "") + message.text
        for name, shown in self._texts.items():
            if not said.get(name, "").startswith(shown):
                yield f"turn {name} handed on {shown[-60:]!r}, which is not a prefix of what is stored (I-5)"
        words = Counter(word for text in said.values() for word in text.replace(">", "> ").split("> "))
        doubled = [word for word, times in words.items() if word and times > 1]
        if doubled:
            yield f"said twice: {doubled[:3]} (I-2)"
        ids = Counter(message.id for message in transcript)
        events = Counter(message.event_id for message in transcript if message.event_id is not None)
        if any(times > 1 for times in (ids | events).values()):
            yield "a message or an event is there twice (I-2)"

    def _tools(self, session: Session, transcript: list[Any]) -> Iterator[str]:
        texts = {message.id: str(message.payload) for message in transcript}
        known = {(f"{session.id}:{call.turn}", call.call_id): call for call in session.calls()}
        for key in self._calls:
            if key not in known:
                yield f"call {key[1]} of turn {key[0]} is gone (I-22)"
        for name, call_id, content in self._results:
            call = known.get((name, call_id))
            if call is None or call.state != "done" or content not in texts.get(call.outcome or "", ""):
                yield f"result {content!r} of turn {name} is not with its call (I-10)"


def _differs(place: str, store: Store, key: str) -> list[str]:
    """A fresh handle computes the same context (I-9)."""
    with open_store(place) as fresh:
        mine, other = store.session(key), fresh.session(key)
        return [
            f"{key}: a fresh handle computes another context in {format} (I-9)"
            for format in FORMATS
            if list(mine.context(format)) != list(other.context(format))
        ]
