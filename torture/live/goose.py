"""goose 1.52.0 behind `holdfast record`, and with it two more agents that speak the same protocol:
claude-agent-acp 0.49.0 and codex-acp 2.6.0.

A scripted model on loopback answers them. In each row something happens to a turn: a cancel, a
kill, an end of input, a second prompt. Then the agent is started again, the session is loaded and
spoken to once more. Without Holdfast, `stored` is what the agent's own replay has of the turn, and
the next request is the one it sends to its model. With it, `stored` is the transcript, and the next
request is the context for each provider. A row is right when all that the client was shown is
stored, nothing is there twice or in another place, and the next request is valid.
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import holdfast  # noqa: E402
from holdfast.testing.providers import check  # noqa: E402
from torture.live.acp import scenes  # noqa: E402
from torture.live.acp.agents import AGENTS, Agent, Claude, Codex, Goose  # noqa: E402
from torture.live.acp.ledger import Turn, differences, doubled, missing  # noqa: E402
from torture.live.acp.soak import soak as soak_one  # noqa: E402
from torture.live.acp.stage import Json, Stage  # noqa: E402
from torture.live.table import Outcome, Row  # noqa: E402
from torture.systems.judging import Trouble  # noqa: E402

INSTALL: tuple[str, ...] = ()
NEXT = "What did we say last?"
Scene = Callable[[Stage], None]

SCENES: dict[str, Scene] = {
    "cancel mid-stream": scenes.cancel_mid_stream,
    "cancel in a running tool": scenes.cancel_in_a_tool,
    "cancel while a permission is open": scenes.cancel_while_asked,
    "kill -9 of the agent": scenes.kill_of_the_agent,
    "kill -9 of the client": scenes.kill_of_the_client,
    "kill -9 of the recorder": scenes.kill_of_the_recorder,
    "end of input": scenes.end_of_input,
    "reconnecting": scenes.reconnecting,
    "second prompt": scenes.second_prompt,
    "parallel calls, kill -9": scenes.parallel_calls,
    "labels": scenes.labels,
}


def prepare(environment: Path) -> None:
    for make in AGENTS:
        make(environment).prepare()


def rows(environment: Path) -> Iterable[Row]:
    for make in AGENTS:
        agent = make(environment)
        for name, scene in SCENES.items():
            yield Row(f"{agent.name}: {name}", partial(_play, agent, scene))
        yield Row(f"{agent.name}: loaded from the store", partial(_loaded, agent))
        if isinstance(agent, Goose):
            yield Row("goose: carried on from an export", partial(_carried_on, agent))


def soak(environment: Path, messages: int) -> Iterator[str]:
    """The three agents at once, each with its share of the messages: goose has the most."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    shares = {Goose: 3, Claude: 1, Codex: 1}
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as name, ThreadPoolExecutor() as pool:
        folder = Path(name)
        under_way = []
        for make, share in shares.items():
            agent = make(environment)
            (folder / agent.name).mkdir()
            count = messages * share // sum(shares.values())
            under_way.append(pool.submit(_soaked, agent, folder / agent.name, count, seed))
        for done in under_way:
            yield from done.result()


def _soaked(agent: Agent, folder: Path, messages: int, seed: int) -> list[str]:
    return list(soak_one(agent, folder, messages, seed))


def _play(agent: Agent, scene: Scene, folder: Path, served: bool) -> Outcome:
    asks = scene is scenes.cancel_while_asked
    try:
        with Stage(agent, folder, served=served, asks=asks) as stage:
            scene(stage)
            client = stage.connect(load=True)
            stage.let_go()
            last = stage.prompt().replace("DO: []", NEXT)
            client.say(stage.session, last)
            client.hang_up()
            if scene is scenes.labels:
                return _flags(stage)
            return _with(stage) if served else _without(stage)
    except Trouble as trouble:
        return Outcome("-", "-", None, False, str(trouble))


def _carried_on(agent: Goose, folder: Path, served: bool) -> Outcome:
    """After a cancel in a tool, goose carries on: with Holdfast, from the session that it recorded,
    exported and imported by goose. What its model is told then is what was shown.
    """
    try:
        with Stage(agent, folder, served=served) as stage:
            scenes.cancel_in_a_tool(stage)
            shown = stage.told().turns
            if served:
                stage.session = scenes.exported_to_goose(stage, agent, folder / "session.json")
            # From here on goose is alone.
            stage.served = False
            stage.connect(load=True).hang_up()
            kept = stage.told().replays[-1]
            wrong = [f"lost {each}" for each in missing(shown, kept)]
            sent = scenes.carried_on(stage, agent, stage.prompt().replace("DO: []", NEXT))
            wrong += [f"the model is not told {each}" for each in _untold(shown, sent)]
            refused = check(agent.format, sent)
            wrong += [f"the next request: {each}" for each in refused]
            return _outcome(shown, kept, not refused, wrong)
    except Trouble as trouble:
        return Outcome("-", "-", None, False, str(trouble))


def _loaded(agent: Agent, folder: Path, served: bool) -> Outcome:
    """After two cancels the session is loaded again; with Holdfast, the store replays it. What the
    client is shown then is what it was shown before.
    """
    try:
        with Stage(agent, folder, served=served, serves_load=True) as stage:
            scenes.cancel_twice(stage)
            shown = stage.told().turns
            stage.connect(load=True).hang_up()
            stage.connect(load=True).hang_up()
            told = stage.told()
            wrong = [f"lost {each}" for each in missing(shown, told.replays[-1])]
            wrong += [f"doubled {each}" for each in doubled(told.replays[-1])]
            refused = stage.problems() if served else []
            if served:
                wrong += [*differences(told.turns, stage.stored()), *refused]
            valid = not refused if served else None
            return _outcome(shown, told.replays[-1], valid, wrong)
    except Trouble as trouble:
        return Outcome("-", "-", None, False, str(trouble))


def _untold(shown: list[Turn], sent: list[Json]) -> Iterator[str]:
    """What was shown and is not in a request."""
    request = json.dumps(sent, ensure_ascii=False)
    for turn in shown:
        for thing in (turn.number, turn.words.strip(), *turn.calls):
            if thing not in request:
                yield f"{turn.number}: {thing}"


def _without(stage: Stage) -> Outcome:
    told = stage.told()
    kept = told.replays[-1]
    # The last turn came after the replay.
    *shown, last = told.turns
    wrong = [f"lost {each}" for each in missing(shown, kept)]
    wrong += [f"doubled {each}" for each in doubled(kept)]
    refused = check(stage.agent.format, stage.sent_with(last.number))
    wrong += [f"the next request: {each}" for each in refused]
    return _outcome(shown, kept, not refused, wrong)


def _with(stage: Stage) -> Outcome:
    shown, stored = stage.told().turns, stage.stored()
    refused = stage.problems()
    wrong = [*differences(shown, stored), *refused]
    return _outcome(shown[:-1], stored, not refused, wrong)


def _outcome(shown: list[Turn], stored: list[Turn], valid: bool, wrong: list[str]) -> Outcome:
    """The turn that something happened to is the one that is told of."""
    turn = shown[-1]
    if turn.end == "refused":
        turn = shown[-2]
    [kept] = [each for each in stored if each.number == turn.number] or [None]
    return Outcome(str(turn), str(kept or "nothing"), valid, not wrong, "; ".join(wrong))


def _flags(stage: Stage) -> Outcome:
    """Whether what was hidden is hidden."""
    if stage.served:
        with holdfast.open(stage.store, read_only=True) as store:
            session = stage.the_session(store)
            labels = scenes.greeting_in(session).labels
            kept = labels.get("visible_to_user") is False and not _is_seen(session)
        wrong = stage.problems()
        stored = "hidden" if kept else "visible"
        return Outcome("1 hidden", stored, not wrong, kept and not wrong, "; ".join(wrong))
    if isinstance(stage.agent, Goose):
        kept = scenes.hidden_in_goose(stage, stage.agent)
        return Outcome("1 hidden", "hidden" if kept else "visible", None, kept, "")
    return Outcome("-", "has no labels", None, False, "")


def _is_seen(session: holdfast.Session) -> bool:
    """Whether a model is told of the greeting."""
    for message in session.context("openai.chat"):
        if message["role"] == "assistant" and "Good morning" in str(message["content"]):
            return True
    return False
