"""The other ways to start Hermes, and what is out of reach in any of them."""

from torture.live.hermes_lab.model import do
from torture.live.hermes_plays.asking import WORDS, judged, one_each, sent_next


def printed(front):
    """A front end that prints its answer: it is stored, and the same as without Holdfast."""

    def play(open_lab):
        with open_lab() as lab:
            told = front(lab, "Good morning.")
            problems = [] if lab.model.asked("Good morning.") else [f"not asked: {told[-200:]}"]
            problems += _both_stored(lab)
            count = len(lab.said("assistant"))
            return judged(
                lab, shown="1 answer", stored=f"{count} answer", sent=None, problems=problems
            )

    return play


def _both_stored(lab):
    problems = []
    for said, role in (("Good morning.", "user"), ("Noted: ", "assistant")):
        texts_said = lab.said(role)
        if sum(said in text for text in texts_said) != 1:
            problems.append(f"{role}: {texts_said}")
    rows = [row[1] for row in lab.rows()]
    if rows != ["user", "assistant"]:
        problems.append(f"rows are {rows}")
    return problems


def client_killed(front):
    """kill -9 of a front end that streams, in the middle of an answer."""

    def play(open_lab):
        with open_lab() as lab:
            client = front(lab)
            try:
                client.say("Good morning.")
                client.done()
                client.say(do({"text": WORDS, "hold": 20}, say="Count for me."))
                lab.until(lambda: "word12" in client.shown(), 60, "half an answer")
            finally:
                client.close()
            seen = client.shown()
            seen = seen[seen.index("word0") :].strip()
            kept = [text for text in lab.said("assistant") if "word0" in text]
            problems = []
            if not any(text.startswith(seen) for text in kept):
                problems.append("what was shown is not stored")
            problems += one_each(
                lab.said("user"), ["Good morning.", "Count for me."], "the question"
            )
            stored = max(map(len, kept), default=0)
            return judged(
                lab,
                shown=f"{len(seen)} chars",
                stored=f"{stored} chars",
                sent=None,
                problems=problems,
            )

    return play


def changed_after_its_row(open_lab):
    """A plug-in changes the answer after its row was written: the user gets other words (F37)."""
    with open_lab(env={"STUB_SIGNS": "1"}) as lab:
        lab.start()
        lab.turn("Good morning.")
        lab.until(lambda: lab.shown("(signed)"), 60, "the answer as it is delivered")
        shown = lab.shown("(signed)")[-1].strip()
        kept = lab.said("assistant")
        if lab.served:
            kept += [labels.get("hermes_delivered", "") for labels in lab.labels()]
        problems = [] if shown in kept else ["what was shown is not stored"]
        sent = sent_next(lab)
        count = sum(text == shown for text in kept)
        return judged(
            lab, shown=f"{len(shown)} chars", stored=f"{count} of 1", sent=sent, problems=problems
        )


def answered_early(open_lab):
    """A platform that says "accepted" and then makes a task of the message, as webhooks do; the kill
    comes in between.
    """
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        id = lab.say("Accepted too early.", early=True)
        lab.until(lambda: any(e["id"] == id for e in lab.chat.of("accepted")), 20, "its receipt")
        lab.kill()
        lab.start()
        sent_next(lab)
        kept = [text for text in lab.said("user") if "Accepted too early." in text]
        problems = [] if kept else ["it was accepted, and is not stored"]
        return judged(
            lab, shown="accepted", stored=f"{len(kept)} of 1", sent=None, problems=problems
        )


def dropped_at_start(open_lab):
    """Telegram's adapter drops what came while the gateway was down: nothing of it reaches Hermes (F36)."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.kill()
        lab.chat.waiting.append({"text": "While it was down.", "id": "down"})
        lab.start()
        sent_next(lab)
        kept = [text for text in lab.said("user") if "While it was down." in text]
        problems = [] if kept else ["it was sent, and is not stored"]
        return judged(lab, shown="sent", stored=f"{len(kept)} of 1", sent=None, problems=problems)


def behind_a_proxy(open_lab):
    """The gateway hands messages to another server (`GATEWAY_PROXY_URL`): no agent runs here."""
    with open_lab() as lab:
        lab.env["GATEWAY_PROXY_URL"] = lab.model.url.removesuffix("/v1")
        lab.start()
        lab.say(do({"text": WORDS, "hold": 20}, say="Count for me."))
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        lab.kill()
        seen = lab.shown("word12")[0].strip()
        kept = [text for text in lab.said("assistant") if text.startswith(seen)]
        problems = [] if kept else ["what was shown is not stored here"]
        return judged(
            lab,
            shown=f"{len(seen)} chars",
            stored=f"{max(map(len, kept), default=0)} chars",
            sent=None,
            problems=problems,
        )
