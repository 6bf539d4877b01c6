"""Signs in single records of goose: what can't be read, what goose can't load, what stands where
nobody looks.
"""

from holdfast.doctor.finding import Findings
from holdfast.doctor.goose.blocks import block_problem
from holdfast.doctor.goose.case import ROLES, GooseCase, for_model, is_empty, is_summary
from holdfast.importers.goose.records import MS_FROM, GooseRow


def record_signs(case: GooseCase) -> Findings:
    yield from _of_the_session(case)
    for row in case.rows:
        yield from _of_a_row(case, row)
    late = [row for row in case.rows if is_in_milliseconds(row)]
    if late:
        # One finding for all: rows behind the first are clamped to its time.
        measured = f"{len(late)} rows have times like {late[0].created}."
        yield case.finding("millisecond-timestamps", late[0], measured)


def is_in_milliseconds(row: GooseRow) -> bool:
    return row.created is not None and row.created >= MS_FROM


def unknown_blocks(row: GooseRow) -> dict[int, str]:
    """The blocks that goose can't load, by index, with what is wrong with them."""
    found = {}
    for index, block in enumerate(row.content or ()):
        if problem := block_problem(block):
            found[index] = problem
    return found


def is_odd(row: GooseRow) -> bool:
    """Whether a row has a role that goose skips, or tells the model nothing."""
    if row.role not in ROLES:
        return True
    return row.content is not None and for_model(row) and is_empty(row)


def _of_the_session(case: GooseCase) -> Findings:
    session = case.session
    count = len(case.rows)
    if session.problem:
        measured = f"{session.problem[:1].upper()}{session.problem[1:]}."
        yield case.finding("unreadable-record", session, measured)
    if session.source == "stranded":
        measured = f"{count} messages have no session."
        yield case.finding("stranded-messages", session, measured)
    if session.source == "thread":
        measured = f"{count} messages are in the thread tables alone."
        yield case.finding("thread-tables-present", session, measured)
    if case.rewritten and not _was_compacted(case):
        yield case.finding("rewritten-history", session, case.rewritten)


def _was_compacted(case: GooseCase) -> bool:
    """A compaction writes a history anew, and may."""
    is_paid = any(paid.is_compaction for paid in case.usage_rows)
    return is_paid or any(map(is_summary, case.rows))


def _of_a_row(case: GooseCase, row: GooseRow) -> Findings:
    if row.problem:
        measured = f"The record: {row.problem}."
        yield case.finding("unreadable-record", row, measured)
    if row.content_problem:
        measured = f"Its content: {row.content_problem[:200]}."
        yield case.finding("content-not-json", row, measured)
    unknown = unknown_blocks(row)
    if unknown:
        problems = ", ".join(dict.fromkeys(unknown.values()))
        yield case.finding("unknown-content-type", row, f"It has {problems}.")
    # Of a record of which nothing can be used, the metadata is no news.
    if row.metadata_problem and not row.problem:
        measured = f"Its metadata: {row.metadata_problem[:200]}."
        yield case.finding("metadata-unreadable", row, measured)
    if is_odd(row):
        measured = "It says nothing."
        if row.role not in ROLES:
            measured = f"Its role is `{row.role[:40]}`."
        yield case.finding("empty-and-odd-roles", row, measured)
