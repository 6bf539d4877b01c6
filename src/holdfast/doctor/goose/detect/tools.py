"""Signs in the calls and results of a session of goose."""

from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.case import GooseCase, for_model, is_context, is_result
from holdfast.doctor.goose.pairs import BlockPlace, Pairing, pairing
from holdfast.importers.goose.records import GooseRow


def tool_signs(case: GooseCase) -> Iterator[Finding]:
    rows = case.rows
    found = pairing(rows)
    for call in found.alone:
        if not (case.live and is_under_way(rows, call)):
            measured = (
                f"The call `{call.call_id}`{_name(rows[call.row], call)} has no result."
            )
            yield case.finding("orphan-tool-request", rows[call.row].place, measured)
    yield from _results(case, rows, found)


def is_under_way(rows: tuple[GooseRow, ...], call: BlockPlace) -> bool:
    """Whether only results and context follow a call: its turn may be running."""
    return all(
        is_result(row) or is_context(row) or not for_model(row)
        for row in rows[call.row + 1 :]
    )


def _results(
    case: GooseCase, rows: tuple[GooseRow, ...], found: Pairing
) -> Iterator[Finding]:
    for call, result in found.early:
        measured = (
            f"The result of `{call.call_id}` is read before the call, which is "
            f"{rows[call.row].place}."
        )
        yield case.finding("result-before-call", rows[result.row].place, measured)
    for result in found.doubles:
        measured = f"It is one more result for the call `{result.call_id}`."
        yield case.finding("duplicate-tool-result", rows[result.row].place, measured)
    for result in found.strays:
        yield case.finding(
            "orphan-tool-response",
            rows[result.row].place,
            f"There is no call `{result.call_id}`.",
        )


def _name(row: GooseRow, call: BlockPlace) -> str:
    said: Any = (row.content or [])[call.block].get("toolCall")
    value = said.get("value") if isinstance(said, dict) else None
    name = value.get("name") if isinstance(value, dict) else None
    return f" of {name[:60]}" if isinstance(name, str) else ""
