"""Contexts in `openai.responses` are flat: a list of items, whatever a stored message consists of
(I-9).
"""

import openai.types.responses as sdk
import pytest

import holdfast
from holdfast.testing.providers import check

FORMAT = "openai.responses"


def words(text, number=1):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def objects(*items):
    return [sdk.ResponseOutputMessage.model_validate(item) for item in items]


ANSWERS = {
    "one item": lambda n: words(f"answer {n}", n),
    "a list of one": lambda n: [words(f"answer {n}", n)],
    "a list of several": lambda n: [words("First.", n), words(f"answer {n}", n + 100)],
    "SDK objects": lambda n: objects(words("First.", n), words(f"answer {n}", n + 100)),
}


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


def is_flat(context):
    return all(isinstance(item, dict) for item in context) and check(FORMAT, context) == []


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_context_is_flat_from_the_first_turn_to_the_last(where, answer):
    """The beginning that is kept from one turn to the next included; a warm handle sees what a
    fresh one does.
    """
    with holdfast.open(where) as store:
        session = store.session("k")
        for number in range(1, 6):
            with session.turn(f"ask {number}", format=FORMAT) as turn:
                assert is_flat(turn.context())
                turn.add(answer(number))
            warm = session.context(FORMAT)
            assert is_flat(warm)
            with holdfast.open(where) as other:
                assert list(other.session("k").context(FORMAT)) == list(warm)
        assert sum("answer" in str(item) for item in session.context(FORMAT)) == 5


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_flat_context_can_be_recorded_and_nothing_in_it_is_new(where, answer):
    """I-12: several items of one stored message are known again as that message."""
    with holdfast.open(where) as store:
        session = store.session("k")
        for number in range(1, 4):
            with session.turn(f"ask {number}", format=FORMAT) as turn:
                turn.add(answer(number))
        before = list(session.context(FORMAT))
        assert session.record(list(before), format=FORMAT).new == ()
        assert list(session.context(FORMAT)) == before
        with holdfast.open(where) as other:
            assert other.session("k").record(list(before), format=FORMAT).new == ()


def test_a_response_whose_reasoning_the_caller_drops_is_an_edit_of_that_message(where):
    """I-12: what is left of its items is the same message in another shape, known by the ids of the
    items.
    """
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    with holdfast.open(where) as store:
        session = store.session("k")
        with session.turn("ask", format=FORMAT) as turn:
            turn.add([thought, words("First.", 1), words("Then.", 2)])
        with session.turn("more", format=FORMAT) as turn:
            turn.add(words("Done.", 3))
        without = [item for item in session.context(FORMAT) if item.get("type") != "reasoning"]
        assert session.record(without, format=FORMAT).new == ()
        assert list(session.context(FORMAT)) == without
        assert [message.text for message in session.transcript()] == [
            "ask",
            "First.Then.",
            "more",
            "Done.",
        ]
