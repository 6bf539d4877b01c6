"""What each endpoint does: from who asks and what they send to what they are told."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.adapters.openviking.server import incoming, replies, settings
from holdfast.adapters.openviking.server.checking import (
    an_object,
    asked_bool,
    asked_count,
    wrong,
)
from holdfast.adapters.openviking.server.extraction import (
    TRIES,
    Extraction,
    SessionPlace,
)
from holdfast.adapters.openviking.server.problem import RequestProblem, not_found
from holdfast.adapters.openviking.server.retention import kept
from holdfast.adapters.openviking.server.sessions.archive import (
    Extracted,
    Json,
    SessionArchive,
    number_of,
)
from holdfast.adapters.openviking.server.sessions.directory import (
    Directory,
    Requester,
    uri_of,
)
from holdfast.adapters.openviking.server.sessions.served_session import (
    ServedMessage,
    ServedSession,
)
from holdfast.adapters.openviking.server.sessions.session_handle import (
    NewMessage,
    SessionHandle,
)
from holdfast.adapters.openviking.server.sessions.tool_output import (
    ToolOutput,
    matches,
    output_at,
    place_of,
)
from holdfast.errors import SessionEnded
from holdfast.runtime.clock import World

BUDGET = 128_000
READ = 20_000
AROUND_MAX = 10_000


class ClientRequest(NamedTuple):
    """A request: the names in its path, its query, and its body as JSON."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


class Service:
    """The endpoints, one method each. Without `extraction`, a commit is done when it is stored."""

    def __init__(
        self, directory: Directory, extraction: Extraction | None, world: World
    ) -> None:
        self._directory, self._extraction = directory, extraction
        self._world = world

    # Sessions.

    def create(self, requester: Requester, asked: ClientRequest) -> Json:
        body = an_object(
            {} if asked.body is None else asked.body,
            ("body",),
        )
        set_to = settings.at_creation(body)
        name = body.get("session_id")
        name = incoming.session_name(name) if name not in (None, "") else self._fresh()
        # As OpenViking does: a client that makes it twice wants to know.
        if self._directory.find(requester, name) is not None:
            words = f"Session '{name}' already exists"
            details = {"resource": words, "type": "resource"}
            raise RequestProblem(
                "ALREADY_EXISTS", f"Resource already exists: {words}", details
            )
        handle = self._directory.make(requester, name)
        # After it is made: if the process dies in between, a client that tries again is told that it
        # is there, and can set it up.
        handle.set_up(set_to)
        return replies.created(requester, name, handle)

    def _fresh(self) -> str:
        """A name that nobody has chosen: the time for people, the rest by chance."""
        at = replies.moment_of_message(self._world.now())
        day, clock = at[:10].replace("-", ""), at[11:19].replace(":", "")
        return f"{day}-{clock}-{self._world.chance(8).hex()}"

    def list_sessions(self, requester: Requester, asked: ClientRequest) -> list[Json]:
        found = []
        for name, active_at in self._directory.names(requester):
            found.append(replies.listed(name, uri_of(requester, name), active_at))
        return found

    def get(self, requester: Requester, asked: ClientRequest) -> Json:
        name = asked.path["session_id"]
        may_create = asked_bool(asked.query, "auto_create", False)
        handle = self._directory.find(requester, name)
        if handle is None and may_create:
            handle = self._directory.make(
                requester,
                incoming.session_name(name),
            )
        if handle is None:
            raise RequestProblem("NOT_FOUND", f"Session {name} not found")
        return replies.details(requester, name, handle)

    def delete(self, requester: Requester, asked: ClientRequest) -> Json:
        name, handle = self._session(requester, asked)
        self._directory.delete(handle)
        return {"session_id": name}

    def configure(self, requester: Requester, asked: ClientRequest) -> Json:
        name = asked.path["session_id"]
        handle = self._directory.find(requester, name)
        if handle is None:
            raise RequestProblem("NOT_FOUND", f"Session {name} not found")
        with handle.lock:
            set_to = settings.changed(handle.served().settings, asked.body)
            handle.set_up(set_to)
        return {
            "session_id": name,
            "auto_commit_policy": set_to.get("auto_commit_policy"),
            "memory_extraction_config": settings.extraction_config(set_to),
        }

    # Messages.

    def add(self, requester: Requester, asked: ClientRequest) -> Json:
        return self._add(
            requester, asked, incoming.message_in(asked.body, now=self._now())
        )

    def add_batch(self, requester: Requester, asked: ClientRequest) -> Json:
        messages = incoming.messages_in(asked.body, now=self._now())
        # As many as it was sent: one that had come before is there, too.
        count = len(asked.body["messages"])
        return {
            **self._add(requester, asked, messages),
            "added": count,
        }

    def _now(self) -> str:
        return replies.moment_of_message(self._world.now())

    def _add(
        self, requester: Requester, asked: ClientRequest, messages: list[NewMessage]
    ) -> Json:
        name = incoming.session_name(asked.path["session_id"])
        try:
            served = self._appended(requester, name, messages)
        except SessionEnded:
            # Deleted after it was found: then it is made again, as one that was never there.
            served = self._appended(requester, name, messages)
        return {
            "session_id": name,
            "message_count": served.live_count,
            "pending_tokens": served.new_tokens,
        }

    def _appended(
        self, requester: Requester, name: str, messages: list[NewMessage]
    ) -> ServedSession:
        handle = self._directory.make(requester, name)
        # Whoever has grown it past a threshold commits it, not who comes next.
        with handle.lock:
            served = handle.append(messages)
            since = None
            if served.last is not None:
                since = (self._world.now() - served.last.at) / 1000
            is_due = settings.commits_by_itself(
                served.settings,
                messages=served.live_count,
                tokens=served.new_tokens,
                since_commit_s=since,
            )
            if is_due:
                keep = served.settings["auto_commit_policy"]["keep_recent_count"]
                request = incoming.CommitRequest(keep=keep)
                self._commit(requester, name, handle, request)
            return handle.served()

    # Commits.

    def commit(self, requester: Requester, asked: ClientRequest) -> Json:
        request = incoming.commit_in(asked.body)
        name, handle = self._session(requester, asked)
        told = self._commit(requester, name, handle, request)
        if request.reset:
            told["reset_context"] = True
        return told

    def _commit(
        self,
        requester: Requester,
        name: str,
        handle: SessionHandle,
        request: incoming.CommitRequest,
    ) -> Json:
        with handle.lock:
            served = handle.served()
            memory = settings.wants_working_memory(
                served.settings, request.working_memory
            )
            archive = handle.archive(
                kept(served.live, request),
                is_finished=self._extraction is None,
                reset=request.reset,
                working_memory=memory,
                asked=_asked(request),
            )
            told = replies.committed(name, handle, archive, memory=memory)
        # Also when nothing was new: a commit is a reason to try again what has failed.
        if self._extraction is not None:
            self._extraction.notify(SessionPlace(requester, name))
        return told

    def context(self, requester: Requester, asked: ClientRequest) -> Json:
        budget = asked_count(
            asked.query,
            "token_budget",
            BUDGET,
            least=None,
        )
        if budget < 0:
            words = "token_budget must be greater than or equal to 0"
            details = {"field": "token_budget", "value": budget}
            raise RequestProblem("INVALID_ARGUMENT", words, details)
        name, handle = self._session(requester, asked)
        with handle.lock:
            served = handle.served()
            failed = 0
            for number in served.unfinished:
                if self._status(SessionPlace(requester, name), number)[0] == "failed":
                    failed += 1
            return replies.context(served, budget, failed)

    def archive(self, requester: Requester, asked: ClientRequest) -> Json:
        _, handle = self._session(requester, asked)
        name = asked.path["archive_id"]
        found = _archive(handle, number_of(name) or 0)
        if found is None:
            raise RequestProblem(
                "NOT_FOUND",
                f"SessionArchive {name} not found",
            )
        archive, done = found
        return replies.archived(
            archive,
            done,
            handle.messages_of(archive),
        )

    # Tasks.

    def task(self, requester: Requester, asked: ClientRequest) -> Json:
        name = asked.path["task_id"]
        place = replies.place_of_task(name)
        if place is not None:
            found = self._directory.find_id(requester, place[0])
            if found is not None:
                task = self._task(requester, *found, place[1])
                if task is not None:
                    return task
        details = {"resource": name, "type": "task"}
        raise RequestProblem(
            "NOT_FOUND",
            "Task not found or expired",
            details,
        )

    def tasks(self, requester: Requester, asked: ClientRequest) -> list[Json]:
        limit = asked_count(asked.query, "limit", 50, least=1)
        kind = asked.query.get("task_type", "session_commit")
        status = asked.query.get("status")
        found: list[Json] = []
        # Only commits are tasks here.
        if kind != "session_commit":
            return found
        for task in self._tasks(requester, asked.query.get("resource_id")):
            if status is None or task["status"] == status:
                found.append(task)
            if len(found) >= limit:
                break
        return found

    def _tasks(self, requester: Requester, session: str | None) -> Iterator[Json]:
        """The tasks of one session, or of all, those of the session used last first."""
        names = [session] if session is not None else self._names(requester)
        for name in names:
            handle = self._directory.find(requester, name)
            if handle is None:
                continue
            for number in range(handle.served().commits, 0, -1):
                task = self._task(requester, name, handle, number)
                if task is not None:
                    yield task

    def _names(self, requester: Requester) -> Iterator[str]:
        for name, _ in self._directory.names(requester):
            yield name

    def _task(
        self, requester: Requester, name: str, handle: SessionHandle, number: int
    ) -> Json | None:
        found = _archive(handle, number)
        if found is None:
            return None
        archive, done = found
        status, problem = "completed", None
        if done is None:
            status, problem = self._status(SessionPlace(requester, name), number)
        return replies.task(
            name,
            handle,
            archive,
            done,
            status=status,
            problem=problem,
        )

    def _status(self, place: SessionPlace, number: int) -> tuple[str, str | None]:
        """How an extraction that is not done stands, and what went wrong."""
        # Stored by a server that had an extractor; this one has none.
        if self._extraction is None:
            return "pending", None
        failure = self._extraction.failure(place, number)
        # Tried again soon: who polls is not told of a failure that may be over by then.
        if failure is not None and failure.tries >= TRIES:
            return "failed", failure.problem
        is_running = self._extraction.is_running(place)
        return "running" if is_running else "pending", None

    # Long outputs of tools.

    def tool_results(self, requester: Requester, asked: ClientRequest) -> Json:
        limit = asked_count(asked.query, "limit", 50, least=1)
        tool = asked.query.get("tool_name")
        name, handle = self._session(requester, asked)
        found: list[Json] = []
        for message in _with_outputs(handle):
            for output in message.outputs:
                if tool is None or output.tool_name == tool:
                    found.append(
                        replies.tool_result(
                            requester,
                            name,
                            handle,
                            message,
                            output,
                        )
                    )
            if len(found) >= limit:
                break
        return {"tool_results": found[:limit]}

    def tool_result(self, requester: Requester, asked: ClientRequest) -> Json:
        offset = asked_count(asked.query, "offset", 0)
        limit = asked_count(asked.query, "limit", READ, least=None)
        if limit < -1:
            words = "limit must be -1 or greater than or equal to 0"
            details = {"field": "limit", "value": limit}
            raise RequestProblem("INVALID_ARGUMENT", words, details)
        name, handle = self._session(requester, asked)
        message, output, whole = self._output(handle, asked)
        # OpenViking's word for all of it.
        end = len(whole) if limit == -1 else offset + limit
        told = {
            "tool_result_id": output.name,
            "content": whole[offset:end],
            "offset": offset,
            "limit": limit,
            "offset_unit": replies.UNIT,
            "total_chars": output.chars,
            "has_more": end < len(whole),
        }
        if asked_bool(asked.query, "include_metadata", True):
            told["metadata"] = replies.tool_result(
                requester, name, handle, message, output
            )
        return told

    def search_tool_result(self, requester: Requester, asked: ClientRequest) -> Json:
        if "q" not in asked.query:
            raise wrong(("query", "q"), "Field required", "missing")
        sought = asked.query["q"]
        if not sought:
            words = "String should have at least 1 character"
            raise wrong(("query", "q"), words, "string_too_short")
        limit = asked_count(asked.query, "limit", 20, least=1)
        around = asked_count(asked.query, "context_chars", 300)
        _, handle = self._session(requester, asked)
        _, output, whole = self._output(handle, asked)
        found = matches(
            whole,
            sought,
            limit=limit,
            around=min(around, AROUND_MAX),
        )
        return {"tool_result_id": output.name, "matches": found}

    def _output(
        self, handle: SessionHandle, asked: ClientRequest
    ) -> tuple[ServedMessage, ToolOutput, str]:
        name = asked.path["tool_result_id"]
        place = place_of(name)
        if place is not None:
            found = handle.message_at(place[0])
            if found is not None:
                message, payload = found
                whole = output_at(payload, place[1])
                for output in message.outputs:
                    if output.name == name and whole is not None:
                        return message, output, whole
        raise not_found("file", f"{handle.uri}/tool-results/{name}")

    def _session(
        self, requester: Requester, asked: ClientRequest
    ) -> tuple[str, SessionHandle]:
        """The session that was named; there is none of others."""
        name = asked.path["session_id"]
        handle = self._directory.find(requester, name)
        if handle is None:
            raise not_found("session", name)
        return name, handle


def _asked(request: incoming.CommitRequest) -> Json:
    """What a commit says of what it was asked for; nothing of what is as usual."""
    given: Json = {
        "keep_recent_count": request.keep,
        "retention_mode": request.mode,
        "keep_recent_turn_count": request.keep_turns,
        "retained_message_token_budget": request.token_budget,
        "extraction_metadata": request.metadata,
    }
    if request.tail_min != 1:
        given["min_raw_tail_steps"] = request.tail_min
    return {name: value for name, value in given.items() if value}


def _archive(
    handle: SessionHandle, number: int
) -> tuple[SessionArchive, Extracted | None] | None:
    """An archive, and what was extracted from it if that is done."""
    with handle.lock:
        archive = handle.served().unfinished.get(number)
        if archive is not None:
            return archive, None
        done = handle.extracted(number)
    return (done.archive, done) if done is not None else None


def _with_outputs(handle: SessionHandle) -> Iterator[ServedMessage]:
    """The messages with long outputs, the latest first: those that are shown, then those in
    archives.
    """
    with handle.lock:
        served = handle.served()
        shown = list(reversed(served.messages))
        last = served.extracted
    seen = set()
    for message in shown:
        seen.add(message.seq)
        if message.outputs:
            yield message
    for number in range(last, 0, -1):
        done = handle.extracted(number)
        seqs = done.archive.outputs if done is not None else ()
        for seq in reversed(seqs):
            found = handle.message_at(seq)
            if seq not in seen and found is not None:
                yield found[0]
