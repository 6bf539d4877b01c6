"""kill -9 of the gateway, in an answer and after it."""

import time

from torture.live.hermes_lab.model import do
from torture.live.hermes_plays.asking import NEXT, WORDS, glued, judged, one_each, sent_next, texts


def kill_in_stream(open_lab, tool=False):
    """kill -9 while an answer is on the screen in part."""
    steps = [{"text": WORDS, "hold": 20}]
    if tool:
        todo = {"todos": [{"id": "1", "content": "x", "status": "pending"}]}
        steps.insert(0, {"text": "Let me look.", "tools": [{"name": "todo", "args": todo}]})
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        asked = do(*steps, say="Count for me.")
        lab.say(asked)
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        lab.kill()
        seen = lab.shown("word12")[0].strip()
        seen = seen[seen.index("word0") :]
        kept = [text for text in lab.said("assistant") if "word0" in text]
        lab.model.release()
        lab.start()
        sent = sent_next(lab)
        problems = glued(sent, "Count for me.", NEXT)
        if not any(text.startswith(seen) for text in kept):
            problems.append("what was shown is not stored")
        if not any(text.startswith(seen) for text in texts(sent, "assistant")):
            problems.append("what was shown is not in the next request")
        problems += one_each(lab.said("user"), ["Count for me.", NEXT], "the question")
        stored = max(map(len, kept), default=0)
        return judged(
            lab, shown=f"{len(seen)} chars", stored=f"{stored} chars", sent=sent, problems=problems
        )


def kill_after_tool(open_lab):
    return kill_in_stream(open_lab, tool=True)


def kill_in_teardown(open_lab, streaming=True):
    """kill -9 when the whole answer was shown, while Hermes tidies up; that takes long here."""
    with open_lab(streaming=streaming) as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.fault("teardown 60")
        asked = do({"text": WORDS}, say="Count for me.")
        lab.say(asked)
        if streaming:
            lab.until(lambda: lab.shown("word39."), 60, "the answer")
        else:
            lab.until(lambda: lab.model.asked("Count for me."), 60, "the request")
            time.sleep(3)
        lab.kill()
        shown = len(WORDS) if streaming else 0
        kept = [text for text in lab.said("assistant") if "word0" in text]
        lab.start()
        sent = sent_next(lab)
        problems = glued(sent, "Count for me.", NEXT)
        if WORDS not in kept:
            problems.append("the answer is not stored")
        if WORDS not in texts(sent, "assistant"):
            problems.append("the answer is not in the next request")
        stored = max(map(len, kept), default=0)
        return judged(
            lab, shown=f"{shown} chars", stored=f"{stored} chars", sent=sent, problems=problems
        )


def kill_unstreamed_in_teardown(open_lab):
    """The same where the gateway does not stream, as it is shipped: the answer was not sent yet."""
    return kill_in_teardown(open_lab, streaming=False)
