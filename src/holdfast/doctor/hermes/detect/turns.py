"""Signs in the exchange of questions and answers."""

import math
from collections.abc import Iterator

from holdfast.doctor.finding import Finding
from holdfast.doctor.hermes.case import View, has_calls, shown
from holdfast.importers.hermes.records import HermesDelivery, HermesRow, is_summary, words

CUT_STARTS = (
    "[System: The previous response was cut off",
    "[System: Your previous response was truncated",
)
STOPPED_START = "Operation interrupted"
DOUBLE_S = 0.1


def unanswered(view: View) -> Iterator[Finding]:
    """Questions without an answer: alone, glued to the next, stored twice, answered crosswise or
    only in the ledger.
    """
    spoken = view.spoken
    crossed = {row.id: finding for finding in interleaved(view) for row in finding.rows}
    for index, row in enumerate(spoken):
        if row.role != "user" or is_summary(row):
            continue
        following = spoken[index + 1] if index + 1 < len(spoken) else None
        if following is None:
            if view.case.is_over and not view.case.is_torn(row, None):
                yield from _lonely(view, row, None)
        elif view.case.is_torn(row, following):
            continue
        elif following.role == "user" and not is_summary(following):
            if row.id in crossed:
                if crossed[row.id].rows[0] is row:
                    yield crossed[row.id]
            else:
                yield from _pair(view, row, following)


def _pair(view: View, row: HermesRow, following: HermesRow) -> Iterator[Finding]:
    old, new = words(row), words(following)
    if _is_double(row, following):
        apart = abs(following.timestamp - row.timestamp)
        measured = (
            f"{shown(old)} is stored twice, {apart:.3f} s apart, in rows {row.name} and "
            f"{following.name}."
        )
        yield view.finding("double-user-row", (row, following), measured)
    elif _is_merged(row, following):
        measured = f"Row {following.name} begins with all of {shown(old)}, which was not answered."
        yield view.finding("merged-user-blob", (row, following), measured)
    elif old not in new:
        yield from _lonely(view, row, following)


def _lonely(view: View, row: HermesRow, following: HermesRow | None) -> Iterator[Finding]:
    sent = _sent(view, row, following)
    lost = [delivery for delivery in sent if delivery in view.case.unstored]
    if lost:
        measured = (
            f"{shown(words(row))} has no answer, and {shown(lost[0].text)} was sent to its "
            "chat then."
        )
        yield view.finding("answer-only-in-ledger", (row,), measured, lost[0])
    elif not sent:
        then = (
            "the session ended"
            if following is None
            else f"row {following.name} asks {shown(words(following))}"
        )
        yield view.finding(
            "orphan-user", (row,), f"{shown(words(row))} has no answer; then {then}."
        )


def _sent(view: View, row: HermesRow, following: HermesRow | None) -> list[HermesDelivery]:
    """The answers that went out to the chat between a question and the next one."""
    later = view.case.following
    until = (
        following.timestamp
        if following is not None
        else later.started_at
        if later is not None
        else math.inf
    )
    return [
        delivery for delivery in view.case.deliveries if row.timestamp < delivery.created_at < until
    ]


def interleaved(view: View) -> Iterator[Finding]:
    """As many finished answers in a row as there were questions in a row, and more than one."""
    spoken = view.spoken
    index = 0
    while index < len(spoken):
        asked = _run(spoken, index, "user")
        answered = _run(spoken, index + len(asked), "assistant")
        if len(asked) > 1 and len(asked) == len(answered) and all(map(_is_finished, answered)):
            if not any(
                _is_double(a, b) or _is_merged(a, b) for a, b in zip(asked, asked[1:], strict=False)
            ):
                names = ", ".join(row.name for row in (*asked, *answered))
                measured = f"{len(asked)} questions and then {len(answered)} answers: rows {names}."
                yield view.finding("interleaved-turns", (*asked, *answered), measured, len(asked))
        index += max(1, len(asked))


def _run(spoken: list[HermesRow], start: int, role: str) -> list[HermesRow]:
    end = start
    while end < len(spoken) and spoken[end].role == role and not is_summary(spoken[end]):
        end += 1
    return spoken[start:end]


def _is_finished(row: HermesRow) -> bool:
    return row.finish_reason == "stop" and not has_calls(row)


def _is_double(row: HermesRow, following: HermesRow) -> bool:
    named = row.rest.get("platform_message_id") or following.rest.get("platform_message_id")
    is_near = abs(following.timestamp - row.timestamp) < DOUBLE_S
    return not named and is_near and words(row) == words(following)


def _is_merged(row: HermesRow, following: HermesRow) -> bool:
    old = words(row)
    return bool(old) and words(following).startswith(f"{old}\n\n")


def partial(view: View) -> Iterator[Finding]:
    """Answers that nothing says were finished."""
    if not view.case.has_stops:
        return
    said = {row.id for row in view.spoken} | view.folded.copy_of.keys()
    rows = [row for row in view.folded.kept if row.id in said]
    for index, row in enumerate(rows):
        if row.role != "assistant" or row.finish_reason or has_calls(row) or is_summary(row):
            continue
        if row.id in view.folded.copy_of or not words(row) or words(row).startswith(STOPPED_START):
            continue
        last = rows[index - 1] if index else None
        following = rows[index + 1] if index + 1 < len(rows) else None
        if last is not None and view.case.is_torn(last, following):
            continue
        if (
            last is not None
            and last.role in ("user", "tool")
            and (following is None or following.role == "user")
        ):
            measured = f"{shown(words(row))} has no finish_reason."
            yield view.finding("partial-unmarked", (row,), measured)


def cut(view: View) -> Iterator[Finding]:
    """One answer in two rows, with the program's own request to go on between them."""
    rows = [
        row
        for row in view.originals
        if row.role in ("user", "assistant", "tool") and not row.observed
    ]
    for first, middle, second in zip(rows, rows[1:], rows[2:], strict=False):
        if middle.role != "user" or not words(middle).startswith(CUT_STARTS):
            continue
        if (
            first.role == second.role == "assistant"
            and first.finish_reason == "length"
            and not is_summary(second)
        ):
            measured = (
                f"Rows {first.name} and {second.name} are one answer; row {middle.name} is "
                "not the user's."
            )
            yield view.finding("split-by-stream-cut", (first, middle, second), measured)


def harness(view: View) -> Iterator[Finding]:
    """The program's review of the session, stored as a turn of it."""
    for turn in view.harness:
        measured = f"Row {turn[0].name} begins with {shown(words(turn[0]))}."
        yield view.finding("review-harness-turn", turn, measured)


def without_history(view: View) -> Iterator[Finding]:
    """More than one mark of a first turn."""
    marks = [index for index, row in enumerate(view.originals) if row.role == "session_meta"]
    for mark in marks[1:]:
        start = mark
        while start and view.originals[start].role != "user":
            start -= 1
        turn = tuple(
            row for row in view.originals[start:mark] if row.role in ("user", "assistant", "tool")
        )
        row = view.originals[mark]
        measured = f"Row {row.name} marks a first turn, and it is not the session's first."
        yield view.finding("session-meta-repeated", (row, *turn), measured)
