"""The laws of the kit's session services, as its documentation and its own code have them.

Its release has no tests of its services, so all three are run through these beside ours. Where one
of them breaks a law, that is said at the law; a service that is named there has to break it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from adk_events import (
    OF_ANN,
    PLACE,
    answer,
    call,
    compaction,
    error,
    picture,
    rewind,
    said,
    words,
)
from adk_services import Kit
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import GetSessionConfig

STATE = {"app:colour": "green", "user:name": "Ann", "temp:mood": "low", "row": 7}
SHOWN = {"app:colour": "green", "user:name": "Ann", "row": 7}


def law(**broken_by: str) -> Callable[[Any], Any]:
    """A law, as a test that is run with every service."""

    def judged(stated: Any) -> Any:
        def test(kit: Kit) -> None:
            kit.judge(stated, broken_by)

        test.__doc__ = stated.__doc__
        return test

    return judged


async def filled(service: Any, count: int = 5) -> Any:
    session = await service.create_session(**PLACE)
    for number in range(count):
        at = 1000.0 + number
        await service.append_event(session, said(f"word {number}", timestamp=at))
    return session


# Sessions


@law()
async def test_a_session_that_was_made_is_there(service: Any) -> None:
    made = await service.create_session(**PLACE, state=dict(STATE))
    assert (made.id, made.app_name, made.user_id) == ("s", "garden", "ann")
    assert (made.state, made.events) == (SHOWN, [])
    found = await service.get_session(**PLACE)
    assert found.model_dump() == made.model_dump()
    assert await service.get_session(**OF_ANN, session_id="other") is None


@law()
async def test_without_an_id_each_gets_one_of_its_own(service: Any) -> None:
    ids = set()
    for _ in range(3):
        ids.add((await service.create_session(**OF_ANN)).id)
    assert len(ids) == 3 and all(ids)
    assert len((await service.list_sessions(**OF_ANN)).sessions) == 3


@law(Database="keeps the blanks")
async def test_blanks_around_an_id_mean_nothing(service: Any) -> None:
    made = await service.create_session(**OF_ANN, session_id="  s ")
    assert made.id == "s"
    assert (await service.get_session(**PLACE)).id == "s"
    assert (await service.create_session(**OF_ANN, session_id="  ")).id.strip()


@law()
async def test_an_id_is_used_once_and_a_second_making_changes_nothing(service: Any) -> None:
    await service.create_session(**PLACE, state=dict(STATE))
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**PLACE, state={"app:colour": "red", "row": 1})
    assert (await service.get_session(**PLACE)).state == SHOWN


@law()
async def test_an_id_is_of_one_user_in_one_app(service: Any) -> None:
    for app, user in (("a", "u"), ("a", "v"), ("b", "u"), ("a:u", "s"), ("a", "u:s")):
        place = {"app_name": app, "user_id": user, "session_id": "s"}
        session = await service.create_session(**place)
        await service.append_event(session, said(f"of {app} and {user}"))
    found = await service.get_session(app_name="a", user_id="v", session_id="s")
    assert words(found) == ["of a and v"]
    assert len((await service.list_sessions(app_name="a")).sessions) == 3
    assert len((await service.list_sessions(app_name="a", user_id="u")).sessions) == 1


@law()
async def test_names_may_be_anything(service: Any) -> None:
    for name in ("a/b:c%3A", "ä 漢字 🌱", "'; DROP TABLE x;--", "..", "A" * 120):
        place = {"app_name": name, "user_id": name, "session_id": name}
        session = await service.create_session(**place, state={"user:x": 1})
        await service.append_event(session, said(name))
        assert words(await service.get_session(**place)) == [name]
        [listed] = (await service.list_sessions(app_name=name)).sessions
        assert (listed.id, listed.user_id, listed.state) == (name, name, {"user:x": 1})


@law()
async def test_a_deleted_session_is_gone_and_what_is_shared_stays(service: Any) -> None:
    session = await service.create_session(**PLACE, state=dict(STATE))
    await service.append_event(session, said("hello"))
    await service.delete_session(**PLACE)
    assert await service.get_session(**PLACE) is None
    assert (await service.list_sessions(**OF_ANN)).sessions == []
    assert await service.get_user_state(**OF_ANN) == {"name": "Ann"}
    again = await service.create_session(**PLACE)
    assert again.state == {"app:colour": "green", "user:name": "Ann"}
    assert (await service.get_session(**PLACE)).events == []


@law()
async def test_deleting_what_is_not_there_is_no_error(service: Any) -> None:
    await service.delete_session(**PLACE)
    await service.create_session(**PLACE)
    for _ in range(2):
        await service.delete_session(**PLACE)


@law()
async def test_a_list_is_without_events_and_the_last_used_is_the_last(service: Any) -> None:
    sessions = {}
    for user, id in (("ann", "one"), ("bob", "two"), ("ann", "three")):
        place = {"app_name": "garden", "user_id": user, "session_id": id}
        sessions[id] = await service.create_session(**place, state={"row": id, "user:n": user})
    for at, id in enumerate(("three", "one", "two")):
        await service.append_event(sessions[id], said("hello", timestamp=5e9 + at))
    listed = (await service.list_sessions(app_name="garden")).sessions
    assert [each.id for each in listed] == ["three", "one", "two"]
    assert [each.last_update_time for each in listed] == [5e9, 5e9 + 1, 5e9 + 2]
    assert [each.events for each in listed] == [[], [], []]
    assert [each.state for each in listed][-1] == {"row": "two", "user:n": "bob"}
    of_ann = (await service.list_sessions(**OF_ANN)).sessions
    assert [each.id for each in of_ann] == ["three", "one"]
    assert (await service.list_sessions(app_name="none")).sessions == []
    assert (await service.list_sessions(app_name="garden", user_id="")).sessions == []


@law()
async def test_of_several_who_make_the_same_session_one_does(service: Any) -> None:
    making = [service.create_session(**PLACE, state={"n": n}) for n in range(4)]
    made = await asyncio.gather(*making, return_exceptions=True)
    [session] = [each for each in made if not isinstance(each, Exception)]
    others = [each for each in made if isinstance(each, Exception)]
    assert [type(each) for each in others] == [AlreadyExistsError] * 3
    assert (await service.get_session(**PLACE)).state == session.state


# Events


@law()
async def test_events_come_back_equal(service: Any) -> None:
    session = await service.create_session(**PLACE)
    given = [said("hello", "user"), call("c1"), answer("c1"), picture(), said("wet 🌱")]
    given += [error(), compaction(), rewind(), call("c2", long_running_tool_ids={"c2"})]
    for event in given:
        assert await service.append_event(session, event) is event
    assert session.events == given
    found = await service.get_session(**PLACE)
    assert [event.model_dump() for event in found.events] == [e.model_dump() for e in given]
    # Databases keep microseconds.
    assert found.last_update_time == session.last_update_time
    assert found.last_update_time == pytest.approx(given[-1].timestamp, abs=1e-5, rel=0)


@law()
async def test_a_piece_of_a_stream_is_not_stored(service: Any) -> None:
    session = await service.create_session(**PLACE)
    piece = said("hel", partial=True, state={"row": 1})
    assert await service.append_event(session, piece) is piece
    assert (session.events, session.state) == ([], {})
    found = await service.get_session(**PLACE)
    assert (found.events, found.state) == ([], {})


@law(Sqlite="sorts by the clock", Database="sorts by the clock")
async def test_events_stand_in_the_order_in_which_they_were_appended(service: Any) -> None:
    session = await service.create_session(**PLACE)
    for number, at in enumerate((5e9 + 2, 5e9, 5e9 + 1)):
        await service.append_event(session, said(f"{number}", timestamp=at))
    assert words(await service.get_session(**PLACE)) == ["0", "1", "2"]


@law(Database="sorts by id where clocks are equal")
async def test_events_of_one_moment_keep_their_order(service: Any) -> None:
    session = await service.create_session(**PLACE)
    for number in range(8):
        event = said(f"{number}", timestamp=5e9, id=f"id-{9 - number}")
        await service.append_event(session, event)
    assert words(await service.get_session(**PLACE)) == [f"{n}" for n in range(8)]


@law(Sqlite="raises IntegrityError", Database="raises IntegrityError")
async def test_an_event_that_comes_again_is_stored_once(service: Any) -> None:
    session = await service.create_session(**PLACE)
    event = said("hello", state={"row": 1})
    for _ in range(2):
        await service.append_event(session, event)
    reread = await service.get_session(**PLACE)
    await service.append_event(reread, event.model_copy(deep=True))
    assert len(session.events) == len(reread.events) == 1
    assert words(await service.get_session(**PLACE)) == ["hello"]


@law(InMemory="keeps the caller's own object")
async def test_what_becomes_of_an_event_later_does_not_change_what_is_stored(
    service: Any,
) -> None:
    session = await service.create_session(**PLACE)
    event = said("hello", state={"row": {"wet": True}})
    await service.append_event(session, event)
    event.content.parts[0].text = "changed"
    event.actions.state_delta["row"]["wet"] = False
    found = await service.get_session(**PLACE)
    assert words(found) == ["hello"]
    assert found.state == {"row": {"wet": True}}


@law()
async def test_a_session_belongs_to_who_has_asked_for_it(service: Any) -> None:
    await filled(service, 2)
    mine = await service.get_session(**PLACE)
    mine.events.clear()
    mine.state["row"] = 1
    found = await service.get_session(**PLACE)
    assert words(found) == ["word 0", "word 1"]
    assert found.state == {}


# What is asked for


@law()
async def test_the_last_events_may_be_asked_for(service: Any) -> None:
    await filled(service)
    for count in (0, 1, 3, 5, 9):
        config = GetSessionConfig(num_recent_events=count)
        found = await service.get_session(**PLACE, config=config)
        expected = [f"word {number}" for number in range(5)]
        assert words(found) == expected[max(5 - count, 0) :]
        assert found.last_update_time == 1004.0
    with pytest.raises(ValueError):
        GetSessionConfig(num_recent_events=-1)


@law()
async def test_events_from_a_time_on_may_be_asked_for(service: Any) -> None:
    await filled(service)
    config = GetSessionConfig(after_timestamp=1003.0)
    found = await service.get_session(**PLACE, config=config)
    assert words(found) == ["word 3", "word 4"]
    config = GetSessionConfig(after_timestamp=1001.5, num_recent_events=2)
    assert words(await service.get_session(**PLACE, config=config)) == ["word 3", "word 4"]
    config = GetSessionConfig(after_timestamp=2000.0)
    assert words(await service.get_session(**PLACE, config=config)) == []


@law(InMemory="stops at the first that is too old")
async def test_a_time_is_asked_of_each_event(service: Any) -> None:
    session = await service.create_session(**PLACE)
    for at in (5e9 + 1, 5e9 + 3, 5e9 + 2):
        await service.append_event(session, said(f"{at - 5e9:.0f}", timestamp=at))
    await service.append_event(session, said("old", timestamp=5e9))
    config = GetSessionConfig(after_timestamp=5e9 + 2)
    found = await service.get_session(**PLACE, config=config)
    assert sorted(words(found)) == ["2", "3"]


@law()
async def test_the_state_is_whole_however_few_events_are_asked_for(service: Any) -> None:
    session = await service.create_session(**PLACE, state={"first": 1})
    for number in range(4):
        await service.append_event(session, said("x", state={f"n{number}": number}))
    config = GetSessionConfig(num_recent_events=1)
    found = await service.get_session(**PLACE, config=config)
    assert found.state == session.state == {"first": 1, "n0": 0, "n1": 1, "n2": 2, "n3": 3}


# State


@law()
async def test_what_is_set_is_seen_where_its_scope_reaches(service: Any) -> None:
    first = await service.create_session(**PLACE)
    event = said("x", state={"app:a": 1, "user:u": 2, "s": 3, "temp:t": 4})
    await service.append_event(first, event)
    assert first.state == {"app:a": 1, "user:u": 2, "s": 3, "temp:t": 4}
    assert event.actions.state_delta == {"app:a": 1, "user:u": 2, "s": 3}
    [stored] = (await service.get_session(**PLACE)).events
    assert stored.actions.state_delta == {"app:a": 1, "user:u": 2, "s": 3}
    assert (await service.get_session(**PLACE)).state == {"app:a": 1, "user:u": 2, "s": 3}
    other = await service.create_session(**OF_ANN, session_id="other")
    assert other.state == {"app:a": 1, "user:u": 2}
    bob = await service.create_session(app_name="garden", user_id="bob", session_id="s")
    assert bob.state == {"app:a": 1}
    shop = await service.create_session(app_name="shop", user_id="ann", session_id="s")
    assert shop.state == {}


@law()
async def test_only_the_first_prefix_of_a_name_is_its_scope(service: Any) -> None:
    looks_twice = {"app:user:k": 1, "user:app:k": 2, "app:temp:k": 3, "temp:app:k": 4}
    await service.create_session(**PLACE, state=looks_twice)
    shown = {"app:user:k": 1, "user:app:k": 2, "app:temp:k": 3}
    assert (await service.get_session(**PLACE)).state == shown
    bob = await service.create_session(app_name="garden", user_id="bob", session_id="s")
    assert bob.state == {"app:user:k": 1, "app:temp:k": 3}


@law()
async def test_the_last_that_was_set_counts(service: Any) -> None:
    session = await service.create_session(**PLACE, state={"row": {"a": 1}, "user:x": 1})
    for delta in ({"row": {"b": 2}}, {"user:x": None}, {"row": {"c": 3}, "user:y": [1]}):
        await service.append_event(session, said("x", state=delta))
    found = await service.get_session(**PLACE)
    assert found.state == {"row": {"c": 3}, "user:x": None, "user:y": [1]}


@law()
async def test_values_come_back_as_they_were(service: Any) -> None:
    odd = {"sum": 0.1 + 0.2, "big": 2**62, "none": None, "deep": {"a": [1, {"b": "ü🌱"}]}}
    odd |= {"": "no name", "quote'\"": True, "user:long": "x" * 100_000, "app:f": 1e-7}
    session = await service.create_session(**PLACE, state=odd)
    assert session.state == odd
    await service.append_event(session, said("x", state=odd))
    assert (await service.get_session(**PLACE)).state == odd


@law()
async def test_the_state_of_a_user_can_be_read_without_a_session(service: Any) -> None:
    assert await service.get_user_state(**OF_ANN) == {}
    session = await service.create_session(**PLACE, state={"user:a": 1, "app:b": 2, "c": 3})
    await service.append_event(session, said("x", state={"user:d": {"e": None}}))
    assert await service.get_user_state(**OF_ANN) == {"a": 1, "d": {"e": None}}
    assert await service.get_user_state(app_name="garden", user_id="bob") == {}
    assert await service.get_user_state(app_name="shop", user_id="ann") == {}


@law()
async def test_a_state_that_was_changed_often_is_read_whole(service: Any) -> None:
    session = await service.create_session(**PLACE)
    expected = {}
    for number in range(300):
        delta = {f"n{number % 7}": number, "user:last": number}
        expected.update(delta)
        await service.append_event(session, said("x", state=delta))
        if number % 50 == 0:
            assert (await service.get_session(**PLACE)).state == expected
    assert (await service.get_session(**PLACE)).state == expected


# Session objects that are old


@law(InMemory="takes it")
async def test_a_session_that_others_have_gone_on_with_is_refused(service: Any) -> None:
    await filled(service, 1)
    first, second = [await service.get_session(**PLACE) for _ in range(2)]
    await service.append_event(first, said("one"))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, said("two", state={"app:x": 1, "row": 1}))
    found = await service.get_session(**PLACE)
    assert (words(found), found.state) == (["word 0", "one"], {})
    await service.append_event(found, said("two"))
    assert words(await service.get_session(**PLACE)) == ["word 0", "one", "two"]


@law(InMemory="takes it", Sqlite="looks at the clock alone")
async def test_it_is_refused_when_the_clock_has_gone_back(service: Any) -> None:
    await filled(service, 1)
    first, second = [await service.get_session(**PLACE) for _ in range(2)]
    await service.append_event(first, said("one", timestamp=900.0))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, said("two"))


@law(InMemory="takes it", Sqlite="looks at the clock", Database="looks at the clock")
async def test_it_is_refused_when_the_clock_stood_still(service: Any) -> None:
    await filled(service, 1)
    first, second = [await service.get_session(**PLACE) for _ in range(2)]
    await service.append_event(first, said("one", timestamp=1000.0))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, said("two"))


@law(InMemory="takes it")
async def test_one_that_was_rebuilt_from_its_fields_is_judged_by_its_last_event(
    service: Any,
) -> None:
    session = await filled(service, 2)
    rebuilt = type(session).model_validate(session.model_dump())
    await service.append_event(rebuilt, said("three"))
    old = type(session).model_validate(session.model_dump())
    with pytest.raises(StaleSessionError):
        await service.append_event(old, said("four"))


@law()
async def test_nothing_is_appended_to_what_is_not_there(service: Any) -> None:
    session = await filled(service, 1)
    await service.delete_session(**PLACE)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("late"))
    assert await service.get_session(**PLACE) is None


@law(InMemory="writes into the new one")
async def test_the_old_object_of_a_session_that_was_made_anew_is_refused(
    service: Any,
) -> None:
    session = await filled(service, 1)
    await service.delete_session(**PLACE)
    await service.create_session(**PLACE)
    with pytest.raises((StaleSessionError, SessionNotFoundError)):
        await service.append_event(session, said("late"))
    assert (await service.get_session(**PLACE)).events == []


@law(Sqlite="has set what is temporary", Database="has set what is temporary")
async def test_a_refused_event_changes_nothing_of_its_session(service: Any) -> None:
    session = await filled(service, 1)
    before = session.model_dump()
    await service.delete_session(**PLACE)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("late", state={"temp:x": 1, "row": 2}))
    assert session.model_dump() == before


@law()
async def test_several_tasks_may_append_with_one_session(service: Any) -> None:
    session = await service.create_session(**PLACE)
    given = [said(f"{number}", state={f"n{number}": number}) for number in range(20)]
    await asyncio.gather(*(service.append_event(session, event) for event in given))
    found = await service.get_session(**PLACE)
    assert {event.id for event in found.events} == {event.id for event in given}
    assert len(found.events) == len(session.events) == len(found.state) == 20
    await service.append_event(session, said("and on"))


@law()
async def test_flushing_is_allowed_at_any_time(service: Any) -> None:
    await service.flush()
    await filled(service, 1)
    await service.flush()
    assert words(await service.get_session(**PLACE)) == ["word 0"]
