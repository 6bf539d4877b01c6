"""What a handle has stored itself is not read back, and what others store is seen all the same."""

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.runtime.live import derived
from holdfast.runtime.live.session_log import SessionLog

LONG = "tide " * 20_000
"""Large enough to be kept apart from its message."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seqs of all entries that were read since."""
    seqs: list[int] = []
    page = SessionLog.page

    def counted(self: SessionLog, *args: Any, **kwargs: Any) -> Any:
        found = page(self, *args, **kwargs)
        seqs.extend(entry.seq for entry in found)
        return found

    monkeypatch.setattr(SessionLog, "page", counted)
    return seqs


def seen(session: holdfast.Session) -> list[Any]:
    return list(session.context("openai.chat"))


def transcript(session: holdfast.Session) -> list[Any]:
    return [(message.text, message.turn, message.seq) for message in session.transcript()]


def words() -> Iterator[str]:
    yield "It "
    yield "turns."


def a_turn(session: holdfast.Session, *, text: str = "Which tide?") -> None:
    """A turn with all that it may store: what was asked, a call and its result, a stream, words."""
    with session.turn(text) as turn:
        turn.context("openai.chat")
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        turn.add({"role": "assistant", "content": None, "tool_calls": [call]})
        turn.add({"role": "tool", "tool_call_id": "c1", "content": "ebb"})
        turn.context("openai.chat")
        assert "".join(turn.deliver(words())) == "It turns."
        turn.say("And now?")


def test_what_a_handle_has_stored_is_not_read_back(where: str, read: list[int]) -> None:
    with holdfast.open(where) as store:
        session = store.session("s")
        seen(session)
        read.clear()
        a_turn(session)
        session.append({"role": "user", "content": LONG})
        here = seen(session)
        assert read == []
        with holdfast.open(where) as other:
            assert seen(other.session("s")) == here
            assert transcript(other.session("s")) == transcript(session)


def test_what_others_store_in_between_stands_where_it_was_stored(
    where: str, read: list[int]
) -> None:
    with holdfast.open(where) as store, holdfast.open(where) as other:
        ours, theirs = store.session("s"), other.session("s")
        for number in range(3):
            ours.append(f"ours {number}")
            theirs.append(f"theirs {number}")
            assert seen(ours) == seen(theirs)
            a_turn(ours, text=f"asked {number}")
            ours.append("ours, after it")
            a_turn(theirs, text=f"theirs asked {number}")
            assert seen(ours) == seen(theirs)
            assert transcript(ours) == transcript(theirs)


def test_a_handle_that_is_never_read_keeps_nothing_in_mind(where: str) -> None:
    with holdfast.open(where) as store:
        session = store.session("s")
        for number in range(3):
            session.append(f"word {number}")
        assert session._log._derived._stored == {}  # type: ignore[attr-defined]
        seen(session)
        for number in range(3 * derived.STORED_MAX):
            session.append(f"more {number}")
            kept = session._log._derived._stored  # type: ignore[attr-defined]
            assert len(kept) <= derived.STORED_MAX + 1
        assert seen(session)[0]["content"].count("more") == 3 * derived.STORED_MAX


def test_what_was_erased_meanwhile_is_not_kept_in_mind(where: str) -> None:
    """I-21: what a handle remembers of itself goes as what it has read does."""
    with holdfast.open(where) as store, holdfast.open(where) as other:
        session = store.session("s")
        session.append("before")
        seen(session)
        session.append("a secret")
        other.erase(session.id)
        assert "secret" not in repr(transcript(session))
        assert "secret" not in repr(seen(session))
