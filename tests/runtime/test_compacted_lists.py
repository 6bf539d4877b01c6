"""A list that is older than a compaction: nothing is doubled, and nothing comes back that was
covered (I-11, I-12).
"""

import copy
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session
from looking import other_handle
from talking import (
    assert_same_everywhere,
    bodies,
    contexts,
    dialogue,
    named,
    talk,
    texts,
    work,
)
from talking import told as said

LIMIT_S = 60


def listed(*names: object) -> list[dict[str, Any]]:
    """What `talk` says, as an agent's own list."""
    roles = ["user", "assistant"] * len(names)
    return [
        {"role": role, "content": text} for role, text in zip(roles, dialogue(*names), strict=True)
    ]


@pytest.mark.parametrize("keep", [0, 1, 3])
@pytest.mark.parametrize("new", [0, 1, 2])
def test_a_full_list_of_a_process_that_never_loaded_the_session_doubles_nothing(
    path: Path, session: Session, keep: int, new: int
) -> None:
    """I-12, I-11: the list is recognised against what the summary covers, and the compaction
    stands.
    """
    talk(session, *range(5))
    session.compact("a summary", keep_turns=keep)
    before = texts(session)
    more = listed("new")[:new]
    with other_handle(path, durability="process") as other:
        stale = other.get(session.id)
        assert len(stale.record([*listed(*range(5)), *more]).new) == new
        head = session.info().head
        for handle in (stale, other.get(session.id)):
            assert handle.record([*listed(*range(5)), *more]).new == ()
        assert session.info().head == head
    assert said(session) == [*dialogue(*range(5)), *dialogue("new")[:new]]
    assert "\n\n".join(texts(session)) == "\n\n".join([*before, *dialogue("new")[:new]])
    assert_same_everywhere(path, session)
    with other_handle(path) as other:
        fresh = other.get(session.id)
        assert contexts(fresh) == contexts(session)
        assert keep or fresh._log.log().since > 1


@pytest.mark.parametrize("copied", [True, False])
def test_a_list_recorded_before_a_compaction_does_not_undo_it(
    path: Path, session: Session, copied: bool
) -> None:
    """I-11, D6: what is covered is shown as its summary, whoever still has the originals
    in a list.
    """
    messages = listed(*range(5))
    session.record(messages)
    with other_handle(path, durability="process") as other:
        assert other.get(session.id).compact("a summary", keep_turns=2) is not None
    messages += listed("new")
    assert len(session.record(copy.deepcopy(messages) if copied else messages).new) == 2
    assert session.record(copy.deepcopy(messages) if copied else messages).new == ()
    summary, *rest = texts(session)
    assert summary.endswith("a summary\n\nask 3")
    assert rest == ["answer 3", *dialogue(4, "new")]
    assert said(session) == dialogue(*range(5), "new")
    assert_same_everywhere(path, session)


def test_a_list_that_has_dropped_the_summary_rules_alone(path: Path, session: Session) -> None:
    """The list's shape is the context: with the summary out of it, what that stood for can be shown
    again.
    """
    talk(session, *range(5))
    session.compact("a summary", keep_turns=2)
    session.record(listed(3, 4))
    assert texts(session) == dialogue(3, 4)
    assert_same_everywhere(path, session)
    with other_handle(path, durability="process") as other:
        other.get(session.id).record(listed(0, 3, 4))
    assert texts(session) == dialogue(0, 3, 4)
    assert said(session) == dialogue(*range(5))
    assert_same_everywhere(path, session)


def test_a_merged_and_trimmed_list_is_recognised_against_what_is_covered(
    path: Path, session: Session
) -> None:
    """I-12: two users merged, an output shortened, a head dropped; by a handle without memory."""
    for n in range(3):
        session.append(f"aside {n}")
        work(session, n)
    messages = copy.deepcopy(list(session.context()))
    session.compact("a summary", keep_turns=1)
    before = contexts(session)
    with other_handle(path, durability="process") as other:
        shorter = copy.deepcopy(messages)
        shorter[2]["content"] = "found…"
        for stale in (messages, shorter, messages[4:]):
            assert other.get(session.id).record(stale).new == ()
            assert contexts(session) == before
    assert len(bodies(session)) == 3 * 5
    assert_same_everywhere(path, session)


def test_what_says_the_same_as_a_covered_message_after_the_view_is_new(
    path: Path, session: Session
) -> None:
    """I-2: "yes" again."""
    talk(session, *range(5))
    session.compact("a summary", keep_turns=2)
    with other_handle(path, durability="process") as other:
        fresh = other.get(session.id)
        assert len(fresh.record([*fresh.context(), {"role": "user", "content": "ask 0"}]).new) == 1
        stale = other.get(session.id)
        again = [
            *listed(*range(5)),
            {"role": "user", "content": "ask 0"},
            {"role": "assistant", "content": "answer 0"},
        ]
        assert len(stale.record(again).new) == 1
    assert said(session) == [*dialogue(*range(5)), *dialogue(0)]
    assert texts(session)[-2:] == dialogue(0)


@pytest.mark.parametrize(
    ("text", "shape"), [("ask 1", (0, 2, 3)), ("answer 1", (2, 3)), ("answer 3", (0, 1, 2, "x"))]
)
def test_a_hidden_message_is_shown_again_after_a_list_was_recorded_without_it(
    path: Path, session: Session, text: str, shape: tuple[object, ...]
) -> None:
    """I-13: the list could not have it; it is left where it stood, also at the edge of what the
    list dropped.
    """
    session.record(listed(*range(4)))
    message = named(session, text)
    session.label(message.id, visible_to_model=False)
    with other_handle(path, durability="process") as other:
        other.get(session.id).record([{"role": "user", "content": "a story"}, *listed(*shape)])
    assert text not in str(contexts(session))
    session.label(message.id, visible_to_model=True)
    assert text in str(contexts(session))
    assert_same_everywhere(path, session)


def test_recording_a_list_with_a_hidden_message_in_it_again_moves_nothing(
    path: Path, session: Session
) -> None:
    """I-12, I-13: its owner knows nothing of the label."""
    messages = listed(*range(3))
    session.record(messages)
    with other_handle(path, durability="process") as other:
        other.get(session.id).label(named(session, "answer 1").id, visible_to_model=False)
    head = session.info().head
    assert (
        session.record(messages)
        == session.record(copy.deepcopy(messages))
        == holdfast.Recorded((), head)
    )
    assert "answer 1" not in str(contexts(session))


# Another handle goes back to before the compaction
# --------------------------------------------------------------------


def test_what_a_turn_said_is_not_doubled_by_a_list_that_still_has_the_summary(
    path: Path, session: Session
) -> None:
    """The list begins with a summary that is no longer shown; what follows it there is what the
    view has grown by.
    """
    talk(session, 0)
    session.record(listed(0))
    session.compact("what was said", keep_turns=0)
    messages = [dict(message) for message in session.context()]
    with other_handle(path, durability="process") as other:
        other.get(session.id).rewind(named(session, "answer 0").id)
    talk(session, 1)
    messages += listed(1)
    assert session.record(messages).new == ()
    assert said(session) == dialogue(0, 1)
    assert_same_everywhere(path, session)


@pytest.mark.parametrize("compacted", [False, True])
def test_an_answer_that_another_handle_took_away_is_not_doubled_by_a_reloaded_list(
    path: Path, session: Session, compacted: bool
) -> None:
    """A list that ends with an answer is a whole one: nothing in it tells that the answer was given
    again.
    """
    messages = listed(0)
    session.record(messages)
    if compacted:
        session.compact("what was said", keep_turns=0)
    with other_handle(path, durability="process") as other:
        there = other.get(session.id)
        talk(there, 1)
        there.rewind(named(session, "ask 0").id)
    with other_handle(path, durability="process") as fresh:
        assert fresh.get(session.id).record(copy.deepcopy(messages)).new == ()
    assert said(session) == dialogue(0, 1)


def test_words_on_another_line_are_no_sign_that_a_question_is_asked_again(
    path: Path, session: Session
) -> None:
    """What was said after a question had been taken away never followed it."""
    messages = [*listed(0), {"role": "user", "content": "ask 1"}]
    session.record(messages)
    with other_handle(path, durability="process") as other:
        there = other.get(session.id)
        there.rewind(named(session, "answer 0").id)
        talk(there, 2)
        there.rewind(named(session, "answer 0").id)
    with other_handle(path, durability="process") as fresh:
        assert fresh.get(session.id).record(copy.deepcopy(messages)).new == ()
    assert said(session) == [*dialogue(0), "ask 1", *dialogue(2)]
