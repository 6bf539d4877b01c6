"""Cursors: opaque, exact, and refused when they can't be served (I-15, FAULTS I6)."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.cursor import Cursor, read, write
from holdfast.errors import CursorExpired

SESSION = "0b1c2d3e-0000-4000-8000-000000000000"
CURSORS = st.builds(
    Cursor,
    st.just(SESSION),
    st.integers(0, 10**12),
    st.dictionaries(
        st.text("0123456789abcdef", min_size=32, max_size=32), st.integers(0, 10**9), max_size=3
    ),
)


@given(cursor=CURSORS)
def test_a_cursor_comes_back_as_it_was_written(cursor: Cursor) -> None:
    assert read(write(cursor), session_id=SESSION, head=10**12) == cursor


@given(cursor=CURSORS)
def test_a_cursor_can_stand_in_an_address_and_a_header(cursor: Cursor) -> None:
    assert set(write(cursor)) <= set(string.ascii_letters + string.digits + "-_")


@given(text=st.text(max_size=60))
def test_garbage_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(CursorExpired) as caught:
        read(text, session_id=SESSION, head=10)
    assert caught.value.code == "cursor_expired"
    assert caught.value.cursor == text


@pytest.mark.parametrize("head", ["", '["s",1,{},', '["s",1,{},{"a":'])
def test_garbage_that_is_nested_deeply_is_refused_with_a_sentence(head: str) -> None:
    text = base64.urlsafe_b64encode((head + "[" * 9000).encode()).decode().rstrip("=")
    with pytest.raises(CursorExpired):
        read(text, session_id=SESSION, head=10)


@given(cursor=CURSORS, at=st.integers(0, 200), to=st.sampled_from("A_9z"))
def test_a_changed_cursor_is_refused_or_stands_within_the_session(
    cursor: Cursor, at: int, to: str
) -> None:
    text = write(cursor)
    at %= len(text)
    try:
        found = read(text[:at] + to + text[at + 1 :], session_id=SESSION, head=10**12)
    except CursorExpired:
        return
    assert found.session == SESSION
    assert 0 <= found.seq <= 10**12
    assert all(seen >= 0 for seen in found.open.values())


@pytest.mark.parametrize(("seq", "head"), [(11, 10), (1, 0), (-1, 10), (2**63, 10)])
def test_a_position_outside_the_log_is_refused(seq: int, head: int) -> None:
    with pytest.raises(CursorExpired, match=f"ends at {head}"):
        read(write(Cursor(SESSION, seq)), session_id=SESSION, head=head)


def test_the_head_itself_and_the_beginning_can_be_served() -> None:
    assert read(write(Cursor(SESSION, 10)), session_id=SESSION, head=10).seq == 10
    assert read(write(Cursor(SESSION, 0)), session_id=SESSION, head=0).seq == 0


def test_a_cursor_of_another_session_names_it() -> None:
    """I-19: a position in another session says nothing here."""
    with pytest.raises(CursorExpired, match="another"):
        read(write(Cursor("another", 1)), session_id=SESSION, head=10)
