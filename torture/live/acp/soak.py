"""Many messages to an agent behind the recorder, and a kill, a cancel or an end of input in between,
at random.

All that the client was shown is in its ledger; at the end every session is held against it. The
dice have a seed: the same seed gives the same kinds of turns and faults, at the same places of the
script, though never at the same instruction.
"""

import queue
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import holdfast
from torture.live.acp.agents import Agent
from torture.live.acp.client import Client, answered
from torture.live.acp.ledger import differences
from torture.live.acp.stage import HELD, Json, Stage, turns_of
from torture.systems.judging import Trouble

SESSION_LENGTH = 20
WORDS = ("pear", "apple", "barn", "saw", "rake", "frost", "bee", "ladder", "field", "rain")


def soak(agent: Agent, folder: Path, messages: int, seed: int) -> Iterator[str]:
    """A sentence for each thing that was wrong in the end."""
    with Stage(agent, folder, served=True) as stage:
        run = _Run(stage, random.Random(seed))
        run.play(messages)
        yield from run.wrong()


class _Run:
    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self._stage = stage
        self._dice = dice
        self._sessions: list[str] = []
        self._client: Client | None = None
        self._texts = 0
        self._faults: list[tuple[Callable[[Client], None], int]] = [
            (self._quiet, 60),
            (self._leave, 4),
            (self._cancel_mid_stream, 6),
            (self._cancel_in_a_tool, 5),
            (self._kill_mid_stream, 10),
            (self._kill_in_a_tool, 5),
            (self._kill_any_time, 10),
        ]

    def play(self, messages: int) -> None:
        faults = [fault for fault, _ in self._faults]
        weights = [weight for _, weight in self._faults]
        for number in range(messages):
            if number % SESSION_LENGTH == 0:
                self._begin()
            [fault] = self._dice.choices(faults, weights)
            fault(self._client or self._connect())
            if number % 25 == 24:
                said = f"{self._stage.agent.name}: {number + 1} of {messages}"
                print(said, file=sys.stderr, flush=True)
        self._leave(self._client or self._connect())

    def _begin(self) -> None:
        """Another session. Somebody looks at the last one first: what a kill has left open there
        is ended by whoever looks next.
        """
        if self._sessions:
            self._leave(self._client or self._connect())
        self._client = self._open()

    def _connect(self) -> Client:
        """The same session in a new process; another one where the agent itself has lost it."""
        try:
            self._client = self._stage.connect(load=True)
        except Trouble:
            self._client = self._open()
        return self._client

    def _open(self) -> Client:
        client = self._stage.connect()
        self._sessions.append(self._stage.session)
        return client

    # Turns, and what happens to them.

    def _quiet(self, client: Client) -> None:
        client.say(self._stage.session, self._stage.prompt(*self._steps()))

    def _leave(self, client: Client) -> None:
        client.hang_up()
        self._client = None

    def _cancel_mid_stream(self, client: Client) -> None:
        waiting = self._hold(client)
        client.cancel(self._stage.session)
        answered(waiting, "a cancelled prompt")
        self._stage.let_go()

    def _cancel_in_a_tool(self, client: Client) -> None:
        waiting = self._run_slowly(client)
        client.cancel(self._stage.session)
        answered(waiting, "a cancelled prompt")
        self._stage.let_go()

    def _kill_mid_stream(self, client: Client) -> None:
        self._hold(client)
        self._kill(client)

    def _kill_in_a_tool(self, client: Client) -> None:
        self._run_slowly(client)
        self._kill(client)

    def _kill_any_time(self, client: Client) -> None:
        client.prompt(self._stage.session, self._stage.prompt(*self._steps()))
        time.sleep(self._dice.random())
        self._kill(client)

    def _kill(self, client: Client) -> None:
        stage = self._stage
        ways = (stage.kill_agent, stage.kill_recorder, Client.kill, Client.hang_up)
        self._dice.choice(ways)(client)
        stage.let_go()
        self._client = None

    def _hold(self, client: Client) -> "queue.Queue[Json]":
        stage = self._stage
        stage.hold_again()
        seen = len(client.shown)
        held = self._numbered(HELD.split())
        step: Json = {"hold": f"{self._words()} {held}"}
        waiting = client.prompt(stage.session, stage.prompt(step))
        stage.until_held(client, since=seen, words=held)
        return waiting

    def _run_slowly(self, client: Client) -> "queue.Queue[Json]":
        stage = self._stage
        stage.hold_again()
        seen = len(client.shown)
        step: Json = {"text": self._words(), "tools": [stage.echo(), stage.slow()]}
        waiting = client.prompt(stage.session, stage.prompt(step))
        stage.until_running(client, since=seen)
        return waiting

    def _steps(self) -> list[Json]:
        steps: list[Json] = []
        for _ in range(self._dice.choice((0, 0, 1, 1, 2))):
            calls = [self._stage.echo() for _ in range(self._dice.choice((1, 1, 2, 3)))]
            steps.append({"text": self._words(), "tools": calls})
        steps.append({"text": self._words()})
        if self._dice.random() < 0.3:
            steps[0]["think"] = self._words()
        return steps

    def _words(self) -> str:
        return self._numbered(self._dice.choices(WORDS, k=self._dice.randint(1, 12)))

    def _numbered(self, words: list[str]) -> str:
        """Words that are said once in a soak. An agent may keep more of a message than was shown;
        the rest of it, wherever it is cut, must not look like words of another message.
        """
        self._texts += 1
        return " ".join(f"{word}-{self._texts}" for word in words)

    # What came of it.

    def wrong(self) -> Iterator[str]:
        stage = self._stage
        for session in self._sessions:
            stage.session = session
            name = f"{stage.agent.name} {session}"
            try:
                with holdfast.open(stage.store, read_only=True) as store:
                    stored = turns_of(stage.the_session(store))
                problems = [*differences(stage.told().turns, stored), *stage.problems()]
            except Trouble as trouble:
                problems = [str(trouble)]
            for problem in problems:
                yield f"{name}: {problem}"
