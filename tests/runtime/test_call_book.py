"""What a turn knows of its calls: of several threads one starts a call, and an outcome finds its
own (I-22).
"""

from holdfast.domain.message import CallNote, MessageNote
from holdfast.runtime.turns.call_book import CallBook


def made(*ids: str) -> MessageNote:
    return MessageNote(
        role="assistant", plain=False, calls=tuple(CallNote(id, "pay") for id in ids)
    )


def test_of_two_who_start_a_call_at_once_one_does() -> None:
    book = CallBook()
    assert book.begin("c1", "m1", asks=False) is not None
    assert book.begin("c1", "m2", asks=False) is None, "its entry is on its way"


def test_of_two_who_ask_about_a_call_at_once_one_does() -> None:
    book = CallBook()
    begun = book.begin("c1", "m1", asks=True)
    assert begun is not None and book.begin("c1", "m2", asks=True) is None
    book.stored(begun[0])
    assert book.begin("c1", "m2", asks=True) is not None, "it is asked about again"


def test_of_two_who_use_one_approval_one_does() -> None:
    book = CallBook()
    assert book.begin_approved("c1", "m1", 0) is not None
    assert book.begin_approved("c1", "m1", 0) is None


def test_an_outcome_answers_no_call_that_waits_for_approval() -> None:
    book = CallBook()
    assert book.begin("c1", "m1", asks=True) is not None
    assert book.answer("c1") is None


def test_an_outcome_of_an_id_that_is_used_again_answers_the_newest_call() -> None:
    book = CallBook()
    book.note("m1", made("c1"))
    book.note("m2", made("c1"))
    found = [book.answer("c1"), book.answer("c1")]
    assert [call.message for call in found if call is not None] == ["m2", "m1"]
    assert book.answer("c1") is None
