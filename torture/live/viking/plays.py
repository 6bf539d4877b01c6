"""OpenViking's own server under the client of Holdfast, and under one that retries as most do.

Without Holdfast, a message is posted, and posted again while no answer comes: the server has no
idempotency keys, so that is all that a client without a record of its own can do. A gateway stands
between the two and loses answers when told; kill -9 is really sent, to the server and to clients.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from torture.live.table import Outcome, Row
from torture.live.viking.gateway import ask
from torture.live.viking.killable import KillableClient
from torture.live.viking.stage import RunningServer, Setting


def rows(environment: Path) -> list[Row]:
    """The rows of the client. They share a server: it takes most of a minute to start."""
    shared = RunningServer(environment)
    plays = {
        "client: an add whose answer is lost is retried": _lost_answer,
        "client: a commit whose answer is lost is retried": _lost_commit,
        "client: kill -9 of the client before it has noted the answer": _killed_client,
        "client: kill -9 of the server wipes the session": _wiped,
        "client: two commits at once": _two_commits,
        "client: a commit while a message arrives": _commit_and_message,
        "client: a message that is refused among others": _refused,
        "client: the extraction of a commit fails": _failed_commit,
        "client: kill -9 of the server, again and again": _killed_server,
    }

    def row(name: str, play: Callable[["Setting"], Outcome]) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            with Setting(shared, folder, served) as setting:
                try:
                    return play(setting)
                except TimeoutError as error:
                    return Outcome(f"{setting.said} said", "unknown", None, False, str(error))

        return Row(name, played)

    return [row(name, play) for name, play in plays.items()]


def _lost_answer(setting: Setting) -> Outcome:
    setting.say(2)
    setting.client.settle()
    setting.gateway.lose_next()
    setting.say()
    setting.client.settle()
    setting.say()
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4])


def _lost_commit(setting: Setting) -> Outcome:
    """The answer to a commit is lost; before it is tried again, another message arrives."""
    setting.say(3)
    setting.client.settle()
    setting.gateway.lose_next(then=lambda: _someone_says(setting, "Message 4."))
    setting.client.commit(enable_working_memory=True)
    setting.said += 1
    setting.client.settle()
    return setting.outcome([[1, 2, 3]], [4])


def _someone_says(setting: Setting, text: str) -> None:
    """Another client of the same session: it does not go through Holdfast."""
    url = f"http://127.0.0.1:{setting.server.port}"
    ask(url, "POST", f"/api/v1/sessions/{setting.id}/messages", {"role": "user", "content": text})


def _killed_client(setting: Setting) -> Outcome:
    """The client is killed while its answer is on the way. The next one begins with what the one
    before it had not yet told its caller; Holdfast's with what its store has.
    """
    setting.said = 4
    client = KillableClient(setting)
    for number in range(1, 5):
        if number == 2:
            setting.gateway.lose_next(then=client.kill)
        if setting.served and _said_to_holdfast(setting) >= number:
            # The message was durable: its caller knows that, and does not say it again.
            continue
        client.say(f"add {number}")
        client.say("settle")
    client.kill()
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4])


def _said_to_holdfast(setting: Setting) -> int:
    with holdfast.open(setting.folder / "agent.db") as store:
        return sum(1 for _ in store.session(setting.id).transcript())


def _wiped(setting: Setting) -> Outcome:
    """What kill -9 in the middle of an append leaves: the file of live messages is empty."""
    setting.say(5)
    setting.client.settle()
    setting.server.restart(lambda: (setting.files() / "messages.jsonl").write_bytes(b""))
    setting.say()
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4, 5, 6])


def _two_commits(setting: Setting) -> Outcome:
    setting.say(4)
    setting.client.settle()
    states: list[str] = []
    threads = []
    for _ in range(2):
        made = lambda: states.append(setting.client.commit(enable_working_memory=True))  # noqa: E731
        threads.append(threading.Thread(target=made))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    why = "" if sorted(states) == ["completed", "skipped"] else f"they ended as {states}"
    return setting.outcome([[1, 2, 3, 4]], [], why)


def _commit_and_message(setting: Setting) -> Outcome:
    """A message is said right after a commit was asked for, while that is under way."""
    setting.say(3)
    setting.client.settle()
    commit = threading.Thread(target=lambda: setting.client.commit(enable_working_memory=True))
    commit.start()
    setting.gateway.wait_for("/commit")
    setting.say()
    commit.join()
    setting.client.settle()
    return setting.outcome([[1, 2, 3]], [4])


def _refused(setting: Setting) -> Outcome:
    """One message of a hundred is none that OpenViking takes."""
    setting.say(2)
    parts = [{"type": "context", "uri": "viking://nowhere/../..", "abstract": "x"}]
    if setting.served:
        setting.client.client.add_messages(setting.id, [{"role": "user", "parts": parts}])
    else:
        setting.client._insist("/messages", {"role": "user", "parts": parts})
    setting.say(2)
    setting.client.settle()
    why = ""
    if setting.served and len(setting.client.client.report(setting.id).refused) != 1:
        why = "the refused message was not reported"
    return setting.outcome([], [1, 2, 3, 4], why)


def _failed_commit(setting: Setting) -> Outcome:
    """The model answers nonsense: the archive fails, and its messages leave every context."""
    setting.say(3)
    setting.client.settle()
    setting.server.model_fails = True
    state = setting.client.commit(enable_working_memory=True)
    setting.server.model_fails = False
    setting.say()
    setting.client.settle()
    kept = len(setting.stored()[0])
    if setting.served:
        kept = _said_to_holdfast(setting)
    right = state == "failed" and kept == 4
    why = "" if right else f"the commit ended as {state}, {kept} of 4 messages can be read"
    return Outcome("4 said", f"{kept} of 4 can be read", None, right, why)


def _killed_server(setting: Setting, messages: int = 30, kills: int = 3) -> Outcome:
    stop = threading.Event()
    dice = random.Random(7)

    def kill() -> None:
        for _ in range(kills):
            if stop.wait(dice.uniform(0.2, 1.5)):
                return
            setting.server.restart()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for _ in range(messages):
            setting.say()
            time.sleep(dice.uniform(0, 0.1))
        killer.join()
        setting.client.settle()
    finally:
        stop.set()
        killer.join()
    return setting.outcome([], list(range(1, messages + 1)))
