"""A session of goose in the doctor's hands, and what can be asked of its rows."""

from typing import Any

import msgspec

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.rules import RULE
from holdfast.importers.goose.records import GooseRow, GooseSession, Paid, shown_to

MADE = "holdfast_"
"""How the ids of rows begin that the doctor made: goose keeps ids, and nothing else, of what it
does not know.
"""
CONTEXT = "<turn-context>"
ROLES = ("user", "assistant")


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

    def finding(self, rule: str, place: str, measured: str) -> Finding:
        return Finding(RULE[f"goose/{rule}"], self.session.id, place, measured)


def for_model(row: GooseRow) -> bool:
    return shown_to(row, "agentVisible")


def for_reader(row: GooseRow) -> bool:
    return shown_to(row, "userVisible")


def is_made(row: GooseRow) -> bool:
    """Whether a doctor put this row there."""
    return bool(row.message_id) and str(row.message_id).startswith(MADE)


def blocks(row: GooseRow, *kinds: str) -> list[dict[str, Any]]:
    """The row's blocks of these types."""
    return [
        block
        for block in row.content or ()
        if isinstance(block, dict) and block.get("type") in kinds
    ]


def words(row: GooseRow) -> str:
    """The row's texts."""
    return "".join(
        block["text"]
        for block in blocks(row, "text")
        if isinstance(block.get("text"), str)
    )


def is_context(row: GooseRow) -> bool:
    """Whether goose added this row to a prompt, for the model alone."""
    return (row.metadata or {}).get("turnContext") is True or words(row).startswith(
        CONTEXT
    )


def is_result(row: GooseRow) -> bool:
    return bool(blocks(row, "toolResponse"))


def is_prompt(row: GooseRow) -> bool:
    """Whether a person asks something here."""
    return (
        row.role == "user"
        and for_model(row)
        and for_reader(row)
        and not is_result(row)
        and not is_context(row)
    )


def is_summary(row: GooseRow) -> bool:
    """Whether this row is for the model alone and stands for something else."""
    return (
        row.role == "user"
        and for_model(row)
        and not for_reader(row)
        and not is_result(row)
        and not is_context(row)
    )


def is_empty(row: GooseRow) -> bool:
    """Whether a row says nothing at all."""
    return all(
        isinstance(block, dict)
        and block.get("type") == "text"
        and not str(block.get("text", "")).strip()
        for block in row.content or ()
    )


def output_tokens(row: GooseRow) -> Any:
    usage = (row.metadata or {}).get("usage")
    return usage.get("outputTokens") if isinstance(usage, dict) else None


def model_of(row: GooseRow) -> str:
    """The model that gave an answer, as far as goose noted it."""
    asked = (row.metadata or {}).get("inference")
    return (
        f"{asked.get('provider')}/{asked.get('requestedModel')}"
        if isinstance(asked, dict)
        else ""
    )


def last_for_model(rows: tuple[GooseRow, ...]) -> int | None:
    """The last row that the model sees, the context that goose adds aside."""
    return next(
        (
            i
            for i in range(len(rows) - 1, -1, -1)
            if for_model(rows[i]) and not is_context(rows[i])
        ),
        None,
    )
