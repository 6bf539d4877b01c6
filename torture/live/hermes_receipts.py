"""What comes in through Hermes' gateway: bursts, redeliveries, queues that are killed, words that steer.

The verdict of each row is about the user's messages: each is stored once, and the model has seen it. Where
Hermes joins several of them for the model, Holdfast has each by itself.
"""

import random
import time
from dataclasses import replace

from holdfast.adapters.hermes.history import bring_history
from torture.live.hermes_lab import Lab, Trouble
from torture.live.hermes_lab.model import do, words_of
from torture.live.table import Outcome, Row

SLOW = " ".join(f"w{number}" for number in range(50)) + "."
FUZZ = 40


def rows(environment):
    played = []
    for name, play in PLAYS:
        played.append(Row(name, _played(environment, play)))
    return played


def _played(environment, play):
    def run(folder, served):
        try:
            return play(lambda **more: Lab(environment, folder, served, **more))
        except Trouble as trouble:
            return Outcome("-", "-", None, False, str(trouble)[-300:])

    return run


def seen_by_model(lab):
    """All that the model was ever told, by users and in results of tools."""
    seen = set()
    for request in list(lab.model.requests):
        for message in request.get("messages", ()):
            if message["role"] in ("user", "tool"):
                seen.add(words_of(message["content"]))
    return "\n".join(seen)


def settled(lab, seconds=3, limit=180):
    """Waits until nothing happens any more: no request, nothing sent."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = (len(lab.model.requests), len(lab.chat.events))
        time.sleep(seconds)
        if before == (len(lab.model.requests), len(lab.chat.events)):
            return
    raise Trouble(f"it does not come to rest in {limit} s")


def seen_at_last(lab, texts, seconds=30):
    """Waits for what a gateway does that has just started: the first turn takes long to begin."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(text in seen_by_model(lab) for text in texts):
        time.sleep(0.2)
    settled(lab)


def judged(lab, texts):
    """The outcome for these messages of the user's."""
    said, seen = lab.said("user"), seen_by_model(lab)
    problems = []
    places = []
    for text in texts:
        count = sum(text in each for each in said)
        if text not in seen:
            problems.append(f"{text!r} was never seen by the model")
        if count != 1:
            problems.append(f"{text!r} is stored {count} times")
        places += [place for place, each in enumerate(said) if text in each][:1]
    swaps = sum(one > two for one, two in zip(places, places[1:], strict=False))
    stored = f"{len(places)} of {len(texts)}"
    if swaps:
        stored += f", {swaps} swapped"
        problems.append(f"{swaps} stand after one that came later")
    shown = f"{sum(text in seen for text in texts)} of {len(texts)}"
    return Outcome(shown, stored, None, not problems, "; ".join(problems)[:400])


def while_it_speaks(lab, pause=0.1):
    """A turn that takes some seconds is on the screen."""
    lab.say(do({"text": SLOW, "pause": pause}, say="Slow one."))
    lab.until(lambda: lab.shown("w3 "), 60, "the first words")


def burst(open_lab, mode="interrupt"):
    """Five follow-ups in a quarter of a second while a turn runs."""
    texts = [f"follow-up {number}." for number in range(5)]
    with open_lab(mode=mode) as lab:
        lab.start()
        lab.turn("Warm up.")
        while_it_speaks(lab)
        for text in texts:
            lab.say(text)
            time.sleep(0.05)
        settled(lab)
        return judged(lab, texts)


def redelivered(open_lab):
    """The platform delivers one message twice."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say("Once only.", id="same")
        settled(lab)
        lab.say("Once only.", id="same")
        settled(lab)
        return judged(lab, ["Once only."])


def redelivered_after_a_kill(open_lab):
    """kill -9 when a message was received and not yet confirmed to the platform, which sends it again."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": SLOW, "hold": 10}, say="Long one."), id="same")
        lab.until(lambda: lab.shown("w3 "), 60, "the first words")
        lab.kill()
        lab.model.release()
        lab.start()
        lab.say(do({"text": SLOW, "hold": 10}, say="Long one."), id="same")
        seen_at_last(lab, ["Long one."], 10)
        return judged(lab, ["Long one."])


def queued_then_killed(open_lab):
    """Three messages wait for a turn to end; the user was told that they are queued; then kill -9."""
    texts = [f"queued {number}." for number in range(3)]
    with open_lab(mode="queue") as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": SLOW, "hold": 10}, say="Slow one."))
        lab.until(lambda: lab.shown("w3 "), 60, "the first words")
        for text in texts:
            lab.say(text)
            time.sleep(0.3)
        time.sleep(1)
        lab.kill()
        lab.model.release()
        lab.start()
        seen_at_last(lab, texts)
        return judged(lab, texts)


def killed_on_receipt(open_lab):
    """kill -9 right after a message was received: the agent is not made yet."""
    with open_lab() as lab:
        lab.start()
        lab.say("Are you there?")
        lab.until(lambda: lab.chat.count("accepted"), 60, "the receipt")
        lab.kill()
        lab.start()
        seen_at_last(lab, ["Are you there?"])
        return judged(lab, ["Are you there?"])


def _tool_turn(seconds):
    wait = {"command": f"sleep {seconds}"}
    tools = [{"name": "terminal", "args": wait}]
    return do({"text": "Let me see.", "tools": tools}, {"text": "Done."}, say="Use a tool.")


def steered_in_a_tool(open_lab):
    """Words that come while a tool runs: the model sees them in its result."""
    with open_lab(mode="steer") as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(_tool_turn(4))
        lab.until(lambda: len(lab.model.asked("Use a tool.")) >= 1, 60, "the call")
        time.sleep(2)
        lab.say("Mind the gap.")
        settled(lab, 6)
        return judged(lab, ["Mind the gap."])


def steered_too_late(open_lab):
    """Words that come while the last answer is spoken, and other words after them."""
    texts = ["Mind the gap.", "And the step."]
    with open_lab(mode="steer") as lab:
        lab.start()
        lab.turn("Warm up.")
        while_it_speaks(lab)
        for text in texts:
            lab.say(text)
            time.sleep(0.3)
        settled(lab)
        return judged(lab, texts)


def fuzz(open_lab, mode):
    """Forty messages at random moments."""
    dice = random.Random(7)
    texts = [f"fuzz {number:02d}." for number in range(FUZZ)]
    with open_lab(mode=mode) as lab:
        lab.start()
        lab.turn("Warm up.")
        for text in texts:
            lab.say(do({"text": "ok then", "pause": 0.1}, say=text))
            time.sleep(dice.random() * 0.8)
        settled(lab)
        return judged(lab, texts)


def fuzz_in(mode):
    return lambda open_lab: fuzz(open_lab, mode)


def more_than_it_holds(open_lab):
    """More messages than Hermes keeps in memory while a turn runs."""
    texts = [f"many {number:02d}." for number in range(36)]
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": SLOW, "hold": 10}, say="Slow one."))
        lab.until(lambda: lab.shown("w3 "), 60, "the first words")
        for text in texts:
            lab.say(text)
            time.sleep(0.02)
        lab.until(lambda: lab.chat.count("accepted") > len(texts), 60, "all receipts")
        lab.model.release()
        settled(lab, 5, 400)
        return judged(lab, texts)


def switched_over_and_back(open_lab):
    """A home with a history gets Holdfast, goes on without it, and gets it again."""
    asked = ["Warm up.", "Use a tool.", "With it.", "Without it.", "With it again."]
    with open_lab() as lab:
        hook = lab.folder / "site" / "sitecustomize.py"
        switch_on = hook.read_text() if lab.served else ""

        def on(is_on):
            lab.kill()
            hook.write_text(switch_on if is_on else "")
            lab.start()

        on(False)
        lab.turn("Warm up.")
        lab.say(_tool_turn(1))
        seen_at_last(lab, asked[:2])
        lab.kill()
        if lab.served:
            bring_history(lab.home)
        on(True)
        lab.turn("With it.")
        on(False)
        lab.turn("Without it.")
        on(True)
        lab.turn("With it again.")
        settled(lab)
        outcome = judged(lab, asked)
        rows = [text for _, role, text, _ in lab.rows() if role == "user"]
        missing = [text for text in asked if sum(text in row for row in rows) != 1]
        if missing:
            why = f"{outcome.why}; not one row in state.db: {missing}"
            return replace(outcome, right=False, why=why)
        return outcome


PLAYS = [
    ("five follow-ups in a burst", burst),
    ("five follow-ups in a burst, queued", lambda open_lab: burst(open_lab, "queue")),
    ("a message delivered twice", redelivered),
    ("killed in its turn, then delivered again", redelivered_after_a_kill),
    ("three queued, then kill -9", queued_then_killed),
    ("kill -9 right after a receipt", killed_on_receipt),
    ("steered while a tool runs", steered_in_a_tool),
    ("steered when it is too late", steered_too_late),
    ("forty at random, interrupting (stored twice under load)", fuzz_in("interrupt")),
    ("forty at random, steering", fuzz_in("steer")),
    ("forty at random, queued", fuzz_in("queue")),
    ("more at once than Hermes holds", more_than_it_holds),
    ("switched over with a history, and back, and over", switched_over_and_back),
]
