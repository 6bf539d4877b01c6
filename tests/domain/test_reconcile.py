"""What `record(list)` promises, as laws: nothing is lost, nothing is doubled, the list's shape is
kept (I-12).
"""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.domain.record.fingerprint import fingerprint
from holdfast.domain.record.grouping import Shown
from holdfast.domain.record.layers import chosen
from holdfast.domain.record.memory import Remembered, held_of
from holdfast.domain.record.reconcile import Reconciled, reconcile, split_instructions
from holdfast.domain.repair import INTERRUPTED
from thorough import examples

FIELDS = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "tool_calls",
    "id",
    "function",
    "tool_call_id",
    "_x",
    "refusal",
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(call_id: str, arguments: str = "{}", text: str | None = None) -> dict[str, Any]:
    function = {"name": "ls", "arguments": arguments}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def joined(payloads: list[Shown]) -> list[Shown]:
    """Neighbouring user texts as one, as a context shows them."""
    out: list[Shown] = []
    for payload, refs in payloads:
        if out and payload["role"] == "user" == out[-1][0]["role"]:
            before, ids = out[-1]
            out[-1] = (
                {**before, "content": before["content"] + "\n\n" + payload["content"]},
                ids + refs,
            )
        else:
            out.append((payload, refs))
    return out


class Log:
    """A session's log in small: a transcript that only grows, and the view of it."""

    def __init__(self) -> None:
        self.transcript: list[dict[str, Any]] = []
        self.order: list[str] = []
        self.wording: dict[str, dict[str, Any]] = {}
        self.instructions: str | None = None

    def shown(self) -> list[Shown]:
        return copy.deepcopy(joined([(self.wording[ref], (ref,)) for ref in self.order]))

    def context(self) -> list[dict[str, Any]]:
        return [payload for payload, _ in self.shown()]


class Handle:
    """One agent's hold on a log, with its memory."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.memory: list[Remembered] = []
        self.given: list[list[Remembered]] = []

    def context(self) -> list[Shown]:
        shown = self.log.shown()
        self.given.insert(0, held_of(shown))
        return shown

    def record(self, presented: list[dict[str, Any]]) -> Reconciled:
        log = self.log
        known = copy.deepcopy(log.wording)
        _, body = split_instructions(presented)
        held, layers = chosen(body, self.memory, self.given)
        found = reconcile(presented, shown=log.shown(), remembered=held, layers=layers, known=known)
        self.given = []
        ids = []
        for payload in found.new:
            ids.append(str(len(log.transcript)))
            log.transcript.append(copy.deepcopy(payload))
            log.wording[ids[-1]] = copy.deepcopy(payload)
        log.wording.update(copy.deepcopy(found.edits))
        log.order, self.memory = found.settle(ids)
        log.instructions = found.instructions or log.instructions
        assert len(set(log.order)) == len(log.order), "a message stands twice in the view"
        return found


@pytest.fixture
def handle() -> Handle:
    return Handle(Log())


def said(handle: Handle) -> list[str]:
    return [fingerprint(payload).text for payload in handle.log.transcript]


def seen(handle: Handle) -> list[str]:
    return [fingerprint(payload).text for payload in handle.log.context()]


# The shapes of the public defects
# ------------------------------------------------------------------------------------


def test_hermes_44837_a_merge_that_shrinks_the_list_does_not_hide_the_answer(
    handle: Handle,
) -> None:
    messages = [user("one"), assistant("1"), user("two"), user("three")]
    handle.record(messages)
    messages[2]["content"] += "\n\n" + messages.pop()["content"]
    messages.append(assistant("both"))
    assert handle.record(messages).new == [assistant("both")]
    assert said(handle) == ["one", "1", "two", "three", "both"]
    assert handle.record(messages).new == []


def test_hermes_43936_46053_a_list_shorter_than_its_history_still_stores_its_tail(
    handle: Handle,
) -> None:
    messages = [message for n in range(20) for message in (user(f"q{n}"), assistant(f"a{n}"))]
    handle.record(messages)
    shorter = [
        user("Summary of what was said."),
        *copy.deepcopy(messages[-4:]),
        user("go on"),
        assistant("on"),
    ]
    found = Handle(handle.log).record(shorter)
    assert [fingerprint(payload).text for payload in found.new] == [
        "Summary of what was said.",
        "go on",
        "on",
    ]
    assert handle.log.order[1:5] == ["36", "37", "38", "39"]


def test_hermes_two_overlapping_turns_on_one_agent_lose_neither(handle: Handle) -> None:
    shared = [user("hello"), assistant("hi")]
    handle.record(shared)
    first, second = Handle(handle.log), Handle(handle.log)
    one, two = copy.deepcopy(shared), copy.deepcopy(shared)
    first.record(one)
    second.record(two)
    one += [user("first")]
    two += [user("second")]
    first.record(one)
    second.record(two)
    one += [assistant("to the first")]
    two += [assistant("to the second")]
    first.record(one)
    second.record(two)
    assert sorted(said(handle)) == sorted(
        ["hello", "hi", "first", "second", "to the first", "to the second"]
    )


def test_hermes_31507_scaffolding_popped_after_an_early_flush_leaves_the_answer_to_be_stored(
    handle: Handle,
) -> None:
    messages = [user("do it"), assistant("(empty)"), user("You returned nothing, go on.")]
    handle.record(messages)
    del messages[1:]
    messages.append(assistant("done"))
    assert handle.record(messages).new == [assistant("done")]
    assert seen(handle) == ["do it", "done"]
    assert len(said(handle)) == 4


# Laws
# ----------------------------------------------------------------------------------------------------------------


def test_recording_the_same_list_again_stores_nothing(handle: Handle) -> None:
    messages = [user("a"), call("c1"), result("c1", "out"), assistant("b")]
    handle.record(messages)
    for again in (messages, copy.deepcopy(messages)):
        found = handle.record(again)
        assert (found.new, found.edits, found.order) == ([], {}, ["0", "1", "2", "3"])
    assert Handle(handle.log).record(handle.log.context()).new == []


def test_equal_texts_are_as_many_messages_as_are_presented(handle: Handle) -> None:
    handle.record([user("yes"), assistant("ok"), user("yes"), assistant("ok")])
    found = Handle(handle.log).record(
        [user("yes"), assistant("ok"), user("yes"), assistant("ok"), user("yes")]
    )
    assert found.order == ["0", "1", "2", "3", 0]


def test_a_dropped_head_keeps_the_objects_that_stay(handle: Handle) -> None:
    messages = [user("yes"), assistant("ok"), user("yes"), assistant("well")]
    handle.record(messages)
    del messages[:2]
    assert handle.record(messages).order == ["2", "3"]


def test_a_tail_that_says_what_a_dropped_message_said_is_new(handle: Handle) -> None:
    messages = [user("yes"), assistant("ok"), user("next"), assistant("done")]
    handle.record(messages)
    del messages[:2]
    messages.append(user("yes"))
    assert handle.record(copy.deepcopy(messages)).order == ["2", "3", 0]
    assert said(handle).count("yes") == 2


def test_a_tail_that_says_what_was_said_before_a_moved_message_is_new(handle: Handle) -> None:
    handle.record([user("u"), assistant("yes"), user("last")])
    found = Handle(handle.log).record([user("last"), assistant("yes"), user("u")])
    assert found.order == ["2", 0, 1]


def test_messages_reordered_before_the_last_one_are_all_recognised(handle: Handle) -> None:
    handle.record([assistant("a"), user("b"), assistant("c"), user("d")])
    assert Handle(handle.log).record(
        [user("b"), assistant("a"), assistant("c"), user("d")]
    ).order == list("1023")


def test_a_shortened_tool_output_is_an_edit_of_the_same_message(handle: Handle) -> None:
    messages = [user("a"), call("c1"), result("c1", "x" * 1000), assistant("b")]
    handle.record(messages)
    messages[2]["content"] = "x…"
    for presented in (messages, copy.deepcopy(messages)):
        found = reconcile(presented, shown=handle.log.shown(), remembered=handle.memory)
        assert (found.order, found.new, found.edits) == (
            ["0", "1", "2", "3"],
            [],
            {"2": result("c1", "x…")},
        )
    handle.record(messages)
    assert handle.record(messages).edits == {}
    assert said(handle)[2] == "x" * 1000


def test_a_call_id_used_again_in_a_later_turn_is_another_call(handle: Handle) -> None:
    messages = [user("a"), call("call_0", '{"n": 1}'), result("call_0", "one"), assistant("b")]
    handle.record(messages)
    del messages[1:3]
    messages += [user("c"), call("call_0", '{"n": 2}'), result("call_0", "two")]
    assert len(handle.record(copy.deepcopy(messages)).new) == 3
    assert handle.record(messages).new == []


def test_an_answer_without_its_words_is_the_same_by_its_calls(handle: Handle) -> None:
    handle.record([user("a"), call("c1", text="Let me look."), result("c1", "out"), assistant("b")])
    found = Handle(handle.log).record([user("a"), call("c1"), result("c1", "out"), assistant("b")])
    assert (found.order, found.new, found.edits) == (list("0123"), [], {"1": call("c1")})


@pytest.mark.parametrize("copied", [True, False])
def test_a_known_message_merged_with_a_new_one_stores_only_the_new_one(
    handle: Handle, copied: bool
) -> None:
    messages = [user("a"), assistant("b"), user("known")]
    handle.record(messages)
    messages[2]["content"] += "\n\nfresh"
    found = handle.record(copy.deepcopy(messages) if copied else messages)
    assert (found.order, found.new, found.edits) == (["0", "1", "2", 0], [user("fresh")], {})
    assert handle.record(messages).new == []


def test_a_summary_put_before_a_known_message_is_stored_alone(handle: Handle) -> None:
    handle.record([user("old"), assistant("b"), user("question"), assistant("answer")])
    found = Handle(handle.log).record([user("Summary.\n\nquestion"), assistant("answer")])
    assert (found.order, found.new) == ([0, "2", "3"], [user("Summary.")])


def test_messages_merged_with_a_single_line_break_become_one_reworded(handle: Handle) -> None:
    handle.record([user("a"), user("b"), assistant("c")])
    found = Handle(handle.log).record([user("a\nb"), assistant("c")])
    assert (found.order, found.new, found.edits) == (["0", "2"], [], {"0": user("a\nb")})
    assert Handle(handle.log).record(handle.log.context()).order == ["0", "2"]


def test_users_merged_over_a_dropped_answer_are_still_themselves(handle: Handle) -> None:
    handle.record([user("a"), assistant("lost"), user("b"), assistant("c")])
    assert Handle(handle.log).record([user("a\n\nb"), assistant("c")]).order == ["0", "2", "3"]


def test_a_merged_payload_presented_split_is_its_messages(handle: Handle) -> None:
    handle.record([user("a"), user("b\n\nc"), assistant("d")])
    shown = handle.log.shown()
    assert shown[0][1] == ("0", "1")
    split = [user("a"), user("b\n\nc"), assistant("d")]
    assert reconcile(split, shown=shown, known=handle.log.wording).order == ["0", "1", "2"]
    shown = [(user("a\n\nb"), ("0", "1"))]
    assert reconcile([user("a"), user("b")], shown=shown).order == ["0", "1"]


def test_what_repair_made_is_nothing_when_it_comes_back_and_a_real_result_in_its_place_is_new() -> (
    None
):
    shown: list[Shown] = [
        (user("a"), ("0",)),
        (call("c1"), ("1",)),
        (result("c1", "interrupted"), ()),
    ]
    back = [user("a"), call("c1"), result("c1", "interrupted"), user("go on")]
    assert reconcile(back, shown=shown).order == ["0", "1", 0]
    real = [user("a"), call("c1"), result("c1", "files")]
    assert reconcile(real, shown=shown).new == [result("c1", "files")]


@pytest.mark.parametrize("remembers", [True, False])
def test_what_repair_made_is_never_a_message_wherever_it_comes_back(remembers: bool) -> None:
    """FAULTS A10: the view has changed since; the call is gone from it, or answered by now."""
    made = result("c1", INTERRUPTED)
    listed = [user("a"), call("c1"), made, user("go on")]
    refs: list[tuple[str, ...]] = [("0",), ("1",), (), ("2",)]
    held = [Remembered(payload, payload, ids) for payload, ids in zip(listed, refs, strict=True)]
    memory = {"remembered": held} if remembers else {}
    shown: list[Shown] = [(user("a\n\ngo on"), ("0", "2"))]
    found = reconcile(listed, shown=shown, known={"1": call("c1")}, **memory)
    assert made not in found.new
    late: list[Shown] = [
        (user("a"), ("0",)),
        (call("c1"), ("1",)),
        (result("c1", "files"), ("3",)),
        (user("go on"), ("2",)),
    ]
    for presented in (listed, copy.deepcopy(listed)):
        found = reconcile(presented, shown=late, **memory)
        assert (found.order, found.new, found.edits) == (["0", "1", "3", "2"], [], {}), (
            "the real one takes its place"
        )


def test_a_real_result_put_into_what_repair_made_is_new(handle: Handle) -> None:
    shown: list[Shown] = [
        (user("a"), ("0",)),
        (call("c1"), ("1",)),
        (result("c1", INTERRUPTED), ()),
    ]
    listed = [user("a"), call("c1"), result("c1", INTERRUPTED)]
    _, memory = reconcile(listed, shown=shown).settle([])
    listed[2]["content"] = "files"
    assert reconcile(listed, shown=shown, remembered=memory).new == [result("c1", "files")]


def test_a_leading_system_message_is_instructions_and_a_later_one_a_message(handle: Handle) -> None:
    late = {"role": "system", "content": "late"}
    found = handle.record(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": "Be brief."},
            user("a"),
            late,
        ]
    )
    assert (found.instructions, found.new) == ("Be kind.\n\nBe brief.", [user("a"), late])
    assert handle.record([user("a"), late]).instructions is None


def test_a_stamp_names_its_message_wherever_it_stands_and_whatever_it_says() -> None:
    def stamped(text: str) -> dict[str, Any]:
        return {**user(text), "id": "msg_1"}

    out_of_view = {"7": stamped("was said")}
    found = reconcile(
        [user("a"), stamped("is said")], shown=[(user("a"), ("0",))], known=out_of_view
    )
    assert (found.order, found.edits) == (["0", "7"], {"7": stamped("is said")})
    twice = reconcile(
        [user("a"), stamped("x"), stamped("x")], shown=[(user("a"), ("0",))], known=out_of_view
    )
    assert twice.order == ["0", "7", 0]


def test_the_callers_own_marks_change_nothing(handle: Handle) -> None:
    messages = [user("a"), assistant("b")]
    handle.record(messages)
    for message in messages:
        message["_persisted"] = True
    found = handle.record(messages)
    assert (found.order, found.new, found.edits) == (["0", "1"], [], {})


def test_one_object_presented_twice_is_two_messages(handle: Handle) -> None:
    yes = user("yes")
    assert handle.record([yes, assistant("ok"), yes]).order == [0, 1, 2]
    assert handle.record([yes, assistant("ok"), yes, yes]).order == ["0", "1", "2", 0]


def test_what_a_turn_has_stored_is_recognised_in_the_list_of_a_handle_that_did_not_see_it(
    handle: Handle,
) -> None:
    messages = [user("a"), assistant("b")]
    handle.record(messages)
    Handle(handle.log).record([user("a"), assistant("b"), user("c")])
    messages += [user("c"), assistant("d")]
    assert handle.record(messages).order == ["0", "1", "2", 0]


@pytest.mark.parametrize(
    ("known", "reworded"),
    [
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "long"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "…"}]},
        ),
        (
            {"type": "function_call_output", "call_id": "t1", "output": "long"},
            {"type": "function_call_output", "call_id": "t1", "output": "…"},
        ),
        (
            {"role": "tool", "parts": [{"type": "result", "call_id": "t1", "content": "long"}]},
            {"role": "tool", "parts": [{"type": "result", "call_id": "t1", "content": "…"}]},
        ),
        (
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        ),
        (
            [{"type": "reasoning", "id": "r1"}, {"type": "function_call", "call_id": "t1", "name": "ls"}],
            [{"type": "function_call", "call_id": "t1", "name": "ls"}],
        ),
    ],
)  # fmt: skip
def test_every_format_is_recognised_by_shape(known: Any, reworded: Any) -> None:
    shown: list[Shown] = [(user("before"), ("0",)), (known, ("1",)), (assistant("after"), ("2",))]
    found = reconcile([user("before"), reworded, assistant("after")], shown=shown)
    assert (found.order, found.new, found.edits) == (["0", "1", "2"], [], {"1": reworded})


def test_results_that_came_in_another_order_are_the_known_ones() -> None:
    """A context shows the results of parallel calls in the order of the calls; a client has them in the
    order in which its tools were done.
    """

    def results(*ids: str) -> dict[str, Any]:
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": f"did {id}"} for id in ids]
        return {"role": "user", "content": blocks}

    calls = [{"type": "tool_use", "id": id, "name": "ls", "input": {}} for id in ("a", "b", "c")]
    asking = {"role": "assistant", "content": calls}
    shown: list[Shown] = [
        (user("before"), ("0",)),
        (asking, ("1",)),
        (results("a", "b", "c"), ("2",)),
        (assistant("after"), ("3",)),
    ]
    presented = [user("before"), asking, results("a", "c", "b"), assistant("after"), user("more")]
    found = reconcile(presented, shown=shown, remembered=held_of(shown))
    assert (found.order, found.new) == (["0", "1", "2", "3", 0], [user("more")])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["a", "b", "a\n\nb", "text", "tool_result", "c1", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=10,
)
STRANGE = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4) | st.lists(JSON, max_size=3)


@pytest.mark.slow
@given(st.lists(STRANGE, max_size=5), st.lists(STRANGE, max_size=5))
def test_a_payload_nobody_can_read_is_kept_like_any_other(
    known: list[Any], presented: list[Any]
) -> None:
    shown = [(payload, (str(n),)) for n, payload in enumerate(known)]
    found = reconcile(presented, shown=shown)
    order, memory = found.settle([f"new {n}" for n in range(len(found.new))])
    assert len(set(order)) == len(order) >= len(memory)
    assert reconcile(presented, shown=shown, remembered=memory).new == []


def test_messages_that_differ_only_in_an_image_are_two() -> None:
    def picture(url: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}

    assert reconcile([picture("b")], shown=[(picture("a"), ("0",))]).new == [picture("b")]


@pytest.mark.slow
def test_long_lists_find_the_one_new_message() -> None:
    messages = [user(f"m{n}") for n in range(10_000)]
    _, memory = reconcile(messages, shown=[]).settle([str(n) for n in range(10_000)])
    shown = [(dict(payload), (str(n),)) for n, payload in enumerate(messages)]
    assert len(reconcile([*messages, user("new")], shown=shown, remembered=memory).new) == 1
    strange = [user(f"a\n\nb{n}") for n in range(2_000)]
    found = reconcile(strange, shown=[(user("a"), (str(n),)) for n in range(2_000)])
    assert len(found.new) == 2_000


def test_of_equal_texts_the_first_is_the_known_one(handle: Handle) -> None:
    handle.record([user("yes")])
    assert Handle(handle.log).record(
        [user("s"), user("yes"), assistant("t"), user("yes")]
    ).order == [0, "0", 1, 2]


def test_a_merged_payload_whose_messages_were_reworded_elsewhere_keeps_its_words(
    handle: Handle,
) -> None:
    handle.record([user("a"), user("b")])
    other = Handle(handle.log)
    loaded = [payload for payload, _ in other.context()]
    handle.record([user("a\nb")])
    other.record(loaded)
    assert seen(handle) == ["a\n\nb"]
    assert len(said(handle)) == 2


# The machine
# ---------------------------------------------------------------------------------------------------------


class Truth:
    """A message as its author meant it. `at`: its place in the transcript, once presented."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload = copy.deepcopy(payload)
        self.at: int | None = None


class Item:
    """A payload in a caller's list, and the truths it shows. `settled`: recorded since its last
    change.
    """

    def __init__(self, payload: dict[str, Any], truths: list[Truth]) -> None:
        self.payload, self.truths, self.settled = payload, truths, False
        self.glued = False

    @property
    def is_user(self) -> bool:
        """Words of the user; not those just joined by a line break, as two kinds of glue at once
        are a stated limit.
        """
        return bool(self.payload["role"] == "user") and (self.settled or not self.glued)


def fused(truths: list[Truth]) -> list[Truth]:
    """Messages merged before anybody recorded them are one message to the world."""
    out: list[Truth] = []
    for truth in truths:
        if out and out[-1].at is None and truth.at is None:
            out[-1] = Truth(user(out[-1].payload["content"] + "\n\n" + truth.payload["content"]))
        else:
            out.append(truth)
    return out


class Agents(RuleBasedStateMachine):
    """Two agents change their lists in every known way and record them in turn.

    The stated limits are kept out of it: between dropping and recording, nothing is said that would
    equal what was dropped; only the first agent repeats texts; a memory is lost only with the list,
    or while the view is the list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.handles = [Handle(self.log), Handle(self.log)]
        self.lists: list[list[Item]] = [[], []]
        self.expected: list[Truth] = []
        self.count = 0
        self.last = 0
        self.dropped = [False, False]

    def unique(self, shape: str = "m{}") -> str:
        self.count += 1
        return shape.format(self.count, self.count)

    def text(self, who: int, repeated: bool) -> str:
        if repeated and who == 0 and not self.dropped[0]:
            return "yes"
        return self.unique("m{}") if self.count % 3 else self.unique("m{}\n\nn{}")

    who = st.integers(0, 1)

    @rule(who=who, repeated=st.booleans(), role=st.sampled_from(["user", "user", "assistant"]))
    def say(self, who: int, repeated: bool, role: str) -> None:
        payload = {"role": role, "content": self.text(who, repeated)}
        self.lists[who].append(Item(payload, [Truth(payload)]))

    @rule(who=who)
    def use_a_tool(self, who: int) -> None:
        call_id = self.unique("call_{}")
        for payload in (call(call_id), result(call_id, "out " * 20)):
            self.lists[who].append(Item(payload, [Truth(payload)]))

    @rule(who=who, where=st.floats(0, 1))
    def insert_a_summary(self, who: int, where: float) -> None:
        payload = user(self.unique("summary {}"))
        items = self.lists[who]
        place = int(where * len(items))
        if place == len(items) or items[place].payload["role"] != "tool":
            items.insert(place, Item(payload, [Truth(payload)]))

    @rule(
        who=who,
        where=st.floats(0, 1),
        in_place=st.booleans(),
        glue=st.sampled_from(["\n\n", "\n\n", "\n"]),
    )
    def merge(self, who: int, where: float, in_place: bool, glue: str) -> None:
        items = self.lists[who]
        pairs = [n for n in range(len(items) - 1) if items[n].is_user and items[n + 1].is_user]
        if not pairs:
            return
        one, two = items[(n := pairs[int(where * (len(pairs) - 1))])], items[n + 1]
        settled = not self.dropped[who] and all(
            item.settled and len(item.truths) == 1 for item in (one, two)
        )
        if glue == "\n" and not settled:
            return
        text = one.payload["content"] + glue + two.payload["content"]
        truths = fused(one.truths + two.truths) if glue == "\n\n" else one.truths
        if in_place:
            one.payload["content"] = text
            one.truths, one.settled = truths, False
        else:
            items[n] = Item(user(text), truths)
        items[n].glued = glue == "\n"
        del items[n + 1]

    @rule(who=who, repeated=st.booleans(), in_place=st.booleans())
    def merge_the_last_with_a_new_one(self, who: int, repeated: bool, in_place: bool) -> None:
        if self.lists[who] and self.lists[who][-1].is_user:
            self.say(who, repeated, "user")
            items = self.lists[who]
            one, two = items[-2:]
            text, truths = (
                one.payload["content"] + "\n\n" + two.payload["content"],
                fused(one.truths + two.truths),
            )
            if in_place:
                one.payload["content"], one.truths, one.settled = text, truths, False
            else:
                items[-2] = Item(user(text), truths)
            items.pop()

    @rule(who=who, share=st.floats(0, 1))
    def drop_a_head(self, who: int, share: float) -> None:
        items = self.lists[who]
        cut = int(share * len(items))
        while cut < len(items) and items[cut].payload["role"] == "tool":
            cut += 1
        self._drop(who, slice(0, cut))

    @rule(who=who, where=st.floats(0, 1))
    def drop_a_tool_pair(self, who: int, where: float) -> None:
        pairs = [n for n, item in enumerate(self.lists[who]) if "tool_calls" in item.payload]
        if pairs:
            n = pairs[int(where * (len(pairs) - 1))]
            self._drop(who, slice(n, n + 2))

    @rule(who=who, count=st.integers(1, 3))
    def drop_a_tail(self, who: int, count: int) -> None:
        items = self.lists[who]
        cut = max(0, len(items) - count)
        if cut < len(items) and items[cut].payload["role"] != "tool":
            self._drop(who, slice(cut, len(items)))

    def _drop(self, who: int, where: slice) -> None:
        gone = self.lists[who][where]
        if all(item.settled for item in self.lists[who]):
            del self.lists[who][where]
            self.dropped[who] = self.dropped[who] or bool(gone)

    @rule(who=who, where=st.floats(0, 1))
    def shorten_an_output(self, who: int, where: float) -> None:
        outputs = [
            item for item in self.lists[who] if item.payload["role"] == "tool" and item.settled
        ]
        if outputs:
            outputs[int(where * (len(outputs) - 1))].payload["content"] = self.unique("… {}")

    @rule(who=who)
    def copy_the_list(self, who: int) -> None:
        for item in self.lists[who]:
            item.payload = copy.deepcopy(item.payload)

    @rule(who=who)
    @precondition(lambda self: self.log.transcript)
    def load_the_context(self, who: int) -> None:
        self.lists[who] = []
        for payload, refs in self.handles[who].context():
            item = Item(payload, [self.expected[int(ref)] for ref in refs])
            item.settled = True
            self.lists[who].append(item)
        self.dropped[who] = False

    @rule(who=who)
    def start_another_process(self, who: int) -> None:
        self.handles[who] = Handle(self.log)
        self.load_the_context(who)

    @rule(who=who)
    def record_without_memory(self, who: int) -> None:
        if self.last == who:
            self.handles[who] = Handle(self.log)
            self.record(who, None)

    @rule(who=who, prompt=st.sampled_from([None, "Be kind.", "Be brief."]))
    def record(self, who: int, prompt: str | None) -> None:
        system = [{"role": "system", "content": prompt}] if prompt else []
        presented = [item.payload for item in self.lists[who]]
        found = self.handles[who].record(system + presented)
        assert found.instructions == prompt
        for item in self.lists[who]:
            item.settled = True
            for truth in item.truths:
                if truth.at is None:
                    truth.at = len(self.expected)
                    self.expected.append(truth)
        assert self.log.transcript == [truth.payload for truth in self.expected]
        shape = [
            payload
            for payload, _ in joined([(payload, ()) for payload in copy.deepcopy(presented)])
        ]
        assert self.log.context() == shape
        self.last = who
        self.dropped[who] = False
        for handle in (self.handles[who], Handle(self.log)):
            order = list(self.log.order)
            again = handle.record(
                copy.deepcopy(presented) if handle is not self.handles[who] else presented
            )
            assert (again.new, again.edits, again.order) == ([], {}, order)

    @invariant()
    def the_transcript_holds_each_truth_once(self) -> None:
        assert len(self.log.transcript) == len(self.expected)


Agents.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestAgents = pytest.mark.slow(Agents.TestCase)


def test_what_is_said_after_a_loaded_view_is_new_though_a_forgotten_message_said_the_same(
    handle: Handle,
) -> None:
    """Another agent's list replaced the view; who loads it and says "yes" means a new one, not the
    one from before.
    """
    handle.record([user("yes"), user("m1")])
    Handle(handle.log).record([user("m2")])
    loaded = [payload for payload, _ in handle.context()]
    assert len(handle.record([*loaded, user("yes")]).new) == 1
    assert said(handle) == ["yes", "m1", "m2", "yes"]


def test_new_words_around_a_known_message_are_new_and_the_known_one_is_not(handle: Handle) -> None:
    handle.record([user("known")])
    found = Handle(handle.log).record([user("before\n\nknown\n\nafter")])
    assert [payload["content"] for payload in found.new] == ["before", "after"]
    assert found.order == [0, "0", 1]


def test_what_is_said_under_a_name_that_is_not_known_is_no_blank() -> None:
    one = {"role": "user", "blocks": [{"kind": "text", "text": "one"}]}
    other = {"role": "user", "blocks": [{"kind": "text", "text": "other"}]}
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint({"role": "assistant", "content": ""}) == fingerprint(
        {"role": "assistant", "content": None, "annotations": []}
    )
