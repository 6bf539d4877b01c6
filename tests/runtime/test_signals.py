"""Real SIGINT and SIGTERM, sent to a process at random moments while turns start, speak, are left
and end (I-5, I-6).

The child writes down what it shows, as it shows it; its handlers say that a signal has come and
raise, as a program's own would. What must hold, wherever one comes: the signal is raised and not
swallowed; what was shown is a prefix of what is stored; in the living process no turn is left
running; a process that does not catch it ends by it.

A handler that raises can interrupt code of Python's own where that is lost. On an event loop it can
come between taking a callback off asyncio's list and calling it: then a task is never woken, and
asyncio waits for it for ever (docs/guide.md shows that without a store). And Python swallows what
is raised while it takes a dropped object off a weak set, such as asyncio's of all tasks. So the
child's handlers wait until such code has done what it is at. The one that asyncio sets does not
wait: what Python swallows of it is not held against the store.
"""

import os
import random
import signal
from collections import defaultdict
from threading import Event
from time import perf_counter

import pytest

import holdfast
from holdfast.testing import oracle
from procs import child
from thorough import few_cases

LIVES = int(os.environ.get("HOLDFAST_SIGNALS", "40"))
"""How many lives are interrupted in each way, half as many in those on a loop; each ends in another
moment.
"""
ENDS = max(2, LIVES // 20)
BOTH = (signal.SIGINT, signal.SIGTERM)
WAYS = {"sync": BOTH, "loop": BOTH, "loop, twice": BOTH, "runner": (signal.SIGINT,)}
"""In `runner`, asyncio's own handler of SIGINT is in place, which cancels the task. In `loop`, a
handler of the program's own raises wherever the event loop happens to be. In `loop, twice` a second
signal comes soon after: it cuts off the cleaning up that asyncio does for the first, and with it
every task there is. Their turns are ended all the same, within a moment and not when their leases
run out. Python tells of such tasks as it drops them, and swallows what is raised there.
"""


def in_a_row(way, life):
    """How many signals a life gets."""
    return 2 if way == "loop, twice" or (way == "sync" and life % 3 == 0) else 1


LIVING = """
import asyncio, os, signal, time
import holdfast

path, way, lives, must_end = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "end"
INTERRUPTS = (KeyboardInterrupt, SystemExit)
if way == "runner":  # asyncio forgets that it was a signal, if one comes as it begins
    INTERRUPTS += (asyncio.CancelledError,)
hits, calm = 0, False
LEASE_S = 3600 if way == "loop, twice" else 30

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def must_wait(frame):
    '''Whether it is Python's own code that is interrupted, where what is raised is lost: asyncio's on a loop, but where
    it waits for news; and what Python does when an object is dropped.'''
    if frame.f_code.co_name == "select":
        return False
    places = OWN_CODE if way.startswith("loop") else OWN_CODE[1:]
    while frame is not None and "holdfast" not in frame.f_code.co_filename and frame.f_code.co_filename != "<string>":
        if any(place in frame.f_code.co_filename for place in places):
            return True
        frame = frame.f_back
    return False

OWN_CODE = ("/asyncio/", "weakref")
put_off = []

def put_off_for_now(*numbers):
    put_off.extend(numbers)
    signal.setitimer(signal.ITIMER_REAL, 0.0002)

def later(_, frame):
    if put_off and must_wait(frame):
        put_off_for_now()
    elif put_off:
        number = put_off.pop(0)
        if put_off:
            put_off_for_now()
        come(number, frame)

def come(number, frame):
    global hits
    if must_wait(frame):
        put_off_for_now(number)
        return
    hits += 1
    tell("hit")
    if calm:
        return  # it has seen one, and waits for the rest
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(143)

lost = False

def unraisable(told):
    import traceback
    global lost
    frames = traceback.extract_tb(told.exc_traceback)
    ours = [frame for frame in frames if "holdfast" in frame.filename]
    lost = lost or (isinstance(told.exc_value, INTERRUPTS) and not ours)
    if isinstance(told.exc_value, INTERRUPTS) and ours and way != "loop, twice":
        tell("SWALLOWED", "in", frames[-1].name)

sys.unraisablehook = unraisable
signal.signal(signal.SIGTERM, come)
signal.signal(signal.SIGALRM, later)
if way != "runner":
    signal.signal(signal.SIGINT, come)
store = holdfast.open(path, durability="process")

def words(message):
    return iter([f"{message}:{number} " for number in range(12)])

def show(life, message, text):
    tell("shown", life, message, text.strip())

def lived(life):
    with store.session(f"life {life}").turn("Hi") as turn:
        for text in turn.deliver(words(0)):
            show(life, 0, text)
        for at, text in enumerate(turn.deliver(words(1))):
            show(life, 1, text)
            if at == life % 7:
                break
        held = turn.deliver(words(2))
        for text in held:
            show(life, 2, text)
            break
        turn.say("last")
        show(life, 3, "last")

async def scene(life):
    async with holdfast.open_async(path, durability="process") as far:
        session = await far.session(f"life {life}")
        async with session.turn("Hi", lease_s=LEASE_S) as turn:
            async for text in turn.deliver(words(0)):
                show(life, 0, text)
            at = 0
            async for text in turn.deliver(words(1)):
                show(life, 1, text)
                if at == life % 7:
                    break
                at += 1
            await turn.say("last")
            show(life, 2, "last")

def live(life):
    lived(life) if way == "sync" else asyncio.run(scene(life))

def cut(life):
    '''Whether the life was interrupted. A life that goes on after a signal has come has swallowed it.'''
    before = hits
    try:
        tell("open", life)
        live(life)
        if hits != before and way != "loop, twice":
            tell("SWALLOWED", "and life", life, "went on")
        return False
    except INTERRUPTS:
        return True

def one(life, planned):
    global calm, hits, lost
    before, lost = hits, False
    try:
        if way == "runner":  # asyncio leaves its own in place if it is interrupted as it takes it away
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not cut(life) and way == "runner" and not lost:
            for _ in range(6000):  # it comes late, and may come just before a pause
                time.sleep(0.01)
            tell("SWALLOWED", "and life", life, "went on")
        calm = True
    except INTERRUPTS:
        calm = True
    hits += way == "runner"
    until = time.monotonic() + 60
    while hits < before + planned:
        time.sleep(0.001)
        if time.monotonic() > until:
            tell("LOST", "a signal in life", life)
            break
    calm = False
    try:
        with store.session(f"life {life}").turn("free?", on_busy="wait" if way == "loop, twice" else "refuse"):
            pass
    except holdfast.HoldfastError as error:
        tell("BUSY", life, error)

if must_end:
    tell("open", 0)
    live(0)
    tell("WHOLE")
    while True:
        time.sleep(0.01)  # a signal that comes just before it is noticed after it
for life in range(3):
    began = time.perf_counter()
    live(life)
    tell("took", time.perf_counter() - began)
for life in range(3, 3 + lives):
    one(life, 2 if way == "loop, twice" or (way == "sync" and life % 3 == 0) else 1)
tell("done")
"""


class Acknowledged:
    """What a child has told: what it showed, by life and message, and what it complained of."""

    def __init__(self):
        self.shown = defaultdict(lambda: defaultdict(str))
        self.complaints = []

    def hear(self, line):
        word, *rest = line.split(" ")
        if word == "shown":
            self.shown[int(rest[0])][int(rest[1])] += " ".join(rest[2:]) + " "
        elif word.isupper():
            self.complaints.append(line)
        return word

    def judge(self, path):
        with holdfast.open(path) as store:
            for life, messages in self.shown.items():
                session = store.session(f"life {life}", create=False)
                stored = [m.text for m in session.transcript() if m.role == "assistant"]
                for told in map(str.strip, messages.values()):
                    found = [text for text in stored if text.startswith(told)]
                    assert len(found) == 1, (
                        f"life {life}: {told!r} was shown, {stored} are stored (I-5)"
                    )
            assert store.check() == []
        assert self.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_at_any_moment_is_raised_and_loses_nothing_and_leaves_no_turn(path, way):
    chance, ledger, took = random.Random(f"{way} 1"), Acknowledged(), []
    lives = LIVES // 2 if way.startswith("loop") else LIVES
    with child(LIVING, path, way, lives, "live") as other:
        while (line := other.line()) is not None:
            word = ledger.hear(line)
            if word == "took":
                took.append(float(line.split(" ")[1]))
            elif word == "open":
                left = in_a_row(way, int(line.split(" ")[1]))
            if word == "open" or (word == "hit" and left):
                _rest(
                    chance.uniform(0, 1.1 * min(took))
                    if word == "open"
                    else chance.uniform(0, 0.004)
                )
                left -= 1
                os.kill(other.pid, chance.choice(WAYS[way]))
        assert other.end() == [] and line is None
    ledger.judge(path)
    with holdfast.open(path) as store:
        assert oracle.judge(store) == []


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("way", ["sync", "loop", "runner"])
def test_a_process_that_does_not_catch_it_ends_by_it(path, way):
    for number in range(ENDS):
        chance, ledger = random.Random(f"{way} {number}"), Acknowledged()
        place = path.with_name(f"{number}.db")
        sent = chance.choice(WAYS[way])
        with child(LIVING, place, way, 0, "end") as other:
            other.wait_for("open")
            began = perf_counter()
            _rest(chance.uniform(0, 0.06))
            os.kill(other.pid, sent)
            for line in other.lines():
                if line not in ("hit", "WHOLE"):
                    ledger.hear(line)
            other.end(code=143 if sent == signal.SIGTERM else -signal.SIGINT)
        assert perf_counter() - began < 60
        ledger.judge(place)
        with holdfast.open(place) as store, store.session("life 0").turn("next", on_busy="refuse"):
            pass


def _rest(seconds):
    """A random moment later."""
    Event().wait(seconds)
