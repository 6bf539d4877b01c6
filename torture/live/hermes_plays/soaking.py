"""Many messages and random kills, against a ledger of what the user has sent and seen.

The platform delivers again what was not acknowledged, as real ones do. In the end each message that was
acknowledged is stored once and in order, by Holdfast and as a row; whatever was shown of an answer is stored;
no answer is stored twice; and every request that the model got was valid.
"""

import random
import re
import sys
import time

from torture.live.hermes_lab import Trouble
from torture.live.hermes_lab.model import words_of
from torture.live.hermes_plays.asking import refused

KILL_EVERY = 25
"""One message in so many is followed by a kill."""
HURRY_EVERY = 8
"""One in so many is followed by the next without waiting for its answer."""
LATE_S = 30
_NUMBER = re.compile(r"Message (\d{4}) of")


class Ledger:
    """What the user has sent and what the platform has acknowledged."""

    def __init__(self, lab, seed=12):
        self.lab = lab
        self.chance = random.Random(seed)
        self.sent = []
        self.kills = 0
        self.late = 0

    def play(self, count):
        """Sends so many messages, one after the other."""
        for number in range(count):
            self.sent.append(f"Message {number:04d} of {count}.")
            self._deliver(number)
            if self.chance.randrange(KILL_EVERY) == 0:
                time.sleep(self.chance.random() * 1.5)
                self._kill()
            elif self.chance.randrange(HURRY_EVERY) != 0:
                self._answered(number)
            if number % 50 == 49:
                self._tell(number + 1)
        self._kill()

    def _tell(self, count):
        told = f"{count} messages, {self.kills} kills, {self.late} late answers"
        print(told, file=sys.stderr, flush=True)

    def _deliver(self, number):
        self.lab.say(self.sent[number], id=f"n{number}")

    def _answered(self, number):
        """Waits for an answer. A message that comes just as a turn ends may lie in the gateway's one
        place for what is next, until the next message moves it: it is late, not lost.
        """
        end = time.monotonic() + LATE_S
        while not self.lab.shown(f"Noted: {self.sent[number]}"):
            if time.monotonic() > end:
                self.late += 1
                return
            time.sleep(0.05)

    def _kill(self):
        self.kills += 1
        self.lab.kill()
        time.sleep(0.1)
        known = self._acknowledged()
        self.lab.start()
        for number in range(len(self.sent)):
            if number not in known:
                self._deliver(number)
        self.lab.until(lambda: len(self._acknowledged()) == len(self.sent), 90, "receipts")

    def _acknowledged(self):
        events = self.lab.chat.of("accepted")
        return {int(event["id"][1:]) for event in events if event["id"].startswith("n")}

    def come_to_rest(self):
        """Waits until nothing happens any more."""
        while True:
            before = len(self.lab.chat.events), len(self.lab.model.requests)
            time.sleep(8)
            if before == (len(self.lab.chat.events), len(self.lab.model.requests)):
                return

    def wrong(self):
        """What is not as it should be, a sentence each."""
        asked = [text for text in self.lab.said("user") if _NUMBER.search(text)]
        answered = [text for text in self.lab.said("assistant") if "Noted: Message" in text]
        rows = [row[2] for row in self.lab.rows("role = 'user'") if _NUMBER.search(row[2])]
        yield from self._stored_once(asked, "a message")
        yield from self._stored_once(rows, "a row")
        yield from self._in_order(asked)
        for text in self.lab.screen():
            if "Noted: Message" in text:
                seen = text[text.index("Noted: Message") :].strip()
                if not any(kept.strip().startswith(seen) for kept in answered):
                    yield f"shown and not stored: {seen!r}"
        for text in self.sent:
            count = sum(kept.strip() == f"Noted: {text}" for kept in answered)
            if count > 1:
                yield f"the answer to {text!r} is stored {count} times"
        for request in self.lab.model.requests:
            for problem in refused(request.get("messages", [])):
                last = words_of(request["messages"][-1].get("content"))[:40]
                yield f"a request that ends with {last!r} is not valid: {problem}"

    def _stored_once(self, texts, what):
        for text in self.sent:
            count = sum(each.count(text) for each in texts)
            if count != 1:
                yield f"{what} {text!r} is stored {count} times"

    def _in_order(self, texts):
        numbers = [int(number) for text in texts for number in _NUMBER.findall(text)]
        for before, after in zip(numbers, numbers[1:], strict=False):
            if after < before:
                yield f"message {after} is stored after message {before}"


def soak(open_lab, messages):
    """A sentence for each thing that was wrong."""
    with open_lab() as lab:
        lab.start()
        ledger = Ledger(lab)
        try:
            ledger.play(messages)
            ledger.come_to_rest()
        except Trouble as trouble:
            yield str(trouble)[:300]
        yield from ledger.wrong()
