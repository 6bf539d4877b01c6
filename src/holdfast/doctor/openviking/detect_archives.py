"""What is wrong with the archives of an OpenViking session."""

import re
from collections.abc import Iterator
from itertools import islice

from holdfast.doctor.finding import Findings
from holdfast.doctor.openviking.case import finding, ids_of, states, under
from holdfast.importers.openviking.convert import (
    State,
    held_by,
    moved_by,
    overview_of,
    phase_of,
)
from holdfast.importers.openviking.files import ROOT, Archive, SessionFolder, messages

_NUMBER = re.compile(r"archive_(\d{1,9})")
_GAPS_MAX = 1000


def stale_ids(folder: SessionFolder) -> dict[str, set[str]]:
    """By archive, the ids that are live and should not be: it took them out of the live file, and
    says so. A failed archive stands for nothing, and one whose meta is torn can't say what it
    retained.
    """
    live = ids_of(folder.records)
    stale: dict[str, set[str]] = {}
    for archive, state in states(folder):
        # A commit that is ready has written its archive, and was to clear the live file next.
        is_ready = state == "pending" and phase_of(archive) == "ready"
        if (state == "done" or is_ready) and not archive.meta.problem:
            stale[archive.name] = moved_by(archive) & live
    return stale


def lost_clear(folder: SessionFolder) -> Findings:
    """Messages that are archived and still live."""
    for name, ids in stale_ids(folder).items():
        if ids:
            seen = (
                f"{len(ids)} of {len(folder.live)} live messages were moved to {name}: "
                f"{', '.join(sorted(ids)[:5])}."
            )
            yield finding(folder, "lost-clear", ROOT, seen)


def gaps(folder: SessionFolder) -> list[int]:
    """The numbers of archives that should be there and are not."""
    numbers = {archive.number for archive in folder.archives}
    lost = (
        number for number in range(1, max(numbers, default=0)) if number not in numbers
    )
    # A single folder can be called archive_999999999.
    return list(islice(lost, _GAPS_MAX))


def hidden_by(folder: SessionFolder, archive: Archive) -> list[str]:
    """The messages that only this archive has: not live, in no other archive that took effect, and
    under no overview of a later one.
    """
    if archive.name in _covered(folder):
        return []
    elsewhere = ids_of(folder.records)
    for other, state in states(folder):
        if other.name != archive.name and state not in ("copy", "failed"):
            elsewhere |= held_by(other)
    return [
        record.id for record in messages(archive.records) if record.id not in elsewhere
    ]


def archive_signs(folder: SessionFolder) -> Findings:
    """What is wrong archive by archive, and with their row."""
    for archive, state in states(folder):
        for rule, seen in _signs(folder, archive, state):
            yield finding(folder, rule, under(archive), seen)
    if lost := gaps(folder):
        names = ", ".join(f"archive_{number:03d}" for number in lost[:5])
        seen = f"{len(lost)} missing: {names}; the last is {folder.archives[-1].name}."
        yield finding(folder, "archive-gap", "history", seen)


def _signs(
    folder: SessionFolder, archive: Archive, state: State
) -> Iterator[tuple[str, str]]:
    """The rules that an archive breaks, each with what was seen."""
    if state == "copy":
        count = len(messages(archive.records))
        phase = phase_of(archive) or "nothing"
        seen = f"Its commit came to {phase!r}; its {count} messages are live."
        yield "prepared-only", seen
    elif state == "done" and not archive.records:
        seen = "Its messages.jsonl is empty"
        if archive.records is None:
            seen = "There is no messages.jsonl"
        yield (
            "done-without-messages",
            f"{seen}; it took {len(moved_by(archive))} messages.",
        )
    elif state in ("failed", "pending") or _lacks_overview(archive, state):
        hidden = len(hidden_by(folder, archive))
        # What is live or under an overview as well is not lost with this archive.
        if hidden:
            yield _hiding_sign(archive, state, hidden)


def _hiding_sign(archive: Archive, state: State, hidden: int) -> tuple[str, str]:
    """What an archive is called that alone has some messages, and no overview to stand for
    them.
    """
    if state == "failed":
        failed = archive.failed.data
        why = str(failed.get("error") or failed.get("stage") or "no reason given")[:200]
        seen = f"{hidden} messages are neither live nor under an overview ({why})."
        return "failed-hides-messages", seen
    if state == "pending":
        seen = (
            f"It has neither .done nor .failed.json; {hidden} messages are only here."
        )
        return "pending-forever", seen
    seen = f"There is no overview; {hidden} messages are in nobody's view."
    return "done-without-overview", seen


def _lacks_overview(archive: Archive, state: State) -> bool:
    return state == "done" and _promises(archive) and not overview_of(archive)


def _promises(archive: Archive) -> bool:
    """Whether the archive says that it has an overview."""
    done, tokens = archive.done.data, archive.meta.data.get("overview_tokens")
    # The flag has two names; where neither is there, a count of tokens tells.
    flag = done.get("enable_working_memory", done.get("working_memory_enabled"))
    return flag is True or (flag is None and isinstance(tokens, int) and tokens > 0)


def _covered(folder: SessionFolder) -> set[str]:
    """Archives that a later overview stands for as well as its own."""
    covered: set[str] = set()
    for archive, state in states(folder):
        if state != "done" or not overview_of(archive):
            continue
        done = archive.done.data
        first = _number(done.get("coverage_start_archive"), archive.number)
        last = _number(done.get("coverage_end_archive"), archive.number)
        for other, its_state in states(folder):
            # No overview stands for what came after it, whatever it says.
            is_within = first <= other.number <= min(last, archive.number)
            if is_within and its_state != "pending":
                covered.add(other.name)
        failed = done.get("covered_failed_archives")
        if isinstance(failed, list):
            covered.update(name for name in failed if isinstance(name, str))
    return covered


def _number(name: object, otherwise: int) -> int:
    match = _NUMBER.search(name) if isinstance(name, str) else None
    return int(match[1]) if match else otherwise
