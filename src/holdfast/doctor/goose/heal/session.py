"""A session of goose, healed: each remedy that is accepted, until none has anything left to do."""

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.heal import hiding, records, tools, turns
from holdfast.doctor.goose.rules import RULE
from holdfast.doctor.goose.synthetic_rows import Mended, rule_of, with_rows
from holdfast.doctor.subject import Accepts

# One remedy may uncover what another heals: a result that was added ends a session on a
# result.
ROUNDS_MAX = 8

# Records first, then order, then what depends on order; what a person has to accept comes before
# the ends of turns.
_REMEDIES: tuple[Callable[[GooseCase], Mended], ...] = (
    records.unreadable_record,
    records.content_not_json,
    records.metadata_unreadable,
    records.unknown_content_type,
    records.millisecond_timestamps,
    records.empty_and_odd_roles,
    turns.duplicate_rows,
    turns.token_split_rows,
    tools.result_before_call,
    tools.duplicate_tool_result,
    tools.orphan_tool_response,
    tools.orphan_tool_request,
    turns.merged_users,
    turns.duplicate_thinking,
    hiding.metadata_clobbered,
    hiding.summary_deleted,
    hiding.compacted_without_summary,
    turns.cut_stream,
    turns.unanswered_prompt,
    turns.unfinished_turn,
)


def heal(case: GooseCase, accepts: Accepts) -> Mended:
    """The session with its remedies applied, and each change. A copy is at rest: nothing in it is
    under way.
    """
    case = replace(case, live=False)
    accepted = [remedy for remedy in _REMEDIES if accepts(RULE[rule_of(remedy)])]
    changes: list[Change] = []
    for _ in range(ROUNDS_MAX):
        before = len(changes)
        for remedy in accepted:
            case, made = remedy(case)
            changes += made
        if len(changes) == before:
            break
    return _in_order(case), changes


def _in_order(case: GooseCase) -> GooseCase:
    """Times that never fall: goose reads rows by their times, and would undo the order
    otherwise.
    """
    rows = []
    last = 0
    for row in case.rows:
        if row.created is not None:
            last = max(last, row.created)
            row = replace(row, created=last)
        rows.append(row)
    return with_rows(case, rows)
