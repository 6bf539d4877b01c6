"""Conversations that are forked, by Claude Code and by Codex: two turns, a fork, a turn there, one more in
the original, and one more in the fork.

Without Holdfast, `stored` is what the last request of the fork has of the answer that was shown there. With
it, each of the two sessions is found under its own name; has what was said in it, once, and the past that
they share; and shows its model what its agent has sent last, and the answer.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import holdfast
from holdfast.server.proxy.dialects import ANTHROPIC, RESPONSES, read_request
from holdfast.server.proxy.marks import Marks, marks_of
from holdfast.server.proxy.marks import asked as asked_with
from holdfast.testing.providers import check
from torture.live.proxied.agents import ClaudeCode, Codex
from torture.live.proxied.stage import (
    APPLE,
    HALF,
    PEAR,
    PLUM,
    Begin,
    Stage,
    killed_in_an_answer,
    said_by_model,
    staged,
)
from torture.live.table import Outcome, Row
from torture.systems.judging import Trouble
from torture.systems.scripted import do

FIG, DATE = "And the fig?", "And the date?"
ORIGINAL, FORK = (PEAR, PLUM, FIG), (PEAR, PLUM, APPLE, DATE)
Way = Callable[[Any, str, str], Any]
"""How a session is forked: the agent, the session's id, and the first prompt."""


def rows(environment: Path) -> Iterable[Row]:
    ways: list[tuple[type[Any], str, Way, bool]] = []
    for make in (ClaudeCode, Codex):
        ways.append((make, "fork", make.fork, False))
        if make is ClaudeCode:
            ways.append((make, "fork of the last one", make.fork_of_the_last, False))
        ways.append((make, "fork, kill -9 of the proxy in an answer", make.fork, True))
    for make, name, way, is_killed in ways:
        play = partial(_play, environment, make, way, is_killed)
        yield Row(f"{make.name}: {name}", play)


def _play(
    environment: Path, make: type[Any], way: Way, is_killed: bool, folder: Path, served: bool
) -> Outcome:
    with staged(environment, make, folder, served) as stage:
        try:
            original, fork = _forked(stage, way, is_killed)
        except Trouble as trouble:
            return Outcome(HALF, "-", None, False, str(trouble))
        # The last of each: what follows on a prompt is another request with it.
        sent = {prompt: _last_with(stage, prompt) for prompt in (FIG, DATE)}
    if not served:
        is_there = HALF in said_by_model(sent[DATE])
        is_apart = HALF not in said_by_model(sent[FIG])
        stored = "all of it" if is_there else "nothing"
        return Outcome(HALF, stored, None, is_there and is_apart)
    return _judged(stage, f"{make.key}:{original}", f"{make.key}:{fork}", sent)


def _forked(stage: Stage, way: Way, is_killed: bool) -> tuple[str, str]:
    """Plays it; the ids of the original and of the fork."""
    agent: Any = stage.agent
    looked = {"text": "Looking.", "tools": [agent.tool]}
    agent.say(f"{PEAR} {do(looked, {'text': 'It is ripe.'})}")
    agent.say(PLUM)
    [original] = agent.sessions()
    begin: Begin = partial(way, agent, original)
    if is_killed:
        killed_in_an_answer(stage, APPLE, begin)
    else:
        agent.wait(begin(f"{APPLE} {do({'text': HALF + ' ripe.'})}"))
    [fork] = agent.sessions() - {original}
    agent.wait(agent.go_on(original, FIG))
    agent.wait(agent.go_on(fork, DATE))
    return original, fork


def _last_with(stage: Stage, prompt: str) -> dict[str, Any]:
    """The last request that has a prompt."""
    found = [body for _, body in stage.model.requests if prompt in json.dumps(body)]
    if not found:
        raise Trouble(f"{prompt!r} was not sent")
    return found[-1]


def _judged(stage: Stage, original: str, fork: str, sent: dict[str, dict[str, Any]]) -> Outcome:
    problems = []
    format = stage.agent.format
    with holdfast.open(stage.store) as opened:
        keys = {str(info.key) for info in opened.sessions()}
        if keys != {original, fork}:
            return Outcome(HALF, "-", None, False, f"sessions {sorted(keys)}")
        first, second = opened.session(original), opened.session(fork)
        problems += _amiss(first, ORIGINAL, format, _marks(stage, sent[FIG]))
        problems += _amiss(second, FORK, format, _marks(stage, sent[DATE]))
        there = {each.id for each in first.transcript()}
        past = [each.id for each in second.transcript()]
        shared = sum(id in there for id in past)
        # All that the original has, but for its last turn.
        if shared != len(there) - 2:
            problems.append(f"they share {shared} messages of {len(there)}")
        turns = [len(list(session.turns())) for session in (first, second)]
        words = [each for each in second.transcript() if HALF in each.text]
        words = [each for each in words if each.role == "assistant"]
        whole = [each for each in words if each.state == "complete"]
        if not whole or len(words) > 2:
            problems.append(f"{len(words)} answers with what was shown, {len(whole)} whole")
        wrong = [each for one in (first, second) for each in check(format, one.context(format))]
    stored = f"{len(words)} of it, {len(whole)} whole, turns {turns[0]} and {turns[1]}"
    stored += f", shares {shared} of {len(past)}"
    return Outcome(
        HALF, stored, not wrong, not problems and not wrong, "; ".join([*problems, *wrong[:2]])
    )


def _marks(stage: Stage, body: dict[str, Any]) -> Marks:
    dialect = ANTHROPIC if stage.agent.format == "anthropic" else RESPONSES
    request = read_request(dialect, json.dumps(body).encode())
    assert request is not None
    return marks_of(request.messages)


def _amiss(
    session: holdfast.Session, prompts: tuple[str, ...], format: str, sent: Marks
) -> list[str]:
    """What is wrong with one of the two: prompts that it has, or has not, calls and results that are there
    twice, a turn without an end, and another view than what was sent last and its answer.
    """
    problems = []
    said = list(session.transcript())
    asked = [each.text for each in said if each.role == "user"]
    for prompt in {*ORIGINAL, *FORK}:
        found = sum(prompt in text for text in asked)
        if found != (prompt in prompts):
            problems.append(f"{prompt!r} {found} times in {session.key}")
    results = [each for each in said if each.role == "tool" and "ripe" in each.text]
    if len(results) != 1 or len(list(session.calls())) != 1:
        problems.append(f"{len(results)} results, {len(list(session.calls()))} calls")
    told = [each.text for each in said if each.role == "system"]
    if len(set(told)) < len(told):
        problems.append(f"a system message twice in {session.key}")
    ends = [turn.end for turn in session.turns()]
    if None in ends or "failed" in ends or ends[-1] != "completed":
        problems.append(f"turns ended {ends}")
    # There system messages stand by themselves, as in the list.
    view = marks_of(session.context("openai.chat"))
    if asked_with(view[:-1]) != asked_with(sent):
        problems.append(f"the view of {session.key} is not what was sent")
    return problems
