"""Where a row is played: one agent with a home, a model and a place to work, its client, and with
Holdfast a recorder between the two.
"""

import json
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast.formats.acp.messages import WIRE
from holdfast.parts import Call, Result, Text, Thinking
from holdfast.testing.providers import check
from torture.live.acp.agents import Agent, surroundings
from torture.live.acp.client import Client, children, family, kill_all, wait_for_end
from torture.live.acp.ledger import NUMBER, OUTPUT, Told, Turn, told
from torture.live.acp.model import Model
from torture.systems.judging import Trouble, examined
from torture.systems.scripted import do

ROOT = Path(__file__).resolve().parents[3]
FORMATS = ("openai.chat", "openai.responses", "anthropic")
HELD = "The pears in the north field are small this year, but"
Json = dict[str, Any]


class Stage:
    """One agent, played once. `asks`: it wants a permission before it runs anything;
    `serves_load`: with Holdfast, a session that is loaded is replayed from the store.
    """

    def __init__(
        self,
        agent: Agent,
        folder: Path,
        *,
        served: bool,
        asks: bool = False,
        serves_load: bool = False,
    ) -> None:
        self.agent = agent
        self.served = served
        self.store = folder / "holdfast.db"
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.model = Model()
        self.session = ""
        self._ledger = folder / "ledger"
        self._asks = asks
        self._serves_load = serves_load
        self._prompts = 0
        self._outputs = 0
        self._clients: list[Client] = []

    def __enter__(self) -> "Stage":
        self.model.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.let_go()
        for client in self._clients:
            client.give_up()
        self.model.__exit__(*error)

    # What a scene is made of.

    def connect(self, *, load: bool = False) -> Client:
        """A client with an agent of its own, in the session that there is, or in a new one."""
        command = self.agent.command()
        if self.served:
            recorder = [sys.executable, "-m", "holdfast.cli.main", "record"]
            if self._serves_load:
                recorder.append("--serve-load")
            command = [*recorder, "--store", str(self.store), "--", *command]
        client = Client(command, self.settings(), self.work, self._ledger)
        self._clients.append(client)
        client.hello()
        if load:
            client.load(self.session)
        else:
            self.session = client.new()
        if self._asks and self.agent.asking_mode:
            mode = {"sessionId": self.session, "modeId": self.agent.asking_mode}
            client.call("session/set_mode", mode)
        return client

    def settings(self) -> dict[str, str]:
        """The environment of the agent, and of the recorder before it."""
        own = self.agent.settings(self.home, self.model.url, asks=self._asks)
        return {**surroundings(self.home), **own, "PYTHONPATH": str(ROOT / "src")}

    def prompt(self, *steps: Json) -> str:
        """A prompt with a number of its own, and what the model will do about it."""
        self._prompts += 1
        return f"P{self._prompts}: {do(*steps)}"

    def echo(self, before: str = "") -> list[Any]:
        """A call of a command that prints words with a number of their own."""
        self._outputs += 1
        return self.agent.shell(f"{before}echo out-{self._outputs}", asks=self._asks)

    def slow(self) -> list[Any]:
        """A call that is under way until it is let go."""
        return self.echo(f"touch begun-{self._outputs + 1}; until [ -e go ]; do sleep 0.1; done; ")

    def until_held(self, client: Client, since: int = 0, words: str = HELD) -> None:
        """Waits until the client was shown the beginning of an answer that goes no further."""
        if not self.model.halfway.wait(180):
            raise Trouble("the model was not asked")
        client.wait(lambda: words[:20] in _said(client, since), "the beginning of the answer")

    def until_running(self, client: Client, since: int = 0) -> None:
        """Waits until a slow call is under way, and the client knows of it."""
        client.wait(lambda: any(self.work.glob("begun-*")), "a command that runs")
        client.wait(lambda: any(client.updates("tool_call", since)), "the call")

    def let_go(self) -> None:
        """What is held up goes on."""
        self.model.go_on.set()
        (self.work / "go").touch()

    def hold_again(self) -> None:
        """What is slow holds up again."""
        self.model.hold_again()
        (self.work / "go").unlink(missing_ok=True)
        for mark in self.work.glob("begun-*"):
            mark.unlink()

    # Kills.

    def kill_agent(self, client: Client) -> None:
        """kill -9 of the agent and what it started."""
        peer = client.peer()
        agents = children(peer) if self.served else [peer]
        for agent in agents:
            kill_all(family(agent))
        client.lost()

    def kill_recorder(self, client: Client) -> None:
        """kill -9 of what stands between the two; without a recorder, the client's end of it."""
        if not self.served:
            client.kill()
            return
        peer = client.peer()
        agents = children(peer)
        kill_all([peer])
        for agent in agents:
            wait_for_end(agent)
        client.lost()

    # What came of it.

    def told(self) -> Told:
        """What the client was shown."""
        with open(self._ledger, "rb") as lines:
            return told(lines, self.session)

    def sent_with(self, number: str) -> list[Json]:
        """The conversation of the request in which the agent handed this prompt to its model."""
        for _, body in self.model.requests:
            if not body.get("tools"):
                continue
            sent = self.agent.sent(body)
            if number in json.dumps(sent[-1:]):
                return sent
        raise Trouble(f"the model was not asked about {number}")

    def stored(self) -> list[Turn]:
        """What Holdfast has of the session."""
        with holdfast.open(self.store, read_only=True) as store:
            return turns_of(self.the_session(store))

    def the_session(self, store: holdfast.Store) -> holdfast.Session:
        """The one session there is by the agent's name for it: a reload makes no other."""
        mine = [info for info in store.sessions(limit=500) if info.key.endswith(self.session)]
        if len(mine) != 1:
            raise Trouble(f"there are {len(mine)} sessions for {self.session}")
        return store.get(mine[0].id)

    def problems(self) -> list[str]:
        """What is wrong with what Holdfast has, whatever was shown."""
        found = []
        with holdfast.open(self.store, read_only=True) as store:
            session = self.the_session(store)
            for format in FORMATS:
                found += [f"{format}: {each}" for each in check(format, session.context(format))]
            seen = json.dumps(list(session.context("openai.chat")))
            for said in self.told().turns:
                if said.end == "refused" and f"{said.number}: " in seen:
                    found.append(f"the model sees {said.number}, which was refused")
            for turn in session.turns():
                if turn.end is None:
                    found.append(f"turn {turn.number} has no end")
        rules, _ = examined(self.store)
        return [*found, *sorted(rules)]


def turns_of(session: holdfast.Session) -> list[Turn]:
    """A transcript as turns, in their order. A prompt that waits for its turn is one by itself, and
    so is one whose turn was killed before it began: the next turn took it along. One that was
    refused is none.
    """
    places = {info.id: info.number for info in session.turns()}
    found: list[tuple[int, Turn]] = []
    current: dict[str, Turn] = {}
    late: list[holdfast.Message] = []
    spoken: dict[str, tuple[str | None, Turn]] = {}
    for message in session.transcript():
        if message.turn is None and message.role == "tool":
            late.append(message)
            continue
        is_hidden = message.labels.get("visible_to_model") is False
        if is_hidden and (message.turn is None or "acp.answer" in message.labels):
            continue
        wire = message.payload.get(WIRE, {}).get("messageId")
        earlier = spoken.get(wire)
        if earlier is not None and earlier[0] != message.turn:
            # The agent went on with it when its turn was over.
            earlier[1].late.append(message.text)
            continue
        id = message.turn or message.id
        is_prompt = message.role == "user" and NUMBER.search(message.text)
        if is_prompt or id not in current:
            current[id] = Turn(message.text if message.role == "user" else "")
            found.append((places.get(id, len(places) + 1), current[id]))
        if message.role != "user":
            _add(current[id], message)
            if wire is not None:
                spoken[wire] = message.turn, current[id]
    turns = [turn for _, turn in sorted(found, key=lambda pair: pair[0])]
    for message in late:
        _add_late(turns, message)
    return turns


def _add_late(turns: list[Turn], message: holdfast.Message) -> None:
    """An outcome that came when its turn was over belongs to the turn of its call."""
    answered = {part.call_id for part in message.parts if isinstance(part, Result)}
    for turn in turns:
        if answered & set(turn.calls):
            _add(turn, message)


def _add(turn: Turn, message: holdfast.Message) -> None:
    for part in message.parts:
        if isinstance(part, Call):
            turn.calls.append(part.id)
        elif isinstance(part, Result):
            turn.results.setdefault(part.call_id, set()).update(OUTPUT.findall(part.content))
        elif isinstance(part, Thinking):
            turn.thoughts += part.text
        elif isinstance(part, Text) and message.role == "assistant":
            turn.words += part.text


def _said(client: Client, since: int) -> str:
    updates = client.updates("agent_message_chunk", since)
    return "".join(update["content"].get("text", "") for update in updates)
