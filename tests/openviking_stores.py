"""OpenViking session directories, as release 0.5.2 leaves them: healthy ones, and some for each way
they break.
"""

import json
from pathlib import Path

MADE_BY = "generated_by:\n  component: Session\n  trigger: archive_summary\n"
HEAD = f"---\ndirectory: viking://user/default/sessions/x/\n{MADE_BY}---\n\n"
OVERVIEW = "# Working Memory\n\n## Session Title\nOrchard notes"
WORDS = (
    "Water row one.",
    "Row one is watered.",
    "Water row two.",
    "Row two is watered.",
    "How is row three?",
    "It is dry.",
)


def at(second):
    return f"2026-09-21T08:00:{second:02d}.000Z"


def message(number, text=None, **more):
    """The message of this number: odd ones are the user's."""
    said = {
        "id": f"msg_{number:02d}",
        "role": "user" if number % 2 else "assistant",
        "parts": [
            {
                "type": "text",
                "text": text
                or WORDS[(number - 1) % len(WORDS)] + "!" * ((number - 1) // len(WORDS)),
            }
        ],
        "created_at": at(number),
    }
    return {**said, **more}


def tool(number, call_id="call-1", status="completed", output="31 %", text="Measured.", **more):
    """A message with a tool's part."""
    part = {
        "type": "tool",
        "tool_id": call_id,
        "tool_name": "shell",
        "tool_uri": "",
        "skill_uri": "",
    }
    part |= {"tool_status": status, "tool_input": {"cmd": "moisture"}}
    part |= ({"tool_output": output} if status in ("completed", "error") else {}) | more
    words = [{"type": "text", "text": text}] if text else []
    return message(number, role="assistant", parts=[*words, part])


def messages(first, last):
    return [message(number) for number in range(first, last + 1)]


def lines(said):
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in said)


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def meta_of(name, live, *, total=None, commits=0, **more):
    said = {
        "session_id": name,
        "created_at": at(0),
        "updated_at": at(59),
        "message_count": len(live),
    }
    said |= {"commit_count": commits, "total_message_count": len(live) if total is None else total}
    return {**said, "last_message_at": at(58), **more}


class Session:
    """A session's directory under construction."""

    def __init__(self, root, name):
        self.path, self.name = Path(root) / name, name
        self.path.mkdir(parents=True)

    def live(self, said, *, meta=True, **more):
        put(self.path / "messages.jsonl", lines(said))
        if meta:
            put(self.path / ".meta.json", json.dumps(meta_of(self.name, said, **more)))
        return self

    def archive(
        self,
        number,
        said,
        *,
        status="ready",
        retained=(),
        done=None,
        failed=None,
        overview=None,
        meta=None,
    ):
        under = self.path / f"history/archive_{number:03d}"
        under.mkdir(parents=True)
        if said is not None:
            put(under / "messages.jsonl", lines(said))
        ids = [one["id"] for one in said or ()]
        if status is not None:
            phase = {
                "version": 1,
                "status": status,
                "created_at": at(40),
                "original_message_ids": ids,
            }
            phase |= {"archived_message_ids": ids, "retained_message_ids": list(retained)}
            put(under / ".meta.json", json.dumps({"phase1": phase, **(meta or {})}))
        if done is not None:
            put(under / ".done", json.dumps(done))
        if failed is not None:
            put(under / ".failed.json", json.dumps(failed))
        if overview is not None:
            put(under / ".overview.md", HEAD + overview)
            put(under / ".abstract.md", HEAD + "# Working Memory")
        return self


def done(first, last, number=1, *, memory=True, **more):
    name = f"archive_{number:03d}"
    ends = {"starting_message_id": f"msg_{first:02d}", "ending_message_id": f"msg_{last:02d}"}
    coverage = {
        "coverage_start_archive": name,
        "coverage_end_archive": name,
        "covered_failed_archives": [],
    }
    return {**ends, "enable_working_memory": memory, **coverage, **more}


FAILED = {
    "stage": "memory_extraction",
    "error": "model answered 429",
    "failed_at": at(50),
    "skipped": True,
}


def ok_empty(root):
    Session(root, "ok-empty").live([])


def ok_live(root):
    Session(root, "ok-live").live([*messages(1, 4), tool(5)])


def ok_committed(root):
    session = Session(root, "ok-committed").live(messages(3, 6), total=6, commits=1)
    session.archive(
        1, messages(1, 2), retained=("msg_03", "msg_04"), done=done(1, 2), overview=OVERVIEW
    )


def ok_partial_turn(root):
    session = Session(root, "ok-partial-turn").live([message(1), message(3)], total=3, commits=1)
    session.archive(
        1, messages(1, 2), retained=("msg_01", "msg_03"), done=done(1, 2), overview=OVERVIEW
    )


def ok_reset(root):
    session = Session(root, "ok-reset").live(messages(5, 6), total=6, commits=2)
    session.archive(1, messages(1, 4), done=done(1, 4), overview=OVERVIEW)
    session.archive(
        2, None, status=None, done={"context_reset": True, "enable_working_memory": False}
    )


def ok_memory_off(root):
    session = Session(root, "ok-memory-off").live(messages(5, 6), total=6, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4, memory=False))


def ok_old_format(root):
    old = [
        {"id": f"m{n}", "role": "user", "content": f"Old {n}.", "created_at": at(n)}
        for n in (1, 2, 3)
    ]
    session = Session(root, "ok-old-format").live(old[2:], meta=False)
    session.archive(1, old[:2], status=None, done={"starting_message_id": "m1"}, overview=OVERVIEW)


def ok_line_separators(root):
    Session(root, "ok-line-separators").live([tool(1, output="first\u2028second\x85third")])


def ok_failed_and_covered(root):
    """The first archive failed, and the second one's overview stands for both."""
    session = Session(root, "ok-failed-and-covered").live(messages(5, 6), total=6, commits=2)
    session.archive(1, messages(1, 2), failed=FAILED)
    marker = done(
        3, 4, 2, coverage_start_archive="archive_001", covered_failed_archives=["archive_001"]
    )
    session.archive(2, messages(3, 4), done=marker, overview=OVERVIEW)


def ok_prepared_and_archived_again(root):
    """A commit died, its copy was marked as failed, and the next commit took the same messages."""
    session = Session(root, "ok-prepared-and-archived-again").live(
        messages(5, 6), total=6, commits=2
    )
    session.archive(1, messages(1, 4), status="preparing", failed=FAILED)
    session.archive(2, messages(1, 4), done=done(1, 4, 2), overview=OVERVIEW)


def ok_tools(root):
    """Two calls answered in lines of their own, a large output beside the messages, and one call
    that just runs.
    """
    ref = "viking://user/default/sessions/ok-tools/tool-results/tr_call-3_ab"
    calls = [
        tool(2, "call-1", "running"),
        tool(4, "call-1", text=""),
        tool(6, "call-3", tool_output_ref=ref),
    ]
    session = Session(root, "ok-tools").live(
        [message(1), *calls, message(7), tool(8, "call-4", "running")]
    )
    put(session.path / "tool-results/tr_call-3_ab/output.txt", "all of it")


def ok_equal_words(root):
    """People repeat themselves."""
    said = [message(n, text="Go on." if n % 2 else "Done.") for n in range(1, 9)]
    Session(root, "ok-equal-words").live(
        [*said, message(9, text="Water row one."), message(10, text="Water row one.")]
    )


HEALTHY = [
    ok_empty,
    ok_live,
    ok_committed,
    ok_partial_turn,
    ok_reset,
    ok_memory_off,
    ok_old_format,
    ok_line_separators,
    ok_failed_and_covered,
    ok_prepared_and_archived_again,
    ok_tools,
    ok_equal_words,
]


def lost_clear(root):
    session = Session(root, "lost-clear").live(messages(1, 4), total=4, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4), overview=OVERVIEW)


def lost_clear_counter_in_step(root):
    """Appended to since: the counter agrees with the lines again."""
    session = Session(root, "lost-clear-counter-in-step").live(messages(1, 5), total=5, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4), overview=OVERVIEW)


def lost_clear_counter_behind(root):
    session = Session(root, "lost-clear-counter-behind").live(
        messages(1, 4), total=4, commits=1, message_count=0
    )
    session.archive(1, messages(1, 4), status=None, done=done(1, 4), overview=OVERVIEW)


def append_crash_meta_behind(root):
    Session(root, "append-crash-meta-behind").live(messages(1, 5), total=4, message_count=4)


def wiped_live(root):
    session = Session(root, "wiped-live").live([], message_count=4, total=4)
    put(session.path / "messages.jsonl", b"")


def wiped_live_counter_reset(root):
    """OpenViking has loaded it since, and counts from nothing."""
    Session(root, "wiped-live-counter-reset").live([message(5)], total=5)


def torn_tail(root):
    session = Session(root, "torn-tail").live(messages(1, 4))
    put(session.path / "messages.jsonl", lines(messages(1, 4)).encode()[:-40])


def torn_tail_of_an_append(root):
    """The line that was being appended is torn; the counter does not know it yet."""
    session = Session(root, "torn-tail-of-an-append").live(messages(1, 4))
    put(session.path / "messages.jsonl", lines(messages(1, 5)).encode()[:-40])


def torn_tail_of_archive(root):
    session = Session(root, "torn-tail-of-archive").live(messages(5, 6), total=6, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4), overview=OVERVIEW)
    put(session.path / "history/archive_001/messages.jsonl", lines(messages(1, 4)).encode()[:-40])


def torn_meta(root):
    session = Session(root, "torn-meta").live(messages(1, 4))
    put(session.path / ".meta.json", b'{"session_id": "torn-meta", "mess')


def torn_meta_of_archive(root):
    session = Session(root, "torn-meta-of-archive").live(
        [message(1), message(3)], total=3, commits=1
    )
    session.archive(1, messages(1, 2), retained=("msg_01",), done=done(1, 2), overview=OVERVIEW)
    put(session.path / "history/archive_001/.meta.json", b'{"phase1": {"stat')


def torn_done(root):
    session = Session(root, "torn-done").live(messages(5, 6), total=6, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4), overview=OVERVIEW)
    put(session.path / "history/archive_001/.done", b'{"start')


def prepared_only(root):
    Session(root, "prepared-only").live(messages(1, 4)).archive(
        1, messages(1, 4), status="preparing"
    )


def prepared_only_in_the_middle(root):
    session = Session(root, "prepared-only-in-the-middle").live(messages(3, 6), total=6, commits=2)
    session.archive(1, messages(3, 4), status="preparing")
    session.archive(2, messages(1, 2), done=done(1, 2, 2), overview=OVERVIEW)


def failed_hides_messages(root):
    session = Session(root, "failed-hides-messages").live([message(5)], total=5, commits=1)
    session.archive(1, messages(1, 4), failed=FAILED)


def failed_hides_messages_in_the_middle(root):
    session = Session(root, "failed-hides-messages-in-the-middle").live(
        [message(7)], total=7, commits=3
    )
    session.archive(1, messages(1, 2), done=done(1, 2), overview=OVERVIEW)
    session.archive(2, messages(3, 4), failed=FAILED)
    session.archive(3, messages(5, 6), done=done(5, 6, 3), overview=OVERVIEW)


def pending_forever(root):
    session = Session(root, "pending-forever").live([message(5)], total=5, commits=1)
    session.archive(1, messages(1, 4))


def pending_forever_counter_old(root):
    """The commit died between the live file and the counter."""
    session = Session(root, "pending-forever-counter-old").live([], total=4, message_count=4)
    session.archive(1, messages(1, 4), status="preparing")


def pending_forever_twice(root):
    session = Session(root, "pending-forever-twice").live(messages(5, 6), total=6, commits=3)
    session.archive(1, messages(1, 2)).archive(2, messages(3, 4))
    session.archive(3, None, status=None, done={"context_reset": True})


def done_without_overview(root):
    session = Session(root, "done-without-overview").live(messages(5, 6), total=6, commits=1)
    session.archive(1, messages(1, 4), done=done(1, 4), meta={"overview_tokens": 12})


def done_without_messages(root):
    session = Session(root, "done-without-messages").live(messages(5, 6), total=6, commits=1)
    session.archive(1, None, done=done(1, 4), overview=OVERVIEW)


def duplicate_ids(root):
    Session(root, "duplicate-ids").live([*messages(1, 4), *messages(3, 4)], total=4)


def duplicate_ids_other_words(root):
    Session(root, "duplicate-ids-other-words").live(
        [*messages(1, 2), message(2, text="Something else.")], total=3
    )


def replayed_batch(root):
    again = [{**one, "id": f"new_{one['id']}", "created_at": at(30)} for one in messages(1, 4)]
    Session(root, "replayed-batch").live([*messages(1, 4), *again, message(5)])


def tool_never_finished(root):
    Session(root, "tool-never-finished").live(
        [message(1), tool(2, "call-7", "running"), message(3)]
    )


def tool_result_missing(root):
    ref = "viking://user/default/sessions/tool-result-missing/tool-results/tr_call-7_ab"
    part = tool(
        2, "call-7", output="the first lines", tool_output_ref=ref, tool_output_truncated=True
    )
    Session(root, "tool-result-missing").live([message(1), part, message(3)])


def archive_gap(root):
    session = Session(root, "archive-gap").live([], total=6, commits=2)
    session.archive(2, messages(5, 6), done=done(5, 6, 2), overview=OVERVIEW)


def stale_locks(root):
    session = Session(root, "stale-locks").live(messages(1, 4))
    put(session.path / ".path.ovlock", b"host-1-4242:1789977600000000000:E")


def torn_lock(root):
    session = Session(root, "torn-lock").live(messages(1, 4))
    put(session.path / ".exact.ovlock.messages.jsonl.0a1b", b"")


def unreadable_record(root):
    session = Session(root, "unreadable-record").live(messages(1, 4))
    whole = lines(messages(1, 4)).split("\n")
    put(session.path / "messages.jsonl", "\n".join([whole[0], '{"id": 7}', *whole[2:]]))


def unreadable_store(root):
    (root / "unreadable-store").mkdir(parents=True)
    put(root / "unreadable-store/notes.txt", "nothing of a session")


DAMAGED = {
    "openviking/lost-clear": [lost_clear, lost_clear_counter_in_step, lost_clear_counter_behind],
    "openviking/append-crash-meta-behind": [append_crash_meta_behind],
    "openviking/wiped-live": [wiped_live, wiped_live_counter_reset],
    "openviking/torn-tail": [torn_tail, torn_tail_of_an_append, torn_tail_of_archive],
    "openviking/torn-meta": [torn_meta, torn_meta_of_archive, torn_done],
    "openviking/prepared-only": [prepared_only, prepared_only_in_the_middle],
    "openviking/failed-hides-messages": [
        failed_hides_messages,
        failed_hides_messages_in_the_middle,
    ],
    "openviking/pending-forever": [
        pending_forever,
        pending_forever_counter_old,
        pending_forever_twice,
    ],
    "openviking/done-without-overview": [done_without_overview],
    "openviking/done-without-messages": [done_without_messages],
    "openviking/duplicate-ids": [duplicate_ids, duplicate_ids_other_words],
    "openviking/replayed-batch": [replayed_batch],
    "openviking/tool-never-finished": [tool_never_finished],
    "openviking/tool-result-missing": [tool_result_missing],
    "openviking/archive-gap": [archive_gap],
    "openviking/stale-locks": [stale_locks],
    "openviking/torn-lock": [torn_lock],
    "openviking/unreadable-record": [unreadable_record],
    "openviking/unreadable-store": [unreadable_store],
}
CASES = [(rule, build) for rule, builds in DAMAGED.items() for build in builds]


def made(build, root):
    """The one session's directory that this makes."""
    build(root)
    [path] = [path for path in root.iterdir() if path.is_dir()]
    return path
