"""Sessions: two processes in one, switches, resets, repairs, interrupts."""

import time
from functools import partial

from torture.live.hermes_lab.model import do
from torture.live.hermes_plays.asking import (
    NEXT,
    WORDS,
    glued,
    is_quiet,
    is_resumed,
    judged,
    one_each,
    sent_next,
    texts,
)


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


SECOND = "In the second session."


def route_switched(open_lab):
    """The chat moves to another session, the cached agent stays (#3220)."""
    return _moved(open_lab, lambda lab: lab.fault("switch"))


def new_with_a_cached_agent(open_lab):
    """/new while the agent of the chat is in the cache."""
    return _moved(open_lab, lambda lab: lab.command("/new"))


def _moved(open_lab, move):
    """A turn in one session and, once the chat was moved, one in the next."""
    with open_lab() as lab:
        lab.start()
        lab.turn("In the first session.")
        first = lab.rows()[0][0]
        move(lab)
        lab.turn(SECOND)
        of_second = [row for row in lab.rows() if SECOND in row[2]]
        problems = _misplaced(lab, first)
        for row in of_second:
            if row[0] == first:
                problems.append(f"{row[1]} written to the first session")
        sent = lab.model.asked(SECOND)[0]
        if any("In the first session." in text for text in texts(sent, "user")):
            problems.append("the first session is still in the request")
        right = sum(row[0] != first for row in of_second)
        return judged(
            lab, shown="1 answer", stored=f"{right} of 2 there", sent=sent, problems=problems
        )


def _misplaced(lab, first):
    """What of the second session is stored in the first one."""
    problems = []
    for key, role, text, _ in lab.stored():
        if SECOND in text and key.endswith(first):
            problems.append(f"{role} stored in the first session")
    return problems


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
        lab.turn(SECOND)
        problems = _misplaced(lab, first)
        for key, _, text, _ in lab.stored():
            if "word0 " in text and not key.endswith(first):
                problems.append("the cut answer is in the second session")
        kept = [text for text in lab.said("assistant") if "word0" in text]
        if not any(text.startswith(seen) for text in kept):
            problems.append("what was shown is not stored")
        sent = lab.model.asked(SECOND)[0]
        stored = max(map(len, kept), default=0)
        return judged(
            lab, shown=f"{len(seen)} chars", stored=f"{stored} chars", sent=sent, problems=problems
        )


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
            asked = len(lab.model.requests)
            lab.start()
            lab.until(partial(is_resumed, lab, asked), 60, "what Hermes resumes")
            lab.until(lambda: is_quiet(lab), 60, "the end of it")
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
        lab.say(do({"text": WORDS, "cut": 20}, say="Count for me."))
        # Hermes asks the model to go on, in the user's name.
        lab.until(lambda: lab.shown("Noted: [System"), 90, "the rest of the answer")
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
