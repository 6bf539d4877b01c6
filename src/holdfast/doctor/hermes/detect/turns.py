"""Signs in the exchange of questions and answers."""

import math
from itertools import zip_longest

from holdfast.doctor.finding import Finding, Findings
from holdfast.doctor.hermes.case import View, has_calls, is_question, shown
from holdfast.importers.hermes.records import (
    HermesDelivery,
    HermesRow,
    is_summary,
    words,
)

# What Hermes itself asks after an answer that was cut.
CUT_STARTS = (
    "[System: The previous response was cut off",
    "[System: Your previous response was truncated",
)
# An answer that says by itself that it was interrupted.
STOPPED_START = "Operation interrupted"
# Two rows of one write are this near to each other; nobody types as fast.
DOUBLE_S = 0.1
SPEAKERS = ("user", "assistant", "tool")


def unanswered(view: View) -> Findings:
    """Questions without an answer: alone, glued to the next, stored twice, answered crosswise or
    only in the ledger.
    """
    spoken = view.spoken
    crossed: dict[int, Finding] = {}
    for finding in interleaved(view):
        for row in finding.rows:
            crossed[row.id] = finding
    for row, following in zip_longest(spoken, spoken[1:]):
        # What can't be read may have been the answer.
        if not is_question(row) or view.case.is_torn(row, following):
            continue
        if following is None:
            # The last question of a session that goes on may be answered yet.
            if view.case.is_over:
                yield from _lonely(view, row, None)
        elif is_question(following):
            if row.id not in crossed:
                yield from _pair(view, row, following)
            elif crossed[row.id].rows[0] is row:
                yield crossed[row.id]


def _pair(view: View, row: HermesRow, following: HermesRow) -> Findings:
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
    # Words that are somewhere in the next question were not lost with the turn.
    elif old not in new:
        yield from _lonely(view, row, following)


def _lonely(view: View, row: HermesRow, following: HermesRow | None) -> Findings:
    sent = _sent(view, row, following)
    # An answer that was sent and is stored elsewhere is neither lost nor missing here.
    lost = [delivery for delivery in sent if delivery in view.case.unstored]
    if lost:
        measured = (
            f"{shown(words(row))} has no answer, and {shown(lost[0].text)} was sent to its "
            "chat then."
        )
        yield view.finding("answer-only-in-ledger", (row,), measured, lost[0])
    elif not sent:
        if following is None:
            then = "the session ended"
        else:
            then = f"row {following.name} asks {shown(words(following))}"
        measured = f"{shown(words(row))} has no answer; then {then}."
        yield view.finding("orphan-user", (row,), measured)


def _sent(
    view: View, row: HermesRow, following: HermesRow | None
) -> list[HermesDelivery]:
    """The answers that went out to the chat between a question and the next one."""
    until = math.inf
    if following is not None:
        until = following.timestamp
    elif view.case.following is not None:
        until = view.case.following.started_at
    found = []
    for delivery in view.case.deliveries:
        if row.timestamp < delivery.created_at < until:
            found.append(delivery)
    return found


def interleaved(view: View) -> Findings:
    """As many finished answers in a row as there were questions in a row, and more than one."""
    spoken = view.spoken
    index = 0
    while index < len(spoken):
        asked = _run(spoken, index, "user")
        answered = _run(spoken, index + len(asked), "assistant")
        is_even = 1 < len(asked) == len(answered)
        if is_even and _are_crossed(asked, answered):
            rows = (*asked, *answered)
            names = ", ".join(row.name for row in rows)
            measured = f"{len(asked)} questions and then {len(answered)} answers: rows {names}."
            yield view.finding("interleaved-turns", rows, measured, len(asked))
        # The answers are passed over one by one: none of them begins a run of questions.
        index += max(1, len(asked))


def _are_crossed(asked: list[HermesRow], answered: list[HermesRow]) -> bool:
    """Whether these are whole answers to questions that differ."""
    for row, following in zip(asked, asked[1:], strict=False):
        if _is_double(row, following) or _is_merged(row, following):
            return False
    return all(map(_is_finished, answered))


def _run(spoken: list[HermesRow], start: int, role: str) -> list[HermesRow]:
    end = start
    while (
        end < len(spoken) and spoken[end].role == role and not is_summary(spoken[end])
    ):
        end += 1
    return spoken[start:end]


def _is_finished(row: HermesRow) -> bool:
    return row.finish_reason == "stop" and not has_calls(row)


def _is_double(row: HermesRow, following: HermesRow) -> bool:
    # A row with the platform's own id was sent by a person, who may well say a thing twice.
    named = row.rest.get("platform_message_id") or following.rest.get(
        "platform_message_id"
    )
    is_near = abs(following.timestamp - row.timestamp) < DOUBLE_S
    return not named and is_near and words(row) == words(following)


def _is_merged(row: HermesRow, following: HermesRow) -> bool:
    old = words(row)
    return bool(old) and words(following).startswith(f"{old}\n\n")


def partial(view: View) -> Findings:
    """Answers that nothing says were finished."""
    # Versions of Hermes that never stored a finish_reason leave all answers without one.
    if not view.case.has_stops:
        return
    said = {row.id for row in view.spoken} | view.folded.copy_of.keys()
    rows = [row for row in view.folded.kept if row.id in said]
    for last, row, following in zip_longest(rows, rows[1:], rows[2:]):
        if row is None or row.id in view.folded.copy_of or not _is_open_ended(row):
            continue
        if view.case.is_torn(last, following):
            continue
        # What is followed by more of its own turn is not its end.
        is_whole_turn = following is None or following.role == "user"
        if last.role in ("user", "tool") and is_whole_turn:
            measured = f"{shown(words(row))} has no finish_reason."
            yield view.finding("partial-unmarked", (row,), measured)


def _is_open_ended(row: HermesRow) -> bool:
    """Whether a row is an answer in words, and neither a finish_reason nor the words say how it
    ended.
    """
    if row.role != "assistant" or row.finish_reason:
        return False
    if has_calls(row) or is_summary(row):
        return False
    text = words(row)
    return bool(text) and not text.startswith(STOPPED_START)


def cut(view: View) -> Findings:
    """One answer in two rows, with the program's own request to go on between them."""
    rows = [row for row in view.originals if row.role in SPEAKERS and not row.observed]
    for first, middle, second in zip(rows, rows[1:], rows[2:], strict=False):
        if middle.role != "user" or not words(middle).startswith(CUT_STARTS):
            continue
        if first.role != "assistant" or second.role != "assistant":
            continue
        # Only an answer that was cut for its length goes on in the next row.
        if first.finish_reason == "length" and not is_summary(second):
            measured = (
                f"Rows {first.name} and {second.name} are one answer; row {middle.name} is "
                "not the user's."
            )
            yield view.finding("split-by-stream-cut", (first, middle, second), measured)


def harness(view: View) -> Findings:
    """The program's review of the session, stored as a turn of it."""
    for turn in view.harness:
        measured = f"Row {turn[0].name} begins with {shown(words(turn[0]))}."
        yield view.finding("review-harness-turn", turn, measured)


def without_history(view: View) -> Findings:
    """More than one mark of a first turn."""
    # The turn of a mark is what stands before it, from the last question on.
    turn: list[HermesRow] = []
    is_first = True
    for row in view.originals:
        if row.role == "user":
            turn = []
        if row.role in SPEAKERS:
            turn.append(row)
        if row.role != "session_meta":
            continue
        if not is_first:
            measured = (
                f"Row {row.name} marks a first turn, and it is not the session's first."
            )
            yield view.finding("session-meta-repeated", (row, *turn), measured)
        is_first = False
