"""The state machine of a session's row, without a database: what each kind of write makes of it
(I-7, I-8).
"""

from typing import NamedTuple

import pytest

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import Laid, Start, Write
from holdfast.engine.session_row import CLOSED, ERASED, advance, advances


class Row(NamedTuple):
    ended: int = 0
    turn: int | None = None
    fence: int = 4
    head: int = 9
    base: int = 3
    journal: int = 20
    active_at: int = 1_000


IDLE, RUNNING = Row(), Row(turn=4)
START = Start("me", 30.0)
DRAFT = Draft("message", None, b"m" * 16, 5_000)
POSITION = 27
LAID = Laid(fence=12, active_at=77, base=2, ended=True)


def after(row: Row, write: Write) -> dict[str, object]:
    """What has changed."""
    found = advance(row, write, POSITION)._asdict()
    return {name: value for name, value in found.items() if value != getattr(row, name, None)}


@pytest.mark.parametrize(
    ("row", "write", "changes"),
    [
        (
            IDLE,
            Write("s", start=START),
            {"turn": 5, "fence": 5, "journal": POSITION, "leased_s": 30.0},
        ),
        (RUNNING, Write("s", seize=True), {"fence": 5}),
        (RUNNING, Write("s", seize=True, renew_s=9.0), {"fence": 5, "leased_s": 9.0}),
        (RUNNING, Write("s", renew_s=9.0), {"leased_s": 9.0}),
        (IDLE, Write("s", renew_s=9.0), {}),
        (RUNNING, Write("s", finish=True), {"turn": None, "left": True}),
        (RUNNING, Write("s", close=True), {"turn": None, "left": True, "ended": CLOSED}),
        (IDLE, Write("s", close=True, erase=()), {"left": True, "ended": ERASED}),
        (IDLE, Write("s", base=True), {"base": 10}),
        (IDLE, Write("s", unbase=True), {"base": 0}),
        (IDLE, Write("s", lay=LAID), {"fence": 12, "base": 2, "active_at": 77, "ended": CLOSED}),
    ],
)
def test_each_kind_of_write_changes_what_it_is_for(
    row: Row, write: Write, changes: dict[str, object]
) -> None:
    found = after(row, write)
    if not found.get("left", False):
        found.pop("left", None)
    if found.get("leased_s", 0) is None:
        found.pop("leased_s")
    assert found == changes
    assert advances(write)


def test_a_turn_that_ends_and_the_next_that_starts_can_share_a_write() -> None:
    found = advance(RUNNING, Write("s", finish=True, start=START, drafts=(DRAFT,)), POSITION)
    assert (found.turn, found.fence, found.left, found.leased_s) == (5, 5, True, 30.0)
    assert (found.journal, found.active_at) == (POSITION, DRAFT.at)


def test_a_start_never_makes_a_session_look_less_active() -> None:
    late = Row(active_at=DRAFT.at + 1)
    assert (
        advance(late, Write("s", start=START, drafts=(DRAFT,)), POSITION).active_at == DRAFT.at + 1
    )


def test_an_append_leaves_the_row_to_its_head() -> None:
    assert not advances(Write("s", drafts=(DRAFT,)))
    assert not advances(Write("s", fence=4, head=9, takes=(b"m" * 16,)))
