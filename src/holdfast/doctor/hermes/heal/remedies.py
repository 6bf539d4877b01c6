"""The remedy of each rule that can be healed within one Hermes session."""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.doctor.finding import Finding
from holdfast.doctor.hermes.case import shown
from holdfast.doctor.hermes.heal.edits import Edits
from holdfast.importers.hermes.convert import FOLDED, WAS
from holdfast.importers.hermes.records import LIST_TAG, HermesDelivery, HermesRow, call_ids, words

NO_ANSWER = "[No answer to this message is stored.]"
NO_QUESTION = "[The question is not stored.]"
NO_HISTORY = "In the turn before this row the model had no history."
UNKNOWN = json.dumps({"error": "interrupted, outcome unknown"})
INTERRUPTED = "interrupted"
_SYNTHETIC = {"synthetic": True}
_CALL_ID, _ID, _NAME = (
    re.compile(rf'"{name}"\s*:\s*"([^"\\]+)"') for name in ("call_id", "id", "name")
)

Remedy = Callable[[Edits, Finding], None]


def orphan_user(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    edits.put_after(
        row,
        "no-answer",
        finding.rule.name,
        labels=_SYNTHETIC,
        role="assistant",
        content=NO_ANSWER,
        finish_reason=INTERRUPTED,
    )
    edits.note_change(
        finding.rule.name, row.place, shown(words(row)), f"{shown(words(row))}, then {NO_ANSWER!r}"
    )


def merged_user_blob(edits: Edits, finding: Finding) -> None:
    old, new = finding.rows
    left = words(new)[len(words(old)) :].lstrip()
    edits.replace(new, content=left, labels={"healed": finding.rule.name})
    edits.note_change(finding.rule.name, new.place, shown(words(new)), shown(left))


def partial_unmarked(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    edits.replace(
        row, finish_reason=INTERRUPTED, labels={"healed": finding.rule.name, "incomplete": True}
    )
    edits.note_change(
        finding.rule.name, row.place, "finish_reason NULL", f"finish_reason {INTERRUPTED!r}"
    )


def split_by_stream_cut(edits: Edits, finding: Finding) -> None:
    first, middle, second = finding.rows
    edits.hide(middle, finding.rule.name, control=True)
    texts = (first.content or "", second.content or "")
    if any(text.startswith(LIST_TAG) for text in texts):
        edits.note_change(
            finding.rule.name,
            middle.place,
            shown(words(middle)),
            "hidden; its neighbours are lists of parts",
        )
        return
    edits.replace(
        first,
        content="".join(texts),
        finish_reason=second.finish_reason,
        tool_calls=second.tool_calls or first.tool_calls,
        labels={"healed": finding.rule.name},
    )
    edits.fold(second, first.name, finding.rule.name)
    edits.note_change(
        finding.rule.name,
        first.place,
        f"{shown(texts[0])} and {shown(texts[1])}",
        shown("".join(texts)),
    )


def duplicate_tool_call_row(edits: Edits, finding: Finding) -> None:
    first, second = finding.rows
    edits.fold(first, second.name, finding.rule.name)
    _add_results(edits, second, finding)
    edits.note_change(
        finding.rule.name, first.place, f"rows {first.name} and {second.name}", f"row {second.name}"
    )


def tool_call_without_result(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    _add_results(edits, row, finding)
    names = ", ".join(call_ids(call)[0] for call in finding.data)
    edits.note_change(
        finding.rule.name, row.place, f"{names} open", f"{names}: interrupted, outcome unknown"
    )


def _add_results(edits: Edits, row: HermesRow, finding: Finding) -> None:
    originals = edits.view.originals
    place = next(place for place, other in enumerate(originals) if other.id == row.id)
    while place + 1 < len(originals) and originals[place + 1].role == "tool":
        place += 1
    for call in finding.data:
        said = call.get("function")
        name = said.get("name") if isinstance(said, dict) else None
        edits.put_after(
            originals[place],
            f"result-of-{call_ids(call)[0]}",
            finding.rule.name,
            labels=_SYNTHETIC,
            role="tool",
            content=UNKNOWN,
            tool_call_id=call_ids(call)[0],
            tool_name=name if isinstance(name, str) else None,
        )


def tool_result_without_call(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    edits.hide(row, finding.rule.name)
    edits.note_change(
        finding.rule.name, row.place, shown(words(row)), "kept, and hidden from the model"
    )


def tool_calls_not_json(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    raw = row.tool_calls or ""
    results: dict[str, str] = {
        one.tool_call_id: one.tool_name or "" for one in finding.data if one.tool_call_id
    }
    made = [
        _placeholder(name, results.get(name, ""), raw, number)
        for number, name in enumerate(_ids(row, results))
    ]
    edits.replace(row, tool_calls=json.dumps(made), labels={"healed": finding.rule.name})
    names = ", ".join(call["id"] for call in made)
    edits.note_change(
        finding.rule.name,
        row.place,
        shown(raw),
        f"{names} in its place, with the raw text as arguments",
    )


def _ids(row: HermesRow, results: dict[str, str]) -> list[str]:
    """The ids of the calls in a text that is not JSON any more, and of the results just
    behind it.
    """
    raw = row.tool_calls or ""
    named, plain = _CALL_ID.findall(raw), _ID.findall(raw)
    if not set(named) & results.keys() and set(plain) & results.keys():
        named, plain = plain, []
    found = [*named, *plain[len(named) :], *results]
    return list(dict.fromkeys(found)) or [f"call_unreadable_{row.name}"]


def _placeholder(name: str, tool: str, raw: str, number: int) -> dict[str, Any]:
    tools = _NAME.findall(raw)
    tool = tool or (tools[number] if number < len(tools) else "unreadable")
    arguments = json.dumps({"unreadable": raw} if number == 0 else {})
    return {
        "id": name,
        "call_id": name,
        "type": "function",
        "function": {"name": tool, "arguments": arguments},
    }


def repeated_tail(edits: Edits, finding: Finding) -> None:
    keep = next((row for row in finding.rows if row.active), finding.rows[0])
    for row in finding.rows:
        if row is not keep:
            was = {FOLDED: finding.data, WAS: (row.active, row.compacted)}
            edits.hide(row, finding.rule.name, alone=True, **was)
    names = ", ".join(row.name for row in finding.rows)
    edits.note_change(
        finding.rule.name, keep.place, f"copies {names} of row {finding.data}", f"copy {keep.name}"
    )


def history_stored_twice(edits: Edits, finding: Finding) -> None:
    for row, first in finding.data:
        edits.fold(row, first.name, finding.rule.name)
    names = f"rows {finding.rows[0].name} to {finding.rows[-1].name}"
    edits.note_change(
        finding.rule.name,
        finding.rows[0].place,
        f"{names} live",
        f"{len(finding.rows)} of them folded",
    )


def review_harness_turn(edits: Edits, finding: Finding) -> None:
    for row in finding.rows:
        edits.hide(row, finding.rule.name, harness=True)
    row = finding.rows[0]
    edits.note_change(
        finding.rule.name,
        row.place,
        shown(words(row)),
        f"{len(finding.rows)} rows hidden from the model",
    )


def session_meta_repeated(edits: Edits, finding: Finding) -> None:
    mark, *turn = finding.rows
    edits.replace(mark, content=NO_HISTORY)
    edits.hide(mark, finding.rule.name)
    for row in turn:
        edits.replace(row, labels={"without_history": True})
    edits.note_change(
        finding.rule.name, mark.place, "session_meta", f"hidden, with the note {NO_HISTORY!r}"
    )


def replaced_characters(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    if finding.data is None:
        edits.known |= {row.id}
        edits.note_change(
            finding.rule.name,
            row.place,
            shown(row.content or ""),
            "beyond recovery; the row is noted as known",
        )
        return
    edits.replace(row, content=finding.data, labels={"healed": finding.rule.name})
    edits.note_change(finding.rule.name, row.place, shown(row.content or ""), shown(finding.data))


def double_user_row(edits: Edits, finding: Finding) -> None:
    first, second = finding.rows
    edits.fold(second, first.name, finding.rule.name)
    edits.note_change(
        finding.rule.name, second.place, f"rows {first.name} and {second.name}", f"row {first.name}"
    )


def interleaved_turns(edits: Edits, finding: Finding) -> None:
    asked, answered = finding.rows[: finding.data], finding.rows[finding.data :]
    wanted = [row for pair in zip(asked, answered, strict=True) for row in pair]
    edits.reorder(wanted)
    before, after = (", ".join(row.name for row in rows) for rows in (finding.rows, wanted))
    edits.note_change(finding.rule.name, asked[0].place, f"rows {before}", f"rows {after}")


def answer_only_in_ledger(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    answer: HermesDelivery = finding.data
    edits.put_after(
        row,
        "answer",
        finding.rule.name,
        labels={"recovered": True},
        role="assistant",
        content=answer.text,
        timestamp=answer.created_at,
        finish_reason="stop",
    )
    edits.note_change(
        finding.rule.name, row.place, "no answer", f"the recovered answer {shown(answer.text)}"
    )


def lost_turn(edits: Edits, finding: Finding) -> None:
    for number, answer in enumerate(finding.data, 1):
        at = answer.created_at
        labels = _SYNTHETIC
        edits.append(
            f"question-{number}",
            finding.rule.name,
            labels=labels,
            role="user",
            content=NO_QUESTION,
            timestamp=at,
        )
        edits.append(
            f"answer-{number}",
            finding.rule.name,
            labels={"recovered": True},
            role="assistant",
            content=answer.text,
            timestamp=at,
            finish_reason="stop",
        )
    if finding.data:
        texts = ", ".join(shown(answer.text) for answer in finding.data[:3])
        edits.note_change(
            finding.rule.name,
            f"sessions.id={edits.session.id}",
            "no rows",
            f"recovered answers: {texts}",
        )


def message_count_drift(edits: Edits, finding: Finding) -> None:
    before = f"message_count {edits.session.message_count}"
    edits.session = msgspec.structs.replace(edits.session, message_count=finding.data)
    edits.note_change(
        finding.rule.name,
        f"sessions.id={edits.session.id}",
        before,
        f"message_count {finding.data}",
    )


def stale_compression_lock(edits: Edits, finding: Finding) -> None:
    edits.has_locks = False
    edits.note_change(finding.rule.name, f"sessions.id={edits.session.id}", "locked", "not locked")


REMEDIES: dict[str, Remedy] = {
    f"hermes/{remedy.__name__.replace('_', '-')}": remedy
    for remedy in (
        orphan_user,
        merged_user_blob,
        partial_unmarked,
        split_by_stream_cut,
        duplicate_tool_call_row,
        repeated_tail,
        interleaved_turns,
        double_user_row,
        tool_result_without_call,
        tool_call_without_result,
        session_meta_repeated,
        message_count_drift,
        replaced_characters,
        tool_calls_not_json,
        lost_turn,
        answer_only_in_ledger,
        stale_compression_lock,
        review_harness_turn,
        history_stored_twice,
    )
}
