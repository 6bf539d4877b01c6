"""Journal positions only grow, whatever becomes of the rows: a turn knows by them what is its own
(I-5).
"""

from pathlib import Path

import holdfast
from looking import told


def test_what_is_said_after_an_erasure_by_a_turn_that_began_before_it_is_kept(
    tmp_path: Path,
) -> None:
    """I-5, I-21: the erasure takes journal rows, and other processes count on from where
    they were.
    """
    where = tmp_path / "agent.db"
    with holdfast.open(where) as store, holdfast.open(where) as other:
        with store.turn("gone", "Hi") as turn:
            list(turn.deliver(["One ", "two ", "three "]))
        speaking = other.session("k").turn("Hello?")
        store.erase(store.session("gone", create=False).id)
        telling = speaking.deliver(["Four ", "five "])
        shown = next(telling)
        assert store.session("k").stop()
        assert told(store.session("k")) == [
            ("user", "Hello?", "complete"),
            ("assistant", shown, "partial"),
        ]


def test_what_is_said_after_another_process_has_left_by_a_turn_that_began_before_it_is_kept(
    tmp_path: Path,
) -> None:
    """I-5: whoever closes the store empties the journal of all that no running turn needs."""
    where = tmp_path / "agent.db"
    with holdfast.open(where) as other:
        with holdfast.open(where) as store:
            with store.turn("gone", "Hi") as turn:
                list(turn.deliver(["One ", "two ", "three "]))
            speaking = other.session("k").turn("Hello?")
        telling = speaking.deliver(["Four ", "five "])
        shown = next(telling)
        with holdfast.open(where) as store:
            assert store.session("k").stop()
            assert told(store.session("k")) == [
                ("user", "Hello?", "complete"),
                ("assistant", shown, "partial"),
            ]
