"""`HoldfastDb` under real agents of Agno, with a model on loopback; laws that its own databases are
run through beside ours.
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.base import SessionType
from agno.db.in_memory import InMemoryDb
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session import AgentSession, TeamSession, WorkflowSession
from agno.team import Team
from agno.workflow import Step, Workflow
from pages import example

import holdfast
from engine_calls import EngineCalls
from holdfast.adapters.agno import HoldfastDb
from holdfast.errors import AlreadyAccepted, BadArgument, SessionEnded, TurnInterrupted
from holdfast.testing.adapters import ScriptedAnswer, ScriptedProvider, serve
from holdfast.testing.adapters.damage import _spoil_in_sqlite, spoil_last_message
from holdfast.testing.oracle import judge
from procs import child

WATER = [("water", {"row": 7})]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with serve() as made:
        for number in range(1, 10):
            made.answer(f"ask-{number:02d}", ScriptedAnswer(("Ye", "s.")))
        yield made


@pytest.fixture
def db(where: str) -> HoldfastDb:
    return HoldfastDb(where)


@pytest.fixture(params=["memory", "sqlite file", "holdfast"])
def any_db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return InMemoryDb()
    if request.param == "sqlite file":
        return SqliteDb(db_file=str(tmp_path / "agno.db"))
    return HoldfastDb(tmp_path / "holdfast.db")


def water(row: int) -> str:
    """Waters a row."""
    return f"row {row} was watered"


def gardener(provider: ScriptedProvider, db: Any, **options: Any) -> Agent:
    model = OpenAIChat(id="gpt-test", base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
    given = {"tools": [water], "add_history_to_context": True, "num_history_runs": 50, **options}
    return Agent(id="gardener", name="Gardener", model=model, db=db, telemetry=False, **given)


def a_run(name: str, *words: str, **facts: Any) -> RunOutput:
    messages = []
    for number, text in enumerate(words):
        role = "assistant" if number % 2 else "user"
        messages.append(Message(id=f"{name}-{number}", role=role, content=text))
    facts = {"agent_id": "gardener", "session_id": "k", "status": RunStatus.completed, **facts}
    return RunOutput(run_id=name, messages=messages, content=words[-1], **facts)


def a_session(name: str = "k", **facts: Any) -> AgentSession:
    return AgentSession(session_id=name, **{"agent_id": "gardener", "user_id": "ann", **facts})


def texts(db: HoldfastDb, session_id: str = "k") -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in db.session(session_id).transcript()]


def test_a_run_is_two_commits_and_looks_no_session_up(db: HoldfastDb) -> None:
    db.upsert_session(a_session())
    db.upsert_run(a_run("r1", "Hello", "Hi."), "k", run_index=0)
    calls = EngineCalls(db.store)
    db.upsert_session(a_session())
    db.upsert_run(a_run("r2", "And you?", "Fine."), "k", run_index=1)
    assert calls.taken() == {"entries": 2, "submit": 2}


def test_a_session_and_its_runs_come_back_as_they_were(any_db: Any) -> None:
    row = a_session(session_data={"session_state": {"n": 1}}, metadata={"m": [1, None]})
    run = a_run("r1", "Hello", "Hi.", metadata={"odd": {"deep": [True]}})
    assert any_db.get_session("k", SessionType.AGENT) is None
    any_db.upsert_session(row)
    any_db.upsert_run(run, "k", run_index=0)
    found = any_db.get_session("k", SessionType.AGENT, user_id="ann")
    assert (found.session_data, found.metadata) == (row.session_data, row.metadata)
    # Agno itself puts an empty list of events into what it loads.
    assert [each.to_dict() for each in found.runs] == [{**run.to_dict(), "events": []}]
    assert [m.content for m in found.get_messages()] == ["Hello", "Hi."]
    assert any_db.get_session("k", user_id="bob") is None
    # The row again drops no run; a run again takes its own place.
    any_db.upsert_session(a_session(session_data={"session_state": {"n": 2}}))
    any_db.upsert_run(a_run("r2", "And?"), "k", run_index=1)
    any_db.upsert_run(a_run("r1", "Hello", "Hi there."), "k", run_index=0)
    found = any_db.get_session("k")
    assert [run.run_id for run in found.runs] == ["r1", "r2"]
    assert [m.content for m in found.get_messages()] == ["Hello", "Hi there.", "And?"]
    assert found.session_data == {"session_state": {"n": 2}}
    assert [run.run_id for run in any_db.get_session("k", runs_limit=1).runs] == ["r2"]


def test_a_row_is_its_owners(any_db: Any) -> None:
    any_db.upsert_session(a_session())
    assert any_db.upsert_session(a_session(user_id="bob")) is None
    assert any_db.get_session("k").user_id == "ann"
    assert any_db.delete_session("k", user_id="bob") is False
    assert any_db.delete_session("k", user_id="ann") is True
    assert any_db.get_session("k") is None
    assert any_db.delete_session("k") is False
    any_db.upsert_session(a_session(user_id="bob"))
    assert any_db.get_session("k").runs in (None, [])


@pytest.mark.parametrize("status", list(RunStatus))
def test_a_session_in_which_something_runs_stays_its_owners(
    tmp_path: Path, status: RunStatus
) -> None:
    """As `SqliteDb` has it; `InMemoryDb` can't give a session to somebody else."""
    at_rest = status not in (RunStatus.pending, RunStatus.running, RunStatus.paused)
    for each in (SqliteDb(db_file=str(tmp_path / "a.db")), HoldfastDb(tmp_path / "h.db")):
        each.upsert_session(a_session())
        each.upsert_run(a_run("r1", "Hello", status=status), "k", run_index=0)
        given = each.reassign_session_owner("k", previous_user_id="ann", user_id="cy")
        assert given is at_rest
        assert each.get_session("k").user_id == ("cy" if at_rest else "ann")


def test_a_session_whose_run_is_streamed_stays_its_owners(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    db.upsert_session(a_session())

    def give() -> bool:
        return db.reassign_session_owner("k", previous_user_id="ann", user_id="cy")

    stream = db.stream(gardener(provider, db), "ask-01", session_id="k", user_id="ann")
    next(stream)
    assert give() is False
    for _ in stream:
        pass
    assert give() is True


@pytest.mark.parametrize("deserialize", [True, False])
@pytest.mark.parametrize("given", [None, 7])
def test_a_row_keeps_when_it_was_made_and_is_given_as_it_is_stored(
    tmp_path: Path, deserialize: bool, given: int | None
) -> None:
    """As `SqliteDb` has it; `InMemoryDb` forgets it."""
    for each in (SqliteDb(db_file=str(tmp_path / "a.db")), HoldfastDb(tmp_path / "h.db")):
        each.upsert_session(a_session(created_at=100))
        later = a_session(created_at=given, updated_at=given)
        row = each.upsert_session(later, deserialize)
        if deserialize:
            row = row.to_dict()
        found = each.get_session("k", deserialize=False)
        assert (found["created_at"], row["created_at"]) == (100, 100)
        assert found["updated_at"] == row["updated_at"] > 100


def test_sessions_are_found_named_and_counted(any_db: Any) -> None:
    for number in range(5):
        owner = "ann" if number < 3 else "bob"
        session = a_session(f"s{number}", user_id=owner, created_at=100 + number)
        any_db.upsert_session(session)
    any_db.upsert_session(TeamSession(session_id="t", team_id="crew", created_at=200))
    any_db.rename_session("s1", SessionType.AGENT, "The dry rows")
    assert {s.session_id for s in any_db.get_sessions(SessionType.AGENT, user_id="ann")} == {
        "s0",
        "s1",
        "s2",
    }
    [named] = any_db.get_sessions(SessionType.AGENT, session_name="dry")
    assert named.session_id == "s1"
    [team] = any_db.get_sessions(SessionType.TEAM, component_id="crew")
    assert isinstance(team, TeamSession)
    order = {"sort_by": "created_at", "sort_order": "asc"}
    found, total = any_db.get_sessions(
        SessionType.AGENT, limit=2, page=2, deserialize=False, **order
    )
    assert ([each["session_id"] for each in found], total) == (["s2", "s3"], 5)
    assert len(any_db.get_sessions(SessionType.AGENT, start_timestamp=103)) == 2
    any_db.delete_sessions(["s0", "s1"])
    assert len(any_db.get_sessions(SessionType.AGENT)) == 3


def test_runs_are_found_and_deleted_by_themselves(any_db: Any) -> None:
    for name in ("k", "other"):
        any_db.upsert_session(a_session(name))
    any_db.upsert_run(a_run("r1", "one"), "k", run_index=0)
    any_db.upsert_run(a_run("r2", "two", status=RunStatus.error), "k", run_index=1)
    any_db.upsert_run(a_run("r3", "three", session_id="other"), "other", run_index=0)
    assert any_db.get_run("r3").content == "three"
    assert any_db.get_run("r9") is None
    assert {run.run_id for run in any_db.get_runs(session_id="k")} == {"r1", "r2"}
    [failed] = any_db.get_runs(status=RunStatus.error)
    assert failed.run_id == "r2"
    assert any_db.delete_run("r1") is True
    assert any_db.delete_run("r1") is False
    any_db.delete_runs(["r3"])
    assert [run.run_id for run in any_db.get_runs()] == ["r2"]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_run_is_stored_with_each_message_once(
    db: HoldfastDb, provider: ScriptedProvider, is_streamed: bool
) -> None:
    first = ScriptedAnswer(("Let ", "me. "), WATER)
    provider.answer("ask-01", first, ScriptedAnswer(("Do", "ne.")))
    agent = gardener(provider, db)
    if is_streamed:
        shown = ""
        for event in db.stream(agent, "ask-01: water", session_id="k"):
            shown += event.content if event.event == "RunContent" else ""
        assert shown == "Let me. Done."
    else:
        agent.run("ask-01: water", session_id="k")
    agent.run("ask-02: and?", session_id="k")
    said = [each for each in texts(db) if each[0] != "system"]
    assert said == [
        ("user", "ask-01: water"),
        ("assistant", "Let me. "),
        ("tool", "row 7 was watered"),
        ("assistant", "Done."),
        ("user", "ask-02: and?"),
        ("assistant", "Yes."),
    ]
    assert [asked.problems for asked in provider.asked] == [()] * 3
    # What was shown is not kept twice.
    assert list(db.store.session("agno.shown:k").transcript()) == []
    assert [hit.role for hit in db.store.search("watered")] == ["tool"]
    assert judge(db.store) == []


def test_words_are_durable_before_they_are_yielded(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three")))
    words = ""
    for event in db.stream(gardener(provider, db), "ask-01", session_id="k", request_id="r1"):
        words += event.content if event.event == "RunContent" else ""
        stored = ""
        for told in db.store.session("agno.shown:k").follow():
            stored += told.text if told.kind == "chunk" else ""
            if len(stored) >= len(words):
                break
        assert stored[: len(words)] == words


def test_a_prompt_whose_run_was_cut_off_before_a_word_is_told_and_can_be_taken_out(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("One.",), stalls_after=0))
    agent = gardener(provider, db)

    async def ask() -> None:
        async for _ in db.astream(agent, "ask-01", session_id="k"):
            pass

    async def run() -> None:
        task = asyncio.create_task(ask())
        assert await asyncio.to_thread(provider.stalled.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        provider.go_on.set()

    asyncio.run(run())
    agent.run("ask-02", session_id="k")
    # OpenAI takes two prompts in a row; the provider of the tests is stricter.
    [problem] = provider.asked[-1].problems
    assert "twice in a row" in problem
    words = provider.asked[-1].words
    assert words.index("ask-01") < words.index("ask-02")
    [cut] = [run for run in db.get_session("k").runs if run.metadata == {"interrupted": True}]
    assert db.delete_run(cut.run_id)
    agent.run("ask-03", session_id="k")
    assert provider.asked[-1].problems == ()


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_prompt_whose_process_was_killed_before_a_word_is_told(
    tmp_path: Path, provider: ScriptedProvider, how: str
) -> None:
    place = str(tmp_path / "agents.db")
    provider.answer("ask-01", ScriptedAnswer(("One.",), stalls_after=0))
    script = f"""
        import asyncio
        from agno.agent import Agent
        from agno.models.openai import OpenAIChat
        from holdfast.adapters.agno import HoldfastDb
        db = HoldfastDb({place!r})
        model = OpenAIChat(id="m", base_url={provider.url + "/v1"!r}, api_key="none")
        agent = Agent(id="gardener", model=model, db=db, telemetry=False)
        async def ask():
            async for _ in db.astream(agent, "ask-01", session_id="k", request_id="r1"):
                pass
        say("asks")
        if {how!r} == "astream":
            asyncio.run(ask())
        list(db.stream(agent, "ask-01", session_id="k", request_id="r1"))
    """
    with child(script) as process:
        process.wait_for("asks")
        assert provider.stalled.wait(60)
        process.kill()
    provider.go_on.set()
    db = HoldfastDb(place)
    list(db.stream(gardener(provider, db), "ask-02", session_id="k"))
    # The provider of the tests refuses two prompts in a row, which OpenAI takes.
    words = provider.asked[-1].words
    assert words.index("ask-01") < words.index("ask-02")
    assert texts(db)[0] == ("user", "ask-01")
    cut = db.get_session("k").runs[0]
    assert (cut.run_id, cut.metadata) == ("r1", {"interrupted": True})
    assert judge(db.store) == []


def test_a_session_whose_run_was_killed_can_be_given_to_another_user(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    place = str(tmp_path / "agents.db")
    script = f"""
        from holdfast.adapters.agno import HoldfastDb
        class Agent:
            def run(self, input, **options):
                say("runs")
                hear()
        list(HoldfastDb({place!r}).stream(Agent(), "ask-01", session_id="k", user_id="ann"))
    """
    with child(script) as process:
        process.wait_for("runs")
        process.kill()
    db = HoldfastDb(place)
    assert db.reassign_session_owner("k", previous_user_id="ann", user_id="bob")
    assert [m.content for m in db.get_session("k", user_id="bob").get_messages()] == ["ask-01"]


def test_a_session_is_read_in_a_store_that_can_only_be_read(
    where: str, provider: ScriptedProvider
) -> None:
    with holdfast.open(where) as store:
        db = HoldfastDb(store)
        list(db.stream(gardener(provider, db), "ask-01", session_id="k"))
        store.session("agno.shown:k").append("What a killed run has left.")
    with holdfast.open(where, read_only=True) as store:
        found = HoldfastDb(store).get_session("k")
        said = [message.content for message in found.get_messages()]
        assert said == ["ask-01", "Yes."]


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_session_is_read_while_others_run_and_settle_in_it(
    db: HoldfastDb, provider: ScriptedProvider, how: str
) -> None:
    is_over = threading.Event()
    problems: list[BaseException] = []

    def look() -> None:
        reader = HoldfastDb(db.store)
        try:
            while not is_over.is_set():
                reader.get_session("k")
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    agent = gardener(provider, db, num_history_runs=1)

    async def ask(name: str) -> None:
        async for _ in db.astream(agent, "ask-01", session_id="k", request_id=name):
            pass

    try:
        for number in range(12):
            if how == "astream":
                asyncio.run(ask(f"r{number}"))
            else:
                list(db.stream(agent, "ask-01", session_id="k", request_id=f"r{number}"))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert [run.run_id for run in db.get_session("k").runs] == [f"r{n}" for n in range(12)]


@pytest.mark.parametrize("how", ["cancelled", "left", "left, sync"])
def test_a_run_that_is_given_up_leaves_what_was_shown(
    db: HoldfastDb, provider: ScriptedProvider, how: str
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    agent = gardener(provider, db)
    words: list[str] = []

    async def ask(is_done: asyncio.Event) -> None:
        async for event in db.astream(agent, "ask-01", session_id="k"):
            words.append(event.content if event.event == "RunContent" else "")
            if "".join(words) == "one two ":
                is_done.set()
                if how == "left":
                    return

    async def run() -> None:
        is_done = asyncio.Event()
        task = asyncio.create_task(ask(is_done))
        await is_done.wait()
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait([task])
        provider.go_on.set()

    if how == "left, sync":
        for event in db.stream(agent, "ask-01", session_id="k"):
            words.append(event.content if event.event == "RunContent" else "")
            if "".join(words) == "one two ":
                break
        provider.go_on.set()
    else:
        asyncio.run(run())
    agent.run("ask-02", session_id="k")
    said = [words for role, words in texts(db) if role != "system"]
    assert said == ["ask-01", "one two ", "ask-02", "Yes."]
    assert provider.asked[-1].problems == ()
    assert judge(db.store) == []


def test_what_was_shown_before_a_kill_is_what_the_next_model_is_told(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    place = str(tmp_path / "agents.db")
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    script = f"""
        from agno.agent import Agent
        from agno.models.openai import OpenAIChat
        from holdfast.adapters.agno import HoldfastDb
        db = HoldfastDb({place!r})
        model = OpenAIChat(id="m", base_url={provider.url + "/v1"!r}, api_key="none")
        agent = Agent(id="gardener", model=model, db=db, telemetry=False)
        words = ""
        for event in db.stream(agent, "ask-01", session_id="k", user_id="ann"):
            words += event.content if event.event == "RunContent" else ""
            if words == "one two ":
                say("shown")
    """
    with child(script) as process:
        process.wait_for("shown")
        process.kill()
    provider.go_on.set()
    db = HoldfastDb(place)
    # It was the first run of its session: that is there, too.
    found = db.get_session("k", user_id="ann")
    assert [message.content for message in found.get_messages()] == ["ask-01", "one two "]
    assert found.runs[0].metadata == {"interrupted": True}
    gardener(provider, db).run("ask-02", session_id="k", user_id="ann")
    assert "one two " in provider.asked[-1].words
    assert provider.asked[-1].problems == ()
    assert judge(db.store) == []


def test_a_model_that_fails_leaves_prompt_and_words(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    broken = gardener(provider, db)
    broken.model.base_url = "http://127.0.0.1:9/v1"
    list(db.stream(broken, "ask-01", session_id="k"))
    found = db.get_session("k")
    assert [run.status for run in found.runs] == [RunStatus.error, RunStatus.completed]
    assert [message.content for message in found.get_messages()] == ["ask-01"]


def test_the_same_request_is_answered_once(db: HoldfastDb, provider: ScriptedProvider) -> None:
    agent = gardener(provider, db)
    list(db.stream(agent, "ask-01", session_id="k", request_id="r1"))
    with pytest.raises(AlreadyAccepted):
        list(db.stream(agent, "ask-01", session_id="k", request_id="r1"))
    list(db.stream(agent, "ask-01", session_id="k", request_id="r2"))
    assert len(provider.asked) == 2
    assert len([1 for role, _ in texts(db) if role == "user"]) == 2


def test_a_run_in_a_session_that_was_deleted_is_refused(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("one ", "two ", "three"), stalls_after=2))
    agent = gardener(provider, db)
    agent.run("ask-02", session_id="k")
    words = ""
    with pytest.raises((SessionEnded, TurnInterrupted)):
        for event in db.stream(agent, "ask-01", session_id="k"):
            words += event.content if event.event == "RunContent" else ""
            if words == "one two ":
                assert HoldfastDb(db.store).delete_session("k")
                provider.go_on.set()
    assert db.get_session("k") is None
    # The protocol alone: whoever has loaded the old one stores nothing in the new one.
    other = HoldfastDb(db.store)
    for each in (db, other):
        each.upsert_session(a_session())
        each.get_session("k")
    other.delete_session("k")
    other.upsert_session(a_session())
    with pytest.raises(SessionEnded):
        db.upsert_run(a_run("r9", "late"), "k")
    with pytest.raises(SessionEnded):
        db.upsert_session(a_session())
    assert other.get_session("k").runs in (None, [])


def test_runs_of_one_session_wait_for_each_other(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    for number in range(6):
        provider.answer(f"ask-{number}", ScriptedAnswer((f"w{number}-", "a ", "b")))

    def ask(*numbers: int) -> None:
        agent = gardener(provider, HoldfastDb(db.store))
        for number in numbers:
            list(agent.db.stream(agent, f"ask-{number}", session_id="k"))

    async def aask() -> None:
        agent = gardener(provider, db)
        for number in (4, 5):
            async for _ in db.astream(agent, f"ask-{number}", session_id="k"):
                pass

    threads = [threading.Thread(target=ask, args=(0, 1))]
    threads.append(threading.Thread(target=ask, args=(2, 3)))
    threads.append(threading.Thread(target=lambda: asyncio.run(aask())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [message.content for message in db.get_session("k").get_messages()]
    assert len(said) == 12
    for at in range(0, 12, 2):
        assert said[at + 1] == f"w{said[at][-1]}-a b"


def test_a_team_and_its_members_are_kept(db: HoldfastDb, provider: ScriptedProvider) -> None:
    member = gardener(provider, None)
    team = Team(id="crew", members=[member], model=member.model, db=db, telemetry=False)
    shown = ""
    for event in db.stream(team, "ask-01", session_id="k"):
        shown += event.content if event.event == "TeamRunContent" else ""
    assert shown == "Yes."
    found = db.get_session("k")
    assert isinstance(found, TeamSession)
    assert [message.content for message in found.get_messages(skip_roles=["system"])] == [
        "ask-01",
        "Yes.",
    ]


def watering(provider: ScriptedProvider, db: HoldfastDb) -> Workflow:
    steps = [Step(name=name, agent=gardener(provider, None)) for name in ("look", "water")]
    return Workflow(id="rounds", name="Rounds", steps=steps, db=db, telemetry=False)


def test_what_the_steps_of_a_workflow_had_shown_is_a_run_of_it(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    provider.answer("ask-02", ScriptedAnswer(("one ", "two ", "three")))
    list(db.stream(watering(provider, db), "ask-01", session_id="k", user_id="ann"))
    words = ""
    for event in db.stream(watering(provider, db), "ask-02", session_id="k", user_id="ann"):
        words += event.content if event.event == "RunContent" else ""
        if words == "one two ":
            break
    list(db.stream(watering(provider, db), "ask-03", session_id="k", user_id="ann"))
    found = db.get_session("k", SessionType.WORKFLOW, user_id="ann")
    assert [(run.input, run.content) for run in found.runs] == [
        ("ask-01", "Yes."),
        ("ask-02", "one two "),
        ("ask-03", "Yes."),
    ]
    assert [run.metadata for run in found.runs][1] == {"interrupted": True}
    assert ("assistant", "one two ") in texts(db)
    # What a workflow tells its steps of its history.
    assert "one two " in found.get_workflow_history_context()
    assert judge(db.store) == []


def test_a_workflow_that_was_cut_off_in_its_first_run_is_one(
    db: HoldfastDb, provider: ScriptedProvider
) -> None:
    for event in db.stream(watering(provider, db), "ask-01", session_id="k"):
        if event.event == "RunContent" and event.content:
            break
    found = db.get_session("k")
    assert isinstance(found, WorkflowSession)
    assert (found.workflow_id, found.workflow_name) == ("rounds", "Rounds")
    assert [(run.workflow_id, run.input, run.content) for run in found.runs] == [
        ("rounds", "ask-01", "Ye"),
    ]
    list(db.stream(watering(provider, db), "ask-02", session_id="k"))
    assert [run.input for run in db.get_session("k").runs] == ["ask-01", "ask-02"]


def test_a_record_that_cannot_be_read_takes_nothing_but_itself(tmp_path: Path) -> None:
    place = str(tmp_path / "agents.db")
    db = HoldfastDb(place)
    db.upsert_session(a_session())
    db.upsert_run(a_run("r1", "one", "two"), "k")
    db.upsert_run(a_run("r2", "three", "four"), "k")
    with holdfast.open(place) as store:
        newest = store.sessions(limit=1)[0].key
    spoil_last_message(place)
    found = HoldfastDb(place).get_session("k")
    said = [message.content for message in found.get_messages()]
    assert said[:3] == ["one", "two", "three"]
    assert newest == "agno:k" or said[3] == "four"


@pytest.mark.parametrize("how", ["compacted", "rewound", "hidden", "reset", "ended", "erased"])
def test_what_is_taken_out_of_the_view_is_told_no_model(
    db: HoldfastDb, provider: ScriptedProvider, how: str
) -> None:
    provider.answer("ask-01", ScriptedAnswer(("Yes.",), WATER), ScriptedAnswer(("Done.",)))
    agent = gardener(provider, db)
    agent.run("ask-01", session_id="k")
    agent.run("ask-02", session_id="k")
    session = db.session("k")
    said = [message for message in session.transcript() if message.role != "system"]
    if how == "compacted":
        session.compact("They talked.", keep_turns=0)
    elif how == "rewound":
        session.rewind(said[1].id)  # between a call and its result
    elif how == "hidden":
        for message in said[-2:]:
            session.label(message.id, visible_to_model=False)
    elif how == "reset":
        db.store.reset("agno:k")
    elif how == "ended":
        session.end("over")
    else:
        db.store.erase(session.id)
    other = HoldfastDb(db.store)
    gardener(provider, other).run("ask-03", session_id="k")
    assert provider.asked[-1].problems == () or how == "compacted"
    told = provider.asked[-1].words
    assert ("ask-01" in told) == (how in ("rewound", "hidden"))
    assert "ask-02" not in told
    assert ("They talked." in told) == (how == "compacted")
    # Of a call that is told, the result was taken out.
    assert ("can't be read" in told) == (how == "rewound")
    assert judge(db.store) == []


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_message_that_cannot_be_read_leaves_a_history_that_can_be_sent(
    tmp_path: Path, provider: ScriptedProvider, number: int
) -> None:
    place = str(tmp_path / "agents.db")
    provider.answer("ask-01", ScriptedAnswer(("Yes.",), WATER), ScriptedAnswer(("Done.",)))
    with holdfast.open(place) as store:
        gardener(provider, HoldfastDb(store)).run("ask-01", session_id="k")
        session = store.session("agno:k")
        said = [message for message in session.transcript() if message.role != "system"]
        assert [message.role for message in said] == ["user", "assistant", "tool", "assistant"]
        _spoil_in_sqlite(place, session.id, said[number].seq)
    with holdfast.open(place) as store:
        gardener(provider, HoldfastDb(store)).run("ask-03", session_id="k")
    assert provider.asked[-1].problems == ()


def test_what_is_no_session_is_asked_of_the_database_beside(tmp_path: Path) -> None:
    alone = HoldfastDb(tmp_path / "agents.db")
    with pytest.raises(NotImplementedError, match="beside"):
        alone.get_user_memories(user_id="ann")
    with pytest.raises(NotImplementedError, match="beside"):
        alone.clear_memories()
    both = HoldfastDb(tmp_path / "agents.db", beside=SqliteDb(db_file=str(tmp_path / "agno.db")))
    assert both.get_user_memories(user_id="ann") == []


@pytest.mark.parametrize("wrong", [None, 7, "text", {"role": "user"}])
def test_what_is_no_session_or_run_is_refused(db: HoldfastDb, wrong: Any) -> None:
    with pytest.raises((BadArgument, AttributeError)):
        db.upsert_session(wrong)
    with pytest.raises(BadArgument):
        db.upsert_run(wrong, "k")
    with pytest.raises(BadArgument):
        db.get_session(wrong if wrong != "text" else "")
    assert list(db.store.sessions()) == []


def test_it_may_be_subclassed(where: str, provider: ScriptedProvider) -> None:
    class Counting(HoldfastDb):
        runs = 0

        def upsert_run(self, run: Any, session_id: str, **more: Any) -> None:
            self.runs += 1
            super().upsert_run(run, session_id, **more)

    counting = Counting(where)
    gardener(provider, counting).run("ask-01", session_id="k")
    assert counting.runs == 1


def test_another_store_is_taken_over_and_back_as_the_page_says(
    db: HoldfastDb, tmp_path: Path
) -> None:
    theirs = SqliteDb(db_file=str(tmp_path / "a.db"))
    back = SqliteDb(db_file=str(tmp_path / "b.db"))
    theirs.upsert_session(a_session())
    theirs.upsert_run(a_run("r1", "one", "two"), "k", run_index=0)
    code = example("agno.md", "old.get_sessions")
    for _ in range(2):
        exec(code, {"old": theirs, "db": db})
    exec(code, {"old": db, "db": back})
    for each in (db, back):
        [found] = each.get_sessions()
        assert [run.to_dict()["messages"] for run in found.runs] == [
            a_run("r1", "one", "two").to_dict()["messages"]
        ] or [m.content for m in found.get_messages()] == ["one", "two"]
    assert len(texts(db)) == 2
