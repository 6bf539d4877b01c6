"""Anything that can be done to a view, in any order, by two stores on one place (I-9, I-11, I-12,
I-13, FAULTS I9).

After every step, in every handle: the context is valid, and the same as that of the whole log and
of a load that begins with the last compaction; every message is shown, hidden, gone back from,
dropped by a list, or covered by exactly one summary that is shown; what the view went back from
stays away until it is rewound to; what was said is in the transcript once. Every text is said once,
so that a message stored twice shows; what happens to equal texts is told by the laws of rewinding
and recording.
"""

import copy
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import holdfast
from holdfast import Session
from holdfast.domain.log.fold import Log
from holdfast.errors import TurnInterrupted
from holdfast.runtime.live.context import Contexts
from holdfast.testing.providers import check
from looking import other_handle
from thorough import examples

FORMATS = ("openai.chat", "anthropic")


class Agent:
    """Somebody with a list of its own, loaded at some time and grown since, and a handle that
    nobody else looks through.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: list[Any] = []


class Views(RuleBasedStateMachine):
    """See the module's docstring."""

    which = st.integers(0, 1)
    where = st.floats(0, 1, exclude_max=True)

    def __init__(self, where: str | None = None, key: str = "k") -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-view-"))
        self.path, self.key = where or self.folder / "agent.db", key
        self.stores = [holdfast.open(self.path, durability="process") for _ in range(2)]
        self.held = [[store.session(self.key) for store in self.stores]]
        self.agents = [Agent(store.session(self.key)) for store in self.stores]
        self.stopped: list[tuple[Any, str]] = []
        self.count = 0
        self.gone: dict[str, set[str]] = {}
        self.dropped = False

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind} {self.count}"

    def handle(self, which: int, where: float) -> Session:
        return self.held[int(where * len(self.held))][which]

    def message(self, session: Session, where: float) -> Any:
        elsewhere = session._log.history().elsewhere  # what its parent answers
        said = [message for message in session.transcript() if message.id not in elsewhere]
        messages = [message for message in said if message.state != "pending"]
        return messages[int(where * len(messages))] if messages else None

    # Saying something.

    @rule(which=which, where=where, tool=st.booleans(), retried=st.booleans())
    def take_a_turn(self, which: int, where: float, tool: bool, retried: bool) -> None:
        with self.handle(which, where).turn(self.new("ask")) as turn:
            if retried:
                turn.say(self.new("retracted"))
                turn.retract("empty")
            if tool:
                call = turn.call("look", {}, call_id="call_0")
                turn.result(call, self.new("found"))
            turn.say(said := self.new("answer"))
            assert said in str(turn.context())

    @rule(which=which, where=where)
    def stop_a_turn(self, which: int, where: float) -> None:
        session = self.handle(which, where)
        turn = session.turn(self.new("stopped"))
        call = turn.call("look", {}, call_id="call_0")
        next(iter(turn.deliver(iter([self.new("partial"), "never"]))))
        session.stop()
        self.stopped.append((turn, call))

    @rule(words=st.booleans(), where=where)
    @precondition(lambda self: self.stopped)
    def come_late(self, words: bool, where: float) -> None:
        turn, call = self.stopped[int(where * len(self.stopped))]
        with pytest.raises(TurnInterrupted):
            turn.add(self.new("late")) if words else turn.result(call, self.new("late"))

    @rule(which=which, where=where)
    def append(self, which: int, where: float) -> None:
        session = self.handle(which, where)
        session.append(said := self.new("aside"))
        assert said in str(session.context())

    @rule(which=which)
    def accept(self, which: int) -> None:
        self.stores[which].accept(self.key, self.new("accepted"))

    # What is done to the view.

    @rule(which=which, where=where, keep=st.integers(0, 3))
    def compact(self, which: int, where: float, keep: int) -> None:
        self.handle(which, where).compact(self.new("summary"), keep_turns=keep)

    @rule(which=which, session=where, where=where)
    def rewind(self, which: int, session: float, where: float) -> None:
        handle = self.handle(which, session)
        message = self.message(handle, where)
        if message is None:
            return
        before = [seen.id for seen in handle._log.history().visible]
        handle.rewind(message.id)
        self.gone.pop(handle.id, None)
        log = handle._log.history()
        assert log.in_view[-1].id == message.id
        if message.id in before:
            assert [seen.id for seen in log.visible] == before[: before.index(message.id) + 1]

    @rule(which=which, session=where, where=where)
    def rewind_and_go_back_again(self, which: int, session: float, where: float) -> None:
        """What was rewound can be brought back, as long as its arrangement is there."""
        handle = self.handle(which, session)
        shown = [seen.id for seen in handle._log.log().visible]
        if shown:
            before = list(handle.context())
            handle.rewind(shown[int(where * len(shown))])
            handle.rewind(shown[-1])
            self.gone.pop(handle.id, None)
            assert list(handle.context()) == before

    @rule(which=which, session=where, where=where, visible=st.booleans())
    def label(self, which: int, session: float, where: float, visible: bool) -> None:
        handle = self.handle(which, session)
        message = self.message(handle, where)
        if message is not None:
            handle.label(message.id, visible_to_model=visible)

    @rule(which=which, session=where, where=where, at=st.booleans())
    @precondition(lambda self: len(self.held) < 3)
    def fork(self, which: int, session: float, where: float, at: bool) -> None:
        handle = self.handle(which, session)
        message = self.message(handle, where)
        fork = handle.fork(at=message.id if at and message is not None else None)
        self.held.append([store.get(fork.id) for store in self.stores])
        self.agents += [Agent(store.get(fork.id)) for store in self.stores]

    # Lists of one's own, as old as they may be.

    @rule(who=where, forgets=st.booleans())
    def load(self, who: float, forgets: bool) -> None:
        agent = self.agents[int(who * len(self.agents))]
        if forgets:
            agent.session = self.stores[0].get(agent.session.id)
        agent.messages = copy.deepcopy(list(agent.session.context()))

    @rule(who=where, forgets=st.booleans(), copied=st.booleans())
    def record(self, who: float, forgets: bool, copied: bool) -> None:
        agent = self.agents[int(who * len(self.agents))]
        session = self.stores[1].get(agent.session.id) if forgets else agent.session
        before = self.shown(session)
        agent.messages.append({"role": "user", "content": self.new("recorded")})
        listed = copy.deepcopy(agent.messages) if copied else agent.messages
        recorded = session.record(listed)
        assert len(recorded.new) == 1
        assert session.record(listed) == holdfast.Recorded((), recorded.head)
        self.dropped |= not before <= self.shown(session)

    def shown(self, session: Session) -> set[str]:
        log = session._log.log()
        return {seen.id for seen in log.arranged}

    # What must hold.

    @invariant()
    def every_handle_sees_the_same_valid_context(self) -> None:
        """I-9."""
        with other_handle(self.path) as fresh:
            for one, two in self.held:
                log = Log()
                log.add(one.entries())
                for format in FORMATS:
                    context = list(Contexts().make(log, format))
                    assert check(format, context) == []
                    for handle in (one, two, fresh.get(one.id)):
                        assert list(handle.context(format)) == context

    @invariant()
    def every_message_is_accounted_for(self) -> None:
        """I-11, I9."""
        for one, _ in self.held:
            log = Log()
            log.add(one.entries())
            shown = {seen.id for seen in log.visible}
            away = {seen.id for seen in log.natural if seen.seq in log.gone}
            assert not shown & away
            assert self.gone.get(one.id, set()) <= away
            self.gone[one.id] = away
            for seen in log.natural:
                if seen.note.origin != "summary" and not self.dropped:
                    reasons = [seen.id in shown, seen.id in log.hidden, seen.id in away]
                    assert any(reasons) or log.summary_of(seen.id, shown | log.hidden | away), seen

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        """I-12, I-1."""
        for one, _ in self.held:
            texts = [message.text or str(message.payload) for message in one.transcript()]
            said = [text for text in texts if "look" not in text]
            assert len(set(said)) == len(said)
            assert not any("summary" in text for text in said)


Views.TestCase.settings = settings(
    max_examples=examples(12),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestViews = pytest.mark.slow(Views.TestCase)


@pytest.mark.slow
def test_views_on_postgres(databases: Callable[..., str]) -> None:
    """The same machine; each of its stories has a key of its own."""
    where, numbers = databases(schema=True), itertools.count()
    few = settings(Views.TestCase.settings, max_examples=examples(3), stateful_step_count=12)
    run_state_machine_as_test(lambda: Views(where, f"k{next(numbers)}"), settings=few)
