"""Signs in the calls and results of a session of goose."""

from typing import Any

from holdfast.doctor.finding import Findings
from holdfast.doctor.goose.case import (
    GooseCase,
    Rows,
    for_model,
    is_context,
    is_result,
)
from holdfast.doctor.goose.pairs import BlockPlace, pairing


def tool_signs(case: GooseCase) -> Findings:
    rows = case.rows
    found = pairing(rows)
    for call in found.alone:
        # In a store that is open, the last calls may just be running.
        if not (case.live and is_under_way(rows, call)):
            measured = f"The call `{call.call_id}`{_name(rows, call)} has no result."
            yield case.finding("orphan-tool-request", rows[call.row], measured)
    for call, result in found.early:
        measured = (
            f"The result of `{call.call_id}` is read before the call, which is "
            f"{rows[call.row].place}."
        )
        yield case.finding("result-before-call", rows[result.row], measured)
    for result in found.doubles:
        measured = f"It is one more result for the call `{result.call_id}`."
        yield case.finding("duplicate-tool-result", rows[result.row], measured)
    for result in found.strays:
        measured = f"There is no call `{result.call_id}`."
        yield case.finding("orphan-tool-response", rows[result.row], measured)


def is_under_way(rows: Rows, call: BlockPlace) -> bool:
    """Whether only results and context follow a call: its turn may be running."""
    for row in rows[call.row + 1 :]:
        if for_model(row) and not is_result(row) and not is_context(row):
            return False
    return True


def _name(rows: Rows, call: BlockPlace) -> str:
    """The tool of a call, as far as it can be made out: goose stores calls that failed to parse."""
    said: Any = (rows[call.row].content or [])[call.block]
    for key in ("toolCall", "value", "name"):
        said = said.get(key) if isinstance(said, dict) else None
    return f" of {said[:60]}" if isinstance(said, str) else ""
