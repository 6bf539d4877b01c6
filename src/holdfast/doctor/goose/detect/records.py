"""Signs in single records of goose: what can't be read, what goose can't load, what stands where
nobody looks.
"""

from collections.abc import Iterator

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.blocks import block_problem
from holdfast.doctor.goose.case import ROLES, GooseCase, for_model, is_empty, is_summary
from holdfast.importers.goose.records import MS_FROM, GooseRow


def record_signs(case: GooseCase) -> Iterator[Finding]:
    yield from _of_the_session(case)
    for row in case.rows:
        yield from _of_a_row(case, row)
    late = [row for row in case.rows if is_in_milliseconds(row)]
    if late:
        measured = f"{len(late)} rows have times like {late[0].created}."
        yield case.finding("millisecond-timestamps", late[0].place, measured)


def is_in_milliseconds(row: GooseRow) -> bool:
    return row.created is not None and row.created >= MS_FROM


def unknown_blocks(row: GooseRow) -> list[tuple[int, str]]:
    """The blocks that goose can't load, by index, with what is wrong with them."""
    found = (
        (index, block_problem(block)) for index, block in enumerate(row.content or ())
    )
    return [(index, problem) for index, problem in found if problem]


def is_odd(row: GooseRow) -> bool:
    """Whether a row has a role that goose skips, or tells the model nothing."""
    return row.role not in ROLES or (
        row.content is not None and for_model(row) and is_empty(row)
    )


def _of_the_session(case: GooseCase) -> Iterator[Finding]:
    session, count = case.session, len(case.rows)
    if session.problem:
        yield case.finding(
            "unreadable-record",
            session.place,
            f"{session.problem[:1].upper()}{session.problem[1:]}.",
        )
    if session.source == "stranded":
        yield case.finding(
            "stranded-messages", session.place, f"{count} messages have no session."
        )
    if session.source == "thread":
        yield case.finding(
            "thread-tables-present",
            session.place,
            f"{count} messages are in the thread tables alone.",
        )
    if case.rewritten and not _was_compacted(case):
        yield case.finding("rewritten-history", session.place, case.rewritten)


def _was_compacted(case: GooseCase) -> bool:
    """A compaction writes a history anew, and may."""
    return any(paid.is_compaction for paid in case.usage_rows) or any(
        is_summary(row) for row in case.rows
    )


def _of_a_row(case: GooseCase, row: GooseRow) -> Iterator[Finding]:
    if row.problem:
        yield case.finding(
            "unreadable-record", row.place, f"The record: {row.problem}."
        )
    if row.content_problem:
        yield case.finding(
            "content-not-json", row.place, f"Its content: {row.content_problem[:200]}."
        )
    unknown = unknown_blocks(row)
    if unknown:
        problems = ", ".join(dict.fromkeys(problem for _, problem in unknown))
        yield case.finding("unknown-content-type", row.place, f"It has {problems}.")
    if row.metadata_problem and not row.problem:
        yield case.finding(
            "metadata-unreadable",
            row.place,
            f"Its metadata: {row.metadata_problem[:200]}.",
        )
    if is_odd(row):
        said = (
            f"Its role is `{row.role[:40]}`."
            if row.role not in ROLES
            else "It says nothing."
        )
        yield case.finding("empty-and-odd-roles", row.place, said)
