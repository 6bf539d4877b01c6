"""The view as ranges: a shape says exactly which messages are shown, in which order, and costs little (I-9)."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.entry import Shape
from holdfast.domain.message import CallNote, MessageNote, target_of
from holdfast.domain.repair import Seen
from holdfast.domain.view import ranges, shaped, stands_alone


def seen(seq: int) -> Seen:
    return Seen(f"{seq:032x}", seq, None, MessageNote(), b"{}")


def seqs(messages: list[Seen]) -> list[int]:
    return [message.seq for message in messages]


@given(natural=st.lists(st.integers(1, 99), unique=True, max_size=30), data=st.data())
def test_a_shape_gives_back_what_it_was_made_of(natural: list[int], data: st.DataObject) -> None:
    """In any order, also where the natural order is not that of the seqs (a late message in an early turn)."""
    messages = [seen(seq) for seq in natural]
    shown = data.draw(st.permutations(natural)) if natural else []
    shown = shown[: data.draw(st.integers(0, len(shown)))]
    shape = Shape(ranges(messages, shown))
    assert seqs(shaped(messages, shape, after=100)) == shown


@given(natural=st.lists(st.integers(1, 99), unique=True, max_size=30), data=st.data())
def test_what_is_said_after_a_shape_follows_it(natural: list[int], data: st.DataObject) -> None:
    before = [seen(seq) for seq in natural]
    shown = data.draw(st.permutations(natural))[: data.draw(st.integers(0, len(natural)))] if natural else []
    later = [seen(seq) for seq in range(101, 101 + data.draw(st.integers(0, 5)))]
    shape = Shape(ranges(before, shown))
    assert seqs(shaped([*before, *later], shape, after=100)) == [*shown, *seqs(later)]


def test_a_dropped_head_costs_one_range() -> None:
    messages = [seen(seq) for seq in range(1, 1001)]
    assert ranges(messages, list(range(501, 1001))) == ((501, 1000),)
    assert ranges(messages, [7, *range(501, 1001)]) == ((7, 7), (501, 1000))
    assert ranges(messages, []) == ()


def test_a_range_whose_messages_are_gone_is_left_out() -> None:
    """I-9: whatever the log holds, there is a view."""
    assert seqs(shaped([seen(1), seen(3)], Shape(((1, 1), (7, 9), (3, 3))), after=9)) == [1, 3]


def test_a_late_message_of_an_early_turn_stands_in_a_range_only_if_it_was_there() -> None:
    """A message that joins an early turn after the shape was made is said after it, and follows."""
    natural = [seen(1), seen(2), seen(12), seen(5)]
    shape = Shape(((1, 2), (5, 5)))
    assert sorted(seqs(shaped(natural, shape, after=10))) == [1, 2, 5, 12]


def test_an_answer_that_names_a_call_elsewhere_does_not_stand_alone():
    """FAULTS E4: a call of the same id beside it is not the call that it answers."""
    call = MessageNote(role="assistant", plain=False, calls=(CallNote("c1", "rm"),))
    answer = MessageNote(role="tool", plain=False, answers=("c1",), target=target_of("elsewhere", 0))
    messages = [Seen("here", 1, 1, call, b""), Seen("answer", 2, 1, answer, b"")]
    assert not stands_alone(messages)
    assert stands_alone([Seen("elsewhere", 1, 1, call, b""), messages[1]])
