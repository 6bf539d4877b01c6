"""The context, through the public names: valid for every log that can exist, and the same wherever
it is computed.

Hypothesis tells random stories of turns (I-9, I-10): streams cut at every point, turns stopped,
superseded, dropped and failed, parallel calls, late and doubled results, reused ids, blanks,
provider switches. After every step the context is valid for all four formats (FAULTS E), equal to
what a fresh handle computes, and nobody's scribbling shows in it.
"""

import contextlib
import copy
import json
import pickle
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import holdfast
from holdfast.domain.message import freeze
from holdfast.engine.protocol import Write
from holdfast.errors import BadArgument, NotApproved, NotFound, TurnInterrupted
from holdfast.testing import strategies
from holdfast.testing.providers import check
from holdfast.testing.strategies import FORMATS
from looking import ends, other_handle
from procs import run
from thorough import examples, few_cases

STORIES = settings(
    max_examples=examples(20),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

formats = st.sampled_from(FORMATS)
messages = formats.flatmap(lambda name: st.tuples(st.just(name), strategies.payloads(name)))
replies = formats.flatmap(lambda name: st.tuples(st.just(name), strategies.streams(name)))


def scribble(value):
    """Changes everything in a payload that can be changed."""
    if isinstance(value, dict):
        for item in value.values():
            scribble(item)
        value["scribble"] = "x"
        value.pop("content", None)
    elif isinstance(value, list):
        for item in value:
            scribble(item)
        value.append("scribble")


class Stories(RuleBasedStateMachine):
    """One session and those who work on it."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.where = Path(self.folder.name) / "agent.db"
        self.store = holdfast.open(self.where, durability="process")
        self.session = self.store.session("k")
        self.other = holdfast.open(self.where, durability="process")
        self.turn = None
        self.past = []
        self.stored = {}

    def teardown(self):
        self.store.close()
        self.other.close()
        self.folder.cleanup()

    running = precondition(lambda self: self.turn is not None)
    had_some = precondition(lambda self: self.past)

    def over(self):
        self.past.append(self.turn)
        self.turn = None

    @rule(message=messages, blank=st.booleans())
    def start(self, message, blank):
        format, payload = message
        if self.turn is not None:
            self.past.append(self.turn)
        if blank:
            self.turn = self.session.turn(format=format, on_busy="interrupt")
        else:
            self.turn = self.session.turn(payload, format=format, on_busy="interrupt")

    @running
    @rule(text=strategies.words)
    def say(self, text):
        self.turn.say(text)

    @running
    @rule(message=messages)
    def add(self, message):
        format, payload = message
        self.stored[self.turn.add(payload, format=format)] = freeze(payload)

    @running
    @rule(reply=replies, data=st.data())
    def deliver(self, reply, data):
        """A stream, whole, cut short by its provider, left by its consumer, or broken."""
        format, chunks = reply
        cut = data.draw(st.integers(0, len(chunks)))
        ending = data.draw(st.sampled_from(["whole", "short", "left", "broken"]))

        def source():
            yield from chunks if ending == "whole" else chunks[:cut]
            if ending == "broken":
                raise ConnectionError

        stream = self.turn.deliver(source(), format=format)
        with contextlib.suppress(ConnectionError):
            for _ in stream:
                if ending == "left":
                    break
        stream.close()

    @running
    @rule(name=strategies.names, arguments=strategies.arguments, call_id=strategies.call_ids)
    def call(self, name, arguments, call_id):
        # One that was started in this turn already is refused, and one that may be any of several;
        # both change nothing.
        with contextlib.suppress(NotApproved, BadArgument):
            self.turn.call(name, arguments, call_id=call_id)

    @running
    @rule(call_id=strategies.call_ids, content=strategies.words, error=st.booleans())
    def result(self, call_id, content, error):
        with contextlib.suppress(NotFound, BadArgument):
            self.turn.result(call_id, content, error=error)

    @running
    @rule()
    def retract(self):
        self.turn.retract()

    @had_some
    @rule(data=st.data(), call_id=strategies.call_ids, content=strategies.words)
    def come_late_with_a_result(self, data, call_id, content):
        turn = data.draw(st.sampled_from(self.past))
        with pytest.raises((TurnInterrupted, NotFound, BadArgument)):
            turn.result(call_id, content)

    @had_some
    @rule(data=st.data(), message=messages)
    def come_late_with_a_message(self, data, message):
        format, payload = message
        with pytest.raises(TurnInterrupted):
            data.draw(st.sampled_from(self.past)).add(payload, format=format)

    @rule(message=messages)
    def append(self, message):
        format, payload = message
        self.stored[self.session.append(payload, format=format)] = freeze(payload)

    @rule(text=strategies.words)
    def instruct(self, text):
        self.session.instructions(text)

    @rule(data=st.data(), visible=st.booleans())
    def label(self, data, visible):
        ids = [message.id for message in self.session.transcript()]
        if ids:
            self.session.label(data.draw(st.sampled_from(ids)), visible_to_model=visible)

    @running
    @rule(way=st.sampled_from(["clean", "failed", "interrupt", "stop", "die"]))
    def end(self, way):
        if way == "clean":
            with self.turn:
                pass
        elif way == "failed":
            with pytest.raises(ZeroDivisionError), self.turn:
                raise ZeroDivisionError
        elif way == "interrupt":
            self.turn.interrupt()
        elif way == "stop":
            self.other.session("k").stop()
        else:  # nobody holds it any more: what the keeper does for a turn that was dropped
            number = self.turn._work.number
            self.session._log.submit(
                Write(self.session._log.id, fence=number, seize=True, renew_s=0, ended_too=True)
            ).result()
            self.session.info()
        self.over()

    @invariant()
    def the_context_is_valid_for_every_format(self):
        """I-9, I-10."""
        for format in FORMATS:
            context = self.session.context(format)
            assert check(format, context) == [], format

    @invariant()
    def a_warm_handle_computes_what_a_fresh_one_does(self):
        """I-9: incremental on the one, from nothing on the other; and scribbling in the result
        changes nothing.
        """
        for format in FORMATS:
            mine = self.session.context(format)
            fresh = self.other.session("k").context(format)
            assert (
                list(mine) == list(fresh)
                and mine.instructions == fresh.instructions
                and mine.head == fresh.head
            )
            scribble(list(mine))
            scribble(mine[:])
            assert list(self.session.context(format)) == list(fresh)

    @invariant()
    def every_payload_is_stored_as_it_was_given(self):
        """I-1, I-14: byte for byte, whatever the view makes of it."""
        bodies = {
            entry.id.hex(): entry.body
            for entry in self.session.entries()
            if entry.kind == "message"
        }
        assert all(bodies[id] == body for id, body in self.stored.items())

    @invariant()
    def every_turn_that_is_over_has_one_end(self):
        """I-6."""
        found = list(ends(self.store, self.session.id).values())
        finished = found if self.turn is None else found[:-1]
        assert all(len(each) == 1 for each in finished) and (self.turn is None or found[-1] == [])


@pytest.mark.slow
def test_every_story_of_turns_makes_valid_contexts():
    run_state_machine_as_test(Stories, settings=STORIES)


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def talk(session, turns=6):
    """Some turns with tools, one of them interrupted."""
    session.instructions("Be brief.")
    for number in range(turns):
        with session.turn(f"q{number}") as turn:
            turn.call("look", {"n": number}, call_id="call_0")
            if number != 2:
                turn.result("call_0", f"r{number}")
            list(turn.deliver([f"a{number}"]))
            if number == 3:
                turn.interrupt()


def test_another_process_computes_the_same_contexts(store, where):
    """I-9, FAULTS B4: every format, bytes and all."""
    session = store.session("k")
    talk(session)
    said = run(
        """
        import holdfast, msgspec
        session = holdfast.open(sys.argv[1]).session("k")
        for format in sys.argv[2:]:
            say(msgspec.json.encode(list(session.context(format))).hex())
        """,
        where,
        *FORMATS,
    )
    assert [bytes.fromhex(line) for line in said] == [
        msgspec.json.encode(list(session.context(format))) for format in FORMATS
    ]


WAYS = {
    "an item": lambda context: [context[0]],
    "a slice": lambda context: context[:],
    "a loop": lambda context: [payload for payload in context],
    "unpacking": lambda context: [*context],
    "list()": lambda context: list(context),
    "tuple()": lambda context: tuple(context),
    "concatenation": lambda context: context + [],
    "being concatenated": lambda context: [] + context,
    "sum": lambda context: sum([context], []),
    "extending": lambda context: extended(context),
    "slice assignment": lambda context: assigned(context),
    "multiplication": lambda context: context * 2,
    "copy": lambda context: context.copy(),
    "copy.copy": lambda context: copy.copy(context),
    "copy.deepcopy": lambda context: copy.deepcopy(context),
    "pickle": lambda context: pickle.loads(pickle.dumps(context)),
    "pop": lambda context: [context.pop(0)],
    "reversed": lambda context: list(reversed(context))[::-1],
    "sorted": lambda context: sorted(context, key=lambda payload: payload["role"] != "system"),
    "filter": lambda context: list(filter(None, context)),
    "a star call": lambda context: (lambda *payloads: payloads)(*context),
    "unpacking to names": lambda context: first_of(context),
    "matching": lambda context: matched(context),
}


def extended(context):
    made = []
    made += context
    made.extend(context)
    return made


def assigned(context):
    made = []
    made[:] = context
    return made


def first_of(context):
    first, *_ = context
    return [first]


def matched(context):
    match context:
        case [first, *_]:
            return [first]


def test_a_context_that_was_made_before_is_not_given_again_when_its_beginning_has_changed(store):
    session = store.session("k")
    for number in range(4):
        with session.turn(f"question {number}") as turn:
            turn.say(f"answer {number}")
    assert len(session.context()) == 8
    first = next(iter(session.transcript()))
    session.label(first.id, visible_to_model=False)
    assert next(payload["content"] for payload in session.context()) == "answer 0"


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("way", WAYS)
def test_changing_what_a_context_gave_changes_nothing_else(store, way):
    """I-9, FAULTS F7: a harness adds cache marks, trims and edits in place; the next context is as
    if it had not.
    """
    session = store.session("k")
    talk(session)
    clean = copy.deepcopy(list(store.session("k").context()))
    assert list(session.context()) == clean
    for _ in range(2):
        taken = list(WAYS[way](session.context()))
        assert taken == (clean * 2)[: len(taken)]
        scribble(taken)
        assert list(session.context()) == clean


def test_a_context_is_a_list_that_encoders_take(store):
    """Ready to send: json, msgspec and equality see the payloads."""
    session = store.session("k")
    talk(session, turns=2)
    context = session.context()
    plain = list(session.context())
    assert isinstance(context, list) and len(context) == len(plain)
    assert json.loads(json.dumps(context)) == json.loads(msgspec.json.encode(context)) == plain
    assert context == plain and context.head == session.info().head
    assert context[0] == {"role": "system", "content": "Be brief."}
    assert session.context("anthropic").instructions == "Be brief."


@pytest.mark.slow
@given(
    payload=st.sampled_from(FORMATS).flatmap(
        lambda name: st.tuples(st.just(name), strategies.payloads(name))
    )
)
@settings(max_examples=examples(60), deadline=None)
def test_payloads_come_back_byte_for_byte(tmp_path_factory, payload):
    """I-14: in their own format, from the transcript, whatever they hold."""
    format, given_payload = payload
    with holdfast.open(
        tmp_path_factory.mktemp("bytes") / "agent.db", durability="process"
    ) as store:
        session = store.session("k")
        with session.turn("Hi") as turn:
            turn.add(given_payload, format=format)
        message = list(session.transcript())[-1]
        assert message.payload == given_payload and message.format == format


def test_a_message_that_was_hidden_while_it_waited_is_hidden_when_it_is_taken(store, where):
    """I-9, I-13: on the handle that saw it wait, and on a fresh one."""
    session = store.session("k")
    with session.turn("kept") as turn:
        turn.say("Yes.")
    dropped = session.turn("hidden")
    session._log.submit(
        Write(session._log.id, fence=dropped._work.number, seize=True, renew_s=0, ended_too=True)
    ).result()
    [waiting] = session.pending()
    session.label(waiting.id, visible_to_model=False)
    assert [payload["content"] for payload in session.context()] == ["kept", "Yes."]
    with session.turn("shown") as turn:
        assert [payload["content"] for payload in turn.context()] == ["kept", "Yes.", "shown"]
        with other_handle(where) as other:
            assert list(other.session("k").context()) == list(turn.context())


def test_what_is_stored_is_not_changed_to_please_a_provider(store, where):
    """I-1, FAULTS E10, E11: blanks, doubled roles and open calls are in the log as they came, and
    in no context.
    """
    session = store.session("k")
    said = [
        {"role": "user", "content": ""},
        {"role": "user", "content": "One."},
        {"role": "user", "content": "Two."},
        {"role": "assistant", "content": "   "},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "", "type": "function", "function": {"name": "a b", "arguments": '{"x": '}}
            ],
        },
    ]
    for payload in said:
        session.append(payload)
    before = [entry.body for entry in session.entries() if entry.kind == "message"]
    for format in FORMATS:
        assert check(format, session.context(format)) == []
    with other_handle(where) as other:
        assert [message.payload for message in other.session("k").transcript()] == said
    assert [entry.body for entry in session.entries() if entry.kind == "message"] == before


@pytest.mark.parametrize("format", FORMATS)
def test_an_outcome_that_an_earlier_turn_stores_is_shown_from_then_on(store, where, format):
    """I-7, I-9: it is stored in that turn, before the call that it names, and both are shown
    together.
    """
    session = store.session("k")
    seen = []

    def look():
        shown = list(session.context(format))
        with other_handle(where) as other:
            assert shown == list(other.get(session.id).context(format))
        assert check(format, shown) == []
        seen.append("THE OUTCOME" in json.dumps(shown))

    old = session.turn("one")
    old.interrupt()
    look()
    session.append({"role": "assistant", "content": "between"})
    look()
    with session.turn("two") as turn:
        call_id = turn.call("tool", {})
    look()
    [call] = session.calls()
    with pytest.raises(TurnInterrupted):
        old.result(call_id, "THE OUTCOME", message=call.message, index=call.index)
    for number in range(3):
        look()
        with session.turn(f"more {number}") as turn:
            turn.say("Said.")
    look()
    assert seen == [False] * 3 + [True] * 4
