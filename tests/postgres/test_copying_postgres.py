"""Moving between a file and PostgreSQL, both ways: the sessions are the same ones, and lost answers
lose nothing.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import holdfast
from copies import fill, told
from deaf_proxy import DeafProxy, Fits, answers, any_answer
from holdfast import copy
from holdfast.errors import AlreadyAccepted
from holdfast.runtime.transfer import compare_logs
from holdfast.testing.oracle import judge
from procs import child
from thorough import EXPLORE


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_logs, "PAGE", 5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with something of everything in it."""
    path = tmp_path / "agent.db"
    fill(path)
    return path


@pytest.fixture
def place(databases: Callable[..., str]) -> str:
    return databases(schema=True)


@pytest.mark.slow
def test_from_a_file_to_postgresql_and_back_is_the_same_store(path: Path, place: str) -> None:
    fill(path, tenant="acme \ud7ff\0")
    there, back = copy(path, place), copy(place, path.with_name("back.db"))
    assert told(place) == told(path)
    assert told(path.with_name("back.db")) == told(path)
    assert there.digest == back.digest
    assert (there.differences, back.differences, there.added) == ((), (), back.added)
    with holdfast.open(place) as store:
        assert (judge(store), store.check()) == ([], [])


@pytest.mark.slow
def test_copying_again_brings_over_what_is_new_and_nothing_else(path: Path, place: str) -> None:
    copy(path, place)
    assert copy(path, place).added == 0
    with holdfast.open(path, durability="process") as store:
        with store.session("telegram:dm:42").turn("Go on.", reply_to="me") as turn:
            turn.say("Gladly.")
        for owed in store.outbox():
            owed.sent()
        store.erase(store.session("cli:ada").id)
    assert copy(path, place).differences == ()
    assert told(place) == told(path)


def test_what_was_accepted_before_the_move_is_not_accepted_after_it(path: Path, place: str) -> None:
    copy(path, place)
    with holdfast.open(place) as store:
        assert store.accept("telegram:dm:42", "once more", event_id="update-1").again
        for key, event in (("reset", "life-0"), ("reset", "carried-1"), ("erased", "erased-1")):
            with pytest.raises(AlreadyAccepted):
                store.session(key).turn("once more", event_id=event)


@pytest.mark.slow
def test_a_session_in_use_is_copied_up_to_its_running_turn_and_caught_up(
    path: Path, place: str
) -> None:
    copy(path, place)
    mirror = path.with_name("mirror.db")
    with holdfast.open(place) as store:
        session = store.session("telegram:dm:42")
        with session.turn("Two.") as turn:
            turn.say("Half.")
            assert copy(place, mirror).in_use == (session.id,)
            with holdfast.open(mirror) as there:
                assert there.get(session.id).info().state == "open"
                assert "Half." not in [
                    message.text for message in there.get(session.id).transcript()
                ]
    assert copy(place, mirror).in_use == ()
    assert told(mirror) == told(place)


@pytest.mark.slow
def test_a_session_that_went_on_in_the_target_is_left_and_the_rest_is_copied(
    path: Path, place: str
) -> None:
    copy(path, place)
    with holdfast.open(place) as store:
        left = store.session("parent")
        left.append("Theirs.")
        before = told(place)["sessions"][left.id]
    with holdfast.open(path, durability="process") as store:
        store.session("cli:ada").append("Ours.")
    copied = copy(path, place)
    assert [each.session_id for each in copied.differences] == [left.id]
    assert told(place)["sessions"][left.id] == before
    assert copied.added == 1


def test_a_key_that_postgresql_can_not_hold_is_told_of_and_the_rest_is_copied(
    path: Path, place: str
) -> None:
    with holdfast.open(path, durability="process") as store:
        id = store.session("k" * 1001).id
    [difference] = copy(path, place).differences
    assert difference.session_id == id and "1000 bytes" in difference.problem
    left = told(path)
    del left["sessions"][id], left["current"]["default", "k" * 1001]
    assert told(place) == left


def moved_through(fits: Fits, nth: int, path: Path, place: str) -> bool:
    """Copies through a proxy that loses the nth message that fits; whether there was one."""
    with holdfast.open(place):
        pass  # its tables are made without losses
    parts = conninfo_to_dict(place)
    with DeafProxy(int(parts["port"]), host=str(parts["host"])) as proxy:
        loss = proxy.lose(fits, nth=nth)
        copied = copy(path, proxy.through(place))
    assert copied.differences == ()
    assert told(place) == told(path), f"message {nth}"
    return loss.struck


@pytest.mark.slow
@pytest.mark.parametrize(
    "fits, step",
    [
        pytest.param(answers("COMMIT"), 5, id="an answer to COMMIT"),
        pytest.param(any_answer, 41, id="any answer"),
    ],
)
def test_an_answer_that_is_lost_loses_nothing_and_doubles_nothing(
    path: Path, databases: Callable[..., str], fits: Fits, step: int
) -> None:
    """At every place with HOLDFAST_EXPLORE, at every so many in an ordinary run. How many there are
    depends on how many commits the writer finds waiting for it.
    """
    places = itertools.takewhile(
        lambda nth: moved_through(fits, nth, path, databases(schema=True)),
        itertools.count(2, 1 if EXPLORE else step),
    )
    assert len(list(places)) > 1, "the copy is long enough to be worth it"


COPY = """
    import holdfast
    from holdfast.runtime.transfer import compare_logs
    compare_logs.PAGE = 5
    holdfast.copy(sys.argv[1], sys.argv[2], progress=lambda progress: say("at", progress.entries))
    say("done")
"""


@pytest.mark.slow
def test_copies_side_by_side_do_no_harm(path: Path, place: str) -> None:
    with child(COPY, path, place) as one, child(COPY, path, place) as two:
        copied = copy(path, place)
        one.wait_for("done")
        two.wait_for("done")
    assert copied.differences == ()
    assert told(place) == told(path)
    with holdfast.open(place) as store:
        assert (judge(store), store.check()) == ([], [])


@pytest.mark.slow
def test_a_copy_that_was_killed_is_resumed_by_copying_again(path: Path, place: str) -> None:
    for _ in range(2):
        with child(COPY, path, place) as copier:
            copier.wait_for("at")
            copier.kill()
    assert copy(path, place).differences == ()
    assert told(place) == told(path)
