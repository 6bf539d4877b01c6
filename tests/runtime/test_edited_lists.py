"""A list that was copied or reloaded, and edited: an edit of a known message at its place is no new
message (I-12).
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session
from looking import other_handle
from talking import texts, told

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
Messages = list[dict[str, Any]]


def conversation() -> Messages:
    return [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is on this picture?"}, PICTURE],
        },
        {"role": "assistant", "content": "A harbour at low tide, with four boats and a crane."},
        {"role": "user", "content": "Charge my card 4111 1111 for the print, please."},
        {
            "role": "assistant",
            "content": "It is ordered, and it will be with you on Friday of next week.",
        },
        {"role": "user", "content": [PICTURE]},
        {"role": "assistant", "content": "The same harbour, at night."},
    ]


def strip_pictures(messages: Messages) -> Messages:
    messages[0]["content"] = "What is on this picture?"
    messages[4]["content"] = "[picture removed]"
    return messages


def mask_a_number(messages: Messages) -> Messages:
    messages[2]["content"] = "Charge my card **** **** for the print, please."
    return messages


def shorten_an_answer(messages: Messages) -> Messages:
    messages[3]["content"] = "It is ordered, and it will…"
    return messages


def shorten_the_last_answer(messages: Messages) -> Messages:
    messages[5]["content"] = "The same harbour…"
    return messages


def add_a_note(messages: Messages) -> Messages:
    messages[1]["content"] += " (described by a model)"
    return messages


def edit_all(messages: Messages) -> Messages:
    for edit in (strip_pictures, mask_a_number, shorten_an_answer, add_a_note):
        messages = edit(messages)
    return messages


EDITS = [
    strip_pictures,
    mask_a_number,
    shorten_an_answer,
    shorten_the_last_answer,
    add_a_note,
    edit_all,
]


@pytest.mark.parametrize("fresh", [False, True], ids=["same handle", "another process"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_a_copied_message_is_not_stored_as_a_new_one(
    path: Path, session: Session, edit: Callable[[Messages], Messages], fresh: bool
) -> None:
    messages = conversation()
    session.record(messages)
    before = told(session)
    edited = edit(copy.deepcopy(messages))
    with other_handle(path, durability="process") as other:
        there = other.get(session.id) if fresh else session
        assert there.record(edited).new == ()
        assert there.record([*edited, {"role": "user", "content": "Thanks!"}]).new != ()
        assert list(there.context()) == [*edited, {"role": "user", "content": "Thanks!"}]
    assert told(session) == [*before, "Thanks!"]


def test_an_answer_given_again_is_kept_beside_the_first(path: Path, session: Session) -> None:
    """I-2: it shares most of its words, and nothing after it holds its place; the user has read
    both.
    """
    messages = [
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "content": "It is 20 degrees in Lisbon."},
    ]
    session.record(messages)
    again = [messages[0], {"role": "assistant", "content": "It is 21 degrees in Lisbon."}]
    with other_handle(path, durability="process") as other:
        assert len(other.get(session.id).record(copy.deepcopy(again)).new) == 1
    assert told(session) == [
        "How warm is it?",
        "It is 20 degrees in Lisbon.",
        "It is 21 degrees in Lisbon.",
    ]
    assert texts(session) == ["How warm is it?", "It is 21 degrees in Lisbon."]


def test_the_same_question_about_another_picture_is_a_new_message(
    path: Path, session: Session
) -> None:
    question = {"type": "text", "text": "What is on this picture?"}
    session.record([{"role": "user", "content": [question, PICTURE]}])
    other_picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with other_handle(path, durability="process") as other:
        recorded = other.get(session.id).record(
            [{"role": "user", "content": [question, other_picture]}]
        )
    assert len(recorded.new) == 1


def test_other_words_between_the_same_neighbours_are_new(path: Path, session: Session) -> None:
    messages = conversation()
    session.record(messages)
    changed = copy.deepcopy(messages)
    changed[3] = {"role": "assistant", "content": "No card of yours is known here."}
    with other_handle(path, durability="process") as other:
        assert len(other.get(session.id).record(changed).new) == 1
    assert "No card of yours is known here." in told(session)


def test_an_edit_is_known_when_a_summary_covers_the_message(path: Path, session: Session) -> None:
    """The list is older than the compaction: what it edits is looked for in the past, too."""
    messages = conversation()
    session.record(messages)
    session.compact("about a picture", keep_turns=0)
    with other_handle(path, durability="process") as other:
        assert other.get(session.id).record(mask_a_number(copy.deepcopy(messages))).new == ()
    assert len(told(session)) == len(messages)
