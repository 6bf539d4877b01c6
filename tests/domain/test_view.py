"""The view as ranges: a shape says exactly which messages are shown, in which order, and costs
little (I-9).
"""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.entry import Shape
from holdfast.domain.log.view import Ties, places_of, ranges, shaped, stands_alone
from holdfast.domain.message import CallNote, MessageNote, target_of
from holdfast.domain.repair import StoredMessage


def seen(seq: int) -> StoredMessage:
    return StoredMessage(f"{seq:032x}", seq, None, MessageNote(), b"{}")


def view(natural: list[StoredMessage], shape: Shape, later: Iterable[int] = ()) -> list[int]:
    return seqs(shaped(natural, shape, later, places=places_of(natural)))


def seqs(messages: list[StoredMessage]) -> list[int]:
    return [message.seq for message in messages]


@given(natural=st.lists(st.integers(1, 99), unique=True, max_size=30), data=st.data())
def test_a_shape_gives_back_what_it_was_made_of(natural: list[int], data: st.DataObject) -> None:
    """In any order, also where the natural order is not that of the seqs (a late message in an
    early turn).
    """
    messages = [seen(seq) for seq in natural]
    shown = data.draw(st.permutations(natural)) if natural else []
    shown = shown[: data.draw(st.integers(0, len(shown)))]
    shape = Shape(ranges(places_of(messages), shown))
    assert view(messages, shape) == shown


@given(natural=st.lists(st.integers(1, 99), unique=True, max_size=30), data=st.data())
def test_what_is_said_after_a_shape_follows_it(natural: list[int], data: st.DataObject) -> None:
    before = [seen(seq) for seq in natural]
    shown = (
        data.draw(st.permutations(natural))[: data.draw(st.integers(0, len(natural)))]
        if natural
        else []
    )
    later = [seen(seq) for seq in range(101, 101 + data.draw(st.integers(0, 5)))]
    shape = Shape(ranges(places_of(before), shown))
    assert view([*before, *later], shape, seqs(later)) == [*shown, *seqs(later)]


def test_a_dropped_head_costs_one_range() -> None:
    places = places_of([seen(seq) for seq in range(1, 1001)])
    assert ranges(places, list(range(501, 1001))) == ((501, 1000),)
    assert ranges(places, [7, *range(501, 1001)]) == ((7, 7), (501, 1000))
    assert ranges(places, []) == ()


def test_ranges_that_lie_over_each_other_show_each_message_once() -> None:
    """No shape of ours does that; one that a stranger wrote would make a view far larger than its
    history.
    """
    messages = [seen(seq) for seq in range(1, 7)]
    shape = Shape(((2, 5), (1, 6), (3, 3), (1, 2)))
    assert view(messages, shape) == [2, 3, 4, 5, 1, 6]


def test_a_range_whose_messages_are_gone_is_left_out() -> None:
    """I-9: whatever the log holds, there is a view."""
    assert view([seen(1), seen(3)], Shape(((1, 1), (7, 9), (3, 3))), [9]) == [1, 3]


def test_a_late_message_of_an_early_turn_stands_in_a_range_only_if_it_was_there() -> None:
    """A message that joins an early turn after the shape was made is said after it, and follows."""
    natural = [seen(1), seen(2), seen(12), seen(5)]
    shape = Shape(((1, 2), (5, 5)))
    assert sorted(view(natural, shape, [12, 12])) == [1, 2, 5, 12]


def calls(name: str, turn: int, *ids: str) -> StoredMessage:
    notes = tuple(CallNote(id, "rm") for id in ids)
    return StoredMessage(
        name, 1, turn, MessageNote(role="assistant", plain=False, calls=notes), b""
    )


def answers(name: str, turn: int, *ids: str, target: str | None = None) -> StoredMessage:
    return StoredMessage(
        name, 1, turn, MessageNote(role="tool", plain=False, answers=ids, target=target), b""
    )


def tied(*messages: StoredMessage) -> Ties:
    ties = Ties()
    ties.add(messages)
    return ties


def test_an_answer_that_names_a_call_in_what_is_kept_does_not_stand_alone() -> None:
    """FAULTS E4: a call of the same id beside it is not the call that it answers."""
    named = answers("answer", 2, "c1", target=target_of("kept", 0))
    assert not stands_alone([calls("here", 2, "c1"), named], tied(calls("kept", 1, "c1")))
    assert stands_alone(
        [calls("here", 2, "c1"), named], tied(calls("else", 1, "c1"), answers("its", 1, "c1"))
    )
    assert stands_alone([named], Ties())


def test_an_answer_stands_alone_if_its_call_is_beside_it_or_nobody_waits_for_it_before() -> None:
    """FAULTS E4, E3: a call of the same id that comes later is not the one, and neither is one that
    has an answer.
    """
    open_call, done = (
        tied(calls("kept", 1, "c1")),
        tied(calls("kept", 1, "c1"), answers("its", 1, "c1")),
    )
    for ties in (open_call, done):
        assert stands_alone([calls("here", 2, "c1"), answers("answer", 2, "c1")], ties)
        assert stands_alone([calls("here", 2, "c2"), answers("answer", 2, "c2")], ties)
        assert stands_alone(
            [calls("here", 2, "c1"), answers("answer", 2, "c1"), answers("again", 2, "c1")], ties
        )
    for stray in (
        [answers("answer", 2, "c1")],
        [answers("answer", 2, "c1"), calls("later", 3, "c1")],
    ):
        assert not stands_alone(stray, open_call)
        assert stands_alone(stray, done)


def test_what_goes_on_in_a_turn_that_called_before_does_not_stand_alone() -> None:
    """Its own turn's calls come first, wherever they stand."""
    ties = tied(calls("kept", 1, "c1"), answers("its", 1, "c1"))
    assert not stands_alone([answers("answer", 1, "c1")], ties)
    assert not stands_alone([calls("here", 1, "c2"), answers("answer", 1, "c2")], ties)
    assert stands_alone([calls("here", 2, "c1"), answers("answer", 2, "c1")], ties)
