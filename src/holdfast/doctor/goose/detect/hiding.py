"""Signs in what a session of goose hides from the model: a summary must stand for it, and
be there.
"""

from collections.abc import Iterator

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.case import (
    MADE,
    GooseCase,
    for_model,
    for_reader,
    is_summary,
    words,
)
from holdfast.doctor.goose.pairs import pairing
from holdfast.importers.goose.convert import OWN_NOTES
from holdfast.importers.goose.records import GooseRow


def hiding_signs(case: GooseCase) -> Iterator[Finding]:
    rows = case.rows
    bare = hidden_history(rows)
    if bare:
        measured = f"None of {len(rows)} rows is for the model."
        yield case.finding("compacted-without-summary", rows[bare[0]].place, measured)
        return
    for call, _, summary in shown_pairs(rows):
        measured = f"The model sees the call, its result and their summary, {rows[summary].place}."
        yield case.finding("metadata-clobbered", rows[call].place, measured)
    for call, _ in bereft_pairs(rows):
        measured = (
            "The call and its result are hidden from the model, and no summary follows."
        )
        yield case.finding("summary-deleted", rows[call].place, measured)


def hidden_history(rows: tuple[GooseRow, ...]) -> list[int]:
    """The rows that a compaction hid, when nothing is left that the model sees. Commands and what
    answers them were never meant for the model.
    """
    if any(for_model(row) for row in rows):
        return []
    return [
        index
        for index, row in enumerate(rows)
        if _is_hidden_on_purpose(row)
        and not _is_command(rows, index)
        and for_reader(row)
    ]


def shown_pairs(rows: tuple[GooseRow, ...]) -> list[tuple[int, int, int]]:
    """Calls with their results that the model sees together with the summary that follows
    at once.
    """
    found = []
    for call, result in pairing(rows).pairs:
        summary = result.row + 1
        adjacent = (
            result.row == call.row + 1
            and summary < len(rows)
            and is_summary(rows[summary])
        )
        if adjacent and for_model(rows[call.row]) and for_model(rows[result.row]):
            found.append((call.row, result.row, summary))
    return list(dict.fromkeys(found))


def bereft_pairs(rows: tuple[GooseRow, ...]) -> list[tuple[int, int]]:
    """Calls with their results that are hidden from the model while life went on and nothing stands
    for them.
    """
    last = max((index for index, row in enumerate(rows) if is_summary(row)), default=-1)
    found = [
        (call.row, result.row)
        for call, result in pairing(rows).pairs
        if _is_hidden_on_purpose(rows[call.row])
        and _is_hidden_on_purpose(rows[result.row])
        if max(call.row, result.row) > last
        and any(for_model(row) for row in rows[result.row + 1 :])
    ]
    return list(dict.fromkeys(found))


def _is_hidden_on_purpose(row: GooseRow) -> bool:
    """Hidden by goose, in so many words; not by a doctor."""
    metadata = row.metadata or {}
    by_doctor = OWN_NOTES in metadata or str(row.message_id or "").startswith(MADE)
    return metadata.get("agentVisible") is False and not by_doctor


def _is_command(rows: tuple[GooseRow, ...], index: int) -> bool:
    asked = (
        rows[index]
        if rows[index].role == "user"
        else rows[index - 1]
        if index
        else None
    )
    return asked is not None and asked.role == "user" and words(asked).startswith("/")
