"""A load begins with the last compaction, and tells what a load from the first entry would (I-9,
I-11).
"""

from pathlib import Path

import pytest

import holdfast
from talking import FORMATS


@pytest.mark.parametrize("keep_turns", [0, 1, 2])
def test_a_turn_that_took_more_messages_after_what_is_kept_began_can_be_covered(
    path: Path, keep_turns: int
) -> None:
    """I-9: a load begins in the middle of a turn that is covered."""
    with holdfast.open(path) as store, holdfast.open(path) as fresh:
        session = store.session("k")
        with session.turn("one") as turn:
            turn.say("Well,")
            store.accept("k", "and two")
            session.append("meanwhile")
            turn.inbox()
        session.compact("So far.", keep_turns=keep_turns)
        for format in FORMATS:
            assert list(fresh.session("k").context(format)) == list(session.context(format))


def test_a_fork_in_somebodys_hands_loses_what_was_erased_of_its_past(path: Path) -> None:
    """I-9, I-21: it had loaded the words, and another process erases them; a new handle would not
    show them either.
    """
    with holdfast.open(path) as store, holdfast.open(path) as other:
        parent = store.session("k")
        parent.instructions("Keep the secret.")
        with parent.turn("The secret is 42.") as turn:
            turn.say("I see.")
        branch = parent.fork().fork()
        branch.append("And now?")
        assert "secret" in str(branch.context())
        other.erase(parent.id)
        for format in FORMATS:
            assert list(branch.context(format)) == list(other.get(branch.id).context(format))
        assert "secret" not in str([branch.context(), branch.instructions(), branch.info().title])
        assert [message.text for message in branch.transcript()] == ["", "", "And now?"]


@pytest.mark.parametrize("keep_turns", [0, 1, 2])
def test_a_turn_whose_last_words_came_after_its_end_can_be_covered(
    path: Path, keep_turns: int
) -> None:
    """I-9: it was stopped in the middle of a stream; a load begins between its first message and
    its end.
    """
    with holdfast.open(path) as store, holdfast.open(path) as fresh:
        session = store.session("k")
        turn = session.turn("one")
        telling = turn.deliver(["Well, ", "so"])
        next(telling)
        session.append("meanwhile")
        fresh.session("k").stop()
        session.append("and then")
        session.compact("So far.", keep_turns=keep_turns)
        for format in FORMATS:
            assert list(fresh.session("k").context(format)) == list(session.context(format))
