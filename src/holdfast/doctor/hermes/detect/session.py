"""Signs in a session as a whole: what compactions left behind, counters, ends, routes and the
ledger.
"""

import re
from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Findings
from holdfast.doctor.hermes.case import View, shown
from holdfast.importers.hermes.records import (
    LIST_TAG,
    HermesRow,
    is_summary,
    is_taken_back,
    parsed,
    words,
)

GONE = "\ufffd"
_SOURCES = ("codex_message_items", "reasoning_details")


def repeated_tail(view: View) -> Findings:
    """Messages with more than one copy; one is what every compaction leaves."""
    copies: dict[str, list[HermesRow]] = {}
    for row in view.folded.kept:
        if row.id in view.folded.copy_of:
            copies.setdefault(view.folded.copy_of[row.id], []).append(row)
    for name, rows in copies.items():
        if len(rows) > 1:
            measured = f"{shown(words(rows[0]))} of row {name} is stored {len(rows)} times more."
            yield view.finding("repeated-tail", tuple(rows), measured, name)


def stored_twice(view: View) -> Findings:
    """A history whose user rows are there again, with the same words and the very same times."""
    if view.repeats:
        measured = (
            f"{view.repeated_users} user rows, and {len(view.repeats)} rows with what "
            "follows them, repeat."
        )
        yield view.finding(
            "history-stored-twice",
            tuple(row for row, _ in view.repeats),
            measured,
            view.repeats,
        )


def written_after_end(view: View) -> Findings:
    """Turns that began in a session which their chat had left."""
    session, route = view.case.session, view.case.route
    if (
        session.ended_at is None
        or route is None
        or route.id == session.id
        or route.started_at < session.ended_at
    ):
        return
    late = [
        row
        for row in view.spoken
        if row.role == "user"
        and not is_summary(row)
        and row.timestamp > session.ended_at
    ]
    for row in late:
        start = view.originals.index(row)
        end = start + 1
        while end < len(view.originals) and view.originals[end].role != "user":
            end += 1
        after = row.timestamp - session.ended_at
        measured = (
            f"{shown(words(row))} came {after:.1f} s after the end; its chat was in "
            f"{route.id} then."
        )
        yield view.finding(
            "written-after-end", tuple(view.originals[start:end]), measured, route.id
        )


def without_child(view: View) -> Findings:
    """A compaction that ended the session and made no other."""
    case = view.case
    if case.session.end_reason == "compression" and not case.is_continued:
        measured = "It ended with reason 'compression', and no session continues it."
        yield view.finding("compression-without-child", (), measured, case.following)


def count_drift(view: View) -> Findings:
    """A counter that the rows don't bear out."""
    count = view.case.session.message_count
    live = sum(1 for row in view.case.rows if row.active)
    back = sum(1 for row in view.case.rows if is_taken_back(row))
    if _is_lost(view) or view.case.torn:
        return  # rows are missing, and the count may be right
    if count is not None and not live <= count <= live + back:
        measured = (
            f"message_count is {count}, there are {live} live rows and {back} that were "
            "taken back."
        )
        yield view.finding("message-count-drift", (), measured, live)


def replaced(view: View) -> Findings:
    """Texts of which characters were lost, with the text before that where it is still to
    be found.
    """
    for row in view.originals:
        text = row.content or ""
        if (
            row.role not in ("user", "assistant")
            or GONE not in text
            or text.startswith(LIST_TAG)
        ):
            continue
        if row.id not in view.case.known:
            measured = f"{shown(text)} has {text.count(GONE)} replaced characters."
            yield view.finding("replaced-characters", (row,), measured, whole_text(row))


def whole_text(row: HermesRow) -> str | None:
    """The text of a row before characters of it were replaced, from a column that agrees with it
    everywhere else.
    """
    pieces = re.split(f"({GONE}+)", row.content or "")
    pattern = "".join(
        f"[^{GONE}\ud800-\udfff]{{1,{len(piece)}}}"
        if piece.startswith(GONE)
        else re.escape(piece)
        for piece in pieces
    )
    for column in _SOURCES:
        for text in _texts(row.rest.get(column)):
            if re.fullmatch(pattern, text, re.DOTALL):
                return text
    return None


def _texts(column: Any) -> Iterator[str]:
    """Every text in a JSON column, and those that are parts of one text joined."""
    try:
        waiting = [parsed(column)] if isinstance(column, str) else []
    except ValueError:
        return
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            joined = [
                item["text"]
                for item in value
                if isinstance(item, dict) and isinstance(item.get("text"), str)
            ]
            yield "".join(joined)
            waiting.extend(value)


def lost_turn(view: View) -> Findings:
    """A session that cost something and has nothing to show for it."""
    case = view.case
    if not _is_lost(view):
        return
    until = case.following.started_at if case.following is not None else float("inf")
    sent = [
        item
        for item in case.deliveries
        if case.session.started_at <= item.created_at < until
    ]
    measured = (
        f"No rows, after {case.session.api_calls} model calls and {case.session.output_tokens} "
        "tokens; "
        f"the ledger has {len(sent)} answers."
    )
    yield view.finding("lost-turn", (), measured, sent)


def _is_lost(view: View) -> bool:
    case = view.case
    return (
        not case.rows
        and not case.torn
        and (case.session.api_calls > 0 or case.session.output_tokens > 0)
    )


def stale_lock(view: View) -> Findings:
    """A compaction's lock that ran out before the newest row was written."""
    for lock in view.case.locks:
        if lock.expires_at < view.case.newest:
            measured = (
                f"It ran out {view.case.newest - lock.expires_at:.0f} s before the newest "
                "row of the store."
            )
            yield view.finding("stale-compression-lock", (), measured)


def without_source(view: View) -> Findings:
    """A summary of what is nowhere."""
    if (
        view.case.has_parent
        or view.case.torn
        or any(row.compacted and not row.active for row in view.case.rows)
    ):
        return
    for row in view.originals:
        if is_summary(row) and row.active:
            measured = (
                f"Row {row.name} is a summary; no archived row and no parent session is "
                "there."
            )
            yield view.finding("summary-without-source", (row,), measured)
