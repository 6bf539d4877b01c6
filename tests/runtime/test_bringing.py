"""Bringing over: what another store holds comes in once, in its place, with its times, however
often it is brought.
"""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Store
from holdfast.domain.message import Usage
from holdfast.importers.foreign_session import HIDDEN, ForeignMessage, ForeignSession, Summary
from holdfast.runtime.transfer.import_store import bring
from holdfast.testing.oracle import judge

START = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(tmp_path / "into.db") as store:
        yield store
        found = judge(store)
        assert not found, "\n".join(found)


def line(number: int, text: str | None = None, **more: Any) -> ForeignMessage:
    role = "user" if number % 2 == 0 else "assistant"
    payload = {"role": role, "content": text or f"words {number}", "_row": {"as": "found"}}
    return ForeignMessage(
        str(number), f"row {number}", role, payload, "openai.chat", at=START + number * 1000, **more
    )


def story(*lines: ForeignMessage | Summary, id: str = "20260101_1", **facts: Any) -> ForeignSession:
    return ForeignSession("hermes", id, "here", lines, **facts)


def lines(count: int) -> list[ForeignMessage | Summary]:
    return [line(number) for number in range(count)]


def only(store: Store) -> holdfast.Session:
    [one] = store.sessions()
    return store.get(one.id)


def texts(session: holdfast.Session) -> list[str]:
    return [message.text for message in session.transcript()]


def test_a_story_comes_over_with_its_payloads_and_its_times(store: Store) -> None:
    """I-14."""
    told = [replace(line(0), usage=Usage(input=3, output=4), model="m"), line(1)]
    brought = bring(
        store, [story(*told, instructions="Be kind.", title="A trip", facts={"cwd": "/home"})]
    )
    assert (brought.sessions, brought.new, brought.messages) == (1, 1, 2)
    session = only(store)
    first, second = session.transcript()
    assert first.payload == told[0].payload and second.payload == told[1].payload
    assert [entry.at for entry in session.entries() if entry.kind == "message"] == [
        START,
        START + 1000,
    ]
    assert session.instructions() == "Be kind."
    assert session.info().usage == Usage(input=3, output=4)
    assert (
        first.labels["story"]["facts"] == {"cwd": "/home"}
        and first.labels["story"]["title"] == "A trip"
    )


def test_bringing_again_adds_nothing(store: Store) -> None:
    """I-12."""
    told = story(*lines(5), key="k", title="T", instructions="Be kind.", facts={"x": 1})
    bring(store, [told])
    before = list(only(store).entries())
    again = bring(store, [told])
    assert (again.new, again.grown, again.messages, again.labels) == (0, 0, 0, 0)
    assert list(only(store).entries()) == before


@pytest.mark.parametrize("first", range(1, 8))
def test_a_store_that_has_grown_adds_what_is_new(store: Store, first: int) -> None:
    told: list[ForeignMessage | Summary] = lines(8)
    told.insert(5, Summary("s", "row s", "what was", keeps=("3", "4"), at=START + 4500))
    bring(store, [story(*told[:first])])
    bring(store, [story(*told)])
    assert texts(only(store)) == [f"words {number}" for number in range(8)]
    shown = [message["content"] for message in only(store).context()]
    assert "what was" in shown[0] and shown[-3:] == ["words 5", "words 6", "words 7"]


def test_a_line_that_turns_up_later_in_the_middle_is_not_lost(store: Store) -> None:
    told = lines(6)
    bring(store, [story(*told[:2], *told[3:])])
    assert bring(store, [story(*told)]).messages == 1
    assert sorted(texts(only(store))) == [f"words {number}" for number in range(6)]


def test_what_the_model_does_not_see_stays_out_of_its_context(store: Store) -> None:
    """I-13: hidden from the first, or only later."""
    told = lines(4)
    told[1] = line(1, labels=HIDDEN)
    bring(store, [story(*told)])
    assert [message["content"] for message in only(store).context()] == [
        "words 0\n\nwords 2",
        "words 3",
    ]
    told[0] = line(0, labels=HIDDEN)
    bring(store, [story(*told)])
    assert [message["content"] for message in only(store).context()] == ["words 2", "words 3"]
    assert len(texts(only(store))) == 4


def test_generations_are_compactions_not_copies(store: Store) -> None:
    """I-11: every message once in the transcript, and shown or covered by one summary."""
    told: list[ForeignMessage | Summary] = lines(9)
    told.insert(3, Summary("s1", "row s1", "the first part", at=START + 2500))
    told.insert(7, Summary("s2", "row s2", "the first two parts", keeps=("5",), at=START + 5500))
    bring(store, [story(*told)])
    assert texts(only(store)) == [f"words {number}" for number in range(9)]
    shown = [message["content"] for message in only(store).context()]
    assert "the first two parts" in shown[0] and shown[1:] == [
        "words 5",
        "words 6",
        "words 7",
        "words 8",
    ]


def test_a_summary_of_nothing_that_is_here_is_words_like_others(store: Store) -> None:
    bring(store, [story(Summary("s", "row s", "what was lost"), line(1))])
    assert [message["content"] for message in only(store).context()] == ["what was lost", "words 1"]


def test_a_session_that_goes_on_from_another_shares_its_past(store: Store) -> None:
    parent = story(*lines(4), id="a")
    child = story(line(10), line(11), id="b", parent="a", lineage="branch", parent_origin="1")
    bring(store, [parent, child])
    forked = next(store.get(each.id) for each in store.sessions() if store.get(each.id)._log.origin)
    assert texts(forked) == ["words 0", "words 1", "words 10", "words 11"]
    again = bring(store, [parent, replace(child, lines=(*child.lines, line(12)))])
    assert (again.new, again.messages) == (0, 1)


def test_a_session_that_goes_on_after_a_compaction_covers_the_past_that_it_shares(
    store: Store,
) -> None:
    """I-11: each message once, in the context or under one summary."""
    parent = story(*lines(4), id="a")
    summary = Summary("s", "row s", "what was", keeps=("3",), at=START + 5000)
    bring(
        store, [parent, story(summary, line(10), line(11), id="b", parent="a", lineage="continues")]
    )
    session = next(
        store.get(each.id) for each in store.sessions() if store.get(each.id)._log.origin
    )
    assert texts(session) == ["words 0", "words 1", "words 2", "words 3", "words 10", "words 11"]
    shown = [message["content"] for message in session.context()]
    assert "what was" in shown[0] and shown[1:] == ["words 3", "words 10", "words 11"]


def test_a_key_means_the_session_that_it_means_there(store: Store) -> None:
    """I-8: and moves on when it moved on there."""
    old = story(line(0), id="a", key="telegram:1")
    bring(store, [old])
    first = store.session("telegram:1", create=False).id
    new = story(line(2), id="b", key="telegram:1")
    bring(store, [replace(old, current=False, ended="session_reset"), new])
    session = store.session("telegram:1", create=False)
    assert session.id != first and session.epoch == 2 and texts(session) == ["words 2"]
    assert store.get(first).info().state == "ended"


def test_a_key_that_is_in_use_here_is_left_alone(store: Store) -> None:
    mine = store.session("telegram:1")
    mine.append("hello")
    brought = bring(store, [story(line(0), key="telegram:1")])
    assert store.session("telegram:1").id == mine.id
    assert "in use" in brought.notes[0]


def test_a_session_that_is_carried_on_here_keeps_what_was_said_here(store: Store) -> None:
    bring(store, [story(*lines(2), key="k")])
    with store.session("k").turn("and now?") as turn:
        turn.say("now this")
    bring(store, [story(*lines(4), key="k")])
    assert texts(store.session("k")) == [
        "words 0",
        "words 1",
        "and now?",
        "now this",
        "words 2",
        "words 3",
    ]


def test_what_no_format_can_read_is_kept_and_hidden(store: Store) -> None:
    odd = ForeignMessage(
        "9", "row 9", "user", {"role": "wizard", "spell": [1, 2]}, "openai.chat", at=START
    )
    brought = bring(store, [story(odd, line(1))])
    assert brought.opaque == 1
    first = next(iter(only(store).transcript()))
    assert first.payload["found"] == odd.payload and first.labels["visible_to_model"] is False
    assert [
        message["content"] for message in only(store).context() if message["role"] == "assistant"
    ] == ["words 1"]


def test_sessions_of_one_name_in_two_stores_stay_two(store: Store) -> None:
    """Names like a date and a number are the same on many machines."""
    bring(store, [story(line(0, "here"))])
    bring(store, [story(line(0, "there"))])
    assert sorted(texts(store.get(each.id))[0] for each in store.sessions()) == ["here", "there"]


def test_the_same_stories_make_the_same_bytes(tmp_path: Path) -> None:
    told: list[ForeignMessage | Summary] = lines(700)
    told.append(Summary("s", "row s", "what was", keeps=("698", "699"), at=START + 700_000))
    digests = []
    for name in ("one.db", "two.db"):
        with holdfast.open(tmp_path / name) as store:
            bring(store, [story(*told, key="k", instructions="Be kind.")])
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert digests[0] == digests[1]


MORTAL = """
import os, signal, sys
import holdfast
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession
from holdfast.runtime.transfer.import_store import bring

def told():
    for number in range(5000):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        payload = {"role": "user", "content": f"words {number}"}
        yield ForeignMessage(str(number), "", "user", payload, "openai.chat", at=number)

class Lines:
    def __iter__(self):
        return told()

with holdfast.open(sys.argv[1]) as store:
    bring(store, [ForeignSession("hermes", "a", "here", Lines())])
"""


@pytest.mark.slow
def test_a_killed_import_is_resumed_by_importing_again(tmp_path: Path) -> None:
    for at in (1200, 3700, 9999):
        done = subprocess.run(
            [sys.executable, "-c", MORTAL, str(tmp_path / "into.db"), str(at)], env=os.environ
        )
        assert done.returncode == (0 if at == 9999 else -signal.SIGKILL)
    with holdfast.open(tmp_path / "into.db") as store:
        assert texts(only(store)) == [f"words {number}" for number in range(5000)]
        found = judge(store)
        assert not found, "\n".join(found)


def own(path: Path, tenant: str) -> dict[str, list[str]]:
    with holdfast.open(path, tenant=tenant) as store:
        return {one.id: texts(store.get(one.id)) for one in store.sessions()}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A place for a store of each engine."""
    return (
        tmp_path / "shared.db"
        if request.param == "sqlite"
        else request.getfixturevalue("databases")(schema=True)
    )


def test_two_tenants_who_bring_the_same_store_each_get_their_own(place: Path) -> None:
    told = story(*lines(3), key="telegram:1")
    for tenant in ("alice", "mallory"):
        with holdfast.open(place, tenant=tenant) as store:
            assert bring(store, [told]).new == 1
    with holdfast.open(place, tenant="mallory") as store:
        bring(store, [story(*lines(3), line(4, "mallory was here"), key="telegram:1")])
    alices, mallorys = own(place, "alice"), own(place, "mallory")
    assert list(alices.values()) == [["words 0", "words 1", "words 2"]]
    assert list(mallorys.values()) == [["words 0", "words 1", "words 2", "mallory was here"]]
    assert not alices.keys() & mallorys.keys()


def test_a_story_never_goes_on_from_another_tenant_s_session(place: Path) -> None:
    """Neither by a parent that is told beside it, nor by one that is here already."""
    with holdfast.open(place, tenant="alice") as store:
        bring(store, [story(line(0, "hi"), line(1, "alice's secret"))])
    goes_on = story(line(10, "and now?"), id="next", parent="20260101_1", lineage="continues")
    with holdfast.open(place, tenant="mallory") as store:
        brought = bring(store, [story(line(0, "hi")), goes_on])
        assert brought.new == 2
        assert not [
            text
            for one in store.sessions()
            for text in texts(store.get(one.id))
            if "secret" in text
        ]


def test_sessions_that_begin_alike_are_as_many_as_their_store_has(store: Store) -> None:
    assert bring(store, [story(line(0, "hi"), id="one"), story(line(0, "hi"), id="two")]).new == 2


def test_stores_that_call_their_sessions_alike_are_kept_apart(store: Store) -> None:
    for source in ("/ann/sessions.db", "/bob/sessions.db"):
        assert bring(store, [story(*lines(2), id="user_1")], source=source).new == 1
    assert bring(store, [story(*lines(4), id="user_1")], source="/bob/sessions.db").grown == 1
    assert sorted(len(texts(store.get(one.id))) for one in store.sessions()) == [2, 4]


def test_an_id_that_is_drawn_by_chance_is_known_wherever_its_store_lies(store: Store) -> None:
    for source in ("/here", "/there"):
        bring(store, [story(*lines(2), id="20260101_120000_0a1b2c3d")], source=source)
    assert len(texts(only(store))) == 2


@pytest.mark.parametrize("other", [line(1, "Go away."), replace(line(1), at=START + 1001)])
def test_two_conversations_that_disagree_are_two(store: Store, other: ForeignMessage) -> None:
    """The same place, id and first words: a store that was deleted and made anew, say."""
    bring(store, [story(line(0, "hi"), line(1, "Hello!"))])
    made_anew = story(line(0, "hi"), other, line(2, "Why?"))
    assert bring(store, [made_anew]).new == 1
    assert bring(store, [made_anew]).messages == 0
    assert bring(store, [story(line(0, "hi"), line(1, "Hello!"), line(2, "Thanks."))]).grown == 1
    assert sorted(len(texts(store.get(one.id))) for one in store.sessions()) == [3, 3]


def test_what_was_erased_here_does_not_come_back(store: Store) -> None:
    bring(store, [story(*lines(3))])
    store.erase(only(store).id)
    brought = bring(store, [story(*lines(5))])
    assert (brought.new, brought.grown, brought.messages) == (
        0,
        0,
        0,
    ) and "was erased here" in brought.notes[0]


@pytest.mark.parametrize("used", ["append", "record", "label", "turn"])
def test_a_key_stays_with_the_session_that_is_used_here(store: Store, used: str) -> None:
    bring(store, [story(*lines(2), key="k")])
    session = store.session("k")
    if used == "append":
        session.append({"role": "user", "content": "from here"})
    elif used == "record":
        session.record([*session.context(), {"role": "user", "content": "from here"}])
    elif used == "label":
        session.label(next(iter(session.transcript())).id, pinned=True)
    else:
        with session.turn("from here"):
            pass
    brought = bring(store, [story(line(0, "another one"), id="other", key="k")])
    assert store.session("k").id == session.id and "is in use here" in brought.notes[0]


def test_a_key_goes_on_to_the_next_session_while_nobody_uses_it_here(store: Store) -> None:
    told = (*lines(2), Summary("s", "row s", "what was said"), line(6, labels=HIDDEN))
    first = story(*told, key="k", instructions="Be kind.")
    bring(store, [first])
    bring(
        store, [replace(first, current=False), story(line(0, "another one"), id="other", key="k")]
    )
    assert texts(store.session("k")) == ["another one"]


def test_a_branch_that_the_program_went_back_to_is_shown_again(store: Store) -> None:
    left = {**HIDDEN, "left": True}
    bring(store, [story(line(0), line(1), line(2, labels=left), line(3, labels=left), line(4))])
    assert [one["content"] for one in only(store).context()] == ["words 0", "words 1", "words 4"]
    bring(store, [story(line(0), line(1), line(2), line(3), line(4, labels=left), line(6))])
    assert [one["content"] for one in only(store).context()] == [
        "words 0",
        "words 1",
        "words 2",
        "words 3",
        "words 6",
    ]
    again = bring(store, [story(line(0), line(1), line(2), line(3), line(4, labels=left), line(6))])
    assert (again.messages, again.labels) == (0, 0)


def test_what_a_person_hid_stays_hidden_however_often_it_is_brought(store: Store) -> None:
    bring(store, [story(*lines(3))])
    session = only(store)
    session.label(list(session.transcript())[2].id, visible_to_model=False)
    bring(store, [story(*lines(4))])
    assert "words 2" not in str(list(only(store).context())) and "words 3" in str(
        list(only(store).context())
    )


def test_a_summary_stands_where_the_program_shows_it(store: Store) -> None:
    """I-11."""
    shown = Summary(
        "s",
        "row s",
        "It was sunny.",
        ("0", "2"),
        START + 4000,
        shows=("0", "s", "2"),
        is_shown=True,
    )
    told = [*lines(4), shown, line(6)]
    bring(store, [story(*told)])
    context = only(store).context("openai.responses")
    assert [one["content"] for one in context] == ["words 0", "It was sunny.", "words 2", "words 6"]
    assert bring(store, [story(*told)]).messages == 0
