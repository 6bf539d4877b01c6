"""Remedies for the turns of goose: one row for one answer, and a word where a turn was cut off."""

from typing import Any

import msgspec

from holdfast.doctor.goose.case import CONTEXT, GooseCase, is_context
from holdfast.doctor.goose.detect.turns import (
    cut_answer,
    doubled_thinking,
    is_merged,
    unanswered,
    unfinished,
)
from holdfast.doctor.goose.repeats import repeated_rows, signatures, split_runs
from holdfast.doctor.goose.synthetic_rows import (
    Mended,
    change,
    made,
    marked,
    short,
    with_rows,
)
from holdfast.importers.goose.records import GooseRow

CUT = "[interrupted: the answer above was cut off and is not complete]"
STOPPED = "[interrupted: this turn was stopped before it was finished]"


def duplicate_rows(case: GooseCase) -> Mended:
    again = set(repeated_rows(case.rows))
    rows = []
    changes = []
    for index, row in enumerate(case.rows):
        if index in again:
            changes.append(
                change(
                    case, "duplicate-rows", row, row.content, "left out: said before"
                )
            )
        else:
            rows.append(row)
    return with_rows(case, rows), changes


def token_split_rows(case: GooseCase) -> Mended:
    rows = list(case.rows)
    changes = []
    for run in reversed(split_runs(case.rows)):
        pieces = sorted((case.rows[index] for index in run), key=lambda row: row.number)
        whole = _joined(pieces)
        changes.append(
            change(
                case,
                "token-split-rows",
                pieces[0],
                f"{len(pieces)} rows",
                whole.content,
            )
        )
        rows[run.start : run.stop] = [whole]
    return with_rows(case, rows), changes[::-1]


def cut_stream(case: GooseCase) -> Mended:
    index = cut_answer(case)
    if index is None:
        return case, []
    row = case.rows[index]
    said = _note(case, row, "cut", CUT)
    rows = [
        *case.rows[:index],
        marked(row, incomplete=True),
        said,
        *case.rows[index + 1 :],
    ]
    return with_rows(case, rows), [
        change(case, "cut-stream", row, short(row.content)[-60:], CUT)
    ]


def unfinished_turn(case: GooseCase) -> Mended:
    index = unfinished(case.rows)
    if index is None:
        return case, []
    row = case.rows[index]
    said = _note(case, row, "stopped", STOPPED)
    rows = [*case.rows[: index + 1], said, *case.rows[index + 1 :]]
    found = change(case, "unfinished-turn", row, "the session ends here", STOPPED)
    return with_rows(case, rows), [found]


def unanswered_prompt(case: GooseCase) -> Mended:
    rows = list(case.rows)
    changes = []
    for index in reversed(unanswered(case)):
        row = case.rows[index]
        after = index + 1
        while after < len(rows) and is_context(rows[after]):
            after += 1
        rows.insert(after, _note(case, row, "unanswered", STOPPED))
        changes.append(
            change(case, "unanswered-prompt", row, "nothing answers it", STOPPED)
        )
    return with_rows(case, rows), changes[::-1]


def _note(case: GooseCase, row: GooseRow, why: str, text: str) -> GooseRow:
    """A word of the assistant's that says what became of a turn."""
    return made(case, row, why, "assistant", [{"type": "text", "text": text}])


def merged_users(case: GooseCase) -> Mended:
    """The context that goose adds is a row of its own, for the model alone, behind the prompt."""
    rows: list[GooseRow] = []
    changes = []
    for row in case.rows:
        rows.append(row)
        if not is_merged(row):
            continue
        content = row.content or []
        added = [block for block in content if _is_added(block)]
        asked = [block for block in content if not _is_added(block)]
        apart = made(case, row, "context", "user", added)
        apart = msgspec.structs.replace(
            apart,
            metadata={
                **(apart.metadata or {}),
                "userVisible": False,
                "turnContext": True,
            },
        )
        rows[-1:] = [*_prompts(case, row, asked), apart]
        changes.append(change(case, "merged-users", row, content, asked))
    return with_rows(case, rows), changes


def duplicate_thinking(case: GooseCase) -> Mended:
    rows = list(case.rows)
    changes = []
    for index, signature in doubled_thinking(case.rows):
        row = rows[index]
        out = [place for place, one in signatures(row) if str(one) == signature]
        if len(out) != 1 and _is_alone(case.rows, index, signature):
            out = out[1:]
        content = row.content or []
        left = [block for place, block in enumerate(content) if place not in out]
        left = left or [{"type": "text", "text": "[thinking]"}]
        opaque = [{"at": place, "block": content[place]} for place in out]
        rows[index] = marked(msgspec.structs.replace(row, content=left), opaque=opaque)
        changes.append(change(case, "duplicate-thinking", row, content, left))
    return with_rows(case, rows), changes


def _joined(pieces: list[GooseRow]) -> GooseRow:
    """One row of many: texts that follow each other become one, and the last word on
    usage counts.
    """
    content: list[Any] = []
    metadata: dict[str, Any] = {}
    for row in pieces:
        metadata = {**(row.metadata or {}), **metadata}
        for block in row.content or ():
            if content and _is_plain_text(block) and _is_plain_text(content[-1]):
                content[-1] = {
                    "type": "text",
                    "text": content[-1]["text"] + block["text"],
                }
            else:
                content.append(block)
    usage = [
        row.metadata["usage"]
        for row in pieces
        if row.metadata and "usage" in row.metadata
    ]
    if usage:
        metadata["usage"] = usage[-1]
    return msgspec.structs.replace(
        pieces[0], content=content, metadata=metadata or None
    )


def _is_plain_text(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.keys() == {"type", "text"}
        and block["type"] == "text"
    )


def _is_added(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "text"
        and str(block.get("text")).startswith(CONTEXT)
    )


def _prompts(case: GooseCase, row: GooseRow, asked: list[Any]) -> list[GooseRow]:
    """The prompts of a merged row, a row for each text; what is no text stays with the first."""
    texts = [
        block
        for block in asked
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    if len(texts) < 2:
        return [msgspec.structs.replace(row, content=asked)] if asked else []
    first = [block for block in asked if block not in texts[1:]]
    prompts = [msgspec.structs.replace(row, content=first)]
    for number, block in enumerate(texts[1:], start=2):
        prompts.append(made(case, row, f"prompt {number}", "user", [block]))
    return prompts


def _is_alone(rows: tuple[GooseRow, ...], index: int, signature: str) -> bool:
    """Whether no other row keeps this thinking, so that one copy has to stay here."""
    for place, row in enumerate(rows):
        if place == index or is_context(row):
            continue
        if any(str(one) == signature for _, one in signatures(row)):
            return False
    return True
