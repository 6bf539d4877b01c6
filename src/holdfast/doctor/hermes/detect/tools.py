"""Signs in tool calls and their results. A result is paired with the calls just above it, never by
its id over the whole session: some servers start again at call_0 every turn.
"""

from holdfast.doctor.finding import Findings
from holdfast.doctor.hermes.case import View, results_behind, shown
from holdfast.importers.hermes.records import (
    HermesRow,
    call_ids,
    calls,
    is_summary,
    words,
)
from holdfast.importers.values import JsonObject

Call = tuple[HermesRow, JsonObject]


def unpaired(view: View) -> Findings:
    """Calls without a result, results without a call."""
    # A call that is stored twice is healed as that, with the results that it lacks.
    doubles: set[int] = set()
    for finding in doubled(view):
        doubles.update(row.id for row in finding.rows)
    calls_open = _OpenCalls()
    last: HermesRow | None = None
    for row in view.spoken:
        # Results may be among the rows that can't be read.
        if last is not None and view.case.is_torn(last, row):
            calls_open.carry()
        last = row
        if row.role == "tool":
            if not calls_open.answer(row):
                measured = (
                    f"Row {row.name} is the result of {row.tool_call_id!r}, which is not "
                    "open there."
                )
                yield view.finding("tool-result-without-call", (row,), measured)
        elif is_summary(row):
            calls_open.carry()
        else:
            yield from _left_open(view, calls_open.opened, doubles)
            calls_open = _OpenCalls(row)
    # The last calls may be running, or their results may lie behind a gap.
    opened = calls_open.opened
    if view.case.is_at_rest and opened and not view.case.is_torn(opened[0][0], None):
        yield from _left_open(view, opened, doubles)


class _OpenCalls:
    """Calls of the row last spoken that wait for a result.

    A summary, or a gap of rows that can't be read, may stand between a call and its result: calls
    from before it are `carried`, and can still be answered. From there on, as behind calls that
    can't be read, a result without a call is no finding.
    """

    def __init__(self, row: HermesRow | None = None) -> None:
        asked = calls(row) if row is not None and row.role == "assistant" else []
        self.opened: list[Call] = []
        if row is not None:
            self.opened = [(row, call) for call in asked or () if call_ids(call)]
        self._carried: list[Call] = []
        self._is_loose = asked is None

    def carry(self) -> None:
        self._carried += self.opened
        self.opened = []
        self._is_loose = True

    def answer(self, row: HermesRow) -> bool:
        """Whether a result may stand where it does; closes the call that it answers."""
        found = _answered(row, self.opened) or _answered(row, self._carried)
        return found is not None or self._is_loose


def _answered(row: HermesRow, opened: list[Call]) -> Call | None:
    for place, (_, call) in enumerate(opened):
        if row.tool_call_id in call_ids(call):
            return opened.pop(place)
    return None


def _left_open(view: View, opened: list[Call], twins: set[int]) -> Findings:
    # All open calls are of one row: the one that was last spoken.
    if opened and opened[0][0].id not in twins:
        row = opened[0][0]
        missing = [call for _, call in opened]
        names = ", ".join(call_ids(call)[0] for call in missing)
        yield view.finding(
            "tool-call-without-result",
            (row,),
            f"No result of {names} is stored.",
            missing,
        )


def doubled(view: View) -> Findings:
    """A call that was stored once without and once with its text."""
    for row, following in zip(view.spoken, view.spoken[1:], strict=False):
        if row.role == following.role == "assistant" and not words(row) and calls(row):
            if calls(row) == calls(following):
                measured = f"Rows {row.name} and {following.name} are the same call."
                missing = _unanswered(view, following)
                yield view.finding(
                    "duplicate-tool-call-row", (row, following), measured, missing
                )


def _unanswered(view: View, row: HermesRow) -> list[JsonObject]:
    """The calls of a row that no result follows."""
    opened: list[Call] = [(row, call) for call in calls(row) or () if call_ids(call)]
    for result in results_behind(view.spoken, row):
        _answered(result, opened)
    return [call for _, call in opened]


def unparsed(view: View) -> Findings:
    """Calls that are not JSON."""
    for row in view.originals:
        if row.role == "assistant" and calls(row) is None:
            measured = f"tool_calls of row {row.name} is {shown(row.tool_calls or '')}."
            results = results_behind(view.originals, row)
            yield view.finding("tool-calls-not-json", (row,), measured, results)
