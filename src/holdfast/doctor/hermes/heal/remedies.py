"""The remedy of each rule that can be healed within one Hermes session."""

import json
import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Finding
from holdfast.doctor.hermes.case import results_behind, shown
from holdfast.doctor.hermes.heal.edits import Edits
from holdfast.importers.hermes.convert import FOLDED, WAS
from holdfast.importers.hermes.records import (
    LIST_TAG,
    HermesDelivery,
    HermesRow,
    call_ids,
    words,
)

NO_ANSWER = "[No answer to this message is stored.]"
NO_QUESTION = "[The question is not stored.]"
NO_HISTORY = "In the turn before this row the model had no history."
UNKNOWN = json.dumps({"error": "interrupted, outcome unknown"})
INTERRUPTED = "interrupted"
_CALL_ID = re.compile(r'"call_id"\s*:\s*"([^"\\]+)"')
_ID = re.compile(r'"id"\s*:\s*"([^"\\]+)"')
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')

Remedy = Callable[[Edits, Finding], None]


def orphan_user(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    edits.put_after(
        finding,
        row,
        "no-answer",
        label="synthetic",
        role="assistant",
        content=NO_ANSWER,
        finish_reason=INTERRUPTED,
    )
    question = shown(words(row))
    edits.note_change(finding, question, f"{question}, then {NO_ANSWER!r}")


def merged_user_blob(edits: Edits, finding: Finding) -> None:
    old, new = finding.rows
    # The old row keeps the words; without an answer it is then found as a question of its own.
    left = words(new)[len(words(old)) :].lstrip()
    edits.heal(finding, new, content=left)
    edits.note_change(finding, shown(words(new)), shown(left), at=new)


def partial_unmarked(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    # The finish_reason says it in a copy for Hermes, the label in a Holdfast store.
    labels = {"healed": finding.rule.name, "incomplete": True}
    edits.replace(row, finish_reason=INTERRUPTED, labels=labels)
    edits.note_change(finding, "finish_reason NULL", f"finish_reason {INTERRUPTED!r}")


def split_by_stream_cut(edits: Edits, finding: Finding) -> None:
    first, middle, second = finding.rows
    edits.hide(finding, middle, control=True)
    start = first.content or ""
    rest = second.content or ""
    if start.startswith(LIST_TAG) or rest.startswith(LIST_TAG):
        # Lists of parts can't be joined as texts are; the prompt between them goes all the same.
        after = "hidden; its neighbours are lists of parts"
        edits.note_change(finding, shown(words(middle)), after, at=middle)
        return
    edits.heal(
        finding,
        first,
        content=start + rest,
        finish_reason=second.finish_reason,
        tool_calls=second.tool_calls or first.tool_calls,
    )
    edits.fold(finding, second, first)
    edits.note_change(finding, f"{shown(start)} and {shown(rest)}", shown(start + rest))


def duplicate_tool_call_row(edits: Edits, finding: Finding) -> None:
    first, second = finding.rows
    # The first is the one without words (`detect.tools.doubled`).
    edits.fold(finding, first, second)
    _add_results(edits, second, finding)
    edits.note_change(
        finding, f"rows {first.name} and {second.name}", f"row {second.name}"
    )


def tool_call_without_result(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    _add_results(edits, row, finding)
    names = ", ".join(call_ids(call)[0] for call in finding.data)
    edits.note_change(
        finding, f"{names} open", f"{names}: interrupted, outcome unknown"
    )


def _add_results(edits: Edits, row: HermesRow, finding: Finding) -> None:
    """A result for each call that has none, behind the results that are stored."""
    last = [row, *results_behind(edits.view.originals, row)][-1]
    for call in finding.data:
        function = call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        edits.put_after(
            finding,
            last,
            f"result-of-{call_ids(call)[0]}",
            label="synthetic",
            role="tool",
            content=UNKNOWN,
            tool_call_id=call_ids(call)[0],
            tool_name=name if isinstance(name, str) else None,
        )


def tool_result_without_call(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    edits.hide(finding, row)
    edits.note_change(finding, shown(words(row)), "kept, and hidden from the model")


def tool_calls_not_json(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    raw = row.tool_calls or ""
    results: dict[str, str] = {}
    for result in finding.data:
        if result.tool_call_id:
            results[result.tool_call_id] = result.tool_name or ""
    ids = _ids(row, results)
    made = []
    for number, call_id in enumerate(ids):
        made.append(_placeholder(call_id, results.get(call_id, ""), raw, number))
    edits.heal(finding, row, tool_calls=json.dumps(made))
    after = f"{', '.join(ids)} in its place, with the raw text as arguments"
    edits.note_change(finding, shown(raw), after)


def _ids(row: HermesRow, results: dict[str, str]) -> list[str]:
    """The ids of the calls in a text that is not JSON any more, and of the results just
    behind it.
    """
    raw = row.tool_calls or ""
    named = _CALL_ID.findall(raw)
    plain = _ID.findall(raw)
    # A call of the Responses API has both an id and a call_id; results name one or the other.
    # Where the results name plain ids, the call_ids are not what they answer.
    if not set(named) & results.keys() and set(plain) & results.keys():
        named, plain = plain, []
    found = [*named, *plain[len(named) :], *results]
    return list(dict.fromkeys(found)) or [f"call_unreadable_{row.name}"]


def _placeholder(call_id: str, tool: str, raw: str, number: int) -> dict[str, Any]:
    tools = _NAME.findall(raw)
    if not tool:
        tool = tools[number] if number < len(tools) else "unreadable"
    # The raw text is kept once, with the first call; it can't be divided among them.
    arguments = json.dumps({"unreadable": raw} if number == 0 else {})
    return {
        "id": call_id,
        "call_id": call_id,
        "type": "function",
        "function": {"name": tool, "arguments": arguments},
    }


def repeated_tail(edits: Edits, finding: Finding) -> None:
    keep = next((row for row in finding.rows if row.active), finding.rows[0])
    for row in finding.rows:
        if row is not keep:
            # How it was is noted: the importer looks for copies among the rows as they were.
            was = {FOLDED: finding.data, WAS: (row.active, row.compacted)}
            edits.hide(finding, row, alone=True, **was)
    names = ", ".join(row.name for row in finding.rows)
    before = f"copies {names} of row {finding.data}"
    edits.note_change(finding, before, f"copy {keep.name}", at=keep)


def history_stored_twice(edits: Edits, finding: Finding) -> None:
    for row, first in finding.data:
        edits.fold(finding, row, first)
    names = f"rows {finding.rows[0].name} to {finding.rows[-1].name}"
    edits.note_change(finding, f"{names} live", f"{len(finding.rows)} of them folded")


def review_harness_turn(edits: Edits, finding: Finding) -> None:
    for row in finding.rows:
        edits.hide(finding, row, harness=True)
    after = f"{len(finding.rows)} rows hidden from the model"
    edits.note_change(finding, shown(words(finding.rows[0])), after)


def session_meta_repeated(edits: Edits, finding: Finding) -> None:
    mark, *turn = finding.rows
    # The words of the turn stay in view; that the model spoke without its history is a label.
    edits.replace(mark, content=NO_HISTORY)
    edits.hide(finding, mark)
    for row in turn:
        edits.replace(row, labels={"without_history": True})
    edits.note_change(finding, "session_meta", f"hidden, with the note {NO_HISTORY!r}")


def replaced_characters(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    before = shown(row.content or "")
    if finding.data is None:
        # No column has the text as it was; the row is listed so that the next exam passes it over.
        edits.known |= {row.id}
        edits.note_change(finding, before, "beyond recovery; the row is noted as known")
        return
    edits.heal(finding, row, content=finding.data)
    edits.note_change(finding, before, shown(finding.data))


def double_user_row(edits: Edits, finding: Finding) -> None:
    first, second = finding.rows
    edits.fold(finding, second, first)
    before = f"rows {first.name} and {second.name}"
    edits.note_change(finding, before, f"row {first.name}", at=second)


def interleaved_turns(edits: Edits, finding: Finding) -> None:
    asked = finding.rows[: finding.data]
    answered = finding.rows[finding.data :]
    wanted: list[HermesRow] = []
    for pair in zip(asked, answered, strict=True):
        wanted.extend(pair)
    edits.reorder(wanted)
    before = ", ".join(row.name for row in finding.rows)
    after = ", ".join(row.name for row in wanted)
    edits.note_change(finding, f"rows {before}", f"rows {after}")


def answer_only_in_ledger(edits: Edits, finding: Finding) -> None:
    (row,) = finding.rows
    answer: HermesDelivery = finding.data
    edits.put_after(finding, row, "answer", label="recovered", **_answer_fields(answer))
    edits.note_change(
        finding, "no answer", f"the recovered answer {shown(answer.text)}"
    )


def lost_turn(edits: Edits, finding: Finding) -> None:
    for number, answer in enumerate(finding.data, 1):
        # An answer without a question is not a history that providers accept.
        edits.append(
            finding,
            f"question-{number}",
            label="synthetic",
            role="user",
            content=NO_QUESTION,
            timestamp=answer.created_at,
        )
        edits.append(
            finding, f"answer-{number}", label="recovered", **_answer_fields(answer)
        )
    if finding.data:
        texts = ", ".join(shown(answer.text) for answer in finding.data[:3])
        edits.note_change(finding, "no rows", f"recovered answers: {texts}")


def _answer_fields(answer: HermesDelivery) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": answer.text,
        "timestamp": answer.created_at,
        "finish_reason": "stop",
    }


def message_count_drift(edits: Edits, finding: Finding) -> None:
    before = f"message_count {edits.session.message_count}"
    edits.session = replace(edits.session, message_count=finding.data)
    edits.note_change(finding, before, f"message_count {finding.data}")


def stale_compression_lock(edits: Edits, finding: Finding) -> None:
    edits.has_locks = False
    edits.note_change(finding, "locked", "not locked")


# Each is named after its rule. What lies between sessions is healed in `lineage`.
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
