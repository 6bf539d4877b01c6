"""`HoldfastRepository` with wrong values: refused, or taken and read back."""

from pathlib import Path
from typing import Any

from strands.types.session import Session, SessionAgent, SessionMessage, SessionType
from wrong_values import raw_errors

from holdfast.adapters.strands import HoldfastRepository

AT = {"session_id": "k", "agent_id": "a"}


def message(number: int = 0, **fields: Any) -> SessionMessage:
    said = {"role": "user", "content": [{"text": "Water?"}], **fields}
    return SessionMessage.from_message(said, number)


def test_wrong_values_are_refused_or_read_back(tmp_path: Path) -> None:
    repository = HoldfastRepository(tmp_path / "agents.db")
    repository.create_session(Session("k", SessionType.AGENT))
    agent = SessionAgent("a", {"n": 1}, {})
    repository.create_agent("k", agent)
    repository.create_message("k", "a", message())
    number = 0

    def stored(value: Any) -> None:
        nonlocal number
        number += 1
        repository.create_message("k", "a", value)
        assert repository.list_messages("k", "a")

    def made(session_id: Any, session_type: Any) -> None:
        repository.create_session(Session(session_id, session_type))
        assert repository.read_session(session_id) is not None

    def in_state(value: Any) -> None:
        repository.update_agent("k", SessionAgent("a", {"n": value}, {}))
        assert repository.read_agent("k", "a") is not None

    wrong = raw_errors(repository.create_session, session=None)
    wrong += raw_errors(
        lambda id: made(f"{number}{id}" if isinstance(id, str) else id, SessionType.AGENT), id="s"
    )
    wrong += raw_errors(repository.read_session, session_id="k")
    wrong += raw_errors(repository.read_agent, **AT)
    wrong += raw_errors(repository.create_agent, session_id="k", session_agent=agent)
    wrong += raw_errors(repository.update_agent, session_id="k", session_agent=agent)
    wrong += raw_errors(in_state, value=1)
    wrong += raw_errors(repository.create_message, **AT, session_message=message(1))
    wrong += raw_errors(stored, value=message(2))
    wrong += raw_errors(
        lambda content: stored(message(3, content=content)), content=[{"text": "a"}]
    )
    wrong += raw_errors(lambda block: stored(message(4, content=[block])), block={"text": "a"})
    wrong += raw_errors(lambda role: stored(message(5, role=role)), role="user")
    wrong += raw_errors(lambda at: stored(message(at)), at=6)
    wrong += raw_errors(repository.read_message, **AT, message_id=0)
    wrong += raw_errors(repository.update_message, **AT, session_message=message())
    wrong += raw_errors(repository.create_multi_agent, session_id="k", multi_agent=None)
    wrong += raw_errors(repository.update_multi_agent, session_id="k", multi_agent=None)
    wrong += raw_errors(repository.read_multi_agent, session_id="k", multi_agent_id="m")
    wrong += raw_errors(repository.list_messages, **AT, limit=1, offset=0)
    wrong += raw_errors(HoldfastRepository, store=tmp_path / "agents.db")
    # Strands' own word for what is not there, or there already.
    wrong = [each for each in wrong if "SessionException" not in each]
    assert wrong == [], "\n".join(wrong)
    assert repository.list_messages("k", "a")[0].message["content"] == [{"text": "Water?"}]
