"""What a context gave since a handle last recorded is known again as it was given, whatever others
have recorded, hidden, joined, rewound or compacted since: nothing is stored twice, nothing is lost
(I-12).
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Session
from thorough import examples

Payload = dict[str, Any]


def user(text: str) -> Payload:
    return {"role": "user", "content": text}


def named(text: str) -> Payload:
    return {"id": text, "role": "user", "content": text}


def texts(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


@pytest.fixture
def handles(store: holdfast.Store) -> list[Session]:
    return [store.session("k") for _ in range(3)]


def test_ids_decide_in_what_was_joined_over_what_this_handle_recorded(
    handles: list[Session],
) -> None:
    a, b, c = handles
    a.record([named("1")])
    list_c, list_a = list(c.context()), list(a.context())
    a.record([*list_a, named("2")])
    list_a = list(a.context())
    c.record([*list_c, named("3")])
    list_b, list_c = list(b.context()), list(c.context())
    a.record([*list_a, named("4")])
    b.record([*list_b, named("5")])
    list_a = list(a.context())
    assert list_a == [{"id": "1", "role": "user", "content": "1\n\n3\n\n5"}]
    c.record([*list_c, named("6")])
    assert len(a.record([*list_a, named("7")]).new) == 1
    assert texts(a) == ["1", "2", "3", "4", "5", "6", "7"]
    assert list(a.context()) == [{"id": "1", "role": "user", "content": "1\n\n3\n\n5\n\n7"}]


def test_words_that_were_joined_over_what_this_handle_recorded_are_known(
    handles: list[Session],
) -> None:
    a, b, _ = handles
    b.append("one")
    b.append("two")
    b.record(list(b.context()))
    a.record([user("one"), user("three")])
    loaded = list(b.context())
    assert loaded == [user("one\n\nthree")]
    a.record([user("four")])
    assert b.record(loaded).new == ()
    assert list(b.context()) == loaded


@pytest.mark.parametrize("ids", [False, True])
def test_a_trimmed_copy_of_what_was_joined_is_known(handles: list[Session], ids: bool) -> None:
    a, b, _ = handles
    say = named if ids else user
    fine = {"role": "assistant", "content": "fine"}
    b.record([say("zero"), fine, say("one"), say("two"), say("three")])
    a.record([say("zero"), fine, say("one"), say("five"), say("six")])
    loaded = copy.deepcopy(list(b.context()))
    a.record([say("seven")])
    assert len(b.record([*loaded[1:], say("eight")]).new) == 1
    assert texts(b)[2:] == ["one", "two", "three", "five", "six", "seven", "eight"]


def test_an_object_of_the_last_list_is_known_though_a_context_has_joined_it_since(
    handles: list[Session],
) -> None:
    a, b, _ = handles
    mine = [user("one"), user("two")]
    b.record(mine)
    a.append("three")
    b.context()
    a.append("four")
    mine[0]["content"] = "All else."
    assert b.record(mine).new == ()
    assert list(b.context()) == [user("All else.\n\ntwo")]


def test_a_message_that_a_context_has_joined_is_known_in_a_list_of_the_handles_own(
    handles: list[Session],
) -> None:
    a, b, _ = handles
    mine = [user("one"), user("two")]
    b.record(mine)
    a.record([user("one"), user("three")])
    assert list(b.context()) == [user("one\n\nthree")]
    a.record([user("four")])
    assert b.record([*mine, user("three")]).new == ()
    assert list(b.context()) == [user("one\n\ntwo\n\nthree")]


def test_other_words_that_a_context_gave_are_no_message_of_their_own(
    handles: list[Session],
) -> None:
    a, b, c = handles
    b.record([named("one"), {"id": "m", "role": "assistant", "content": "fine"}])
    a.record([{**named("one"), "content": "uno"}, {"role": "assistant", "content": "fine"}])
    loaded = [{"role": "user", "content": "uno"}, *list(b.context())[1:]]
    c.record([{**named("one"), "content": "eins"}, {"role": "assistant", "content": "fine"}])
    assert b.record(loaded).new == ()
    assert [payload["content"] for payload in b.context()] == ["uno", "fine"]


def test_a_list_is_known_though_a_later_context_has_shown_another(handles: list[Session]) -> None:
    a, b, _ = handles
    a.record([user("one"), user("two")])
    loaded = list(b.context())
    a.record([user("one"), user("three")])
    b.context()
    assert len(b.record([*loaded, user("four")]).new) == 1
    assert texts(b) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("records", [False, True])
def test_a_list_from_before_a_compaction_is_known_though_the_log_was_read_anew(
    store: holdfast.Store, records: bool
) -> None:
    """A message that a summary has set aside is shown again: it is not in memory. The new summary
    says what the old one said, so the beginning of the list is no sign of its age.
    """
    a = store.session("k")
    a.append_all(["zero", "hidden", "one"])
    hidden = [message.id for message in a.transcript()][1]
    a.label(hidden, visible_to_model=False)
    a.compact("S", keep_turns=0)
    b = store.session("k")
    if records:
        b.record([*b.context(), named("two")])
    with a.turn("three") as turn:
        turn.result(turn.call("f", {"x": 1}), "four")
        turn.say("five")
    loaded = copy.deepcopy(list(b.context()))
    a.append("six")
    a.compact("S", keep_turns=0)
    a.label(hidden, visible_to_model=True)
    assert len(b.record([*loaded, named("seven")]).new) == 1
    assert texts(b)[-3:] == ["five", "six", "seven"]
    shown = "Summary of what was said before:\n\nS\n\nhidden\n\nseven"
    assert [payload["content"] for payload in b.context()] == [shown]


def test_what_was_loaded_and_rewound_since_is_not_asked_again(handles: list[Session]) -> None:
    """What its handle recorded before, and another list has replaced, never followed it."""
    a, b, c = handles
    c.record([user("zero")])
    b.record([user("one")])
    a.record([user("two"), user("three")])
    loaded = list(b.context())
    a.rewind(next(iter(a.transcript())).id)
    assert b.record(loaded).new == ()


# Random stories.

DOINGS = [
    *["load"] * 6,
    *["record"] * 8,
    *["append", "append", "turn", "call", "hide", "show", "compact", "rewind"],
    *["look", "trim", "copy", "cut"],
]
Doing = tuple[str, int, int]
DOING = st.tuples(st.sampled_from(DOINGS), st.integers(0, 2), st.integers(0, 59))


class Agents:
    """Three agents, each with a handle of its own and a list that it loads and records. `ids`: new
    messages have ids; `roles`: not all are the user's.
    """

    def __init__(self, path: Path, *, ids: bool, roles: bool) -> None:
        self.stores = [holdfast.open(path, durability="process") for _ in range(2)]
        self.handles = [self.stores[number % 2].session("k") for number in range(3)]
        self.others = self.stores[0].session("k")
        self.lists: list[list[Payload]] = [[], [], []]
        self.told = [True, True, True]
        self.ids, self.roles = ids, roles
        self.said: list[str] = []

    def new(self) -> str:
        self.said.append(f"m{len(self.said)};")
        return self.said[-1]

    def message(self, chance: int) -> Payload:
        text = self.new()
        role = "assistant" if self.roles and chance % 3 == 0 else "user"
        named = {"id": f"i{text}"} if self.ids else {}
        return {**named, "role": role, "content": text}

    def play(self, doings: list[Doing]) -> None:
        try:
            for doing, who, chance in doings:
                getattr(self, doing)(who, chance)
        finally:
            for store in self.stores:
                store.close()

    def load(self, who: int, chance: int) -> None:
        self.lists[who] = list(self.handles[who].context())
        self.told[who] = True

    def look(self, who: int, chance: int) -> None:
        # One that looks after a rewind has been told of it: its list counts as cut.
        if self.told[who]:
            self.handles[who].context()
        else:
            self.load(who, chance)

    def record(self, who: int, chance: int) -> None:
        new = [self.message(chance + number) for number in range(chance % 3)]
        self.lists[who] = [*self.lists[who], *new]
        recorded = self.handles[who].record(self.lists[who])
        self.told[who] = True
        stored = "\0".join(texts(self.others))
        for text in self.said:
            assert stored.count(text) == 1, (text, stored)
        assert len(recorded.new) == len(new)

    def append(self, who: int, chance: int) -> None:
        self.others.append(self.message(chance))

    def turn(self, who: int, chance: int) -> None:
        with self.others.turn(self.new()) as turn:
            for _ in range(chance % 3):
                turn.say(self.new())

    def call(self, who: int, chance: int) -> None:
        with self.others.turn(self.new()) as turn:
            turn.result(turn.call("f", {"x": chance}), self.new())
            if chance % 2:
                turn.say(self.new())

    def one(self, chance: int) -> str | None:
        ids = [message.id for message in self.others.transcript()]
        return ids[chance % len(ids)] if ids else None

    def hide(self, who: int, chance: int) -> None:
        if (id := self.one(chance)) is not None:
            self.others.label(id, visible_to_model=False)

    def show(self, who: int, chance: int) -> None:
        if (id := self.one(chance)) is not None:
            self.others.label(id, visible_to_model=True)

    def compact(self, who: int, chance: int) -> None:
        # Often in the same words: a summary is no sign of which compaction it is.
        summary = "S" if chance % 2 else f"S{len(self.said)}"
        self.others.compact(summary, keep_turns=chance % 3)

    def rewind(self, who: int, chance: int) -> None:
        if (id := self.one(-1 - chance % 4)) is not None:
            self.others.rewind(id)
            self.told = [False, False, False]

    def trim(self, who: int, chance: int) -> None:
        del self.lists[who][:1]

    def cut(self, who: int, chance: int) -> None:
        # At once: a question that a rewind took away with its answer is asked again by a list that
        # ends with it.
        if self.told[who]:
            del self.lists[who][-1:]
            self.record(who, 0)

    def copy(self, who: int, chance: int) -> None:
        self.lists[who] = copy.deepcopy(self.lists[who])


@given(doings=st.lists(DOING, min_size=5, max_size=40), ids=st.booleans(), roles=st.booleans())
@settings(max_examples=examples(45), deadline=None, suppress_health_check=list(HealthCheck))
def test_what_was_loaded_is_never_stored_again(doings: list[Doing], ids: bool, roles: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Agents(Path(folder) / "agents.db", ids=ids, roles=roles).play(doings)
