"""`holdfast serve-openviking` in the place of OpenViking's server, under the same faults.

All rows go through OpenViking's own Python client, which runs unchanged in OpenViking's
environment. Without Holdfast it speaks with OpenViking's server, with Holdfast with ours. Servers
are really killed. What is stored is told by OpenViking's files, and by our endpoints.
"""

import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from torture.live.table import Outcome, Row
from torture.live.viking.served import LIMIT_S, ClientError, Driver, Servers, Setting

FRAME = 24 + 4096
"""A frame of SQLite's log: its head, and a page."""


def rows(shared: Servers) -> list[Row]:
    """The rows of the server."""
    plays: dict[str, Callable[[Setting], Outcome]] = {
        "server: the clear of a commit is lost (#1487, #2604)": _lost_clear,
        "server: kill -9 between archive and clear": _killed_in_commit,
        "server: two commits at once": _two_commits,
        "server: a commit while messages arrive": _commit_and_messages,
        "server: an add is sent again": _retried_add,
        "server: kill -9 while messages are added": _killed_while_adding,
        "server: the extraction of a commit fails": _failed_extraction,
    }

    def row(name: str, play: Callable[["Setting"], Outcome]) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            with Setting(shared, served) as setting:
                return play(setting)

        return Row(name, played)

    return [row(name, play) for name, play in plays.items()]


def _lost_clear(setting: Setting) -> Outcome:
    """The commit is answered, and its last writes are not on the disk.

    OpenViking: the archive is there, the live file is the old one. Ours has one write: with each
    beginning of SQLite's log that the commit has added to, every message is there once.
    """
    for _ in range(4):
        setting.say()
    if not setting.served:
        before = (setting.files() / "messages.jsonl").read_bytes()
        setting.finished(setting.commit())
        setting.restart(lambda: (setting.files() / "messages.jsonl").write_bytes(before))
        setting.say()
        setting.finished(setting.commit())
        return setting.outcome()
    log = Path(f"{setting.server.store}-wal")
    size = log.stat().st_size
    setting.finished(setting.commit())
    setting.server.kill()
    kept = setting.server.store.with_suffix(".kept")
    _copy(setting.server.store, kept)
    cuts = range(size, log.stat().st_size + 1, FRAME)
    wrong = ""
    for cut in cuts:
        _copy(kept, setting.server.store)
        os.truncate(log, cut)
        setting.server.start()
        outcome = setting.outcome()
        setting.server.kill()
        wrong = wrong or outcome.why
    _copy(kept, setting.server.store)
    setting.server.start()
    setting.say()
    setting.finished(setting.commit())
    if len(cuts) < 2:
        wrong = "the commit has added nothing to the log"
    return setting.outcome(wrong)


def _copy(store: Path, to: Path) -> None:
    for end in ("", "-wal"):
        source = Path(f"{store}{end}")
        if source.exists():
            shutil.copyfile(source, f"{to}{end}")
    # Shared memory is derived from the log: an old one must not be taken for the new log's.
    Path(f"{to}-shm").unlink(missing_ok=True)


def _killed_in_commit(setting: Setting) -> Outcome:
    """OpenViking is killed when the archive is seen on the disk, ours at a random moment of the
    commit; then it goes on with a message and a commit.
    """
    rounds = 1
    dice = random.Random(5)
    if setting.served:
        rounds = 5
    for number in range(rounds):
        _fill(setting, number)
        driver = setting.another()
        commit = threading.Thread(target=_try_to_commit, args=(setting, driver))
        commit.start()
        if setting.served:
            time.sleep(dice.uniform(0, 0.02))
        else:
            file = setting.files() / "history" / "archive_001" / "messages.jsonl"
            until = time.monotonic() + LIMIT_S
            while not file.exists() and time.monotonic() < until:
                pass
        setting.server.kill()
        commit.join()
        setting.server.start()
    setting.say()
    setting.finished(setting.commit())
    return setting.outcome()


def _fill(setting: Setting, round: int) -> None:
    """Enough for a commit to take a while."""
    batch = []
    for number in range(100):
        batch.append(f"Round {round}, message {number}. {'Water the trees. ' * 100}")
    messages = [{"role": "user", "content": text} for text in batch]
    setting.client.call("batch_add_messages", setting.id, messages)
    setting.said += batch


def _try_to_commit(setting: Setting, driver: Driver) -> None:
    with suppress(ClientError):  # its server is killed
        setting.commit(driver)


def _two_commits(setting: Setting) -> Outcome:
    for _ in range(6):
        setting.say()
    drivers = [setting.client, setting.another()]
    drivers[1].call("get_session", setting.id)
    commits: list[Any] = []
    threads = []
    for driver in drivers:
        commit = threading.Thread(target=lambda each=driver: commits.append(setting.commit(each)))
        threads.append(commit)
        commit.start()
    for thread in threads:
        thread.join()
    states = sorted(setting.finished(each) for each in commits)
    why = "" if states == ["completed", "none"] else f"they ended as {states}"
    return setting.outcome(why)


def _commit_and_messages(setting: Setting) -> Outcome:
    setting.say()
    driver = setting.another()
    over = threading.Event()

    def commit() -> None:
        while not over.is_set():
            setting.commit(driver, keep=1)

    committer = threading.Thread(target=commit)
    committer.start()
    for _ in range(30):
        setting.say()
    over.set()
    committer.join()
    setting.finished(setting.commit())
    return setting.outcome()


def _retried_add(setting: Setting) -> Outcome:
    """The answer to an add was lost, and the client sends it again, as it was."""
    setting.say()
    messages = []
    for number in (2, 3):
        message = {"role": "user", "content": f"Message {number}.", "turn_id": "t1"}
        messages.append({**message, "source_message_ids": [f"m{number}"]})
        setting.said.append(f"Message {number}.")
    for _ in range(2):
        setting.client.call("batch_add_messages", setting.id, messages)
    setting.finished(setting.commit())
    setting.client.call("batch_add_messages", setting.id, messages)
    return setting.outcome()


def _killed_while_adding(setting: Setting) -> Outcome:
    """OpenViking is killed in the moment in which its file is empty, ours at random."""
    for _ in range(5):
        setting.say()
    dice = random.Random(3)
    for _ in range(5 if setting.served else 1):
        over = threading.Event()
        speaker = threading.Thread(target=_speak, args=(setting, over))
        speaker.start()
        if setting.served:
            time.sleep(dice.uniform(0.05, 0.3))
        else:
            _wait_for_empty(setting.files() / "messages.jsonl")
        setting.server.kill()
        over.set()
        speaker.join()
        setting.server.start()
        _forget_unanswered(setting)
    return setting.outcome()


def _speak(setting: Setting, over: threading.Event) -> None:
    try:
        while not over.is_set():
            setting.say()
    except ClientError:
        pass  # its server was killed


def _forget_unanswered(setting: Setting) -> None:
    """One message was on its way and got no answer: it may be there or not."""
    live, archived = setting.stored()
    there = archived + live
    following = f"Message {len(setting.said) + 1}."
    if following in there:
        setting.said.append(following)


def _wait_for_empty(file: Path) -> None:
    until = time.monotonic() + 60
    path = str(file)
    while time.monotonic() < until:
        for _ in range(1000):
            if os.stat(path).st_size == 0:
                return


def _failed_extraction(setting: Setting) -> Outcome:
    """The model fails: what was archived has to stay in what a model is shown."""
    for _ in range(4):
        setting.say()
    setting.servers.model.fails = True
    commit = setting.commit()
    setting.finished(commit)
    setting.say()
    shown = setting.context()
    why = "" if shown == setting.said else f"{len(shown)} of 5 messages are shown"
    setting.servers.model.fails = False
    if setting.served and not why:
        until = time.monotonic() + LIMIT_S
        while setting.client.call("get_task", commit["task_id"])["status"] != "completed":
            if time.monotonic() > until:
                why = "it is not tried again"
                break
            time.sleep(0.5)
    outcome = setting.outcome(why)
    return Outcome(f"{len(shown)} of 5 in the context", outcome.stored, None, not why, why)


def soak(environment: Path, messages: int) -> Iterator[str]:
    dice = random.Random(messages)
    servers = Servers(environment)
    servers.model.fail_rate = 0.3
    kills = 0
    with Setting(servers, served=True) as setting:
        for number in range(messages):
            text = f"Message {number}."
            message = {"role": "user", "content": text, "source_message_ids": [str(number)]}
            if dice.random() < 0.06:
                kills += 1
                threading.Timer(dice.uniform(0, 0.01), setting.server.kill).start()
            _insist(setting, lambda body=message: _add(setting, body))
            setting.said.append(text)
            if dice.random() < 0.05:
                keep = dice.choice([0, 0, 3])
                _insist(setting, lambda count=keep: setting.commit(keep=count))
            if number % 100 == 99:
                print(f"{number + 1} messages, {kills} kills", file=sys.stderr, flush=True)
        servers.model.fail_rate = 0.0
        setting.finished(_insist(setting, setting.commit))
        live, archived = setting.stored()
        there = archived + live
        for text in setting.said:
            if there.count(text) != 1:
                yield f"{text} is there {there.count(text)} times"
        if there != setting.said:
            yield "messages are out of order, or one is there that nobody sent"
        print(f"our server: {messages} messages, {kills} kills", file=sys.stderr, flush=True)
    servers.stop()


def _add(setting: Setting, message: dict[str, Any]) -> None:
    setting.client.call("batch_add_messages", setting.id, [message])


def _insist(setting: Setting, work: Callable[[], Any]) -> Any:
    """Until it is answered; a server that is gone is started again."""
    for _ in range(20):
        try:
            return work()
        except ClientError:
            if setting.server.is_gone():
                setting.server.start()
    raise RuntimeError("no answer after 20 tries")
