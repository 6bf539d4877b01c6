"""Real agents behind `holdfast proxy`: Claude Code 2.1.325, Codex 0.166.0, goose 1.52.0, Hermes Agent 0.19.0.

A scripted model on loopback answers them. Without Holdfast, `stored` is what the agent's next request has
of the turn that something happened to; with it, what the transcript has. A row is right when all that the
agent was sent is stored, once, every prompt is there once, and the context is valid.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

import holdfast  # noqa: E402
from holdfast.testing.providers import check  # noqa: E402
from torture.live.proxied import forks  # noqa: E402
from torture.live.proxied.agents import AGENTS, until  # noqa: E402
from torture.live.proxied.stage import (  # noqa: E402
    APPLE,
    HALF,
    PEAR,
    PLUM,
    Stage,
    killed_in_an_answer,
    said_by_model,
    staged,
)
from torture.live.table import Outcome, Row  # noqa: E402
from torture.systems.judging import Trouble  # noqa: E402
from torture.systems.scripted import do  # noqa: E402

INSTALL: tuple[str, ...] = ()
Scene = Callable[[Stage], None]


def quiet(stage: Stage) -> None:
    stage.agent.say(f"{PLUM} {do({'text': HALF + ' ripe.'})}")


def agent_killed(stage: Stage) -> None:
    process = stage.agent.begin(f"{PLUM} {do({'hold': HALF})}")
    until(stage.model.halfway.is_set, process)
    stage.agent.kill(process)
    stage.model.go_on.set()


def proxy_killed(stage: Stage) -> None:
    killed_in_an_answer(stage, PLUM, stage.agent.begin)


SCENES: dict[str, Scene] = {
    "quiet turns": quiet,
    "kill -9 of the agent in an answer": agent_killed,
    "kill -9 of the proxy in an answer": proxy_killed,
}


def prepare(environment: Path) -> None:
    """Nothing: each agent is fetched for its first row."""


def rows(environment: Path) -> Iterable[Row]:
    for make in AGENTS:
        for name, scene in SCENES.items():
            yield Row(f"{make.name}: {name}", partial(_play, environment, make, scene))
    yield from forks.rows(environment)


def _play(environment: Path, make: type[Any], scene: Scene, folder: Path, served: bool) -> Outcome:
    with staged(environment, make, folder, served) as stage:
        agent, model = stage.agent, stage.model
        try:
            looked = {"text": "Looking.", "tools": [agent.tool]}
            agent.say(f"{PEAR} {do(looked, {'text': 'It is ripe.'})}")
            scene(stage)
            model.go_on.set()
            before = len(model.requests)
            agent.say(APPLE)
        except Trouble as trouble:
            return Outcome(HALF, "-", None, False, str(trouble))
        sent = [body for _, body in model.requests]
    if served:
        given = sum(HALF in json.dumps(model.step(body)) for body in sent)
        return _kept(stage.store, agent.format, given)
    is_there = any(HALF in said_by_model(body) for body in sent[before:])
    return Outcome(HALF, "all of it" if is_there else "nothing", None, is_there)


def _kept(store: Path, format: str, given: int) -> Outcome:
    """What the transcript has, of an answer that the model has given so often: agents send a prompt that
    got no answer again, joined to the next.
    """
    problems = []
    with holdfast.open(store) as opened:
        sessions = [opened.get(info.id) for info in opened.sessions() if "/" not in str(info.key)]
        session = max(sessions, key=lambda each: len(list(each.transcript())))
        said = list(session.transcript())
        asked = [each.text for each in said if each.role == "user"]
        joined = [text for text in asked if PLUM in text and APPLE in text]
        for prompt, times in ((PEAR, 1), (PLUM, 1 + len(joined)), (APPLE, 1)):
            found = sum(prompt in text for text in asked)
            if found != times:
                problems.append(f"{prompt!r} {found} times")
        words = [each for each in said if each.role == "assistant" and HALF in each.text]
        whole = [each for each in words if each.state == "complete"]
        if not words or len(words) > given:
            problems.append(f"{len(words)} answers with what was shown, {len(whole)} of them whole")
        ends = [turn.end for turn in session.turns()]
        if len(ends) > 4 or None in ends:
            problems.append(f"turns ended {ends}")
        results = [each for each in said if each.role == "tool" and "ripe" in each.text]
        if len(results) != 1:
            problems.append(f"{len(results)} results")
        wrong = check(format, session.context(format))
    stored = f"{len(words)} of it, {len(whole)} whole, turns {len(ends)}"
    return Outcome(
        HALF, stored, not wrong, not problems and not wrong, "; ".join([*problems, *wrong[:2]])
    )


def soak(environment: Path, messages: int) -> Iterable[str]:
    """So many messages, each followed by the next scene at random; what was wrong."""
    import random

    chosen = random.Random(messages)
    for _ in range(messages // 3):
        make = chosen.choice(AGENTS)
        name = chosen.choice(list(SCENES))
        with tempfile.TemporaryDirectory() as folder:
            outcome = _play(environment, make, SCENES[name], Path(folder), True)
        if not outcome.right:
            yield f"{make.name}: {name}: {outcome.why}"
