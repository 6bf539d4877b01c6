"""A client over HTTP that asks again until it is answered, and what it knows in the end: what was handed to
a server, and what was acknowledged.

    ledger = WireLedger("k")
    LossyClient(line.port, token, ledger).work(turns=5)
    assert ledger.contradictions(server.transcript("k")) == []

Words are never handed over twice under another name, so that a doubled one shows. One client is one
writer: what it was told is to stand in the order in which it was told.
"""

import http.client
import itertools
import json
from collections.abc import Callable
from typing import Any

LIMIT_S = 60
TRIES = 400
OVER = ("turn_interrupted", "held_elsewhere", "already_accepted")
"""A turn that is over, or was begun before: its client goes on with the next one."""


class WireLedger:
    """What one client has said under one key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.handed: set[str] = set()
        self.acknowledged: list[str] = []
        self.spoken: list[tuple[str, str]] = []
        """Of each message that was spoken: what was shown of it, and all that was handed over."""
        self._numbers = itertools.count(1)

    def words(self, kind: str) -> str:
        """Something that was never said before."""
        text = f"{kind} {self.key} {next(self._numbers)}."
        self.handed.add(text)
        return text

    def contradictions(self, transcript: list[str]) -> list[str]:
        """What is wrong with a transcript, its texts in their order."""
        found = []
        plain = [text for text in transcript if text in self.handed]
        for text in sorted(set(plain)):
            if plain.count(text) > 1:
                found.append(f"doubled: {text}")
        for text in self.acknowledged:
            if text not in plain:
                found.append(f"lost: {text}")
        kept = [text for text in plain if text in set(self.acknowledged)]
        if not found and kept != self.acknowledged:
            found.append(f"misplaced: {kept} for {self.acknowledged}")
        rest = [text for text in transcript if text not in self.handed]
        for shown, whole in self.spoken:
            fits = [text for text in rest if text and whole.startswith(text)]
            if shown and not any(text.startswith(shown) for text in fits):
                found.append(f"shown and lost: {shown}")
            if len(fits) > 1:
                found.append(f"doubled: {fits}")
        for text in rest:
            if text and not any(whole.startswith(text) for _, whole in self.spoken):
                found.append(f"never said: {text}")
        return found


class LossyClient:
    """Asks the first of its servers that answers. `ports` may change meanwhile."""

    def __init__(self, ports: Callable[[], list[int]], token: str, ledger: WireLedger) -> None:
        self._ports, self._token, self._ledger = ports, token, ledger
        self._keys = itertools.count(1)
        self.tries = 0

    def work(self, turns: int) -> None:
        """So many turns, with all that is said before and in them."""
        for number in range(turns):
            self._accept()
            self._append()
            self._turn(number)

    def ask(self, path: str, body: Any, *, key: bool = True) -> tuple[int, Any]:
        """Asks until it is answered; its status and its body."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if key:
            headers["Idempotency-Key"] = f"{self._ledger.key}-{next(self._keys)}"
        for _ in range(TRIES):
            ports = self._ports()
            self.tries += 1
            port = ports[self.tries % len(ports)]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            try:
                connection.request("POST", path, json.dumps(body), headers)
                answer = connection.getresponse()
                # A head that was cut looks like one without a length.
                if answer.length is None:
                    continue
                told = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                continue
            finally:
                connection.close()
            # What did not arrive whole was not done.
            if told.get("code") in ("cut_off", "store_unavailable"):
                continue
            return answer.status, told
        raise AssertionError(f"never answered: {path}")

    def done(self, path: str, body: Any, **more: Any) -> Any:
        status, told = self.ask(path, body, **more)
        assert status < 300, (path, told)
        return told

    def _accept(self) -> None:
        text = self._ledger.words("accepted")
        self._session = self.done("/v1/inbox", {"key": self._ledger.key, "message": text})[
            "session_id"
        ]
        self._ledger.acknowledged.append(text)

    def _append(self) -> None:
        texts = [self._ledger.words("noted"), self._ledger.words("noted")]
        path = f"/v1/sessions/{self._session}/messages"
        told = self.done(path, {"messages": texts})
        assert len(set(told["message_ids"])) == 2
        self._ledger.acknowledged += texts

    def _turn(self, number: int) -> None:
        text = self._ledger.words("asked")
        body = {"key": self._ledger.key, "message": text, "lease_s": 2}
        status, turn = self.ask("/v1/turns", body)
        self._ledger.acknowledged.append(text)
        if status >= 300:
            assert turn["code"] in OVER, turn
            return
        path = f"/v1/turns/{turn['id']}"
        status, opened = self.ask(f"{path}/streams", {})
        if status >= 300:
            assert opened["code"] in OVER, opened
            return
        chunks = [f"{self._ledger.key}/{number}/{each} " for each in range(6)]
        shown = ""
        for index in range(0, len(chunks), 2):
            push = {"index": index, "chunks": chunks[index : index + 2], "close": index == 4}
            status, told = self.ask(f"{path}/streams/{opened['message_id']}", push, key=False)
            if status >= 300:
                assert told["code"] in OVER, told
                break
            shown += told["text"]
        self._ledger.spoken.append((shown, "".join(chunks)))
        if shown == "".join(chunks):
            said = self._ledger.words("said")
            status, told = self.ask(f"{path}/messages", {"message": said})
            if status < 300:
                self._ledger.acknowledged.append(said)
        status, told = self.ask(f"{path}/end", {}, key=False)
        assert status < 300 or told["code"] in OVER, told
