"""A session of goose in the doctor's hands, and what can be asked of its rows."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.rules import RULE
from holdfast.importers.goose.records import GooseRow, GooseSession, Paid, shown_to

# How the ids of rows begin that the doctor made: goose keeps ids, and nothing else, of
# what it does not know.
MADE = "holdfast_"
CONTEXT = "<turn-context>"
ROLES = ("user", "assistant")
Rows = Sequence[GooseRow]


class GooseCase(msgspec.Struct, frozen=True):
    """One session: its rows in the order in which goose reads them, and the model calls that were
    paid for. `live`: some process has the store open, so that what is last may be under way.
    `rewritten` tells what shows that its rows were written anew. `counted` names the models whose
    answers tell their tokens in other sessions of the store.
    """

    session: GooseSession
    rows: tuple[GooseRow, ...]
    usage_rows: tuple[Paid, ...] = ()
    live: bool = False
    rewritten: str = ""
    counted: frozenset[str] = frozenset()

    def finding(self, rule: str, at: GooseRow | GooseSession, measured: str) -> Finding:
        return Finding(RULE[f"goose/{rule}"], self.session.id, at.place, measured)


def metadata_of(row: GooseRow) -> dict[str, Any]:
    """What its metadata says; nothing where there is none that can be read."""
    return row.metadata or {}


def for_model(row: GooseRow) -> bool:
    return shown_to(row, "agentVisible")


def for_reader(row: GooseRow) -> bool:
    return shown_to(row, "userVisible")


def is_made(row: GooseRow) -> bool:
    """Whether a doctor put this row there."""
    return str(row.message_id).startswith(MADE)


def is_block(block: Any, *kinds: str) -> bool:
    """Whether this is a block of one of these types; content is other people's JSON."""
    return isinstance(block, dict) and block.get("type") in kinds


def blocks(row: GooseRow, *kinds: str) -> list[dict[str, Any]]:
    """The row's blocks of these types."""
    return [block for block in row.content or () if is_block(block, *kinds)]


def words(row: GooseRow) -> str:
    """The row's texts."""
    texts = [block.get("text") for block in blocks(row, "text")]
    return "".join(text for text in texts if isinstance(text, str))


def is_context(row: GooseRow) -> bool:
    """Whether goose added this row to a prompt, for the model alone."""
    # Not every row of context has the flag.
    is_flagged = metadata_of(row).get("turnContext") is True
    return is_flagged or words(row).startswith(CONTEXT)


def is_result(row: GooseRow) -> bool:
    return bool(blocks(row, "toolResponse"))


def is_prompt(row: GooseRow) -> bool:
    """Whether a person asks something here."""
    return for_reader(row) and _is_input(row)


def is_summary(row: GooseRow) -> bool:
    """Whether this row is for the model alone and stands for something else."""
    return not for_reader(row) and _is_input(row)


def _is_input(row: GooseRow) -> bool:
    """Whether the model reads this row as something that it is asked or told."""
    if row.role != "user" or not for_model(row):
        return False
    return not is_result(row) and not is_context(row)


def is_empty(row: GooseRow) -> bool:
    """Whether a row says nothing at all."""
    for block in row.content or ():
        if not is_block(block, "text") or str(block.get("text", "")).strip():
            return False
    return True


def output_tokens(row: GooseRow) -> Any:
    usage = metadata_of(row).get("usage")
    return usage.get("outputTokens") if isinstance(usage, dict) else None


def model_of(row: GooseRow) -> str:
    """The model that gave an answer, as far as goose noted it."""
    asked = metadata_of(row).get("inference")
    if not isinstance(asked, dict):
        return ""
    return f"{asked.get('provider')}/{asked.get('requestedModel')}"


def last_that(rows: Rows, holds: Callable[[GooseRow], bool]) -> int | None:
    """The index of the last row of which something holds."""
    for index in range(len(rows) - 1, -1, -1):
        if holds(rows[index]):
            return index
    return None
