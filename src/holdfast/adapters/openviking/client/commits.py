"""Commits: asked for, accepted, their tasks followed to the end.

`accepted` is Phase 1: the messages lie in an archive. What is made of them (Phase 2) is a task, and
may fail. A commit is never sent again blindly: when its answer was lost, what it had to archive is
looked for first.
"""

import json
import re
from typing import Any, Literal
from urllib.parse import quote

from msgspec.structs import replace

from holdfast.adapters.openviking.client.arrived import (
    NotNow,
    archive_is_there,
    counted,
    look,
)
from holdfast.adapters.openviking.client.deliveries import LoggedRecord
from holdfast.adapters.openviking.client.http_connection import (
    PROBLEM_MAX,
    HttpAnswer,
)
from holdfast.adapters.openviking.client.position import (
    CommitAccepted,
    CommitEnded,
    CommitRequested,
    FailedCommit,
    LogPlace,
    accepted,
    archive_name,
    compared,
    failed_commit,
    with_failed,
    without_failed,
    without_task,
)
from holdfast.adapters.openviking.client.visit import REFUSALS, Visit

POLL_S = 1.0
FAILURES_MAX = 10
"""After so many errors of the server's over one commit, it counts as failed: its messages are live
there, and the next commit takes them.
"""

_ARCHIVE = re.compile(r"archive_[0-9]{1,9}\Z")
CommitEnd = Literal["completed", "skipped", "failed"]


def begin_commit(visit: Visit, logged: LoggedRecord, wish: CommitRequested) -> bool:
    """Commits, once all messages before it have arrived; False while some are held back."""
    if _is_early(visit, wish):
        visit.store()
        return False
    if wish.again and _send_again(visit, wish):
        return True
    visit.position = replace(visit.position, committing=logged.id)
    visit.about_to_send()
    answer = visit.send("/commit", wish.options, _tells_outcome)
    result = answer.fields
    if answer.ok and result["archived"]:
        archive = _archive_in(result["archive_uri"])
        _accept(visit, logged, wish, archive, result["task_id"])
    # A session that is not there has never had a message.
    elif answer.ok or answer.missing:
        why = str(result.get("reason") or "there was nothing to commit")
        _end(visit, logged, "skipped", why)
    elif _is_hopeless(visit, logged, answer):
        _end(visit, logged, "failed", str(answer))
    else:
        raise NotNow(answer)
    return True


def _tells_outcome(result: dict[str, Any]) -> bool:
    """Whether an answer says what became of a commit: that nothing was archived, or in which archive
    it is and which task works on it.
    """
    if result.get("archived") is not True:
        return result.get("archived") is False
    task = result.get("task_id")
    return isinstance(task, str) and bool(
        task and _archive_in(result.get("archive_uri"))
    )


def _archive_in(address: object) -> str:
    """The name of an archive at the end of its address; nothing where there is none."""
    found = _ARCHIVE.search(address) if isinstance(address, str) else None
    return found[0] if found else ""


def _send_again(visit: Visit, wish: CommitRequested) -> bool:
    """Sends what a failed commit has covered, a batch at a time; False when all of it is there. An
    archive that failed can't be read: of what is in it, only what was sent again is seen.
    """
    bodies = visit.covered(failed_commit(visit.position, wish.again).covers)
    if not bodies:
        return False
    # All archives: where the session was filled again since, its commits were done again, too.
    seen = look(visit.http, visit.viking_id, list(bodies), 0)
    there = seen.live | seen.archived
    missing = [bodies[id] for id in bodies if id not in there]
    if not missing:
        return False
    # As many as OpenViking took last: after a refusal, fewer.
    batch = missing[: visit.memory.width]
    visit.about_to_send()
    answer = visit.send_messages(batch)
    if not answer.ok:
        if answer.refused:
            visit.narrow(batch, answer)
            return True
        raise NotNow(answer)
    visit.count(answer.fields, len(batch))
    visit.position = replace(visit.position, doubt_at=None)
    visit.store()
    return True


def _is_early(visit: Visit, wish: CommitRequested) -> bool:
    """Whether a message from before the commit has to wait, for the result of a tool."""
    waiting = visit.messages(visit.position.sent.seq, 1)
    return bool(waiting) and waiting[0].seq <= wish.after


def _is_hopeless(visit: Visit, logged: LoggedRecord, answer: HttpAnswer) -> bool:
    """Whether a commit that was answered with an error is one time too many. A server that is away
    or busy has failed over nothing.
    """
    if answer.refused or answer.status == 412:
        return visit.count_failure(logged.id) >= REFUSALS
    # After an error of its own it may have archived the messages all the same: that is looked for
    # before the commit is given up.
    if answer.status == 500:
        visit.count_failure(logged.id)
    return False


def _accept(
    visit: Visit,
    logged: LoggedRecord,
    wish: CommitRequested,
    archive: str,
    task: str | None,
) -> None:
    position = visit.position
    since = _since(visit, wish)
    covers = failed_commit(position, wish.again).covers
    covers = (*covers, (position.since, since or position.sent))
    record = CommitAccepted(
        logged.id, archive, task, covers=covers, options=wish.options
    )
    if since is None:
        record = replace(record, kept_from=position.since)
        # Until that is known, none of them counts as live: what a commit has archived must never
        # be taken for lost.
        since = position.sent
    position = without_failed(position, wish.again)
    visit.position = accepted(position, record, seq=logged.seq, since=since)
    # The answer does not tell how many are left.
    counts = counted(visit.http, visit.viking_id)
    if counts is not None:
        visit.position = replace(visit.position, live=counts[0])
    visit.store(record)


def _since(visit: Visit, wish: CommitRequested) -> LogPlace | None:
    """After which message all are still live; None where that is seen only when its task is over:
    in turns it keeps what fits a budget, and of others' messages we know nothing.
    """
    if wish.options.get("retention_mode"):
        return None
    kept = wish.options.get("keep_recent_count") or 0
    if not kept:
        return visit.position.sent
    ours = visit.acknowledged()
    if len(ours) != visit.position.live:
        return None
    gone = ours[: max(0, len(ours) - kept)]
    if not gone:
        return visit.position.since
    return gone[-1]


def _end(
    visit: Visit,
    logged: LoggedRecord,
    state: CommitEnd,
    problem: str,
) -> None:
    visit.position = replace(
        visit.position, committing="", doubt_at=None, requests=logged.seq
    )
    wish = logged.record
    assert isinstance(wish, CommitRequested)
    before = failed_commit(visit.position, wish.again)
    visit.position = without_failed(visit.position, wish.again)
    # A commit that failed twice covers what it was to bring again, and can be asked for once more.
    if state == "failed":
        failed = FailedCommit(logged.id, before.covers, wish.options)
        visit.position = with_failed(visit.position, failed)
    visit.store(CommitEnded(logged.id, state, problem))


def resolve_commit(visit: Visit) -> None:
    """Finds out what became of the commit in doubt; one that did not happen will be tried again."""
    found = visit.log.next_request(visit.position.requests)
    assert not isinstance(found, int), "a commit in doubt was asked for"
    logged, wish = found
    before = visit.position.archives
    ours = visit.acknowledged()
    wanted = [place.id for place in ours]
    seen = look(visit.http, visit.viking_id, wanted, before)
    # The oldest goes first, whatever is kept. Not "is in an archive": one that failed can't be read.
    is_archived = not ours or ours[0].id not in seen.live
    if seen.archives > before and is_archived:
        archive = archive_name(before + 1)
        _accept(
            visit,
            logged,
            wish,
            archive,
            _task_of(visit, archive),
        )
        return
    # It may be waiting for a lock there: a second one would archive what comes after the first.
    if not visit.is_doubt_over():
        raise NotNow("a commit whose outcome is unknown may still be done")
    if visit.failures(logged.id) >= FAILURES_MAX:
        _end(
            visit,
            logged,
            "failed",
            "OpenViking fails over it",
        )
        return
    after, lost = compared(visit.position, ours, seen)
    if lost is not None:
        lost = visit.make_sure_of(lost, after.known)
    visit.position = replace(
        after, committing="", doubt_at=None, address=visit.http.address
    )
    if lost is not None:
        visit.store(lost)


def _task_of(visit: Visit, archive: str) -> str | None:
    """The task that works on this archive, if OpenViking tells."""
    answer = visit.http.ask(
        "GET", "/api/v1/tasks", task_type="session_commit", resource_id=visit.viking_id
    )
    if not isinstance(answer.result, list):
        return None
    for task in answer.result:
        # The address of the archive is in the task's result; by what name is not promised.
        if not isinstance(task, dict) or not isinstance(task.get("task_id"), str):
            continue
        if f"/{archive}" in json.dumps(task.get("result")):
            return str(task["task_id"])
    return None


def follow_tasks(visit: Visit) -> float | None:
    """Looks at the tasks of accepted commits; gives when to look again."""
    for commit in visit.position.tasks:
        ended = _ended(visit, commit)
        if ended is not None:
            visit.position = without_task(visit.position, commit.request)
            if ended.state == "failed":
                failed = FailedCommit(
                    commit.request,
                    commit.covers,
                    commit.options,
                )
                visit.position = with_failed(visit.position, failed)
            _learn_what_was_kept(visit, commit)
            visit.store(ended)
    if not visit.position.tasks:
        return None
    return POLL_S


def _ended(visit: Visit, commit: CommitAccepted) -> CommitEnded | None:
    if commit.task is None:
        return _ended_without_task(visit, commit)
    answer = visit.http.ask("GET", f"/api/v1/tasks/{quote(commit.task, safe='')}")
    # OpenViking forgets tasks after a while.
    if answer.missing:
        return _ended_without_task(visit, commit)
    if not answer.ok:
        raise NotNow(answer)
    status = answer.fields.get("status")
    if status == "completed":
        return CommitEnded(commit.request, "completed")
    if status in ("failed", "cancelled"):
        why = str(answer.fields.get("error") or status)[:PROBLEM_MAX]
        return CommitEnded(commit.request, "failed", why)
    return None


def _ended_without_task(visit: Visit, commit: CommitAccepted) -> CommitEnded | None:
    """What became of a commit whose task is not known, or not any more: its archive tells."""
    if archive_is_there(
        visit.http,
        visit.viking_id,
        commit.archive,
    ):
        return CommitEnded(commit.request, "completed")
    # Messages of a pending archive are still shown in the context.
    if look(
        visit.http,
        visit.viking_id,
        (),
        visit.position.archives,
    ).pending:
        return None
    why = f"{commit.archive} can't be read, and no task is known for it"
    return CommitEnded(commit.request, "failed", why)


def _learn_what_was_kept(visit: Visit, commit: CommitAccepted) -> None:
    """Has later looks begin with the first message that this commit has left live."""
    if commit.kept_from is None:
        return
    seen = look(
        visit.http,
        visit.viking_id,
        (),
        visit.position.archives,
    )
    if seen.pending:
        return
    for message in visit.log.session.transcript(after=commit.kept_from.seq):
        if message.seq > visit.position.since.seq:
            return
        if message.id in seen.live:
            since = LogPlace(message.seq - 1)
            visit.position = replace(visit.position, since=since)
            return
