"""Signs in tool calls and their results. A result is paired with the calls just above it, never by
its id over the whole session: some servers start again at call_0 every turn.
"""

from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Finding
from holdfast.doctor.hermes.case import View, shown
from holdfast.importers.hermes.records import HermesRow, call_ids, calls, is_summary, words

Call = tuple[HermesRow, dict[str, Any]]


def unpaired(view: View) -> Iterator[Finding]:
    """Calls without a result, results without a call."""
    twins = {row.id for finding in doubled(view) for row in finding.rows}
    opened: list[Call] = []
    carried: list[Call] = []
    is_loose = False
    for last, row in zip([None, *view.spoken], view.spoken, strict=False):
        if last is not None and view.case.is_torn(last, row):
            carried, opened, is_loose = [*carried, *opened], [], True
        if row.role == "tool":
            call = _answered(row, opened) or _answered(row, carried)
            if call is None and not is_loose:
                measured = (
                    f"Row {row.name} is the result of {row.tool_call_id!r}, which is not "
                    "open there."
                )
                yield view.finding("tool-result-without-call", (row,), measured)
            continue
        if is_summary(row):
            carried, opened, is_loose = [*carried, *opened], [], True
            continue
        yield from _left_open(view, opened, twins)
        asked = calls(row) if row.role == "assistant" else []
        is_loose = asked is None
        opened = [(row, call) for call in asked or () if call_ids(call)]
        carried = []
    if view.case.is_at_rest and opened and not view.case.is_torn(opened[0][0], None):
        yield from _left_open(view, opened, twins)


def _answered(row: HermesRow, opened: list[Call]) -> Call | None:
    for place, (_, call) in enumerate(opened):
        if row.tool_call_id in call_ids(call):
            return opened.pop(place)
    return None


def _left_open(view: View, opened: list[Call], twins: set[int]) -> Iterator[Finding]:
    if opened and opened[0][0].id not in twins:
        row = opened[0][0]
        missing = [call for _, call in opened]
        names = ", ".join(call_ids(call)[0] for call in missing)
        yield view.finding(
            "tool-call-without-result", (row,), f"No result of {names} is stored.", missing
        )


def doubled(view: View) -> Iterator[Finding]:
    """A call that was stored once without and once with its text."""
    for row, following in zip(view.spoken, view.spoken[1:], strict=False):
        if row.role == following.role == "assistant" and not words(row) and calls(row):
            if calls(row) == calls(following):
                measured = f"Rows {row.name} and {following.name} are the same call."
                missing = _unanswered(view, following)
                yield view.finding("duplicate-tool-call-row", (row, following), measured, missing)


def _unanswered(view: View, row: HermesRow) -> list[dict[str, Any]]:
    """The calls of a row that no result follows."""
    opened: list[Call] = [(row, call) for call in calls(row) or () if call_ids(call)]
    for later in view.spoken[view.spoken.index(row) + 1 :]:
        if later.role != "tool":
            break
        _answered(later, opened)
    return [call for _, call in opened]


def unparsed(view: View) -> Iterator[Finding]:
    """Calls that are not JSON."""
    for row in view.originals:
        if row.role == "assistant" and calls(row) is None:
            measured = f"tool_calls of row {row.name} is {shown(row.tool_calls or '')}."
            yield view.finding("tool-calls-not-json", (row,), measured, _results(view, row))


def _results(view: View, row: HermesRow) -> list[HermesRow]:
    """The tool rows just behind a row."""
    found: list[HermesRow] = []
    for later in view.originals[view.originals.index(row) + 1 :]:
        if later.role != "tool":
            break
        found.append(later)
    return found
