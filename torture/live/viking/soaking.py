"""Many messages through Holdfast's client into OpenViking's server, with faults at random."""

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torture.live.viking.killable import KillableClient
from torture.live.viking.stage import RunningServer, Setting


def soak(environment: Path, messages: int) -> Iterator[str]:
    """So many messages through Holdfast's client, with commits, lost answers, and kill -9 of the client
    and of the server; a sentence for each thing that is wrong.
    """
    dice = random.Random(messages)
    server = RunningServer(environment)
    with tempfile.TemporaryDirectory(prefix="holdfast-live-") as folder:
        with Setting(server, Path(folder), served=True) as setting:
            client = KillableClient(setting)
            for number in range(1, messages + 1):
                _trouble(setting, client, dice, messages)
                client.say(f"add {number}")
                if dice.random() < 0.03:
                    client.say(f"commit {number}")
                if number % 50 == 0:
                    print(f"{number} messages", file=sys.stderr, flush=True)
            client.say("settle")
            client.kill()
            yield from _wrong(setting, messages)


def _wrong(setting: Setting, messages: int) -> Iterator[str]:
    live, archives = setting.stored()
    there = [text for archive in archives for text in archive] + live
    wanted = [f"Message {number}." for number in range(1, messages + 1)]
    for text in wanted:
        if there.count(text) != 1:
            yield f"{text} is there {there.count(text)} times"
    if list(dict.fromkeys(there)) != wanted:
        yield "messages are out of order"


def _trouble(setting: Setting, client: KillableClient, dice: random.Random, messages: int) -> None:
    # A start of the server takes long, whatever the number of messages: there are about eight.
    often = 8 / messages
    chance = dice.random()
    if chance < often / 2:
        setting.server.restart()
    elif chance < often:
        setting.server.restart(lambda: _wipe(setting))
    elif chance < often + 0.05:
        setting.gateway.lose_next()
    elif chance < often + 0.08:
        client.kill()
    elif chance < often + 0.10:
        setting.gateway.lose_next(then=client.kill)


def _wipe(setting: Setting) -> None:
    file = setting.files() / "messages.jsonl"
    if file.exists():
        file.write_bytes(b"")
