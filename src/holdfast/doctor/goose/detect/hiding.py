"""Signs in what a session of goose hides from the model: a summary must stand for it, and
be there.
"""

from holdfast.doctor.finding import Findings
from holdfast.doctor.goose.case import (
    GooseCase,
    Rows,
    for_model,
    for_reader,
    is_made,
    is_summary,
    last_that,
    metadata_of,
    words,
)
from holdfast.doctor.goose.pairs import pairing
from holdfast.importers.goose.convert import OWN_NOTES
from holdfast.importers.goose.records import GooseRow


def hiding_signs(case: GooseCase) -> Findings:
    rows = case.rows
    bare = hidden_history(rows)
    if bare:
        measured = f"None of {len(rows)} rows is for the model."
        yield case.finding("compacted-without-summary", rows[bare[0]], measured)
        return
    for call, _, summary in shown_pairs(rows):
        measured = f"The model sees the call, its result and their summary, {rows[summary].place}."
        yield case.finding("metadata-clobbered", rows[call], measured)
    for call, _ in bereft_pairs(rows):
        measured = (
            "The call and its result are hidden from the model, and no summary follows."
        )
        yield case.finding("summary-deleted", rows[call], measured)


def hidden_history(rows: Rows) -> list[int]:
    """The rows that a compaction hid, when nothing is left that the model sees. Commands and what
    answers them were never meant for the model.
    """
    if any(map(for_model, rows)):
        return []
    found = []
    for index, row in enumerate(rows):
        is_hidden = _is_hidden_on_purpose(row) and for_reader(row)
        if is_hidden and not _is_command(rows, index):
            found.append(index)
    return found


def shown_pairs(rows: Rows) -> list[tuple[int, int, int]]:
    """Calls with their results that the model sees together with the summary that follows
    at once.
    """
    found = []
    for call, result in pairing(rows).pairs:
        summary = result.row + 1
        if result.row != call.row + 1 or summary == len(rows):
            continue
        is_seen = for_model(rows[call.row]) and for_model(rows[result.row])
        if is_seen and is_summary(rows[summary]):
            found.append((call.row, result.row, summary))
    # Calls side by side in one row are one pair of rows.
    return list(dict.fromkeys(found))


def bereft_pairs(rows: Rows) -> list[tuple[int, int]]:
    """Calls with their results that are hidden from the model while life went on and nothing stands
    for them.
    """
    summary = last_that(rows, is_summary)
    found = []
    for call, result in pairing(rows).pairs:
        # A summary stands for all that was hidden before it.
        if summary is not None and max(call.row, result.row) <= summary:
            continue
        hidden = map(_is_hidden_on_purpose, (rows[call.row], rows[result.row]))
        if all(hidden) and any(map(for_model, rows[result.row + 1 :])):
            found.append((call.row, result.row))
    return list(dict.fromkeys(found))


def _is_hidden_on_purpose(row: GooseRow) -> bool:
    """Hidden by goose, in so many words; not by a doctor."""
    metadata = metadata_of(row)
    if OWN_NOTES in metadata or is_made(row):
        return False
    return metadata.get("agentVisible") is False


def _is_command(rows: Rows, index: int) -> bool:
    # What the assistant says here may answer a command in the row before.
    if rows[index].role != "user":
        index -= 1
    if index < 0:
        return False
    return rows[index].role == "user" and words(rows[index]).startswith("/")
