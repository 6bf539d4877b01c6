"""Where agents behind `holdfast proxy` are played: an agent, its model, and the proxy between them."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from openviking_server import Served
from servers import free_port
from torture.live.proxied.agents import Agent, until
from torture.systems.scripted import Scripted, do

HALF = "It is almost"
PEAR, PLUM, APPLE = "Is the pear ripe?", "And the plum?", "And the apple?"


class Proxy(Served):
    """`holdfast proxy`, at one address, however often it is killed."""

    COMMAND = "proxy"

    def __init__(self, store: Path, upstream: str) -> None:
        super().__init__(store, "--upstream", upstream, key="")
        self._command[self._command.index("--port") + 1] = str(free_port())


class Between:
    """The model, at the address of whatever stands before it."""

    def __init__(self, model: Scripted, url: str) -> None:
        self._model, self.url = model, url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Stage:
    """An agent, its model and, if there is one, the proxy between them."""

    def __init__(self, agent: Agent, model: Scripted, proxy: Proxy | None, store: Path) -> None:
        self.agent, self.model, self.proxy, self.store = agent, model, proxy, store


@contextmanager
def staged(environment: Path, make: type[Any], folder: Path, served: bool) -> Iterator[Stage]:
    """An agent in an empty folder; with `served`, behind a proxy."""
    make.prepare(environment / make.name)
    store = folder / "agents.db"
    with Scripted() as model, _between(model, store, served) as (seen, proxy):
        (folder / "agent").mkdir()
        agent = make(folder / "agent", seen)
        agent.environment = environment / make.name
        yield Stage(agent, model, proxy, store)


@contextmanager
def _between(model: Scripted, store: Path, served: bool) -> Iterator[tuple[Any, Proxy | None]]:
    if not served:
        yield model, None
        return
    with Proxy(store, model.url) as proxy:
        yield Between(model, f"http://127.0.0.1:{proxy.port}"), proxy
        if proxy.process is not None and proxy.process.poll() is None:
            proxy.end()


Begin = Callable[[str], "subprocess.Popen[str]"]
"""How an agent is given a prompt: the process that has it answered."""


def killed_in_an_answer(stage: Stage, prompt: str, begin: Begin) -> None:
    """The proxy is killed in the middle of the answer, and started again: the agent tries again by itself.
    Without a proxy, it is the model that hangs up.
    """
    if stage.proxy is None:
        begin(f"{prompt} {do({'cut': HALF})}").communicate()
        return
    process = begin(f"{prompt} {do({'hold': HALF})}")
    until(stage.model.halfway.is_set, process)
    until_shown(stage.store)
    stage.proxy.kill()
    stage.model.go_on.set()
    stage.proxy.start()
    process.communicate()


def until_shown(store: Path) -> None:
    """Waits until the words are in the store: then the agent is being shown them."""
    with holdfast.open(store) as opened:
        [running] = opened.sessions(state="running")
        said = ""
        for event in opened.get(running.id).follow():
            said += event.text or "" if event.kind == "chunk" else ""
            if HALF in said:
                return


def said_by_model(body: dict[str, Any]) -> str:
    """What a request has of the model's own words."""
    messages = body.get("messages") or body.get("input") or []
    return json.dumps([each for each in messages if each.get("role") == "assistant"])
