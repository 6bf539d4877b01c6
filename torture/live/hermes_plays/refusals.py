"""Stores that do not take or give what they should: a lock, a full disk, a damaged page."""

import sqlite3
import time

from torture.live.hermes_lab.model import do
from torture.live.hermes_plays.asking import (
    NEXT,
    WORDS,
    is_quiet,
    judged,
    one_each,
    sent_next,
    texts,
)


def lock_held(open_lab):
    """Another program holds the lock of `state.db` for a whole turn."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        with sqlite3.connect(lab.home / "state.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            lab.say("While it is locked.")
            lab.until(lambda: lab.shown("Noted: While it is locked."), 240, "an answer")
            # Hermes tries for 16 seconds to write a row, and there are two.
            time.sleep(45)
            other.execute("ROLLBACK")
        time.sleep(8)
        sent = sent_next(lab)
        lab.kill()
        lab.start()
        again = sent_next(lab, "And after a restart?")
        problems = []
        for messages, when in ((sent, "next"), (again, "restarted")):
            if "While it is locked." not in "".join(texts(messages, "user")):
                problems.append(f"the question is not in the {when} request")
            if "Noted: While it is locked." not in texts(messages, "assistant"):
                problems.append(f"the answer is not in the {when} request")
        rows = [row[2] for row in lab.rows()]
        asked = ["While it is locked.", NEXT]
        problems += one_each([row for row in rows if "Noted" not in row], asked, "the row of")
        stored = sum("While it is locked." in row for row in rows)
        return judged(
            lab, shown="1 answer", stored=f"{stored} of 2 rows", sent=again, problems=problems
        )


def disk_full(open_lab):
    """No file can grow from the middle of an answer on; then there is space again."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": WORDS, "hold": 20}, say="Count for me."))
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        lab.fault("full")
        lab.model.release()
        lab.until(lambda: lab.shown("word39.") or lab.shown("⚠️ Stopped"), 60, "its end")
        lab.until(lambda: is_quiet(lab), 60, "the end of the turn")
        shown = lab.shown("word12")[0].strip()
        is_told = bool(lab.shown("⚠️"))
        lab.fault("full no")
        sent = sent_next(lab)
        words = shown.split("⚠️")[0].strip()
        kept = [text for text in lab.said("assistant") if "word0" in text]
        problems = []
        if not is_told and not any(text.startswith(words) for text in kept):
            problems.append("what was shown is not stored, and nobody was told")
        if is_told and not any(text.startswith(words) for text in kept):
            problems.append("more was shown than is stored")
        told = " and a notice" if is_told else ""
        stored = max(map(len, kept), default=0)
        return judged(
            lab,
            shown=f"{len(words)} chars{told}",
            stored=f"{stored} chars",
            sent=sent,
            problems=problems,
        )


def rows_unreadable(open_lab):
    """The rows of a history can't be read when an agent is made: Hermes goes on without one (F30)."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.fault("unreadable")
        sent = sent_next(lab)
        problems = []
        if "Warm up." not in "".join(texts(sent, "user")):
            problems.append("the question is not in the next request")
        if "Noted: Warm up." not in texts(sent, "assistant"):
            problems.append("the answer is not in the next request")
        stored = len(texts(sent, "user")) + len(texts(sent, "assistant"))
        return judged(
            lab, shown="1 answer", stored=f"{stored - 1} of 2 sent", sent=sent, problems=problems
        )
