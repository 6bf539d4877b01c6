"""The border (I-25): whatever a public call is given, it does it or says in our words why not, and
nothing breaks.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import bordering
import holdfast
import holdfast.testing
import strangers
from holdfast.domain.arguments import anything, kept
from holdfast.errors import BadArgument, HoldfastError, InvalidMessage, NotFound
from holdfast.runtime import border
from thorough import sample

CALLS = sorted(set(bordering.calls()))
METHODS = sorted({(face, method) for face, method, _ in CALLS})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("face", "method", "is_async"),
    [
        pytest.param(*each, is_async, id=f"{'.'.join(each)}-{'async' if is_async else 'sync'}")
        for is_async in (False, True)
        for each in (sample(METHODS, every=3) if is_async else METHODS)
    ],
)
def test_every_call_does_what_it_was_asked_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: str, method: str, is_async: bool
) -> None:
    """Both faces have one border: an ordinary run gives it some of the values, and the second face
    some of the calls.
    """
    monkeypatch.chdir(tmp_path)
    given = sample(bordering.ODD, every=7 if is_async else 3)

    async def walk(store: Any) -> bordering.Walk:
        walk = bordering.Walk(store, tmp_path)
        await walk.seed()
        for each in [each for each in CALLS if each[:2] == (face, method)]:
            for odd in given:
                await walk.call(*each, odd)
        await walk.readable()
        return walk

    async def life() -> bordering.Walk:
        if not is_async:
            with holdfast.open("b.db", durability="process") as store:
                return await walk(store)
        async with holdfast.open_async("b.db", durability="process") as astore:
            return await walk(astore)

    done = asyncio.run(life())
    assert done.count >= len(given)
    assert done.wrong == []


@pytest.mark.slow
def test_every_call_on_postgres(databases: Callable[..., str], tmp_path: Path) -> None:
    """Text that SQLite takes and PostgreSQL does not: NUL, long names, numbers of more than 64
    bits.
    """
    odd = [2**70, "", "\x00", "\ud800", "x" * 70_000, object()]

    async def life() -> bordering.Walk:
        with holdfast.open(databases(schema=True)) as store:
            walk = bordering.Walk(store, tmp_path)
            await walk.seed()
            for each in CALLS:
                if each[1] != "backup":
                    for value in odd:
                        await walk.call(*each, value)
            await walk.readable()
            return walk

    assert asyncio.run(life()).wrong == []


def test_every_public_call_is_walked() -> None:
    """A new public function, method or parameter is tried with wrong values from its first day."""
    assert bordering.unknown() == [], "tell tests/bordering.py how to call these"


@pytest.mark.slow
@pytest.mark.parametrize("name", bordering.MADE)
def test_what_is_called_by_name_takes_what_it_can_use_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    holdfast.open("a.db").close()
    function = attrgetter(name)(holdfast)
    for parameter in bordering.MADE[name]:
        for value in (*bordering.ODD, *strangers.VALUES.values()):
            before = set(tmp_path.iterdir())
            try:
                made(function(**{**bordering.MADE[name], parameter: value}))
            except BadArgument as error:
                assert error.parameter == parameter and len(str(error)) < 400
                assert set(tmp_path.iterdir()) == before
            except HoldfastError:
                pass


def made(value: Any) -> None:
    """What was opened is used and closed."""
    if hasattr(value, "__await__"):
        value = asyncio.run(opened(value))
    if hasattr(value, "__enter__"):
        with value as store:
            store.session("k").append("hello")


async def opened(opening: Any) -> None:
    async with opening as store:
        await (await store.session("k")).append("hello")


@pytest.mark.parametrize("name", border.RULES)
def test_a_rule_gives_a_value_of_a_plain_class_or_refuses_it(name: str) -> None:
    """Whatever class an argument has, and whatever it does when it is looked at."""
    for odd, value in strangers.VALUES.items():
        try:
            passed = kept(border.RULES[name], "parameter", value)
        except BadArgument as error:
            assert error.parameter == "parameter" and len(str(error)) < 400
            continue
        if issubclass(type(value), str | int | float) and name not in TAKEN_AS_THEY_ARE:
            assert type(passed) in (str, int, float, bool), odd


TAKEN_AS_THEY_ARE = {name for name, rule in border.RULES.items() if rule is anything} | {
    "config",
    "session",
    "chunk",
}


def test_every_public_parameter_has_a_rule_and_both_faces_the_same() -> None:
    for face, method, _ in CALLS:
        if face not in ("Owed", "AgentCache"):
            for kind in (face, f"Async{face}"):
                assert hasattr(getattr(getattr(holdfast, kind), method), "__wrapped__"), (
                    f"{kind}.{method}"
                )


def test_a_method_with_a_parameter_that_nobody_checks_can_not_be_imported() -> None:
    with pytest.raises(TypeError, match=r"`colour` of .*Painted\.paint has no rule"):

        @border.bordered
        class Painted:
            def paint(self, colour: str) -> None: ...


def test_too_many_arguments_and_unknown_ones_are_told_as_python_does(store: holdfast.Store) -> None:
    with pytest.raises(TypeError, match="positional"):
        store.get("a", "b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        store.session("k", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing"):
        store.session()  # type: ignore[call-arg]


def test_ids_of_platforms_may_be_integers_and_are_kept_as_text(store: holdfast.Store) -> None:
    """Telegram, Slack and Discord give integers (I-2: one event id is one message)."""
    first = store.accept("k", "hello", event_id=123456789, reply_to=-1001)
    assert store.accept("k", "hello", event_id="123456789").message_id == first.message_id
    session = store.session("k")
    with session.turn() as turn:
        turn.say("hi")
        assert turn.call("f", {}, call_id=7) == "7"
        turn.result(7, "done")
    [message, *_] = session.transcript()
    assert (message.event_id, message.reply_to) == ("123456789", "-1001")
    [owed] = store.outbox()
    assert owed.reply_to == "-1001"
    owed.sent(platform_id=99)
    with pytest.raises(BadArgument, match="event_id"):
        store.accept("k", "hello", event_id=True)


@pytest.mark.parametrize(
    ("call", "parameter", "words"),
    [
        (lambda s: s.context("claude"), "format", ["openai.chat", "anthropic", "'claude'"]),
        (
            lambda s: s.turn("x", on_busy="queue"),
            "on_busy",
            ['"wait"', '"interrupt"', '"refuse"', "'queue'"],
        ),
        (lambda s: s.compact(5), "summary", ["text", "function", "not 5"]),
        (lambda s: s.turn("x", lease_s=float("nan")), "lease_s", ["seconds", "nan"]),
        (lambda s: s.turn("x", format="claude"), "format", ["holdfast", "openai.responses"]),
        (lambda s: s.append("x", event_id="secret " * 10_000), "event_id", ["70,000 characters"]),
        (lambda s: s.decide("c", "no", by="ann"), "approved", ["True or False"]),
        (lambda s: s.end(None), "reason", ["text", "None"]),
        (lambda s: s.label("m", visible_to_model="no"), "visible_to_model", ["True or False"]),
    ],
)
def test_a_wrong_argument_is_named_with_what_it_takes_and_what_was_given(
    session: holdfast.Session,
    call: Callable[[holdfast.Session], Any],
    parameter: str,
    words: list[str],
) -> None:
    head = session.head()
    with pytest.raises(BadArgument) as told:
        call(session)
    assert told.value.parameter == parameter
    assert all(word in str(told.value) for word in words), str(told.value)
    assert "secret" not in str(told.value)
    assert session.head() == head


def test_opening_with_a_wrong_argument_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in (
        {"durability": "full"},
        {"tenant": ""},
        {"tenant": 5},
        {"where": None},
        {"where": 5},
        {"where": ""},
    ):
        for open in (holdfast.open, holdfast.open_async):
            with pytest.raises(BadArgument, match=next(iter(wrong))):
                open(**{"where": "a.db", **wrong})  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [":memory:", "sqlite:///:memory:", "file::memory:?cache=shared"])
def test_a_store_in_memory_is_refused_with_what_to_use_in_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match=r"holdfast\.testing\.temporary_store"):
        holdfast.open(where)
    assert list(tmp_path.iterdir()) == []


def test_another_librarys_event_loop_is_told_what_to_use(tmp_path: Path) -> None:
    """Awaited by trio, or by hand: there is no loop of asyncio."""
    opening = holdfast.open_async(tmp_path / "a.db").__await__()
    with pytest.raises(BadArgument, match="asyncio"):
        next(opening)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_store_is_a_real_one_and_leaves_nothing_behind() -> None:
    from holdfast.testing import temporary_store

    with temporary_store(tenant="t") as store:
        place = Path(store.info().where)
        store.session("k").append("hello")
        assert place.exists() and store.tenant == "t"
    assert not place.parent.exists()


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: holdfast.Idle(hours=float("nan")), "hours"),
        (lambda: holdfast.Idle(minutes=-1), "minutes"),
        (lambda: holdfast.Idle(hours="4"), "hours"),  # type: ignore[arg-type]
        (lambda: holdfast.Daily(at="4am"), "at"),
        (lambda: holdfast.Daily(at="04:00+02:00"), "at"),
        (lambda: holdfast.Daily(tz="Mars/Olympus"), "tz"),
        (lambda: holdfast.AgentCache(5), "factory"),  # type: ignore[arg-type]
        (lambda: holdfast.AgentCache(dict, size=0), "size"),
        (lambda: holdfast.AgentCache(dict, idle_s=float("inf")), "idle_s"),
        (lambda: holdfast.AgentCache(dict).get("k"), "session"),
        (lambda: holdfast.AgentCache(dict).drop(None), "session"),
        (lambda: holdfast.copy(5, "b.db"), "source"),  # type: ignore[arg-type]
        (lambda: holdfast.copy("a.db", "b.db", progress=5), "progress"),  # type: ignore[arg-type]
    ],
)
def test_policies_caches_and_copies_take_what_they_can_use(
    make: Callable[[], Any], parameter: str
) -> None:
    with pytest.raises(BadArgument) as told:
        make()
    assert told.value.parameter == parameter


def test_an_agent_for_a_configuration_that_can_not_be_told_apart_is_refused(
    session: holdfast.Session,
) -> None:
    with pytest.raises(BadArgument, match="config"):
        holdfast.AgentCache(lambda _: object()).get(session, config={"model": "m"})  # type: ignore[arg-type]


def test_a_forged_cursor_is_refused_as_one(store: holdfast.Store) -> None:
    import base64
    import json

    for mark in (
        [2**70, "a"],
        [-1, "a"],
        [1, "\x00"],
        [1, "a", 2],
        [1.5, "a"],
        [1, "'; drop table entry"],
        {},
    ):
        forged = base64.urlsafe_b64encode(json.dumps(mark).encode()).decode().rstrip("=")
        with pytest.raises(BadArgument, match="after"):
            store.sessions(after=forged)
    session = store.session("k")
    for mark in ([session.id, 2**70], [session.id, -(2**70)], [session.id, 1, {"m": -1}], [5], "x"):
        forged = base64.urlsafe_b64encode(json.dumps(mark).encode()).decode().rstrip("=")
        with pytest.raises(holdfast.errors.CursorExpired):
            session.follow(forged)


def test_a_prefix_in_other_letters_is_nobodys_id(store: holdfast.Store) -> None:
    store.session("k")
    for name in ("é", "\U0010ffff", "%", "_", "*"):
        with pytest.raises(NotFound):
            store.get(name)


def test_times_need_a_zone(store: holdfast.Store) -> None:
    assert store.search("x", since=datetime(2026, 1, 1, tzinfo=UTC)) == []
    with pytest.raises(BadArgument, match="without a time zone"):
        store.search("x", since=datetime(2026, 1, 1))


@pytest.mark.slow
def test_what_a_message_holds_is_judged_as_a_message(session: holdfast.Session) -> None:
    """Nested too deep, of foreign types, or of no shape: `InvalidMessage`, with the place."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for wrong in (
        deep,
        5,
        b"x",
        None,
        {"role": "user", "content": deep},
        {"role": "user", "content": b"x"},
    ):
        with pytest.raises(InvalidMessage):
            session.append(wrong)
        with pytest.raises(InvalidMessage):
            session.record([wrong])
    with session.turn("q") as turn:
        for wrong in (deep, object(), {1: 2}, {"a": float("nan")}):
            with pytest.raises(InvalidMessage):
                turn.call("f", wrong)
        turn.say("done")
