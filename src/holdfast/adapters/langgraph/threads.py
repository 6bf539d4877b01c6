"""The threads of a store: found, opened, ended and copied. Plans, for threads and for asyncio."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from holdfast.adapters.framework import names_of, sessions_under
from holdfast.adapters.langgraph.thread import (
    STEPS_KEY,
    Marks,
    Recent,
    Thread,
    steps_key,
    words_key,
)
from holdfast.domain.entry import Draft
from holdfast.domain.message import thaw
from holdfast.engine.protocol import Commit, Refused, SessionState, Write
from holdfast.errors import BadArgument, SessionEnded
from holdfast.formats.langchain.steps import NAME as STEPS
from holdfast.runtime.changes.end_session import end
from holdfast.runtime.changes.erase import erase
from holdfast.runtime.changes.open_session import open_session, successor
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.store import Store
from holdfast.runtime.turns.running_turn import RunningTurn

THREADS_MAX = 256
"""So many threads are kept in memory; one that was used longest ago is read again."""

MARKS_MAX = 8192
"""Of so many more it is known still what runs that may be on their way began from."""

States = tuple[SessionState | None, SessionState | None]


class Threads:
    """What one saver knows of a store. Safe to use from many threads and event loops."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.turns: dict[str, RunningTurn] = {}
        """The turns that runs of this process hold, by thread."""
        self._known: OrderedDict[str, Thread] = OrderedDict()
        # Anybody may ask for threads that are never made: only the last ones are remembered.
        self._begun_anew = Recent(MARKS_MAX)
        self._marks: OrderedDict[str, Marks] = OrderedDict()
        """Those of threads that are known no more, by the session of their steps."""
        self._found_empty: OrderedDict[str, set[str]] = OrderedDict()
        """Threads that runs of this process have begun before there were any, and where in them."""
        self._lock = threading.Lock()

    def known(self, thread_id: str) -> Thread | None:
        """The thread, if it was used before. It may be over by now."""
        with self._lock:
            thread = self._known.get(thread_id)
            if thread is not None:
                self._known.move_to_end(thread_id)
            return thread

    def forget(self, thread_id: str) -> None:
        """It is looked up when it is asked for again."""
        with self._lock:
            self._known.pop(thread_id, None)

    def _forget_old(self, thread: Thread | None) -> None:
        """As `forget`, unless another caller has remembered a newer one meanwhile, whose marks
        would be lost.
        """
        with self._lock:
            if thread is not None and self._known.get(thread.id) is thread:
                del self._known[thread.id]

    def found_empty(self, thread_id: str, ns: str) -> None:
        """A run begins in a thread that is not there yet. Another may be quicker to make it."""
        with self._lock:
            thread = self._known.get(thread_id)
            if thread is None:
                self._found_empty.setdefault(thread_id, set()).add(ns)
                if len(self._found_empty) > MARKS_MAX:
                    self._found_empty.popitem(last=False)
                return
        with thread.lock:
            thread.marks.loaded.add((ns, None))

    def find(self, thread_id: str) -> Plan[Thread | None]:
        """The thread as it is now, up to date; None when there is none."""
        # Before its sessions: one that another caller has just made is none of what is
        # read here.
        known = self.known(thread_id)
        states = yield from read(partial(self._states, thread_id))
        return (yield from self._found(thread_id, known, *states))

    def _found(
        self,
        thread_id: str,
        thread: Thread | None,
        steps: SessionState | None,
        words: SessionState | None,
    ) -> Plan[Thread | None]:
        if thread is not None and thread.is_of(steps, words):
            if steps is not None and steps.head > thread.history.head:
                yield from read(thread.catch_up)
            return thread
        self._forget_old(thread)
        if steps is None or words is None or steps.ended or words.ended:
            self._begins_anew(thread_id)
            return None
        log = self.store._work.session_log
        thread = Thread(thread_id, words=log(words), steps=log(steps))
        if not (yield from read(partial(_belong_together, thread))):
            # The words were reset by themselves: what the steps say of them is over.
            yield from end(thread.steps_log, "its words were reset")
            self._begins_anew(thread_id)
            return None
        yield from read(thread.catch_up)
        return self._remember(thread)

    def open(self, thread_id: str) -> Plan[Thread]:
        """The thread as it is now; made if there is none."""
        while True:
            known = self.known(thread_id)
            states = yield from read(partial(self._states, thread_id))
            thread = yield from self._found(thread_id, known, *states)
            if thread is None:
                thread = yield from self._made(thread_id, *states)
            if thread is not None:
                return thread

    def _made(
        self, thread_id: str, steps: SessionState | None, words: SessionState | None
    ) -> Plan[Thread | None]:
        """A new thread, its two sessions and their bond in one commit: killed at any moment, there is
        all of it or nothing. None when it has to be looked at again.
        """
        work = self.store._work
        if steps is not None and not steps.ended:
            # What they were said of is over: when new words are there, `_found` ends them.
            yield from open_session(work, words_key(thread_id))
            return None
        opening = yield from read(partial(_opening, work, thread_id, steps, words))
        if opening is None:
            return None
        thread, commit = opening
        outcome = yield from wait_for(work.engine.submit(commit))
        if isinstance(outcome, Refused):
            # Another process was quicker: the thread is the one that it has made.
            return None
        # All that is in it is known, unless something was carried into it.
        if not thread.history.head:
            yield from read(thread.catch_up)
        return self._remember(thread)

    def is_over(self, thread_id: str) -> Plan[bool]:
        """Whether there was such a thread, and a run that is still on its way does not know that it
        has ended.
        """
        if thread_id in self._begun_anew:
            return False
        steps, _ = yield from read(partial(self._states, thread_id))
        return steps is not None and steps.ended

    def ended(self, thread_id: str) -> Plan[SessionEnded]:
        """The error for a run that goes on in a thread which is over."""
        steps, words = yield from read(partial(self._states, thread_id))
        current = None if words is None or words.ended else words.id
        thread = self.known(thread_id)
        name = thread.steps_log.id if thread is not None else getattr(steps, "id", "")
        return SessionEnded(
            session_id=name, reason="the thread was deleted", current_id=current
        )

    def delete(self, thread_id: str) -> Plan[None]:
        """Ends a thread and erases what was said in it. Killed in between, it is done again."""
        states = yield from read(partial(self._states, thread_id))
        self.forget(thread_id)
        for state in states:
            if state is None or state.erased:
                continue
            yield from end(self.store._work.session_log(state), "deleted")
        # The steps first: a thread without words is found by nobody.
        for state in states:
            if state is not None and not state.erased:
                yield from erase(self.store._work, state.id, preview=False)

    def copy(self, source: str, target: str) -> Plan[None]:
        """Copies a thread with all that was said in it, in one commit."""
        origin = yield from self.find(source)
        if origin is None:
            return
        if (yield from self.find(target)) is not None:
            takes = "the name of a thread that is not there yet"
            raise BadArgument(parameter="target_thread_id", takes=takes, given=target)
        made = yield from self.open(target)
        drafts = yield from read(partial(_copied, origin))
        words, steps = drafts
        writes = [Write(made.steps_log.id, tuple(steps), head=made.history.head)]
        if words:
            writes.insert(0, Write(made.words_log.id, tuple(words)))
        outcome = yield from wait_for(self.store._work.engine.submit(tuple(writes)))
        if isinstance(outcome, Refused):
            raise (yield from self.ended(target))
        self.forget(target)

    def all(self) -> Iterator[str]:
        """The names of all threads, in order."""
        for state in sessions_under(self.store, STEPS_KEY):
            assert state.key is not None
            yield names_of(state.key)[1]

    def _states(self, thread_id: str) -> States:
        work = self.store._work
        steps = work.engine.current(work.tenant, steps_key(thread_id))
        return steps, work.engine.current(work.tenant, words_key(thread_id))

    def _begins_anew(self, thread_id: str) -> None:
        with self._lock:
            if thread_id not in self._known:
                self._begun_anew.add(thread_id)

    def _remember(self, thread: Thread) -> Thread:
        with self._lock:
            # Of two callers that have read it at once, both are to use the same one.
            known = self._known.get(thread.id)
            if known is not None and known.steps_log.id == thread.steps_log.id:
                return known
            thread.marks = self._marks.pop(thread.steps_log.id, thread.marks)
            for ns in self._found_empty.pop(thread.id, ()):
                thread.marks.loaded.add((ns, None))
            self._known[thread.id] = thread
            self._begun_anew.discard(thread.id)
            while len(self._known) > THREADS_MAX:
                _, oldest = self._known.popitem(last=False)
                self._marks[oldest.steps_log.id] = oldest.marks
            while len(self._marks) > MARKS_MAX:
                self._marks.popitem(last=False)
            return thread


def _opening(
    work: OpenStore,
    thread_id: str,
    steps: SessionState | None,
    words: SessionState | None,
) -> tuple[Thread, Commit] | None:
    """A thread that is to be made, in place of one that is over if there was one, and the commit that
    makes it. None when somebody else is about to.
    """
    writes: list[Write] = []
    is_bare = False
    if words is not None and not words.ended:
        # A turn was begun in it before there was any step.
        words_log = work.session_log(words)
    else:
        made = successor(work, words, words_key(thread_id), "replaced")
        if made is None:
            return None
        words_log = made.session
        is_bare = len(made.opening.drafts) == 1
        writes += [*made.closing, made.opening]
    made = successor(work, steps, steps_key(thread_id), "replaced")
    if made is None:
        return None
    steps_log = made.session
    bond = speak({"kind": "thread", "words": words_log.id}, STEPS)
    opened, *carried = made.opening.drafts
    drafts = (opened, steps_log.message(bond, turn=None), *carried)
    writes += [*made.closing, replace(made.opening, drafts=drafts)]
    thread = Thread(thread_id, words=words_log, steps=steps_log)
    if is_bare and not carried:
        thread.words.head, thread.history.head = 1, len(drafts)
    return thread, tuple(writes)


def _belong_together(thread: Thread) -> bool:
    """Whether the steps are of these words: their first record names the session."""
    page = thread.steps_log.page(1, 1)
    if not page:
        return True  # just made; its maker is about to say so
    try:
        bond = thaw(page[0].body)
    except Exception:
        return True  # damaged: the newest words are those of the thread
    if not isinstance(bond, dict) or bond.get("kind") != "thread":
        return True
    return bool(bond["words"] == thread.words_log.id)


def _copied(thread: Thread) -> tuple[list[Draft], list[Draft]]:
    return _drafts(thread.words_log, 0), _drafts(thread.steps_log, 2)


def _drafts(log: SessionLog, after: int) -> list[Draft]:
    """All messages of a log, to be stored in another under the same ids."""
    drafts = []
    while page := log.page(after):
        after = page[-1].seq
        for entry in page:
            if entry.kind == "message":
                id, at = entry.id, entry.at
                drafts.append(Draft("message", None, id, at, entry.note, entry.body))
    return drafts
