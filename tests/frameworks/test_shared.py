"""What the adapters for frameworks share."""

import gc
import threading
from pathlib import Path

import pytest

import holdfast
from engine_calls import EngineCalls
from holdfast.adapters.framework import (
    KnownSessions,
    bodies_of,
    current_of,
    key_of,
    names_of,
    records_after,
    sessions_under,
    standing,
    store_of,
    stored,
)
from holdfast.errors import BadArgument, SessionEnded
from holdfast.testing.adapters.damage import spoil_last_message


def test_a_place_is_opened_once_and_closed_with_the_last_who_has_it(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    first, second = store_of(place), store_of(str(place))
    assert first is second
    assert store_of(first) is first
    session = first.session("k")
    del first, second
    gc.collect()
    # A session that is still held holds the engine.
    session.append("still here")
    again = store_of(place)
    assert [each.text for each in again.session("k").transcript()] == ["still here"]


def test_a_place_whose_store_was_closed_is_opened_again(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    first = store_of(place)
    first.session("k").append("before")
    first.close()
    again = store_of(place)
    assert [each.text for each in again.session("k").transcript()] == ["before"]
    assert store_of(place) is again


def test_an_open_store_of_either_face_is_used_as_it_is(tmp_path: Path) -> None:
    import asyncio

    async def given() -> str | None:
        async with holdfast.open_async(tmp_path / "a.db", tenant="blue") as store:
            return store_of(store).tenant

    assert asyncio.run(given()) == "blue"


@pytest.mark.parametrize("wrong", [None, 7, b"a.db", ["a.db"]])
def test_what_is_no_store_is_refused(wrong: object) -> None:
    with pytest.raises(BadArgument, match="store"):
        store_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("adk", "a:b", "c"), ("adk", "a", "b:c"), ("x", "", "%3A", "ü")])
def test_a_key_of_several_names_gives_them_back(names: tuple[str, ...]) -> None:
    assert tuple(names_of(key_of(*names))) == names
    assert len(key_of(*names).split(":")) == len(names)


@pytest.mark.parametrize("at", range(3))
def test_a_name_that_is_no_unicode_is_refused(at: int) -> None:
    names = ["adk", "garden", "ann"]
    names[at] = "a lone \ud800"
    with pytest.raises(BadArgument, match="lone surrogates"):
        key_of(*names)


def test_the_sessions_under_a_name_are_all_there_and_no_others(where: str) -> None:
    with holdfast.open(where) as store:
        wanted = {key_of("adk", "app", f"user {number}") for number in range(450)}
        threads = []
        for part in range(3):
            keys = sorted(wanted)[part::3]
            threads.append(
                threading.Thread(target=lambda keys=keys: [store.session(k) for k in keys])
            )
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.session(key_of("adk", "app2", "user"))
        store.session(key_of("adk", "app"))
        assert [state.key for state in sessions_under(store, "adk", "app")] == sorted(wanted)
        gone = store.session(key_of("adk", "app", "user 7"))
        store.erase(gone.id)
        assert len(list(sessions_under(store, "adk", "app"))) == 449


def test_what_stands_is_unrepaired_and_without_what_was_rewound(where: str) -> None:
    with holdfast.open(where) as store:
        session = store.session("k")
        call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        ids = session.append_all(
            [{"role": "user", "content": "one"}, call, {"role": "user", "content": "two"}],
            format="openai.responses",
        )
        assert [each.id for each in standing(session)] == ids
        assert standing(session)[1].payload == call
        session.rewind(ids[1])
        assert [each.id for each in standing(session)] == ids[:2]
        session.label(ids[0], mine="yes")
        assert standing(session)[0].labels == {"mine": "yes"}


def test_a_key_is_looked_up_with_one_question(where: str) -> None:
    with holdfast.open(where) as store:
        calls = EngineCalls(store)
        assert current_of(store, "k") is None
        assert calls.taken() == {"current": 1}
        made = store.session("k")
        calls.taken()
        found = current_of(store, "k")
        assert found is not None and found.id == made.id
        assert calls.taken() == {"current": 1}
        made.end("over")
        assert current_of(store, "k") is None


def test_the_last_session_of_a_key_is_known_until_others_push_it_out(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agents.db") as store:
        known = KnownSessions(most=2)
        first = known.remember(store.session("a"))
        assert known.last_of("a") is first and known.last_of("b") is None
        store.reset("a")
        with pytest.raises(SessionEnded):
            first.append("too late")
        second = known.remember(store.session("a"))
        assert known.last_of("a") is second
        known.remember(store.session("b"))  # the first one is forgotten, and not the key's last
        assert known.last_of("a") is second
        known.remember(store.session("c"))
        assert known.last_of("b") is None  # that of "a" was asked for since
        assert known.last_of("a") is second


def test_records_that_fit_in_a_page_are_read_with_one_question(where: str) -> None:
    with holdfast.open(where) as store:
        session = store.session("k")
        session.append_all([{"role": "user", "content": "record"}] * 3, format="openai.chat")
        calls = EngineCalls(store)
        assert len(list(records_after(session, 0))) == 3
        assert calls.taken() == {"entries": 1}


def test_records_are_read_on_and_one_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    said = [{"role": "user", "content": f"record {number}"} for number in range(5)]
    with holdfast.open(place) as store:
        session = store.session("k")
        session.append_all(said[:3])
        found = list(records_after(session, 0))
        assert [record for _, record in found] == said[:3]
        assert list(records_after(session, found[-1][0])) == []
        session.label(session.append(said[3]), of="no record")
        assert [record for _, record in records_after(session, found[0][0])] == said[1:4]
    spoil_last_message(place)
    with holdfast.open(place) as store:
        session = store.session("k")
        session.append(said[4])
        read = [record for _, record in records_after(session, 0)]
        assert read == [*said[:3], None, said[4]]


def test_payloads_are_read_all_at_once_only_if_each_can_be(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    with holdfast.open(place) as store:
        session = store.session("k")
        session.append("Hi")
        assert bodies_of(stored(session), "openai.chat") == [b'{"role":"user","content":"Hi"}']
        session.append(call, format="openai.responses")
        assert bodies_of(stored(session), "openai.chat") is None
        session.rewind(next(iter(session.transcript())).id)
        session.append("the last")
    spoil_last_message(place)
    with holdfast.open(place) as store:
        session = store.session("k")
        # What stands in its place is nobody's, once the damage was met.
        assert "can't be read" in str(list(session.context("openai.chat")))
        assert bodies_of(stored(session), "openai.chat") is None
