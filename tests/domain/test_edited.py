"""What is an edit of a known message at its place, and what is another message (I-12)."""

import pytest

from holdfast.domain.record.edits import is_edit, is_shortened
from holdfast.domain.record.fingerprint import Fingerprint, same_calls

LONG = "The quick brown fox jumps over the lazy dog."


@pytest.mark.parametrize("judge", [is_edit, is_shortened])
def test_a_message_of_another_role_is_no_edit(judge) -> None:  # type: ignore[no-untyped-def]
    known, said = Fingerprint("user", LONG), Fingerprint("assistant", LONG[:30])
    assert judge(known, said._replace(role="user")) and not judge(known, said)


@pytest.mark.parametrize("judge", [is_edit, is_shortened])
def test_calls_and_answers_are_known_by_their_ids_alone(judge) -> None:  # type: ignore[no-untyped-def]
    call = Fingerprint("assistant", LONG, calls=(("c1", "look", "{}"),))
    assert not judge(call, call._replace(text=LONG[:30]))
    answer = Fingerprint("tool", LONG, answers=("c1",))
    assert not judge(answer, answer._replace(text=LONG[:30]))


def test_calls_are_the_same_however_their_arguments_are_written() -> None:
    """Arguments that can't be read, or are nested too deeply to be, are what is written there."""

    def calls(arguments: str) -> list[tuple[str, str, str]]:
        return [("c1", "look", arguments)]

    deep = "[" * 9000 + "]" * 9000
    assert same_calls(calls('{"at": 1}'), calls('{"at":1}'))
    assert same_calls(calls(deep), calls(deep))
    for other in (f" {deep}", "[", "{}"):
        assert not same_calls(calls(deep), calls(other))
