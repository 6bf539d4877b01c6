"""Two clients with the same calls: one that retries as most do, and Holdfast's.

Run as a program, it is one of them in a process of its own, which can be killed: words come in on
lines, and each is confirmed when it is done.
"""

import http.client
import sys
import time
import urllib.error
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

from holdfast.adapters.openviking import Client  # noqa: E402
from torture.live.viking.gateway import LIMIT_S, ask  # noqa: E402


class RetryingClient:
    """Posts, and posts again until an answer comes."""

    def __init__(self, url: str, folder: Path, id: str) -> None:
        self._url, self._id = url, id

    def add(self, text: str, event_id: str | None = None) -> None:
        self._insist("/messages", {"role": "user", "content": text})

    def commit(self, **options: Any) -> str:
        task = self._insist("/commit", options).get("task_id")
        return self.task_end(task) if task else "skipped"

    def task_end(self, task: str) -> str:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            state = ask(self._url, "GET", f"/api/v1/tasks/{task}")["status"]
            if state in ("completed", "failed", "cancelled"):
                return state
            time.sleep(0.2)
        return "unknown"

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _insist(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return ask(self._url, "POST", f"/api/v1/sessions/{self._id}{path}", body)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return {}
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > until:
                raise TimeoutError(f"no answer to {path}")
            time.sleep(0.2)


class HoldfastClient:
    """The same calls on Holdfast's client."""

    def __init__(self, url: str, folder: Path, id: str) -> None:
        self._id = id
        self.client = Client(url, store=folder / "agent.db", grace_s=2, timeout_s=60)

    def add(self, text: str, event_id: str | None = None) -> None:
        self.client.add_message(self._id, "user", text, event_id=event_id)

    def want_commit(self, event_id: str) -> None:
        """Asks for a commit, and does not wait for it."""
        self.client.commit(self._id, event_id=event_id)

    def commit(self, **options: Any) -> str:
        return self.client.commit(self._id, **options).wait(LIMIT_S).state

    def settle(self) -> None:
        if not self.client.flush(3 * LIMIT_S):
            raise TimeoutError(f"not sent: {self.client.report(self._id).problem}")

    def close(self) -> None:
        self.client.close()


def main() -> None:
    kind, url, folder, id = sys.argv[1:]
    client: Any = RetryingClient(url, Path(folder), id)
    if kind == "with":
        client = HoldfastClient(url, Path(folder), id)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        try:
            _do(client, word, number)
        except TimeoutError as error:
            print(error, flush=True)
            continue
        print("done", flush=True)


def _do(client: Any, word: str, number: str) -> None:
    if word == "add":
        client.add(f"Message {number}.", number)
    elif word == "commit":
        client.want_commit(f"commit {number}")
    else:
        client.settle()


if __name__ == "__main__":
    main()
