"""Hermes Agent 0.19.0 under faults, without Holdfast and with it.

The release is installed unchanged, with Holdfast from this checkout beside it. A scripted model and a
platform that the test plays stand for the world (`hermes_lab`). Each row is played in an empty home, and
its verdict is about what a user has seen: whether all of it is stored, once, in its session, and is in what
Hermes sends to its model next.
"""

import hashlib
import sqlite3
import subprocess
import time
from functools import partial
from pathlib import Path

from holdfast.testing.providers import check
from torture.live.hermes_lab import Lab, Trouble
from torture.live.hermes_lab.model import do, words_of
from torture.live.table import Outcome, Row

RELEASE = "0.19.0"
INSTALL = [f"hermes-agent=={RELEASE}", "agent-client-protocol==0.9.0"]
ROOT = Path(__file__).resolve().parents[2]
WORDS = " ".join(f"word{number}" for number in range(40)) + "."
NEXT = "And now?"


def prepare(environment):
    """Installs Holdfast from this checkout, where it is not there as it is now."""
    sources = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")])
    digest = hashlib.sha256()
    for source in [*sources, ROOT / "pyproject.toml"]:
        digest.update(source.read_bytes())
    stamp = environment / "holdfast-installed"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    pip = [environment / "bin" / "python", "-m", "pip"]
    is_there = stamp.exists()
    again = ["--no-deps", "--force-reinstall"] if is_there else []
    subprocess.run([*pip, "install", "--quiet", *again, str(ROOT)], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    stamp.write_text(digest.hexdigest())


def rows(environment):
    """Every fault that was found in this release, and the ways to start it."""
    played = []
    for name, play, curable in PLAYS:
        played.append(Row(name, _played(environment, play), curable))
    return played


def _played(environment, play):
    def run(folder, served):
        try:
            return play(lambda **more: Lab(environment, folder, served, **more))
        except Trouble as trouble:
            return Outcome("-", "-", None, False, str(trouble)[:300])

    return run


# What is asked of each row.


def judged(lab, *, shown, stored, sent, problems):
    """The outcome of a row; `sent` are the messages of the request that followed."""
    valid = None
    if sent is not None:
        wrong = check("openai.chat", [_with_words(each) for each in sent])
        valid = not wrong
        problems = [*problems, *wrong]
    return Outcome(shown, stored, valid, not problems, "; ".join(problems))


def _with_words(message):
    """A turn that Hermes resumes by itself has a question without words, which is its own affair."""
    if message["role"] == "user" and not words_of(message["content"]):
        return {**message, "content": "(nothing)"}
    return message


def sent_next(lab, text=NEXT, answer=None, seconds=90):
    """Says one thing more, and what was sent to the model for it."""
    lab.turn(text, answer, seconds)
    asked = lab.model.asked(text)
    return asked[0] if asked else None


def texts(messages, role):
    return [words_of(each.get("content")) for each in messages or () if each["role"] == role]


def glued(messages, *asked):
    """Which of these questions stand in one message with another of them."""
    found = []
    for text in texts(messages, "user"):
        if sum(words in text for words in asked) > 1:
            found.append(f"sent as one question: {text[:60]!r}")
    return found


def one_each(said, wanted, what):
    """What of these texts is missing or doubled among all that was said."""
    problems = []
    for text in wanted:
        count = sum(text in each for each in said)
        if count != 1:
            problems.append(f"{what} {text[:40]!r} is stored {count} times")
    return problems


# Kills.


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


# A store that does not take what it is given.


def lock_held(open_lab):
    """Another program holds the lock of `state.db` for a whole turn."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        with sqlite3.connect(lab.home / "state.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            lab.say("While it is locked.")
            lab.until(lambda: lab.shown("Noted: While it is locked."), 240, "an answer")
            lab.until(lambda: is_quiet(lab), 240, "the end of the turn")
            other.execute("ROLLBACK")
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


def is_quiet(lab, seconds=3):
    """Whether the screen and the model's log stand still."""
    before = len(lab.chat.events), len(lab.model.requests)
    time.sleep(seconds)
    return before == (len(lab.chat.events), len(lab.model.requests))


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


# Sessions.


def two_processes(open_lab):
    """`hermes chat` goes on with a session while the gateway answers in it."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        session = lab.rows()[0][0]
        lab.say(do({"text": WORDS, "hold": 20}, say="Count for me."))
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        other = lab.spawn(
            lab.program("hermes"), "chat", "-q", "From the command line.", "--resume", session
        )
        end = time.monotonic() + 25
        while time.monotonic() < end and not lab.model.asked("From the command line."):
            time.sleep(0.2)
        lab.model.release()
        other.wait(120)
        lab.until(lambda: lab.has_row("word39."), 60, "the answer")
        time.sleep(1)
        order = [row[1] for row in lab.rows(f"session_id = '{session}' AND role != 'session_meta'")]
        lab.kill()
        lab.start()
        sent = sent_next(lab)
        wanted = ["Count for me.", "From the command line.", NEXT]
        problems = glued(sent, *wanted)
        for text in wanted:
            if not any(text in each for each in texts(sent, "user")):
                problems.append(f"{text!r} is not in the next request")
        for text in (WORDS, "Noted: From the command line."):
            if text not in texts(sent, "assistant"):
                problems.append(f"the answer {text[:20]!r} is not in the next request")
        return judged(
            lab,
            shown="2 answers",
            stored=" ".join(role[0] for role in order),
            sent=sent,
            problems=problems,
        )


def retry_after_compaction(open_lab):
    """/compress, one turn, /retry: the command that rewrites the session."""
    with open_lab() as lab:
        lab.start()
        asked = [f"Message {number}. " + "lorem ipsum " * 60 for number in range(6)]
        for text in asked:
            lab.turn(text.strip(), "Noted: " + text[:60].strip())
        lab.command("/compress")
        lab.until(lambda: is_quiet(lab), 60, "the compaction")
        lab.turn("After it.")
        before = len(lab.rows())
        answers = len(lab.shown("Noted: After it."))
        lab.say("/retry")
        lab.until(lambda: len(lab.shown("Noted: After it.")) > answers, 60, "another answer")
        lab.until(lambda: is_quiet(lab), 60, "the end of the turn")
        after = len(lab.rows())
        sent = sent_next(lab)
        everything = [row[2] for row in lab.rows()] + lab.said("user")
        problems = []
        for text in asked:
            if not any(text.strip() in each for each in everything):
                problems.append(f"{text[:10]!r} is gone")
        return judged(
            lab,
            shown=f"{len(asked) + 1} questions",
            stored=f"{before} rows, then {after}",
            sent=sent,
            problems=problems,
        )


def route_switched(open_lab):
    """The chat moves to another session, the cached agent stays (#3220)."""
    with open_lab() as lab:
        lab.start()
        lab.turn("In the first session.")
        first = lab.rows()[0][0]
        lab.fault("switch")
        lab.turn("In the second session.")
        of_second = [row for row in lab.rows() if "In the second session." in row[2]]
        problems = [
            f"{row[1]} written to the first session" for row in of_second if row[0] == first
        ]
        if lab.served:
            for key, role, text, _ in lab.messages():
                if "In the second session." in text and key.endswith(first):
                    problems.append(f"{role} stored in the first session")
        sent = lab.model.asked("In the second session.")[0]
        right = sum(row[0] != first for row in of_second)
        return judged(
            lab, shown="1 answer", stored=f"{right} of 2 there", sent=sent, problems=problems
        )


def new_with_a_cached_agent(open_lab):
    """/new while the agent of the chat is in the cache."""
    with open_lab() as lab:
        lab.start()
        lab.turn("In the first session.")
        first = lab.rows()[0][0]
        lab.command("/new")
        lab.turn("In the second session.")
        of_second = [row for row in lab.rows() if "In the second session." in row[2]]
        problems = [f"{row[1]} written to the first" for row in of_second if row[0] == first]
        sent = lab.model.asked("In the second session.")[0]
        if any("In the first session." in text for text in texts(sent, "user")):
            problems.append("the first session is still in the request")
        right = sum(row[0] != first for row in of_second)
        return judged(
            lab, shown="1 answer", stored=f"{right} of 2 there", sent=sent, problems=problems
        )


def new_in_stream(open_lab):
    """/new while an answer is being streamed: what was shown belongs to the session that it ended."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        first = lab.rows()[0][0]
        lab.say(do({"text": WORDS, "hold": 20}, say="Count for me."))
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        seen = lab.shown("word12")[0].strip()
        lab.command("/new")
        lab.model.release()
        lab.until(lambda: lab.has_row("word12"), 60, "the row of what was shown")
        lab.turn("In the second session.")
        problems = []
        for key, _, text, _ in _stored(lab):
            if "word0 " in text and not key.endswith(first):
                problems.append("the cut answer is in the second session")
            if "In the second session." in text and key.endswith(first):
                problems.append("the new question is in the first session")
        kept = [text for text in lab.said("assistant") if "word0" in text]
        if not any(text.startswith(seen) for text in kept):
            problems.append("what was shown is not stored")
        sent = lab.model.asked("In the second session.")[0]
        stored = max(map(len, kept), default=0)
        return judged(
            lab, shown=f"{len(seen)} chars", stored=f"{stored} chars", sent=sent, problems=problems
        )


def _stored(lab):
    return lab.messages() if lab.served else lab.rows()


def repair_shortens(open_lab):
    """A question without an answer, twice: Hermes makes one message of them, and its list is shorter
    than it was (#44838).
    """
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        for number in range(2):
            lab.model.stand_still()
            lab.say(do({"text": WORDS, "hold": 0}, say=f"Question {number}."))
            lab.until(partial(lab.has_row, f"Question {number}."), 60, "its row")
            lab.kill()
            lab.model.release()
            lab.start()
            lab.until(lambda: is_quiet(lab), 60, "what Hermes resumes")
        sent_next(lab)
        last = sent_next(lab, "And then?")
        wanted = ["Question 0.", "Question 1.", NEXT, "And then?"]
        problems = one_each(lab.said("user"), wanted, "the question")
        answers = [f"Noted: {NEXT}", "Noted: And then?"]
        problems += one_each(lab.said("assistant"), answers, "the answer")
        if f"Noted: {NEXT}" not in texts(last, "assistant"):
            problems.append("an answer is not in the next request")
        count = len(lab.said("assistant"))
        return judged(
            lab, shown="4 questions", stored=f"{count} answers", sent=last, problems=problems
        )


def interrupted_by_a_message(open_lab):
    """A second message in the middle of an answer: what was shown is in the next request (#43962)."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": WORDS, "pause": 0.2}, say="Count for me."))
        lab.until(lambda: lab.shown("word12"), 60, "half an answer")
        sent = sent_next(lab)
        seen = lab.shown("word12")[0].strip()
        kept = [text for text in lab.said("assistant") if "word0" in text]
        problems = glued(sent, "Count for me.", NEXT)
        if not any(text.strip().startswith(seen) for text in kept):
            problems.append("what was shown is not stored")
        # Trimmed at its end by Hermes, like all that it sends.
        part = seen.rsplit(" ", 1)[0]
        if not any(text.startswith(part) for text in texts(sent, "assistant")):
            problems.append("what was shown is not in the next request")
        problems += one_each(lab.said("assistant"), ["word0 "], "the answer")
        stored = max(map(len, kept), default=0)
        return judged(
            lab, shown=f"{len(seen)} chars", stored=f"{stored} chars", sent=sent, problems=problems
        )


def socket_cut(open_lab):
    """The model's connection is closed in the middle of an answer."""
    with open_lab() as lab:
        lab.start()
        lab.turn("Warm up.")
        lab.say(do({"text": WORDS, "cut": 20}, {"text": "The rest of it."}, say="Count for me."))
        lab.until(lambda: lab.shown("The rest of it."), 90, "the answer")
        lab.until(lambda: is_quiet(lab), 60, "the end of the turn")
        sent = sent_next(lab)
        kept = [text for text in lab.said("assistant") if "word19" in text]
        problems = []
        if not kept:
            problems.append("what was shown is not stored")
        invented = [text for text in lab.said("user") if text.startswith("[System")]
        if invented:
            problems.append(f"{len(invented)} question that nobody asked")
        return judged(
            lab,
            shown="1 answer",
            stored=f"{len(kept)} answers, {len(invented)} invented",
            sent=sent,
            problems=problems,
        )


PLAYS = [
    ("kill -9 in the middle of an answer", kill_in_stream, True),
    ("kill -9 in an answer after a tool", kill_after_tool, True),
    ("kill -9 in teardown, answer shown", kill_in_teardown, True),
    ("lock of state.db held for a turn", lock_held, True),
    ("disk full in the middle of an answer", disk_full, True),
    ("two processes on one session", two_processes, True),
    ("/retry after a compaction", retry_after_compaction, True),
    ("route switched, agent cached (#3220)", route_switched, True),
    ("/new, agent cached (#3220)", new_with_a_cached_agent, True),
    ("/new in the middle of an answer", new_in_stream, True),
    ("repair shortens the list (#44838)", repair_shortens, True),
    ("interrupted by a message (#43962)", interrupted_by_a_message, True),
    ("connection cut in an answer (F23)", socket_cut, True),
]


def soak(environment, messages):
    """Not yet."""
    return []
