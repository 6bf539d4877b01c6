"""Remedies for the turns of goose: one row for one answer, and a word where a turn was cut off."""

from typing import Any

from msgspec.structs import replace

from holdfast.doctor.goose.case import (
    CONTEXT,
    GooseCase,
    Rows,
    is_block,
    is_context,
    metadata_of,
)
from holdfast.doctor.goose.detect.turns import (
    cut_answer,
    doubled_thinking,
    is_merged,
    unanswered,
    unfinished,
)
from holdfast.doctor.goose.heal.tools import without_blocks
from holdfast.doctor.goose.repeats import repeated_rows, signatures, split_runs
from holdfast.doctor.goose.synthetic_rows import (
    Edits,
    Mended,
    RowEdit,
    change,
    edits_rows,
    made,
    marked,
    short,
    with_rows,
)
from holdfast.importers.goose.records import GooseRow

CUT = "[interrupted: the answer above was cut off and is not complete]"
STOPPED = "[interrupted: this turn was stopped before it was finished]"


@edits_rows
def duplicate_rows(case: GooseCase) -> Edits:
    for index in repeated_rows(case.rows):
        yield RowEdit(index, [], case.rows[index].content, "left out: said before")


@edits_rows
def token_split_rows(case: GooseCase) -> Edits:
    for run in split_runs(case.rows):
        pieces = case.rows[run.start : run.stop]
        # Pieces of one second are read in any order; they were stored in the right one.
        whole = _joined(sorted(pieces, key=lambda row: row.number))
        before = f"{len(pieces)} rows"
        yield RowEdit(run.start, [whole], before, whole.content, run.stop)


@edits_rows
def cut_stream(case: GooseCase) -> Edits:
    index = cut_answer(case)
    if index is not None:
        row = case.rows[index]
        said = _note(case, row, "cut", CUT)
        before = short(row.content)[-60:]
        yield RowEdit(index, [marked(row, incomplete=True), said], before, CUT)


@edits_rows
def unfinished_turn(case: GooseCase) -> Edits:
    index = unfinished(case.rows)
    if index is not None:
        row = case.rows[index]
        said = _note(case, row, "stopped", STOPPED)
        yield RowEdit(index, [row, said], "the session ends here", STOPPED)


@edits_rows
def unanswered_prompt(case: GooseCase) -> Edits:
    for index in unanswered(case):
        # Behind the context that belongs to the prompt.
        end = index + 1
        while end < len(case.rows) and is_context(case.rows[end]):
            end += 1
        said = _note(case, case.rows[index], "unanswered", STOPPED)
        rows = [*case.rows[index:end], said]
        yield RowEdit(index, rows, "nothing answers it", STOPPED, end)


def _note(case: GooseCase, row: GooseRow, why: str, text: str) -> GooseRow:
    """A word of the assistant's that says what became of a turn."""
    return made(case, row, why, "assistant", [{"type": "text", "text": text}])


@edits_rows
def merged_users(case: GooseCase) -> Edits:
    """The context that goose adds is a row of its own, for the model alone, behind the prompt."""
    for index, row in enumerate(case.rows):
        if not is_merged(row):
            continue
        added = []
        asked = []
        for block in row.content or ():
            if _is_added(block):
                added.append(block)
            else:
                asked.append(block)
        apart = made(case, row, "context", "user", added)
        flags = {"userVisible": False, "turnContext": True}
        apart = replace(apart, metadata=metadata_of(apart) | flags)
        rows = [*_prompts(case, row, asked), apart]
        yield RowEdit(index, rows, row.content or [], asked)


def duplicate_thinking(case: GooseCase) -> Mended:
    # A row may hold several that are doubled: each is taken out of what the last one left.
    rows = list(case.rows)
    changes = []
    for index, signature in doubled_thinking(case.rows):
        row = rows[index]
        out = [place for place, one in signatures(row) if str(one) == signature]
        # Doubled within one row: the first copy stays.
        if len(out) != 1 and _is_alone(case.rows, index, signature):
            out = out[1:]
        content = row.content or []
        left = without_blocks(row, out).content
        # A row without blocks would be the next finding (`empty-and-odd-roles`).
        left = left or [{"type": "text", "text": "[thinking]"}]
        opaque = [{"at": place, "block": content[place]} for place in out]
        rows[index] = marked(replace(row, content=left), opaque=opaque)
        changes.append(change(case, duplicate_thinking, row, content, left))
    return with_rows(case, rows), changes


def _joined(pieces: list[GooseRow]) -> GooseRow:
    """One row of many: texts that follow each other become one, and the last word on
    usage counts.
    """
    content: list[Any] = []
    metadata: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for row in pieces:
        metadata = metadata_of(row) | metadata
        if "usage" in metadata_of(row):
            usage = {"usage": metadata_of(row)["usage"]}
        for block in row.content or ():
            if content and _is_plain_text(block) and _is_plain_text(content[-1]):
                text = content[-1]["text"] + block["text"]
                content[-1] = {"type": "text", "text": text}
            else:
                content.append(block)
    return replace(pieces[0], content=content, metadata=metadata | usage or None)


def _is_plain_text(block: Any) -> bool:
    # One with annotations of its own stays as it is.
    return is_block(block, "text") and block.keys() == {"type", "text"}


def _is_added(block: Any) -> bool:
    return is_block(block, "text") and str(block.get("text")).startswith(CONTEXT)


def _prompts(case: GooseCase, row: GooseRow, asked: list[Any]) -> list[GooseRow]:
    """The prompts of a merged row, a row for each text; what is no text stays with the first."""
    texts = [block for block in asked if is_block(block, "text")]
    if not asked:
        return []
    first = [block for block in asked if block not in texts[1:]]
    prompts = [replace(row, content=first)]
    for number, block in enumerate(texts[1:], start=2):
        prompts.append(made(case, row, f"prompt {number}", "user", [block]))
    return prompts


def _is_alone(rows: Rows, index: int, signature: str) -> bool:
    """Whether no other row keeps this thinking, so that one copy has to stay here."""
    for place, row in enumerate(rows):
        if place == index or is_context(row):
            continue
        if any(str(one) == signature for _, one in signatures(row)):
            return False
    return True
