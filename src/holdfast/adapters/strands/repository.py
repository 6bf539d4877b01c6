"""`HoldfastRepository`: Strands' session repository.

strands:SESSION:AGENT          the messages of an agent: a session of Holdfast's, to be shown and searched
strands.session:SESSION        the record of the session
strands.agent:SESSION:AGENT    the state of an agent, of its conversation manager and its model
strands.multi:SESSION:ID       the state of a graph or a swarm
"""

import dataclasses
from typing import Any

from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import (
    Session,
    SessionAgent,
    SessionMessage,
    SessionType,
    decode_bytes_values,
)

from holdfast.adapters.framework import (
    GivenStore,
    Named,
    append_once,
    key_of,
    sessions_under,
    store_of,
)
from holdfast.adapters.strands.agent_messages import (
    AgentMessages,
    ListedMessage,
    Record,
)
from holdfast.adapters.strands.records import Handles, Records, plain
from holdfast.domain.arguments import kind_of, optional, whole
from holdfast.errors import BadArgument
from holdfast.formats.frameworks.strands import NAME
from holdfast.runtime.plans.plan import run
from holdfast.runtime.store import Store

_OFFSET = whole()
_LIMIT = optional(_OFFSET)
_FIELDS = {field.name for field in dataclasses.fields(SessionMessage)}
SESSION, AGENT, MULTI = "strands.session", "strands.agent", "strands.multi"


class HoldfastRepository(SessionRepository):
    """Sessions, agents, messages and multi-agent states in a Holdfast store: one that is open, a
    path or an address. Safe to use from many threads.

    It writes to the sessions that it has read. After `delete_session` elsewhere these are over, and
    it is refused with `SessionEnded` until it reads or creates the session anew.
    """

    def __init__(self, store: GivenStore) -> None:
        self.store: Store = store_of(store)
        self._handles = Handles(self.store)
        self._records = Records(self._handles)
        self.runs: dict[tuple[str, str], Any] = {}
        """The invocations that store messages in turns of theirs, by session and agent."""

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Begins a session; `SessionException` when there is one of this id."""
        _of_kind(session, Session, "session")
        key = key_of(SESSION, _name(session.session_id, "session_id"))
        self._forget(session.session_id)
        if not self._records.create(key, "session", session.to_dict()):
            raise SessionException(f"Session {session.session_id} already exists")
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """The session of this id, if there is one."""
        key = key_of(SESSION, _name(session_id, "session_id"))
        self._forget(session_id)
        found = self._records.read(key)
        if found is not None:
            return Session.from_dict(found)
        if not self._records.is_there(key):
            return None
        # It can't be read: what is in the session is there all the same.
        return Session(session_id, SessionType.AGENT)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Takes a session and all that is in it out of the store."""
        if self.read_session(session_id) is None:
            raise SessionException(f"Session {session_id} does not exist")
        doomed = []
        for kind in (AGENT, MULTI, NAME):
            for state in sessions_under(self.store, kind, session_id):
                doomed.append(state.id)
        # Last: killed before that, it is still there to be deleted again.
        own = self._handles.find(key_of(SESSION, session_id))
        if own is not None:
            doomed.append(own.id)
        for each in doomed:
            self.store.erase(each)
        self._forget(session_id)

    def create_agent(
        self, session_id: str, session_agent: SessionAgent, **kwargs: Any
    ) -> None:
        """Puts an agent into a session; one of this id has this state from now on."""
        _of_kind(session_agent, SessionAgent, "session_agent")
        key = self._agent_key(session_id, session_agent.agent_id)
        self._require(session_id)
        value = session_agent.to_dict()
        if not self._records.create(key, "agent", value):
            self._records.update(key, "agent", value)
        self._handles.open(key_of(NAME, session_id, session_agent.agent_id))

    def read_agent(
        self, session_id: str, agent_id: str, **kwargs: Any
    ) -> SessionAgent | None:
        """The agent of this id, if the session has one."""
        found = self._records.read(self._agent_key(session_id, agent_id))
        if found is None:
            return None
        agent = SessionAgent.from_dict(found)
        managed = agent.conversation_manager_state
        if self._is_of_others(managed, session_id, agent_id):
            agent.conversation_manager_state = {
                **managed,
                "removed_message_count": 0,
                "summary_message": None,
            }
        return agent

    def _is_of_others(
        self, managed: dict[str, Any], session_id: str, agent_id: str
    ) -> bool:
        """Whether a conversation manager has left out more than there is: the messages were begun
        anew since, or rewound.
        """
        removed = managed.get("removed_message_count", 0)
        if not removed:
            return False
        conversation = self.conversation(session_id, agent_id)
        return conversation is None or len(conversation.ids()) < removed

    def update_agent(
        self, session_id: str, session_agent: SessionAgent, **kwargs: Any
    ) -> None:
        """The agent has this state from now on."""
        _of_kind(session_agent, SessionAgent, "session_agent")
        key = self._agent_key(session_id, session_agent.agent_id)
        known = self._records.read(key)
        if known is None:
            raise _no_agent(session_id, session_agent.agent_id)
        session_agent.created_at = known.get("created_at", session_agent.created_at)
        self._records.update(key, "agent", session_agent.to_dict())

    def create_message(
        self,
        session_id: str,
        agent_id: str,
        session_message: SessionMessage,
        **kwargs: Any,
    ) -> None:
        """Stores a message after all others. The same one again, by its number and its tracking id or
        time, is there already.
        """
        record = _record(session_message)
        _name(session_id, "session_id")
        _name(agent_id, "agent_id")
        run_of_agent = self.runs.get((session_id, agent_id))
        if run_of_agent is not None:
            run_of_agent.add(record)
            return
        conversation = self.opened(session_id, agent_id)
        # Copies of a message have its tracking id, and are messages of their own.
        mark = record["message"].get("tracking_id") or session_message.created_at
        name = f"{session_message.message_id}/{mark}"
        run(append_once(conversation.session, [Named(record, name)], format=NAME))

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        """The message of this number, if there is one."""
        _number(message_id)
        conversation = self.conversation(session_id, agent_id)
        found = None if conversation is None else conversation.find(message_id)
        return None if found is None else _session_message(found)

    def update_message(
        self,
        session_id: str,
        agent_id: str,
        session_message: SessionMessage,
        **kwargs: Any,
    ) -> None:
        """A message reads like this from now on; the transcript keeps what it said."""
        record = _record(session_message)
        number = session_message.message_id
        conversation = self.conversation(session_id, agent_id)
        tracking_id = record["message"].get("tracking_id")
        found = None
        if conversation is not None:
            found = conversation.find(number, tracking_id)
        if conversation is None or found is None:
            raise SessionException(f"Message {number} does not exist")
        created_at = found.record.get("created_at", session_message.created_at)
        session_message.created_at = record["created_at"] = created_at
        conversation.reword(found.seen, record)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """So many messages of an agent from this place on, in the order in which they were
        stored.
        """
        limit, offset = _LIMIT("limit", limit), _OFFSET("offset", offset)
        conversation = self.conversation(session_id, agent_id)
        if conversation is None:
            self._require_agent(session_id, agent_id)
            return []
        return [_session_message(each) for each in conversation.listed(limit, offset)]

    def create_multi_agent(
        self, session_id: str, multi_agent: Any, **kwargs: Any
    ) -> None:
        """Puts a graph or a swarm into a session."""
        _check_multi_agent(multi_agent)
        self._require(session_id)
        key = self._multi_key(session_id, multi_agent.id)
        value = multi_agent.serialize_state()
        if not self._records.create(key, "multi_agent", value):
            self._records.update(key, "multi_agent", value)

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> dict[str, Any] | None:
        """The state of a graph or a swarm, if the session has one of this id."""
        return self._records.read(self._multi_key(session_id, multi_agent_id))

    def update_multi_agent(
        self, session_id: str, multi_agent: Any, **kwargs: Any
    ) -> None:
        """A graph or a swarm has this state from now on."""
        _check_multi_agent(multi_agent)
        key = self._multi_key(session_id, multi_agent.id)
        if self._records.read(key) is None:
            said = f"MultiAgent state {multi_agent.id} in session {session_id}"
            raise SessionException(f"{said} does not exist")
        self._records.update(key, "multi_agent", multi_agent.serialize_state())

    def conversation(self, session_id: str, agent_id: str) -> AgentMessages | None:
        """An agent's messages, if the session has that agent; `.session` is the session of
        Holdfast's that they are in.
        """
        names = _name(session_id, "session_id"), _name(agent_id, "agent_id")
        found = self._handles.find(key_of(NAME, *names))
        return None if found is None else AgentMessages(found)

    def opened(self, session_id: str, agent_id: str) -> AgentMessages:
        """An agent's messages. Were they ended or erased, and not the agent, they begin anew."""
        found = self.conversation(session_id, agent_id)
        if found is None:
            self._require_agent(session_id, agent_id)
            found = AgentMessages(
                self._handles.open(key_of(NAME, session_id, agent_id))
            )
        return found

    def _require_agent(self, session_id: str, agent_id: str) -> None:
        if not self._records.is_there(self._agent_key(session_id, agent_id)):
            raise _no_agent(session_id, agent_id)

    def _require(self, session_id: str) -> None:
        if not self._records.is_there(key_of(SESSION, session_id)):
            raise SessionException(f"Session {session_id} does not exist")

    def _forget(self, session_id: str) -> None:
        """What is known of a session is looked up anew."""
        kinds = (SESSION, AGENT, MULTI, NAME)
        self._handles.forget(*(key_of(kind, session_id) for kind in kinds))

    def _agent_key(self, session_id: str, agent_id: str) -> str:
        return key_of(
            AGENT, _name(session_id, "session_id"), _name(agent_id, "agent_id")
        )

    def _multi_key(self, session_id: str, multi_agent_id: str) -> str:
        names = _name(session_id, "session_id"), _name(multi_agent_id, "multi_agent_id")
        return key_of(MULTI, *names)


def _session_message(listed: ListedMessage) -> SessionMessage:
    # As its `from_dict` does it, which looks up the names of the fields for each of them.
    known = {}
    for name, value in listed.record.items():
        if name in _FIELDS:
            known[name] = decode_bytes_values(value)
    return SessionMessage(**known)


def _record(session_message: Any) -> Record:
    _of_kind(session_message, SessionMessage, "session_message")
    _number(session_message.message_id)
    return plain(session_message.to_dict())


def _number(message_id: Any) -> None:
    if not isinstance(message_id, int):
        takes = "a number"
        raise BadArgument(
            parameter="message_id", takes=takes, given=kind_of(message_id)
        )


def _of_kind(given: Any, kind: type, parameter: str) -> None:
    if not isinstance(given, kind):
        takes = f"a {kind.__name__} of Strands'"
        raise BadArgument(parameter=parameter, takes=takes, given=kind_of(given))


def _name(given: Any, parameter: str) -> str:
    if not isinstance(given, str) or not given:
        raise BadArgument(parameter=parameter, takes="a name", given=kind_of(given))
    return given


def _check_multi_agent(given: Any) -> None:
    if not callable(getattr(given, "serialize_state", None)) or not hasattr(
        given, "id"
    ):
        takes = "a graph or a swarm"
        raise BadArgument(parameter="multi_agent", takes=takes, given=kind_of(given))


def _no_agent(session_id: str, agent_id: str) -> SessionException:
    return SessionException(f"Agent {agent_id} in session {session_id} does not exist")
