"""A session of goose, healed: each remedy that is accepted, until none has anything left to do."""

from collections.abc import Callable

import msgspec

from holdfast.doctor.finding import Change, Rule
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.heal.hiding import (
    compacted_without_summary,
    metadata_clobbered,
    summary_deleted,
)
from holdfast.doctor.goose.heal.records import (
    content_not_json,
    empty_and_odd_roles,
    metadata_unreadable,
    millisecond_timestamps,
    unknown_content_type,
    unreadable_record,
)
from holdfast.doctor.goose.heal.tools import (
    duplicate_tool_result,
    orphan_tool_request,
    orphan_tool_response,
    result_before_call,
)
from holdfast.doctor.goose.heal.turns import (
    cut_stream,
    duplicate_rows,
    duplicate_thinking,
    merged_users,
    token_split_rows,
    unanswered_prompt,
    unfinished_turn,
)
from holdfast.doctor.goose.rules import RULE
from holdfast.doctor.goose.synthetic_rows import Mended
from holdfast.doctor.subject import Accepts

ROUNDS_MAX = 8
"""One remedy may uncover what another heals: a result that was added ends a session on a result."""

# Records first, then order, then what depends on order; what a person has to accept comes before
# the ends of turns.
_REMEDIES: tuple[Callable[[GooseCase], Mended], ...] = (
    unreadable_record,
    content_not_json,
    metadata_unreadable,
    unknown_content_type,
    millisecond_timestamps,
    empty_and_odd_roles,
    duplicate_rows,
    token_split_rows,
    result_before_call,
    duplicate_tool_result,
    orphan_tool_response,
    orphan_tool_request,
    merged_users,
    duplicate_thinking,
    metadata_clobbered,
    summary_deleted,
    compacted_without_summary,
    cut_stream,
    unanswered_prompt,
    unfinished_turn,
)


def heal(case: GooseCase, accepts: Accepts) -> tuple[GooseCase, list[Change]]:
    """The session with its remedies applied, and each change. A copy is at rest: nothing in it is
    under way.
    """
    case = msgspec.structs.replace(case, live=False)
    accepted = [remedy for remedy in _REMEDIES if accepts(_rule(remedy))]
    changes: list[Change] = []
    for _ in range(ROUNDS_MAX):
        before = len(changes)
        for remedy in accepted:
            case, made = remedy(case)
            changes += made
        if len(changes) == before:
            break
    return _in_order(case), changes


def _rule(remedy: Callable[[GooseCase], Mended]) -> Rule:
    return RULE["goose/" + remedy.__name__.replace("_", "-")]


def _in_order(case: GooseCase) -> GooseCase:
    """Times that never fall: goose reads rows by their times, and would undo the order
    otherwise.
    """
    rows, last = [], 0
    for row in case.rows:
        created = row.created or 0
        if row.created is not None and created < last:
            row = msgspec.structs.replace(row, created=last)
        last = max(last, created)
        rows.append(row)
    return msgspec.structs.replace(case, rows=tuple(rows))
