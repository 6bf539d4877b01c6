"""Healing an OpenViking session: remedies on its records, one rule at a time, until none of them is
called for.

A remedy takes a folder and gives one; nothing is written here. What leaves a file because nobody
can read it is kept aside. Counters follow what remedies do, so that what was missing before is
still missing by the same count.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.openviking.counters import (
    counter,
    held,
    lines_in,
    missing,
    missing_in_all,
)
from holdfast.doctor.openviking.detect import findings_of
from holdfast.doctor.openviking.detect_archives import stale_ids
from holdfast.doctor.openviking.heal_archives import leave_out_copies, make_live
from holdfast.doctor.openviking.heal_messages import (
    end_tools,
    join_duplicates,
    keep_aside,
    leave_out_replays,
    let_go_of_results,
)
from holdfast.doctor.openviking.heal_meta import count_anew, rebuild_small_files
from holdfast.doctor.openviking.remedy import Mended, without_live
from holdfast.doctor.openviking.rules import RULES
from holdfast.importers.openviking.files import ROOT, SessionFolder, SmallFile

Remedy = Callable[[SessionFolder, str], Mended]
# Every round changes something; remedies that undid each other would go on for ever.
ROUNDS_MAX = 1000


def heal(
    folder: SessionFolder, accepted: Collection[str]
) -> tuple[SessionFolder, list[Change]]:
    """The session with the remedies of these rules applied, and what they changed."""
    changes: list[Change] = []
    left = REMEDIES.keys() & set(accepted)
    for _ in range(ROUNDS_MAX):
        # One rule a round, in the order of the rules: what the next one finds may depend on it.
        broken = left & {finding.rule.name for finding in findings_of(folder)}
        rule = next((rule.name for rule in RULES if rule.name in broken), None)
        if rule is None:
            break
        after, edits = REMEDIES[rule](folder, rule)
        if not edits:
            # It can do nothing about what is found, and would be asked for ever.
            left.discard(rule)
        folder = _counted(folder, after)
        for edit in edits:
            changes.append(Change(rule, folder.id, *edit))
    return folder, changes


def _clear(folder: SessionFolder, rule: str) -> Mended:
    """The clearing that was lost: exactly the moved messages leave the live file."""
    stale = set().union(*stale_ids(folder).values())
    after = without_live(folder, stale)
    live = len(folder.live)
    left = len(after.live)
    before = f"{live} live messages, {live - left} of them archived"
    return after, [(ROOT, before, f"{left} live messages")]


def _counted(before: SessionFolder, after: SessionFolder) -> SessionFolder:
    """Counters for what is there now."""
    # A meta that is rebuilt in this round has counted already.
    if after.meta.problem or not after.meta.there or before.meta.problem:
        return after
    changes: dict[str, Any] = {}
    lines = lines_in(after.records)
    if counter(after, "message_count") is not None:
        if lines_in(before.records) != lines:
            changes["message_count"] = lines + missing(before)
    if counter(after, "total_message_count") is not None:
        if held(before) != held(after):
            changes["total_message_count"] = held(after) + missing_in_all(before)
    if not changes:
        return after
    return replace(after, meta=SmallFile.saying(after.meta.data | changes))


# What is done about each rule; those that are not here can only be reported.
REMEDIES: dict[str, Remedy] = {
    "openviking/lost-clear": _clear,
    "openviking/append-crash-meta-behind": count_anew,
    "openviking/torn-tail": keep_aside,
    "openviking/unreadable-record": keep_aside,
    "openviking/torn-meta": rebuild_small_files,
    "openviking/duplicate-ids": join_duplicates,
    "openviking/replayed-batch": leave_out_replays,
    "openviking/tool-never-finished": end_tools,
    "openviking/tool-result-missing": let_go_of_results,
    "openviking/prepared-only": leave_out_copies,
    "openviking/failed-hides-messages": make_live,
    "openviking/pending-forever": make_live,
    "openviking/done-without-overview": make_live,
}
