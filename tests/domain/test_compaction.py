"""Where a history may be cut: at closed boundaries only, and never later than asked (I-11, FAULTS
D1, D2).
"""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.log.compaction import boundaries, cut
from holdfast.domain.message import CallNote, MessageNote
from holdfast.domain.repair import StoredMessage, pair


def seen(
    seq: int, role: str, turn: int | None = None, *, calls: str = "", answers: str = ""
) -> StoredMessage:
    notes = tuple(CallNote(call, "tool") for call in calls)
    note = MessageNote(
        role=role, plain=not calls and not answers, calls=notes, answers=tuple(answers)
    )  # type: ignore[arg-type]
    return StoredMessage(f"{seq:032x}", seq, turn, note, b"{}")


def turns(count: int) -> list[StoredMessage]:
    """Turns of a question, a call, its result and an answer; all calls have the same id, as some
    providers do it.
    """
    out: list[StoredMessage] = []
    for turn in range(1, count + 1):
        for role, marks in (
            ("user", {}),
            ("assistant", {"calls": "c"}),
            ("tool", {"answers": "c"}),
            ("assistant", {}),
        ):
            out.append(seen(len(out) + 1, role, turn, **marks))
    return out


kinds = st.tuples(
    st.sampled_from(["user", "assistant", "tool"]),
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 3),
)


@st.composite
def histories(draw: st.DrawFn) -> list[StoredMessage]:
    """Any messages at all, in any number of turns and outside of them: open calls, strays, repeated
    ids.
    """
    out = []
    turn = 0
    for role, id, step in draw(st.lists(kinds, max_size=25)):
        turn += step == 3
        marks = (
            {"calls": id}
            if role == "assistant" and step
            else {"answers": id}
            if role == "tool"
            else {}
        )
        out.append(seen(len(out) + 1, role, turn if turn % 3 else None, **marks))
    return out


@given(order=histories(), keep=st.integers(0, 8))
def test_a_cut_never_separates_a_result_from_its_call(
    order: list[StoredMessage], keep: int
) -> None:
    """D1, whatever the history is."""
    index = cut(order, keep_turns=keep)
    assert 0 <= index <= len(order)
    for (call, _), (result, _) in pair(order).items():
        assert (call < index) == (result < index)


@given(order=histories())
def test_keeping_more_turns_never_covers_more(order: list[StoredMessage]) -> None:
    cuts = [cut(order, keep_turns=keep) for keep in range(12)]
    assert cuts == sorted(cuts, reverse=True)


def test_the_last_turns_are_left_as_they_are() -> None:
    order = turns(5)
    assert [cut(order, keep_turns=keep) for keep in range(7)] == [20, 16, 12, 8, 4, 0, 0]


def test_outside_turns_a_user_message_begins_one() -> None:
    order = [seen(seq, "user" if seq % 2 else "assistant") for seq in range(1, 9)]
    assert [cut(order, keep_turns=keep) for keep in range(6)] == [8, 6, 4, 2, 0, 0]


def test_an_empty_history_has_nothing_to_cover() -> None:
    assert [cut([], keep_turns=keep) for keep in range(3)] == [0, 0, 0]


def test_a_boundary_inside_a_pair_is_none() -> None:
    order = turns(2)
    assert boundaries(order) == [True, True, False, True, True, True, False, True, True]


def test_a_result_that_came_turns_later_moves_the_cut_before_its_call() -> None:
    order = [
        *turns(2),
        seen(9, "user", 3),
        seen(10, "assistant", 3, calls="x"),
        seen(11, "user", 4),
        seen(12, "tool", 4, answers="x"),
        seen(13, "user", 5),
    ]
    assert [cut(order, keep_turns=keep) for keep in range(4)] == [13, 12, 8, 8]


def test_a_call_id_that_was_used_twice_is_paired_as_the_context_pairs_it() -> None:
    """E4: the last result answers the first call, for the nearer one has its own."""
    order = [
        seen(1, "assistant", calls="c"),
        seen(2, "assistant", 1, calls="c"),
        seen(3, "tool", 1, answers="c"),
        seen(4, "tool", 2, answers="c"),
    ]
    assert [cut(order, keep_turns=keep) for keep in range(4)] == [4, 0, 0, 0]


def test_a_call_that_waits_for_approval_is_not_covered() -> None:
    """E13: the answer to it must find it in the view. One of the same id that is done is in
    nobody's way (E4).
    """
    asks = seen(10, "assistant", 3, calls="x")
    order = [
        *turns(2),
        seen(9, "user", 3),
        asks,
        seen(11, "user", 4),
        seen(12, "assistant", 4, calls="x"),
    ]
    assert cut(order, keep_turns=0) == 12
    assert cut([*order[:9], replace(asks, waiting=("x",)), *order[10:]], keep_turns=0) == 8
    assert cut([*order[:11], replace(order[11], waiting=("x",))], keep_turns=0) == 10
