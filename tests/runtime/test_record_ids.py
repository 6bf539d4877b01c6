"""Lists whose messages have ids of their own: ids decide which message is which (I-2, I-12).

Agents change such lists in every way, and say the same few words again and again. Nothing is a limit
here: each id that was ever presented is in the transcript once, as it was worded first, in the order
in which it was first presented; and the context says what the list that was recorded last says.
"""

import copy
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import holdfast
from holdfast import Session
from holdfast.formats import registry
from thorough import few_cases

Payload = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(tmp_path / "ids.db") as opened:
        yield opened


def user(id: str, text: str) -> Payload:
    return {"id": id, "role": "user", "content": text}


def assistant(id: str, text: str) -> Payload:
    return {"id": id, "role": "assistant", "content": text}


def item(id: str, text: str) -> Payload:
    return {**user(id, text), "type": "message"}


def ids_in(session: Session) -> list[Any]:
    return [message.payload.get("id") for message in session.transcript()]


YES = [user("m1", "Yes."), assistant("m2", "Ok.")]
TWO = [user("m1", "Hello."), user("m2", "There?")]


@few_cases(every=3)
@pytest.mark.parametrize("fresh", [False, True], ids=["same handle", "other handle"])
@pytest.mark.parametrize(
    ("first", "then", "format"),
    [
        (YES, [[], [user("n1", "Yes.")]], "openai.chat"),
        (YES, [[user("n1", "Yes.")]], "openai.chat"),
        (YES, [[user("n1", "Yes."), YES[1]]], "openai.chat"),
        (YES, [[YES[0], assistant("n1", "Ok.")]], "openai.chat"),
        (YES, [[user("n1", "Yes."), assistant("n2", "Ok.")]], "openai.chat"),
        (YES, [[YES[1], user("n1", "Yes.")]], "openai.chat"),
        (TWO, [[], [user("n1", "Hello.\n\nThere?")]], "openai.chat"),
        (TWO, [[user("n1", "Hello.\n\nThere?")]], "openai.chat"),
        (TWO, [[user("n1", "Hello.\nThere?")]], "openai.chat"),
        (TWO, [[user("n1", "Hello.\n\nThere?\n\nYes?")]], "openai.chat"),
        ([item("m1", "Yes.")], [[], [item("n1", "Yes.")]], "openai.responses"),
    ],
)
def test_a_message_with_an_id_of_its_own_is_new_whatever_another_says(
    store: holdfast.Store, first: list[Payload], then: list[list[Payload]], format: str, fresh: bool
) -> None:
    session = store.session("k")
    session.record(copy.deepcopy(first), format=format)
    if fresh:
        session = store.session("k")
    for messages in then:
        session.record(copy.deepcopy(messages), format=format)
    new = [each["id"] for each in then[-1] if each["id"].startswith("n")]
    assert ids_in(session) == [*(each["id"] for each in first), *new]


def test_an_object_that_was_given_another_id_is_another_message(store: holdfast.Store) -> None:
    session = store.session("k")
    messages = copy.deepcopy(YES)
    session.record(messages)
    messages[1]["id"] = "m3"
    assert len(session.record(messages).new) == 1
    assert ids_in(session) == ["m1", "m2", "m3"]


def test_calls_and_results_with_other_ids_are_other_messages(store: holdfast.Store) -> None:
    """Some servers give every call the same id."""

    def use(name: str) -> list[Payload]:
        asked = {"id": "call_0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        made = {"id": f"{name}1", "role": "assistant", "content": None, "tool_calls": [asked]}
        done = {"id": f"{name}2", "role": "tool", "tool_call_id": "call_0", "content": "a.txt"}
        return [made, done]

    session = store.session("k")
    session.record([user("m0", "List."), *use("m")])
    assert len(session.record([user("m0", "List."), *use("n")]).new) == 2
    assert ids_in(session) == ["m0", "m1", "m2", "n1", "n2"]


def test_a_response_that_was_given_again_is_another_message(store: holdfast.Store) -> None:
    """A response of several items is stored as one message, and known by the ids of its items."""

    def answer(name: str) -> list[Payload]:
        said = [{"type": "output_text", "text": "Ok.", "annotations": []}]
        message = {"type": "message", "role": "assistant", "status": "completed", "content": said}
        return [
            {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": name},
            {"id": f"msg_{name}", **message},
        ]

    session = store.session("k")
    session.append(user("m1", "Go.") | {"type": "message"}, format="openai.responses")
    session.append(answer("1"), format="openai.responses")
    question = {"type": "message", **user("m1", "Go.")}
    again = [question, *answer("1")]
    assert session.record(again, format="openai.responses").new == ()
    assert session.record([question, again[2]], format="openai.responses").new == ()
    regenerated = [question, *answer("2")]
    assert session.record(regenerated, format="openai.responses").new
    assert "msg_2" in str([message.payload for message in session.transcript()])


def test_what_was_stored_without_an_id_is_known_when_it_comes_with_one(
    store: holdfast.Store,
) -> None:
    session = store.session("k")
    with session.turn("Yes.") as turn:
        turn.say("Ok.")
    session.append({"role": "user", "content": "Yes."})
    messages = [user("m1", "Yes."), assistant("m2", "Ok."), user("m3", "Yes.")]
    assert session.record(messages).new == ()
    # From then on they have these.
    assert len(store.session("k").record([*messages[:2], user("m4", "Yes.")]).new) == 1
    assert len(list(session.transcript())) == 4


def test_ids_that_were_left_out_once_are_still_known(store: holdfast.Store) -> None:
    """Ids are taken out for a provider that refuses them; somebody records that list."""
    session = store.session("k")
    session.record(YES)
    session.record([{key: each[key] for key in ("role", "content")} for each in YES])
    assert len(session.record([user("n1", "Yes."), YES[1]]).new) == 1
    assert store.session("k").record([user("m1", "At eight."), YES[1]]).new == ()
    assert ids_in(session) == ["m1", "m2", "n1"]


def test_ids_that_a_context_gives_its_messages_are_nobodys_own(store: holdfast.Store) -> None:
    """Messages of goose have ids: where there is none, the context shows ours."""
    session = store.session("k")
    session.append("Yes.")
    [shown] = session.context(format="goose")
    assert shown["id"] != "msg_1"
    assert session.record([{**shown, "id": "msg_1"}], format="goose").new == ()


THREE = ("Hello.", "My PIN is 1234.", "Thanks.")


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize(
    ("format", "role"),
    [("openai.chat", "user"), ("openai.chat", "assistant"), ("holdfast", "user"), ("acp", "user")],
)
@pytest.mark.parametrize("ids", [(1,), (1, 2, 3), (2, 3)])
@pytest.mark.parametrize("hidden", [None, 1, 2])
@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_what_a_context_joined_under_one_id_is_known_as_its_parts(
    store: holdfast.Store,
    format: str,
    role: Any,
    ids: tuple[int, ...],
    hidden: int | None,
    grown: bool,
    more: bool,
) -> None:
    """The context gives the whole the id of the first; it is no other wording of that, whatever was
    said or hidden since.
    """
    session = store.session("k")
    said = registry.get(format).say
    names = []
    for n, text in enumerate(THREE, 1):
        own = {"id": f"m{n}"} if n in ids else {}
        names.append(session.append({**said(role, text), **own}, format=format))
    messages = [each for each in session.context(format) if each["role"] == role]
    assert len(messages) == 1
    left = list(THREE)
    if hidden is not None:
        session.label(names[hidden - 1], visible_to_model=False)
        left.remove(THREE[hidden - 1])
    if grown:
        session.append(said(role, "More."), format=format)
    messages += [said("user", "Next.")] * more
    assert len(store.get(session.id).record(messages, format=format).new) == more
    for name, text in zip(names, THREE, strict=True):
        assert [each for each in THREE if each in str(session.context(format))] == left
        session.label(name, visible_to_model=False)
        left = [each for each in left if each != text]


def test_what_is_joined_to_known_messages_under_one_id_is_a_message_of_its_own(
    store: holdfast.Store,
) -> None:
    session = store.session("k")
    session.append_all(TWO)
    [joined] = session.context()
    session.append("More.")
    joined["content"] += "\n\nAnd now?"
    assert len(store.session("k").record([joined]).new) == 1
    assert [each.text for each in session.transcript()] == ["Hello.", "There?", "More.", "And now?"]
    assert [each["content"] for each in session.context()] == [joined["content"]]


def test_a_message_that_has_grown_by_words_that_the_list_has_elsewhere_is_an_edit(
    store: holdfast.Store,
) -> None:
    session = store.session("k")
    messages = [*YES, user("m3", "There?")]
    session.record(messages)
    messages = [user("m1", "Yes.\n\nThere?"), *messages[1:]]
    assert store.session("k").record(messages).new == ()
    assert list(session.context()) == messages


class Lists(RuleBasedStateMachine):
    """See the module's docstring."""

    words = st.sampled_from(["Yes.", "Yes, and no.", "Ok.\n\nYes."])
    role = st.sampled_from(["user", "assistant"])
    where = st.floats(0, 1)

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-ids-"))
        self.store = holdfast.open(self.folder / "ids.db", durability="process")
        self.handles = [self.store.session("k"), self.store.session("k")]
        self.messages: list[Payload] = []
        self.dropped: list[Payload] = []
        self.expected: list[Payload] = []
        self.names = itertools.count(1)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def place(self, where: float) -> int:
        return int(where * len(self.messages))

    def new(self, role: str, words: str) -> Payload:
        return {"id": f"m{next(self.names)}", "role": role, "content": words}

    @rule(role=role, words=words)
    def append(self, role: str, words: str) -> None:
        self.messages.append(self.new(role, words))

    @rule(role=role, words=words, where=where)
    def insert(self, role: str, words: str, where: float) -> None:
        self.messages.insert(self.place(where), self.new(role, words))

    @rule(where=where, count=st.integers(1, 3))
    def drop(self, where: float, count: int) -> None:
        at = self.place(where)
        self.dropped += self.messages[at : at + count]
        del self.messages[at : at + count]

    @rule()
    def clear(self) -> None:
        self.dropped += self.messages
        self.messages = []

    @rule(where=where)
    def bring_back(self, where: float) -> None:
        if self.dropped:
            self.messages.insert(self.place(where), self.dropped.pop())

    @rule(where=where)
    def say_one_again(self, where: float) -> None:
        """The same words in the same place, under a new id."""
        if self.messages:
            at = min(self.place(where), len(self.messages) - 1)
            old = self.messages[at]
            self.dropped.append(old)
            self.messages[at] = self.new(old["role"], old["content"])

    @rule(where=where, words=words)
    def reword(self, where: float, words: str) -> None:
        if self.messages:
            at = min(self.place(where), len(self.messages) - 1)
            self.messages[at] = {**self.messages[at], "content": words}

    @rule()
    def copy(self) -> None:
        self.messages = copy.deepcopy(self.messages)

    @rule(who=st.integers(0, 1))
    def forget(self, who: int) -> None:
        self.handles[who] = self.store.session("k")

    @rule(who=st.integers(0, 1))
    def record(self, who: int) -> None:
        known = {each["id"] for each in self.expected}
        new = [copy.deepcopy(each) for each in self.messages if each["id"] not in known]
        recorded = self.handles[who].record(self.messages)
        self.expected += new
        assert len(recorded.new) == len(new)
        assert [each.payload for each in self.handles[who].transcript()] == self.expected
        assert said(self.handles[1 - who].context()) == said(self.messages)
        assert self.handles[1 - who].record(copy.deepcopy(self.messages)).new == ()


def said(messages: Any) -> list[tuple[str, str]]:
    """What a dialogue says: neighbours of one role are joined."""
    out = []
    for role, group in itertools.groupby(messages, key=lambda each: each["role"]):
        out.append((role, "\n\n".join(each["content"] for each in group)))
    return out


Lists.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLists = pytest.mark.slow(Lists.TestCase)
