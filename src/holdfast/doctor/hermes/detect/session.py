"""Signs in a session as a whole: what compactions left behind, counters, ends, routes and the
ledger.
"""

import math
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from holdfast.doctor.finding import Findings
from holdfast.doctor.hermes.case import View, copies_in, is_question, shown
from holdfast.importers.hermes.records import (
    LIST_TAG,
    HermesRow,
    is_summary,
    is_taken_back,
    parsed,
    words,
)

# What stands where a character could not be stored.
GONE = "\ufffd"
# Columns in which a provider's own copy of the text may have survived.
_SOURCES = ("codex_message_items", "reasoning_details")


def repeated_tail(view: View) -> Findings:
    """Messages with more than one copy; one is what every compaction leaves."""
    for name, rows in copies_in(view).items():
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
        rows = tuple(row for row, _ in view.repeats)
        yield view.finding("history-stored-twice", rows, measured, view.repeats)


def written_after_end(view: View) -> Findings:
    """Turns that began in a session which their chat had left."""
    session, route = view.case.session, view.case.route
    if session.ended_at is None or route is None or route.id == session.id:
        return
    # Where the route began before the end, nobody can tell which of the two was meant.
    if route.started_at < session.ended_at:
        return
    for row in view.spoken:
        late_s = row.timestamp - session.ended_at
        if not is_question(row) or late_s <= 0:
            continue
        following = view.originals[view.originals.index(row) + 1 :]
        answer = takewhile(lambda later: later.role != "user", following)
        measured = (
            f"{shown(words(row))} came {late_s:.1f} s after the end; its chat was in "
            f"{route.id} then."
        )
        yield view.finding("written-after-end", (row, *answer), measured, route.id)


def without_child(view: View) -> Findings:
    """A compaction that ended the session and made no other."""
    case = view.case
    if case.session.end_reason == "compression" and not case.is_continued:
        measured = "It ended with reason 'compression', and no session continues it."
        yield view.finding("compression-without-child", (), measured, case.following)


def count_drift(view: View) -> Findings:
    """A counter that the rows don't bear out."""
    count = view.case.session.message_count
    # Where rows are missing, the count may be right.
    if count is None or _is_lost(view) or view.case.torn:
        return
    rows = view.case.rows
    live = sum(bool(row.active) for row in rows)
    back = sum(map(is_taken_back, rows))
    # Whether rows that were taken back are counted can't be told: either is right.
    if not live <= count <= live + back:
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
        if row.role not in ("user", "assistant") or GONE not in text:
            continue
        if not text.startswith(LIST_TAG) and row.id not in view.case.known:
            measured = f"{shown(text)} has {text.count(GONE)} replaced characters."
            yield view.finding("replaced-characters", (row,), measured, whole_text(row))


def whole_text(row: HermesRow) -> str | None:
    """The text of a row before characters of it were replaced, from a column that agrees with it
    everywhere else.
    """
    pattern = ""
    for piece in re.split(f"({GONE}+)", row.content or ""):
        if piece.startswith(GONE):
            # A character of several bytes can have become a mark for each of them.
            pattern += f"[^{GONE}\ud800-\udfff]{{1,{len(piece)}}}"
        else:
            pattern += re.escape(piece)
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
            objects = [item for item in value if isinstance(item, dict)]
            texts = [item.get("text") for item in objects]
            yield "".join(text for text in texts if isinstance(text, str))
            waiting.extend(value)


def lost_turn(view: View) -> Findings:
    """A session that cost something and has nothing to show for it."""
    case = view.case
    session = case.session
    if not _is_lost(view):
        return
    # What went to the chat after its next session began was that one's.
    until = math.inf if case.following is None else case.following.started_at
    sent = []
    for delivery in case.deliveries:
        if session.started_at <= delivery.created_at < until:
            sent.append(delivery)
    measured = (
        f"No rows, after {session.api_calls} model calls and {session.output_tokens} "
        f"tokens; the ledger has {len(sent)} answers."
    )
    yield view.finding("lost-turn", (), measured, sent)


def _is_lost(view: View) -> bool:
    case = view.case
    if case.rows or case.torn:
        return False
    return case.session.api_calls > 0 or case.session.output_tokens > 0


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
    case = view.case
    if case.has_parent or case.torn:
        return
    # An archived row is what a compaction leaves in place.
    if any(row.compacted and not row.active for row in case.rows):
        return
    for row in view.originals:
        if is_summary(row) and row.active:
            measured = (
                f"Row {row.name} is a summary; no archived row and no parent session is "
                "there."
            )
            yield view.finding("summary-without-source", (row,), measured)
