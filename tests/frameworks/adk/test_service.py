"""What `HoldfastSessionService` has beyond the laws of the kit's own services."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from adk_events import OF_ANN, PLACE, call, compaction, picture, run_example, said, words
from adk_services import service_named
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from pages import example

import holdfast
from holdfast.adapters.adk import HoldfastSessionService, take_over
from holdfast.errors import BadArgument, HoldfastError
from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.oracle import judge


def test_words_calls_and_usage_are_seen_by_holdfasts_own_means(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        session = await service.create_session(**PLACE)
        for event in (said("How are the rows?", "user"), call("c1"), picture(), compaction()):
            await service.append_event(session, event)
        [hit] = service.store.search("rows")
        assert (hit.role, hit.key) == ("user", "adk:garden:ann:s")
        stored = service.session(**PLACE)
        assert [made.call_id for made in stored.calls()] == ["c1"]
        assert stored.info().usage.input == 11
        assert [each.role for each in stored.transcript()] == ["user", *["assistant"] * 2, "user"]
        assert "How are the rows?" in str(stored.context("anthropic")[0]["content"])
        assert stored.context("adk")[0]["content"]["parts"] == [{"text": "How are the rows?"}]
        assert judge(service.store) == []

    asyncio.run(run())


def test_what_others_say_in_the_session_is_an_event_with_their_words(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        session = await service.create_session(**PLACE)
        await service.append_event(session, said("hello"))
        stored = service.session(**PLACE)
        stored.append("from elsewhere")
        with stored.turn("and", take=[]) as turn:
            turn.say("an answer")
        found = await service.get_session(**PLACE)
        assert words(found) == ["hello", "from elsewhere", "and", "an answer"]
        assert [event.author for event in found.events] == ["gardener", "user", "user", "gardener"]
        await service.append_event(found, said("on"))
        stored.rewind(next(iter(stored.transcript())).id)
        assert words(await service.get_session(**PLACE)) == ["hello"]

    asyncio.run(run())


def test_a_record_that_cant_be_read_takes_away_nothing_but_itself(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        session = await service.create_session(**PLACE)
        for text in ("one", "two", "three"):
            await service.append_event(session, said(text, state={text: 1}))
        spoil_last_message(where, "adk:garden:ann:s")
        spoil_last_message(where, "adk.state:garden:ann:s")
        service = HoldfastSessionService(holdfast.open(where))
        found = await service.get_session(**PLACE)
        assert words(found)[:2] == ["one", "two"]
        assert "can't be read" in words(found)[2]
        assert found.state == {"one": 1, "two": 1}
        await service.append_event(found, said("four"))
        assert words(await service.get_session(**PLACE))[-1] == "four"

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [None, 7, ["s"], b"s"])
def test_what_is_no_name_is_refused_and_nothing_is_written(where: str, wrong: Any) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        for name in ("app_name", "user_id"):
            with pytest.raises(BadArgument):
                await service.create_session(**{**PLACE, name: wrong})
        with pytest.raises(BadArgument):
            await service.get_session(**{**PLACE, "session_id": wrong})
        with pytest.raises(BadArgument):
            await service.create_session(**PLACE, state="x")  # type: ignore[arg-type]
        session = await service.create_session(**PLACE)
        with pytest.raises(BadArgument):
            await service.append_event(session, wrong)
        with pytest.raises(BadArgument):
            await service.append_event(wrong, said("x"))
        assert (await service.get_session(**PLACE)).events == []

    asyncio.run(run())


def test_an_event_with_the_id_of_another_is_refused(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        session = await service.create_session(**PLACE)
        await service.append_event(session, said("one", id="x"))
        with pytest.raises(BadArgument):
            await service.append_event(session, said("two", id="x", state={"row": 1}))
        found = await service.get_session(**PLACE)
        assert (words(found), found.state, words(session)) == (["one"], {}, ["one"])

    asyncio.run(run())


def test_odd_events_come_back_as_they_were_or_are_refused(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        session = await service.create_session(**PLACE)
        deep: Any = "x"
        for _ in range(300):
            deep = [deep]
        odd = [said("half \ud800 a character"), said("x" * 2_000_000), said("", id="blank")]
        odd.append(said("", custom_metadata={"n": 2**80, "f": 1e300, "\0": "\0"}))
        for event in odd:
            await service.append_event(session, event)
        with pytest.raises((HoldfastError, ValueError, RecursionError)):
            await service.append_event(session, said("", custom_metadata={"deep": deep}))
        found = await service.get_session(**PLACE)
        assert [e.model_dump() for e in found.events] == [e.model_dump() for e in odd]

    asyncio.run(run())


def test_values_that_json_cant_hold_are_stored_in_words(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        state = {"path": Path("/x"), "set": {1}, "function": print, "nan": float("nan")}
        session = await service.create_session(**PLACE, state=state)
        assert session.state["path"] == "/x"
        assert session.state["set"] == [1]
        assert "built-in function print" in session.state["function"]
        await service.append_event(session, said("x", state={"f": print}))
        found = await service.get_session(**PLACE)
        assert "print" in found.state["f"]
        json.dumps(found.model_dump(mode="json"))

    asyncio.run(run())


def test_a_store_of_many_sessions_lists_those_that_are_asked_for(where: str) -> None:
    async def run() -> None:
        service = HoldfastSessionService(where)
        for number in range(250):
            place = {"app_name": "many", "user_id": f"u{number % 5}", "session_id": f"s{number}"}
            await service.create_session(**place, state={"n": number})
        assert len((await service.list_sessions(app_name="many")).sessions) == 250
        listed = (await service.list_sessions(app_name="many", user_id="u3")).sessions
        assert len(listed) == 50
        assert {each.state["n"] % 5 for each in listed} == {3}

    asyncio.run(run())


def test_it_may_be_subclassed_and_is_given_a_store_in_any_way(tmp_path: Path) -> None:
    class Mine(HoldfastSessionService):
        async def append_event(self, session: Session, event: Event) -> Event:
            event.custom_metadata = {"mine": True}
            return await super().append_event(session, event)

    async def run() -> None:
        place = tmp_path / "agents.db"
        with holdfast.open(str(place)) as store:
            session = await HoldfastSessionService(store).create_session(**PLACE)
        mine = Mine(place)
        session = await mine.get_session(**PLACE)
        assert session is not None
        await mine.append_event(session, said("x"))
        async with holdfast.open_async(str(place)) as opened:
            found = await HoldfastSessionService(opened).get_session(**PLACE)
        assert found is not None and found.events[0].custom_metadata == {"mine": True}
        with pytest.raises(BadArgument):
            HoldfastSessionService(7)  # type: ignore[arg-type]

    asyncio.run(run())


@pytest.mark.parametrize("theirs", ["InMemory", "Sqlite", "Database"])
def test_their_store_is_taken_over_and_back_as_the_page_says(
    where: str, tmp_path: Path, theirs: str
) -> None:
    async def filled(old: Any) -> None:
        for user, id in (("ann", "s"), ("ann", "t"), ("bob", "s")):
            place = {"app_name": "garden", "user_id": user, "session_id": id}
            session = await old.create_session(**place, state={"row": id, "app:colour": user})
            for number in range(3):
                delta = {"n": number, "user:last": f"{id}{number}", "temp:x": 1}
                await old.append_event(session, said(f"{user} {id} {number}", state=delta))

    async def dumped(service: Any) -> Any:
        found = []
        for each in (await service.list_sessions(app_name="garden")).sessions:
            place = {"app_name": "garden", "user_id": each.user_id, "session_id": each.id}
            found.append((await service.get_session(**place)).model_dump())
        return found

    async def run() -> None:
        old = service_named(theirs, str(tmp_path / "old.db"))()
        await filled(old)
        service = HoldfastSessionService(where)
        for _ in range(2):
            scope = {"service": service, "old": old, "take_over": take_over}
            await run_example(example("adk.md", "await take_over"), scope)
        whole = await dumped(old)
        ours = await dumped(service)
        assert _rounded(ours) == _rounded(whole)
        assert await service.get_user_state(**OF_ANN) == await old.get_user_state(**OF_ANN)
        back = service_named(theirs, str(tmp_path / "back.db"))()
        await run_example(example("adk.md", "ours.state"), {"service": service, "old": back})
        texts = [[e["content"] for e in each["events"]] for each in await dumped(back)]
        assert texts == [[e["content"] for e in each["events"]] for each in whole]
        for each in (old, back):
            if hasattr(each, "close"):
                await each.close()

    asyncio.run(run())


def _rounded(sessions: Any) -> Any:
    for each in sessions:
        each["last_update_time"] = round(each["last_update_time"], 4)
    return sessions
