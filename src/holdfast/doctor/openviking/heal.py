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
from holdfast.doctor.openviking.detect import (
    findings_of,
    held,
    lines_in,
    missing,
    missing_in_all,
    number,
)
from holdfast.doctor.openviking.detect_archives import stale_ids
from holdfast.doctor.openviking.heal_archives import leave_out_copies, make_live
from holdfast.doctor.openviking.heal_messages import (
    end_tools,
    join_duplicates,
    keep_aside,
    leave_out_replays,
    let_go_of_results,
)
from holdfast.doctor.openviking.heal_meta import count_anew, rebuild_papers
from holdfast.doctor.openviking.rules import RULES
from holdfast.importers.openviking.files import ROOT, SessionFolder, SmallFile

Remedy = Callable[[SessionFolder, str], tuple[SessionFolder, list[Change]]]
ROUNDS_MAX = 1000


def heal(
    folder: SessionFolder, accepted: Collection[str]
) -> tuple[SessionFolder, list[Change]]:
    """The session with the remedies of these rules applied, and what they changed."""
    changes: list[Change] = []
    left = REMEDIES.keys() & set(accepted)
    for _ in range(ROUNDS_MAX):
        seen = {finding.rule.name for finding in findings_of(folder)} & left
        rule = next((rule.name for rule in RULES if rule.name in seen), None)
        if rule is None:
            break
        after, made = REMEDIES[rule](folder, rule)
        if not made:
            left.discard(rule)
        folder = _counted(folder, after)
        changes += made
    return folder, changes


def _clear(folder: SessionFolder, rule: str) -> tuple[SessionFolder, list[Change]]:
    """The clearing that was lost: exactly the moved messages leave the live file."""
    stale = set().union(*stale_ids(folder).values())
    gone = [record for record in folder.live if record.id in stale]
    kept = tuple(
        record
        for record in folder.records or ()
        if record.problem or record.id not in stale
    )
    before = f"{len(folder.live)} live messages, {len(gone)} of them archived"
    after = f"{len(folder.live) - len(gone)} live messages"
    return replace(folder, records=kept), [Change(rule, folder.id, ROOT, before, after)]


def _counted(before: SessionFolder, after: SessionFolder) -> SessionFolder:
    """Counters for what is there now."""
    meta = after.meta.data
    if after.meta.problem or not after.meta.there or before.meta.problem:
        return after
    changes: dict[str, Any] = {}
    if number(meta.get("message_count")) is not None and lines_in(
        before.records
    ) != lines_in(after.records):
        changes["message_count"] = lines_in(after.records) + missing(before)
    if number(meta.get("total_message_count")) is not None and held(before) != held(
        after
    ):
        changes["total_message_count"] = held(after) + missing_in_all(before)
    if not changes:
        return after
    return replace(after, meta=SmallFile.saying({**meta, **changes}))


REMEDIES: dict[str, Remedy] = {
    "openviking/lost-clear": _clear,
    "openviking/append-crash-meta-behind": count_anew,
    "openviking/torn-tail": keep_aside,
    "openviking/unreadable-record": keep_aside,
    "openviking/torn-meta": rebuild_papers,
    "openviking/duplicate-ids": join_duplicates,
    "openviking/replayed-batch": leave_out_replays,
    "openviking/tool-never-finished": end_tools,
    "openviking/tool-result-missing": let_go_of_results,
    "openviking/prepared-only": leave_out_copies,
    "openviking/failed-hides-messages": make_live,
    "openviking/pending-forever": make_live,
    "openviking/done-without-overview": make_live,
}
"""What is done about each rule; those that are not here can only be reported."""
