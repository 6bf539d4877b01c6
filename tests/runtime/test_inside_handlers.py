"""Calls in a signal handler, in the middle of another call on the same thread: each of them works or
raises one of the library's own errors, none waits for what only the interrupted call could do, and
that one goes on as if nothing had been (FAULTS A3).

A handler runs between two steps of its thread. Here it runs at a known one: when a named function of
the library is entered, or a C function of a name has returned, while another one is on the stack.
What could hang runs in a process of its own.
"""

import pytest

from procs import child
from thorough import few_cases

LIMIT_S = 40.0

HANDLING = """
import contextlib, os, sys
import holdfast
from holdfast.errors import BadArgument, HoldfastError, StoreUnavailable

class At:
    '''Calls `handler` once, at the k-th `event` of this name below a function `within`: as a signal
    handler there would be.'''

    def __init__(self, event, name, within, handler, at=1):
        self.event, self.name, self.within, self.handler = event, name, within, handler
        self.left, self.told = at, None

    def __enter__(self):
        sys.setprofile(self.called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def called(self, frame, event, called):
        found = frame.f_code.co_name if event == "call" else getattr(called, "__name__", "")
        if event != self.event or found != self.name or not self.is_within(frame):
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            try:
                self.told = self.handler()
            except HoldfastError as error:
                self.told = error

    def is_within(self, frame):
        while frame is not None and frame.f_code.co_name != self.within:
            frame = frame.f_back
        return frame is not None

path = sys.argv[1]
store = holdfast.open(path)
session = store.session("k")
"""


def said(script, path):
    """What a child says that runs this with the above at hand; it must end by itself."""
    with child(HANDLING + script, path) as other:
        return other.end(LIMIT_S)


CLOSING = """
shown = ""
with contextlib.suppress(HoldfastError), session.turn("Hi") as turn, At(*{place}, store.close, at=5) as point:
    for text in turn.deliver(f"{{number}} " for number in range(50)):
        shown += text
say("closed", point.left == 0, point.told)
with contextlib.suppress(HoldfastError):
    session.append("late")
    say("NOT CLOSED")
with holdfast.open(path) as again:
    other = again.session("k")
    [words] = [message.text for message in other.transcript() if message.role == "assistant"]
    say("kept", bool(shown), words.startswith(shown), [turn.end for turn in other.turns()], again.check())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        ("call", "take", "store_chunks"),
        ("call", "submit", "store_chunks"),
        ("c_return", "put", "submit"),
        ("call", "result", "_wait"),
    ],
    ids="-".join,
)
def test_a_handler_closes_the_store_in_the_middle_of_a_delivery(path, place):
    """What was shown is kept, and the turn has its end (I-5, I-6)."""
    assert said(CLOSING.format(place=place), path) == [
        "closed True None",
        "kept True True ['interrupted'] []",
    ]


def test_a_commit_that_meets_a_handler_which_closes_the_store_is_refused(path):
    """It would stand in the queue behind the mark of closing, and wait for ever."""
    script = """
writer = session._log.engine._engine._writer

class Closing:
    def __init__(self, queue):
        self.queue = queue
    def put(self, ticket):
        if ticket is not None:
            writer._queue = self.queue
            store.close()
        self.queue.put(ticket)
    def __getattr__(self, name):
        return getattr(self.queue, name)

writer._queue = Closing(writer._queue)
try:
    session.append("Hi")
except StoreUnavailable as error:
    say("refused", error.problem)
"""
    assert said(script, path) == ["refused it was closed"]


def test_a_handler_stops_a_turn_in_the_middle_of_a_read(path):
    """It sees what was committed since the read began."""
    script = """
session.append_all([f"message {number}" for number in range(50)])
turn = session.turn("Hi")
with At("c_return", "execute", "entries", lambda: session.stop("signal")) as point:
    store.get(session.id).context()
say(point.left, point.told, len(session.turns()), [turn.end for turn in session.turns()])
"""
    [line] = said(script, path)
    assert line == "0 True 1 ['interrupted']"


def test_a_handler_does_not_wait_for_the_turn_that_its_thread_is_starting(path):
    script = """
with At("call", "begin", "commit_start", lambda: session.turn("From the handler")) as point:
    turn = session.turn("Hi")
turn.say("Here")
turn.interrupt()
say(type(point.told).__name__, "in the middle of another call" in str(point.told))
say([message.text for message in session.transcript()], len(session.pending()))
"""
    assert said(script, path) == ["BadArgument True", "['Hi', 'Here'] 0"]


def test_a_handler_does_not_compact_while_its_thread_starts_a_turn(path):
    script = """
session.append_all(["one", "two"])
with At("call", "begin", "commit_start", lambda: session.compact("Few words.", keep_turns=0)) as point:
    session.turn("Hi").interrupt()
say(type(point.told).__name__, "in the middle of another call" in str(point.told))
"""
    assert said(script, path) == ["StoreUnavailable True"]


def test_a_handler_that_searches_in_the_middle_of_a_search_is_told_so(path):
    script = """
session.append("word")
with At("call", "is_caught_up", "_catch_up", lambda: store.search("word")) as point:
    found = store.search("word")
say(type(point.told).__name__, "in the middle of another call" in str(point.told), len(found))
with At("call", "is_caught_up", "_catch_up", store.close) as point, contextlib.suppress(StoreUnavailable):
    found = store.search("word")
say(point.left, point.told)
"""
    assert said(script, path) == ["StoreUnavailable True 1", "0 None"]


def test_a_handler_in_the_middle_of_a_push_is_told_so_and_the_stream_goes_on(path):
    script = """
with session.turn("Hi") as turn:
    stream = turn.stream()
    shown = stream.push("a")
    for act in (lambda: stream.push("x"), stream.close):
        with At("call", "submit", "store_chunks", act) as point:
            shown += stream.push("b")
        say(type(point.told).__name__, "in the middle of another call" in str(point.told))
    stream.close()
say(shown, [message.text for message in session.transcript()], [turn.end for turn in session.turns()])
"""
    assert said(script, path) == [
        "StoreUnavailable True",
        "StoreUnavailable True",
        "abb ['Hi', 'abb'] ['completed']",
    ]


@pytest.mark.parametrize("at", ["take", "submit"])
def test_what_a_handler_takes_back_in_the_middle_of_a_push_is_shown_to_nobody(path, at):
    script = f"""
with session.turn("Hi") as turn:
    stream = turn.stream()
    shown = stream.push("a")
    with At("call", {at!r}, "store_chunks", lambda: turn.retract("again")) as point:
        shown += stream.push("b")
    say(point.left, point.told, shown)
    turn.say("c")
say([message["content"] for message in session.context()], store.check())
"""
    assert said(script, path) == ["0 None a", "['Hi', 'c'] []"]


RECORDING = """
mine = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
session.record(mine)
mine.append({"role": "user", "content": "three"})
with At("call", "arranged", "_decide", lambda: (HANDLED)) as point:
    session.record(mine)
say(type(point.told).__name__, [message["content"] for message in session.context()], store.check())
"""


@few_cases(every=2)
@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("session.record([{'role': 'user', 'content': 'x'}])", "StoreUnavailable"),
        ("session.context()", "Context"),
        ("list(session.transcript())", "list"),
        ("session.info()", "SessionInfo"),
    ],
)
def test_a_recording_goes_on_whatever_a_handler_asks_of_its_handle(path, act, told):
    found = said(RECORDING.replace("(HANDLED)", act), path)
    assert found == [f"{told} ['one', 'two', 'three'] []"]


def test_a_handler_that_appends_in_the_middle_of_a_recording_harms_neither(path):
    script = RECORDING.replace("(HANDLED)", "(session.append('x'), session.context('anthropic'))")
    script += "say(sorted(message.text for message in session.transcript()))"
    assert said(script, path) == [
        "tuple ['one', 'two', 'three'] []",
        "['one', 'three', 'two', 'x']",
    ]


def test_a_handler_that_needs_a_part_which_is_being_loaded_is_told_so(path):
    script = """
class Loading:
    def find_spec(self, name, *_):
        if name == "holdfast.domain.record.fingerprint":
            sys.meta_path.remove(self)
            try:
                session.record([{"role": "user", "content": "x"}])
            except StoreUnavailable as error:
                say("told", error.problem)

sys.meta_path.insert(0, Loading())
session.record([{"role": "user", "content": "one"}])
say([message["content"] for message in session.context()])
"""
    assert said(script, path) == [
        "told this thread is in the middle of another call, which this one has interrupted",
        "['one']",
    ]


def test_a_handler_accepts_in_the_middle_of_accepting(path):
    script = """
with store._work.arrivals._lock:  # as the call has it that was interrupted
    store.accept("k", "one")
say([message.text for message in session.pending()])
"""
    assert said(script, path) == ["['one']"]


def test_a_function_of_the_callers_own_may_wait_for_a_turn_of_others(path):
    """It is called by the compaction itself, which is not in the middle of anything."""
    script = """
import threading
session.append_all(["one", "two"])
other = store.session("other")
held = []

def hold():
    held.append(other.turn("Hi"))
    while not other.info().pending:
        pass
    held[0].interrupt()

def summary(messages):
    holder = threading.Thread(target=hold)
    holder.start()
    while not held:
        pass
    other.turn("Now").interrupt()
    return "Few words."

say(session.compact(summary, keep_turns=0) is not None)
"""
    assert said(script, path) == ["True"]


@few_cases(every=3)
@pytest.mark.parametrize(
    "act",
    [
        "session.append('x')",
        "session.turn('x')",
        "[*session.calls(), session.label(first, a=1)]",
        "store.accept('k', 'x')",
        "session.stop() or session.append('x')",
        "holdfast.open(path)",
        "store.close() or session.append('x')",
        "store.search('x') and session.append('x')",
    ],
)
def test_what_an_object_asks_for_that_outlives_the_threads_of_its_store_is_refused(path, act):
    script = f"""
first = session.append("word x")
session.turn("y").interrupt()
class Last:
    def __init__(self):
        self.needs = os, say, holdfast, StoreUnavailable, session, store, path, first
    def __del__(self):
        os, say, holdfast, StoreUnavailable, session, store, path, first = self.needs
        try:
            {act}
            say("NOT REFUSED")
        except StoreUnavailable as error:
            say("told", error.problem)

last = Last()
"""
    assert said(script, path) == [
        "told this process is ending, and the threads of the store have stopped"
    ]
