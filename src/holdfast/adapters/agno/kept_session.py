"""One session of Agno in a store: its words, and what Agno keeps beside them.

The messages of all runs are a session of Holdfast's, each message once, under the id that Agno gave
it. The row of the session and the runs are records in a second session: a run names its messages,
and a later record of it takes the place of an earlier one. What belongs together is one commit.
"""

import hashlib
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from holdfast.adapters.framework import (
    KnownSessions,
    Named,
    append_once,
    current_of,
    key_of,
    records_after,
    standing,
    stored,
)
from holdfast.domain.arguments import kind_of
from holdfast.domain.message import copied, freeze
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Commit, Write
from holdfast.errors import BadArgument
from holdfast.formats.frameworks.agno import NAME
from holdfast.formats.reading import fields, text
from holdfast.runtime.live.message import payload_of
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store

WORDS, RECORDS, SHOWN = "agno", "agno.records", "agno.shown"
"""The first names of keys: messages, records, and what a run has shown before Agno stored it."""
UNREADABLE = "[This message can't be read any more.]"

Block = dict[str, Any]


class ReadRecords:
    """The records of one session, as far as they were read."""

    def __init__(self) -> None:
        self.row: Block | None = None
        self.runs: dict[str, Block] = {}
        self.is_damaged = False
        self._seq = 0
        self._lock = threading.Lock()

    def read_on(self, session: Session) -> None:
        """Takes what was stored since."""
        with self._lock:
            for seq, record in records_after(session, self._seq):
                self._seq = seq
                self._take(fields(record))

    def _take(self, held: Block) -> None:
        kind = held.get("record")
        # A record that can't be read has no payload. Which messages it named is not
        # known any more: `load` looks for those that no run names.
        self.is_damaged = self.is_damaged or not held
        if kind == "session":
            self.row = held["row"]
        elif kind == "run":
            self.runs[held["run"]["run_id"]] = held
        elif kind == "deleted":
            self.runs.pop(held["run_id"], None)


class RecordsRead:
    """What was read of the records of several sessions: storing a run reads none of those before."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._read: OrderedDict[str, ReadRecords] = OrderedDict()
        self._lock = threading.Lock()

    def up_to_date(self, session: Session) -> ReadRecords:
        """All records of this session."""
        with self._lock:
            read = self._read.setdefault(session.id, ReadRecords())
            self._read.move_to_end(session.id)
            if len(self._read) > self._most:
                self._read.popitem(last=False)
        read.read_on(session)
        return read


class ToldMessages:
    """What stands in the view of a session, by Agno's ids; of one id, the last."""

    def __init__(self) -> None:
        self.by_id: dict[str, Block] = {}
        self.summaries: list[Block] = []
        self.is_spoilt = False
        """Whether there is a message that can't be read."""
        self.known: set[str] = set()
        """Where one can't be read, the ids of those that can, in the view or not."""

    def take(self, seen: StoredMessage) -> None:
        payload = payload_of(seen)
        self.is_spoilt = self.is_spoilt or payload is None
        if seen.note.origin == "summary":
            words = text(fields(payload).get("content"))
            self.summaries.append({"id": seen.id, "role": "user", "content": words})
        elif isinstance(payload, dict) and text(payload.get("id")):
            self.by_id[payload["id"]] = payload

    def of(self, parts: list[Any]) -> list[Block]:
        """The messages of a run. What was taken out of the view is in no history: compacted, rewound,
        hidden by a label, or in a session that was begun anew.
        """
        found: list[Block] = []
        is_whole = True
        for part in parts:
            said = self.by_id.get(part) if isinstance(part, str) else copied(part)
            is_whole = is_whole and said is not None
            if said is None and self.is_spoilt and part not in self.known:
                said = _gone(part, found)
            if said is not None:
                found.append(said)
        return found if is_whole else _answered(_without_strays(found))

    def summary(self, row: Block) -> Block:
        """A run of what was said before."""
        said = self.summaries[0]
        found = _run_of(row, f"summary-{said['id']}", [copied(said)])
        return {**found, "metadata": {"summary": True}}


class MeantIds(NamedTuple):
    """Which sessions of the store one of Agno's was when it was last loaded."""

    words: str | None
    records: str | None


class KeptSession:
    """A session of Agno's for one call: where it lies, and what is read and written there. Which
    sessions of the store it means is asked once.
    """

    def __init__(
        self,
        store: Store,
        known: KnownSessions,
        records_read: "RecordsRead",
        session_id: str,
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            given = kind_of(session_id)
            raise BadArgument(parameter="session_id", takes="a text", given=given)
        self.id = session_id
        self._store, self._known = store, known
        self._records_read = records_read
        self._meant: dict[str, Session | None] = {}

    def meant_ids(self) -> MeantIds:
        """Which sessions this is."""
        found = [self.find(kind) for kind in (WORDS, RECORDS)]
        return MeantIds(*(None if each is None else each.id for each in found))

    def mean(self, ids: MeantIds) -> bool:
        """Has this be these sessions without a question to the store; False when they are not known
        any more. Should they be over, they refuse what is written.
        """
        known = {}
        for kind, id in ((WORDS, ids.words), (RECORDS, ids.records)):
            last = self._known.last_of(key_of(kind, self.id))
            if last is None or last.id != id:
                return False
            known[kind] = last
        self._meant.update(known)
        return True

    @property
    def words(self) -> Session:
        """The session of the messages, made if there is none."""
        return self._session(WORDS)

    @property
    def holdfast_id(self) -> str | None:
        """Which session this is now; None when there is none."""
        found = self.find(WORDS)
        return None if found is None else found.id

    def find(self, kind: str) -> Session | None:
        """The session of this kind, if there is one that was not deleted."""
        if kind not in self._meant:
            found = current_of(self._store, key_of(kind, self.id))
            self._meant[kind] = None if found is None else self._known.remember(found)
        return self._meant[kind]

    def forget(self, kind: str) -> None:
        """Has the store be asked for the session of this kind when it is next wanted."""
        self._meant.pop(kind, None)

    def _session(self, kind: str) -> Session:
        found = self.find(kind)
        if found is None:
            made = self._store.session(key_of(kind, self.id))
            found = self._meant[kind] = self._known.remember(made)
        return found

    def row(self) -> Block | None:
        """What Agno keeps about the session itself."""
        # Copies, here and in `load`: what was read is remembered, and Agno changes what
        # it is given.
        row: Block | None = copied(self._records()[0])
        return row

    def run_ids(self) -> dict[str, str]:
        """The runs there are, and the status of each."""
        _, runs, _ = self._records()
        return {name: text(held["run"].get("status")) for name, held in runs.items()}

    def load(self) -> Block | None:
        """The row with its runs, and these with their messages."""
        row, held, is_damaged = self._records()
        if row is None:
            return None
        told = self._messages()
        runs = [told.summary(row)] if told.summaries else []
        named: set[str] = set()
        for record in held.values():
            named.update(part for part in record["messages"] if isinstance(part, str))
            found = copied(record["run"])
            if record["has_messages"]:
                found["messages"] = told.of(record["messages"])
            runs.append(found)
        if is_damaged or told.is_spoilt:
            lost = [said for name, said in told.by_id.items() if name not in named]
            runs += _recovered(row, lost)
        return {**copied(row), "runs": runs or None}

    def _records(self) -> tuple[Block | None, dict[str, Block], bool]:
        session = self.find(RECORDS)
        if session is None:
            return None, {}, False
        read = self._records_read.up_to_date(session)
        row = read.row
        # The row was in what can't be read. Its runs are still there to be shown.
        if row is None and (read.runs or read.is_damaged):
            row = {"session_id": self.id, "session_type": "agent"}
        return row, read.runs, read.is_damaged

    def _messages(self) -> "ToldMessages":
        session = self.find(WORDS)
        told = ToldMessages()
        for seen in stored(session) if session is not None else ():
            told.take(seen)
        if told.is_spoilt and session is not None:
            for message in session.transcript():
                told.known.add(text(fields(message.payload).get("id")))
        return told

    def put_row(self, row: Block) -> None:
        """Stores the row as it is now."""
        self._write([], {"record": "session", "row": row})

    def put_run(
        self, run: Block, row: Block | None = None, *, has_messages: bool = True
    ) -> None:
        """Stores a run, those of its messages that are new, and the row if it is given: in one
        commit. Without `has_messages` it is loaded without them.
        """
        about = {name: value for name, value in run.items() if name != "messages"}
        parts: list[Any] = []
        new: list[Block] = []
        for message in run.get("messages") or ():
            # What is repeated from another run is no message of this one.
            if message.get("from_history") or not text(message.get("id")):
                parts.append(message)
            else:
                parts.append(message["id"])
                new.append(message)
        record: Block = {"record": "run", "run": about, "messages": parts}
        record["has_messages"] = has_messages and run.get("messages") is not None
        if row is None:
            self._write(new, record)
        else:
            self._write(new, {"record": "session", "row": row}, record)

    def delete_run(self, run_id: str) -> bool:
        """Takes a run out of the session. Its words stay in the transcript."""
        _, runs, _ = self._records()
        held = runs.get(run_id)
        if held is None:
            return False
        self._write([], {"record": "deleted", "run_id": run_id})
        names = {part for part in held["messages"] if isinstance(part, str)}
        for message in standing(self.words):
            if fields(message.payload).get("id") in names:
                self.words.label(message.id, visible_to_model=False)
        return True

    def _write(self, messages: list[Block], *records: Block) -> None:
        named = [Named(said, _name(said)) for said in messages]
        log = self._session(RECORDS)._log
        drafts = []
        for record in records:
            drafts.append(log.message(speak(record, NAME), turn=None))
        also: Commit = (Write(log.id, tuple(drafts)),)
        run(append_once(self.words, named, format=NAME, also=also))

    def erase(self) -> None:
        """Takes all of it out of the store. The records come last: killed before that, it is still
        there to be deleted again.
        """
        for kind in (SHOWN, WORDS, RECORDS):
            found = self.find(kind)
            if found is not None:
                self._store.erase(found.id)


def _name(message: Block) -> str:
    # By its words as well: a message that comes again with other words, under the same
    # id, is stored, too.
    said = hashlib.sha256(freeze(message)).hexdigest()
    return f"{message['id']}/{said}"


def _gone(name: str, before: list[Block]) -> Block:
    # A run begins with its prompt.
    role = "assistant" if any(said["role"] == "user" for said in before) else "user"
    return {"id": name, "role": role, "content": UNREADABLE}


def _recovered(row: Block, messages: list[Block]) -> list[Block]:
    """A run of messages whose own run can't be read any more."""
    if not messages:
        return []
    return [_run_of(row, f"recovered-{messages[0]['id']}", messages)]


def _run_of(row: Block, run_id: str, messages: list[Block]) -> Block:
    run: Block = {"run_id": run_id, "status": "COMPLETED"}
    component = "team_id" if row.get("team_id") else "agent_id"
    for name in (component, "session_id", "user_id"):
        run[name] = row.get(name)
    return {**run, "messages": messages}


def _answered(messages: list[Block]) -> list[Block]:
    """These messages, with a result for each call whose own is not there any more."""
    answered = {said.get("tool_call_id") for said in messages if said["role"] == "tool"}
    found: list[Block] = []
    open_calls: list[Any] = []
    for message in messages:
        is_gone = message["content"] == UNREADABLE if "content" in message else False
        if message["role"] != "tool":
            found += [_result(call_id) for call_id in open_calls]
            # What can't be read any more was such a result.
            is_gone = is_gone and bool(open_calls)
            open_calls = []
        if not is_gone:
            found.append(message)
        for call in message.get("tool_calls") or ():
            call_id = fields(call).get("id")
            if call_id not in answered:
                open_calls.append(call_id)
    return found + [_result(call_id) for call_id in open_calls]


def _result(call_id: Any) -> Block:
    name = f"{call_id}-gone"
    said = {"id": name, "role": "tool", "content": UNREADABLE}
    return {**said, "tool_call_id": call_id}


def _without_strays(messages: list[Block]) -> list[Block]:
    """These messages without results whose call is not there: it was in what can't be read."""
    calls = set()
    for message in messages:
        for call in message.get("tool_calls") or ():
            calls.add(fields(call).get("id"))
    kept = []
    for message in messages:
        if message.get("role") != "tool" or message.get("tool_call_id") in calls:
            kept.append(message)
    return kept
