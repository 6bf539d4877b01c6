"""Strands' session repository on Holdfast, with Strands' own managers and agents."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pages import example
from scripted import ScriptedModel, words_of
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import holdfast
from holdfast.adapters.strands import HoldfastRepository
from holdfast.errors import BadArgument, InvalidMessage, SessionEnded
from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.oracle import judge

MESSAGES: list[Any] = [
    {"role": "user", "content": [{"text": "look"}, {"image": {"source": {"bytes": b"\x00\xff"}}}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"text": "I look."},
            {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": "it"}}},
        ],
        "tracking_id": "t-1",
        "metadata": {"usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}},
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "a cat"}]}}
        ],
    },
    {"role": "assistant", "content": [{"text": "A cat.\ud800\0"}, {"unheardOf": [1, None]}]},
    {"role": "user", "content": []},
]


@pytest.fixture
def repository(where: str) -> HoldfastRepository:
    return made(where)


def made(where: Any, agent: str = "a") -> HoldfastRepository:
    """A repository with a session that has one agent."""
    repository = HoldfastRepository(where)
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_agent("s", SessionAgent(agent, {"k": 1}, {"removed_message_count": 0}))
    return repository


def said(text: str) -> Any:
    return {"role": "user", "content": [{"text": text}]}


def add(repository: HoldfastRepository, *messages: Any) -> list[SessionMessage]:
    added = []
    for number, message in enumerate(messages):
        record = SessionMessage.from_message(message, number)
        repository.create_message("s", "a", record)
        added.append(record)
    return added


def agent_on(repository: HoldfastRepository, *answers: Any, **more: Any) -> Agent:
    manager = RepositorySessionManager("chat", repository)
    return Agent(
        model=ScriptedModel(*answers),
        session_manager=manager,
        agent_id="a",
        callback_handler=None,
        **more,
    )


def test_records_come_back_as_they_were(repository: HoldfastRepository, where: str) -> None:
    added = add(repository, *MESSAGES)
    again = HoldfastRepository(where)
    assert again.list_messages("s", "a") == added
    assert again.list_messages("s", "a", limit=2, offset=1) == added[1:3]
    assert again.list_messages("s", "a", offset=9) == []
    assert [again.read_message("s", "a", number) for number in range(5)] == added
    assert again.read_message("s", "a", 5) is None
    assert again.read_session("s") == repository.read_session("s")
    assert again.read_agent("s", "a") == repository.read_agent("s", "a")
    assert (again.read_session("x"), again.read_agent("s", "x")) == (None, None)
    assert judge(repository.store) == []


def test_words_calls_and_results_are_seen_by_search_and_transcript(
    repository: HoldfastRepository,
) -> None:
    add(repository, *MESSAGES)
    assert [hit.role for hit in repository.store.search("cat")] == ["assistant", "tool"]
    conversation = repository.conversation("s", "a")
    assert conversation is not None
    [call] = conversation.session.calls()
    assert (call.call_id, call.name, call.state) == ("c1", "look", "done")
    assert conversation.session.info().usage.input == 7
    context = conversation.session.context("anthropic")
    assert [message["role"] for message in context] == ["user", "assistant", "user", "assistant"]
    assert conversation.session.context("strands")[1]["content"][1] == {"text": "I look."}


def test_the_same_message_twice_is_stored_once(repository: HoldfastRepository) -> None:
    [first] = add(repository, MESSAGES[1])
    repository.create_message("s", "a", first)
    assert repository.list_messages("s", "a") == [first]
    copy = SessionMessage.from_message(MESSAGES[1], 1)
    repository.create_message("s", "a", copy)
    assert len(repository.list_messages("s", "a")) == 2


def test_a_redacted_message_has_other_words_and_keeps_its_place(
    repository: HoldfastRepository, where: str
) -> None:
    added = add(repository, said("my card is 4000"), said("and now?"))
    added[0].redact_message = said("[redacted]")
    repository.update_message("s", "a", added[0])
    again = HoldfastRepository(where)
    listed = again.list_messages("s", "a")
    assert listed == added
    assert words_of([each.to_message() for each in listed]) == ["[redacted]", "and now?"]
    conversation = again.conversation("s", "a")
    assert conversation is not None
    assert words_of(list(conversation.session.context("strands"))) == ["[redacted]and now?"]
    told = [message.text for message in conversation.session.transcript()]
    assert told == ["my card is 4000", "and now?"]
    with pytest.raises(SessionException):
        repository.update_message("s", "a", SessionMessage.from_message(said("x"), 7))
    assert judge(repository.store) == []


def test_two_writers_of_one_number_lose_nothing(repository: HoldfastRepository, where: str) -> None:
    other = HoldfastRepository(where)
    messages = {}
    for number in range(3):
        for who, writer in (("here", repository), ("there", other)):
            message = said(f"{who} {number}")
            message["tracking_id"] = f"{who}-{number}"
            messages[who] = SessionMessage.from_message(message, number)
            writer.create_message("s", "a", messages[who])
    listed = repository.list_messages("s", "a")
    assert [each.message_id for each in listed] == list(range(6))
    assert len({words_of([each.message])[0] for each in listed}) == 6
    messages["there"].redact_message = said("gone")
    other.update_message("s", "a", messages["there"])
    listed = repository.list_messages("s", "a")
    assert words_of([each.to_message() for each in listed])[-2:] == ["here 2", "gone"]


def test_threads_may_share_a_repository(repository: HoldfastRepository) -> None:
    def write(name: int) -> None:
        for number in range(20):
            record = SessionMessage.from_message(said(f"{name}.{number}"), name * 100 + number)
            repository.create_message("s", "a", record)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(repository.list_messages("s", "a")) == 80


def test_what_was_deleted_takes_nothing_from_a_stale_repository(
    repository: HoldfastRepository, where: str
) -> None:
    add(repository, said("old"))
    other = HoldfastRepository(where)
    other.delete_session("s")
    assert other.read_session("s") is None
    with pytest.raises(SessionException):
        other.delete_session("s")
    with pytest.raises(SessionEnded):
        repository.create_message("s", "a", SessionMessage.from_message(said("stale"), 1))
    fresh = made(where)
    with pytest.raises(SessionEnded):
        repository.create_message("s", "a", SessionMessage.from_message(said("stale"), 1))
    agent = fresh.read_agent("s", "a")
    with pytest.raises(SessionException):
        repository.update_agent("s", agent)
    assert fresh.list_messages("s", "a") == []
    assert repository.read_session("s") is not None  # from here on it means the new one
    add(repository, said("new"))
    assert words_of([each.message for each in fresh.list_messages("s", "a")]) == ["new"]


def test_a_record_that_cannot_be_read_takes_away_nothing_else(where: str) -> None:
    repository = made(where)
    add(repository, said("one"), said("two"), said("three"))
    spoil_last_message(where, "strands:s:a")
    listed = HoldfastRepository(where).list_messages("s", "a")
    texts = words_of([each.message for each in listed])
    assert texts[:2] == ["one", "two"] and "can't be read" in texts[2]
    assert [each.message_id for each in listed] == [0, 1, 2]


def test_of_an_agent_that_cannot_be_read_the_state_before_counts(where: str) -> None:
    repository = made(where)
    agent = repository.read_agent("s", "a")
    agent.state = {"k": 2}
    repository.update_agent("s", agent)
    spoil_last_message(where, "strands.agent:s:a")
    assert HoldfastRepository(where).read_agent("s", "a").state == {"k": 1}


def test_a_session_whose_record_cannot_be_read_can_be_opened(where: str) -> None:
    add(made(where), said("one"))
    spoil_last_message(where, "strands.session:s")
    again = HoldfastRepository(where)
    assert again.read_session("s").session_id == "s"
    assert len(again.list_messages("s", "a")) == 1


def test_wrong_arguments_are_refused_before_anything_is_written(
    repository: HoldfastRepository,
) -> None:
    heads = repository.store.info().entries
    calls: list[Any] = [
        lambda: HoldfastRepository(7),  # type: ignore[arg-type]
        lambda: repository.read_session(""),
        lambda: repository.create_message("s", "a", said("x")),
        lambda: repository.create_message("s", "a", SessionMessage(said("x"), "1")),
        lambda: repository.read_message("s", "a", "1"),
        lambda: repository.list_messages("s", "a", offset=-1),
        lambda: repository.create_agent("s", {}),
        lambda: repository.create_session("s"),
    ]
    for call in calls:
        with pytest.raises(BadArgument):
            call()
    with pytest.raises(InvalidMessage):
        add(repository, {"role": "user", "content": [{"text": object()}]})
    for call in (
        lambda: repository.create_message("s", "x", SessionMessage(said("x"), 0)),
        lambda: repository.list_messages("s", "x"),
        lambda: repository.create_agent("x", SessionAgent("a", {}, {})),
        lambda: repository.create_session(Session("s", SessionType.AGENT)),
    ):
        with pytest.raises(SessionException):
            call()
    assert repository.store.info().entries == heads


def test_an_agent_goes_on_with_a_manager_of_theirs(where: str) -> None:
    @tool
    def look(at: str) -> str:
        """Looks."""
        return f"a cat at {at}"

    call = {"id": "c1", "name": "look", "input": '{"at": "home"}'}
    agent = agent_on(HoldfastRepository(where), ["Hm. ", call], ["A ", "cat."], tools=[look])
    agent.state.set("seen", 1)
    assert str(agent("What is there?")).strip() == "A cat."
    other = agent_on(HoldfastRepository(where), ["Still."], tools=[look])
    assert other.messages == agent.messages and other.state.get("seen") == 1
    other("And now?")
    asked = other.model.asked[0]
    assert words_of(asked) == ["What is there?", "Hm. ", "", "A cat.", "And now?"]
    assert judge(holdfast.open(where)) == []


def test_a_window_of_the_conversation_is_restored(where: str) -> None:
    window = SlidingWindowConversationManager(window_size=4)
    agent = agent_on(HoldfastRepository(where), conversation_manager=window)
    for number in range(5):
        agent(f"question {number}")
    kept = SlidingWindowConversationManager(window_size=4)
    other = agent_on(HoldfastRepository(where), conversation_manager=kept)
    assert other.messages == agent.messages and len(other.messages) == 4
    assert len(HoldfastRepository(where).list_messages("chat", "a")) == 10


def test_without_strands_the_install_line_is_told(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = "import sys; sys.modules['strands'] = None; import holdfast.adapters.strands"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'holdfast[strands]'" in ended.stderr


def test_the_lines_of_the_page_bring_their_sessions_over_and_back(tmp_path: Path) -> None:
    from strands.session.file_session_manager import FileSessionManager

    theirs = FileSessionManager("user-1", storage_dir=str(tmp_path / "sessions"))
    agent = Agent(
        model=ScriptedModel(), session_manager=theirs, agent_id="concierge", callback_handler=None
    )
    agent("Book a table for two.")
    ours = HoldfastRepository(tmp_path / "agent.db")
    lines = example("strands.md", "FileSessionManager")
    for _ in range(2):
        names: dict[str, Any] = {
            "FileSessionManager": lambda *given, **more: theirs,
            "repository": ours,
        }
        exec(lines, names)
    assert ours.list_messages("user-1", "concierge") == theirs.list_messages("user-1", "concierge")
    assert ours.read_agent("user-1", "concierge") == theirs.read_agent("user-1", "concierge")
