"""A whole life in a few steps: everything a store does, through its public names, with a note of
what it answered.

    life = ScriptedWorkload(heal=faults.heal)
    life.live("agent.db")
    with holdfast.open("agent.db") as store:
        assert judge(store, life.acknowledged) == []

A step that meets trouble is tried again when the cause is gone, on the same handle, and must go
through then. Each try uses words of its own, so what was stored can be told from what was stored
twice. `acts` has facts for a `Acknowledged`, and grows only after a call has returned: all of it
must be found in the store exactly once (I-3). What was tried and never confirmed may be there or
not, but not twice.

The life has chapters, and the store is closed and opened again between them.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import holdfast
from holdfast import HoldfastError, Store, Turn
from holdfast.errors import OperatorNeeded, TurnInterrupted
from holdfast.testing.oracle import Acknowledged, Act

T = TypeVar("T")

KEY = "life"
OTHER = "aside"
GONE = "gone"


class ScriptedWorkload:
    """One life. `heal` is called when a step meets trouble, before it is tried again. With
    `large_bytes` one message is so large; more than 32 KiB of it are kept apart, as a blob.
    """

    def __init__(
        self, *, heal: Callable[[], None] = lambda: None, large_bytes: int = 0
    ) -> None:
        self._heal = heal
        self.large_bytes = large_bytes
        self._numbers = itertools.count(1)
        self.acts: list[Act] = []
        self.tried: list[str] = []
        self.secrets: list[str] = []  # texts of sessions that were erased
        self.troubles: list[HoldfastError] = []

    def live(self, where: Any, **options: Any) -> None:
        """All chapters, on a store of its own."""
        for chapter in CHAPTERS:
            # Opening may meet the trouble too.
            store = self.manage(partial(holdfast.open, where, **options))
            try:
                for step in chapter:
                    self.manage(partial(step, self, store))
            finally:
                # Whatever a step met: the next chapter opens the same place.
                store.close()

    def manage(self, step: Callable[[], T]) -> T:
        """Does a step; after trouble once more. Only an operator's error is trouble: all else is a
        broken law.
        """
        try:
            return step()
        except OperatorNeeded as trouble:
            self.troubles.append(trouble)
            self._heal()
        return step()

    # What a step says, and what it was told.

    def words(self, what: str) -> str:
        """Words that are said once in this life."""
        text = f"{what} {next(self._numbers)}."
        self.tried.append(text)
        return text

    def hear(self, *act: Any) -> None:
        self.acts.append(act)

    @property
    def acknowledged(self) -> Acknowledged:
        """All that it was answered."""
        return Acknowledged(self.acts, tried=self.tried)

    def speak(self, turn: Turn, *texts: str) -> None:
        """A streamed answer; what is handed on is noted as shown."""
        for text in turn.deliver(list(texts)):
            self.hear("shown", turn.id, None, text)


# The steps. Each is a few public calls and can be done again.


def accepts(life: ScriptedWorkload, store: Store) -> None:
    text = life.words("Accepted")
    store.accept(KEY, text, event_id=text, reply_to="desk")
    life.hear("said", None, None, text)


def talks(life: ScriptedWorkload, store: Store) -> None:
    """Takes what was accepted, streams, uses a tool, and owes a reply."""
    question = life.words("Question")
    answer = life.words("Answer")
    with store.turn(KEY, question, event_id=question) as turn:
        life.hear("said", None, None, question)
        life.speak(turn, answer, " And", " more.")
        call = turn.call("look", {"at": answer})
        life.hear("called", turn.id, call)
        turn.result(call, life.words("Found"))
        life.hear("answered", turn.id, call)
    life.hear("ended", turn.id, "completed")


def asks(life: ScriptedWorkload, store: Store) -> None:
    """A call that waits for approval, is approved, run and answered."""
    session = store.session(KEY)
    call = life.words("pay").replace(" ", "-").strip(".")
    with session.turn(life.words("Pay")) as turn:
        turn.call("pay", {"sum": 7}, call_id=call, needs_approval=True)
        life.hear("called", turn.id, call)
    session.decide(call, True, by="the boss")
    life.hear("wrote", session.id, "decision", call)
    with session.turn(life.words("Go on")) as turn:
        # The same call again: it was approved, and may run now.
        assert not turn.call("pay", {"sum": 7}, call_id=call).waiting
        turn.result(call, life.words("Paid"))
        turn.say(text := life.words("Done"))
        life.hear("said", None, None, text)
    life.hear("ended", turn.id, "completed")


def is_interrupted(life: ScriptedWorkload, store: Store) -> None:
    """The user stops the turn in the middle of a sentence, a call open."""
    session = store.session(KEY)
    with suppress(TurnInterrupted):
        with session.turn(life.words("Stop me")) as turn:
            turn.call("look", {})
            stream = turn.deliver([life.words("Half"), " a", " sentence"])
            life.hear("shown", turn.id, None, next(stream))
            session.stop("enough")
            # Before the stream is asked again: the stop was acknowledged, whatever comes of
            # that.
            life.hear("ended", turn.id, "interrupted")
            next(stream)


def sends(life: ScriptedWorkload, store: Store) -> None:
    # All of them: a reply that an earlier try left is owed still.
    for owed in store.outbox():
        owed.sent("platform-1")
        life.hear("owed", owed.id, owed.session_id)
        life.hear("paid", owed.id)
        life.hear("wrote", owed.session_id, "post", owed.id)


def compacts(life: ScriptedWorkload, store: Store) -> None:
    session = store.session(KEY)
    done = session.compact(life.words("They talked"), keep_turns=1)
    if done is not None:
        life.hear("at", session.id, done.seq, "compaction")


def instructs(life: ScriptedWorkload, store: Store) -> None:
    session = store.session(KEY)
    session.instructions(text := life.words("Be brief"))
    life.hear("instructed", session.id, text)
    life.hear("wrote", session.id, "instructions", text)


def forks(life: ScriptedWorkload, store: Store) -> None:
    branch = store.session(KEY).fork()
    life.hear("opened", branch.id)
    branch.append(text := life.words("Elsewhere"))
    life.hear("said", None, None, text)


def labels_and_rewinds(life: ScriptedWorkload, store: Store) -> None:
    session = store.session(KEY)
    first, *_, last = session.transcript()
    session.label(first.id, pinned=True)
    life.hear("labelled", session.id, first.id, "pinned", True)
    session.rewind(last.id)
    # An earlier try may have written one, too: it fails after its commit, if at all.
    life.hear("wrote", session.id, "rewind", "", False)


def resets(life: ScriptedWorkload, store: Store) -> None:
    """What waits goes on in the new session."""
    store.accept(KEY, text := life.words("Waiting"))
    life.hear("said", None, None, text)
    fresh = store.reset(KEY)
    life.hear("opened", fresh.id)
    # Carried on, once: not left behind, and not in both.
    assert [message.text for message in fresh.pending()].count(text) == 1


def fails(life: ScriptedWorkload, store: Store) -> None:
    """The agent's own error ends a turn; what it said stays."""
    try:
        with store.turn(OTHER, life.words("Divide")) as turn:
            turn.say(text := life.words("Dividing"))
            life.hear("said", None, None, text)
            raise ZeroDivisionError
    except ZeroDivisionError as error:
        if not any(
            "could not be ended" in note for note in getattr(error, "__notes__", ())
        ):
            life.hear("ended", turn.id, "failed")


def erases(life: ScriptedWorkload, store: Store) -> None:
    """What was said there is nowhere afterwards; what others said stays."""
    session = store.session(GONE)
    secret = life.words("Secret")
    # Large enough, it is kept apart as a blob, which must go as well.
    session.append(secret + "." * life.large_bytes)
    # Found before, so that it is in the index too when it is erased.
    assert store.search(secret, key=GONE)
    erasure = store.erase(session.id)
    life.hear("erased", session.id)
    assert erasure.done
    life.secrets.append(secret)


def looks_around(life: ScriptedWorkload, store: Store) -> None:
    """Lists and search write nothing that counts."""
    assert len(store.sessions(key=KEY)) >= 1
    assert store.search("Question", key=KEY)


def appends(life: ScriptedWorkload, store: Store) -> None:
    store.session(OTHER).append(text := life.words("Appended"))
    life.hear("said", None, None, text)


Step = Callable[[ScriptedWorkload, Store], None]
CHAPTERS: tuple[tuple[Step, ...], ...] = (
    (accepts, talks, asks, is_interrupted, sends),
    (
        instructs,
        compacts,
        forks,
        labels_and_rewinds,
        resets,
        fails,
        erases,
        looks_around,
        appends,
    ),
)


def go_on(store: Store, name: str) -> None:
    """Whatever happened before: another turn, another message."""
    for key in (KEY, OTHER):
        with store.turn(key, f"{name} asks {key}.") as turn:
            told = "".join(turn.deliver([f"{name} ", "goes on."]))
            assert told == f"{name} goes on."
        words = f"{name} was at {key}."
        session = store.session(key)
        session.append(words)
        last = list(session.transcript())[-1]
        assert last.text == words
