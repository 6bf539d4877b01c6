"""What is wrong with the tools of an OpenViking session: calls that never ended, outputs that are
not there.
"""

import re
from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Findings
from holdfast.doctor.openviking.case import every_message, finding
from holdfast.importers.openviking.files import MessageLine, SessionFolder

OPEN = ("pending", "running")
_SESSION = re.compile(r"/sessions/([^/]+)/")

# A part of a message: its file, the message, and its index there.
PartPlace = tuple[str, MessageLine, int]


def tool_signs(folder: SessionFolder) -> Findings:
    for place, record, index in unfinished(folder):
        part = record.parts[index]
        seen = (
            f"The part {part.get('tool_id')} is {part.get('tool_status')}, and the "
            "session went on."
        )
        yield finding(folder, "tool-never-finished", f"{place}:{record.number}", seen)
    for place, record, index in lost_results(folder):
        seen = f"{record.parts[index]['tool_output_ref']} is not there."
        yield finding(folder, "tool-result-missing", f"{place}:{record.number}", seen)


def unfinished(folder: SessionFolder) -> Iterator[PartPlace]:
    """Parts of tools that have no outcome, here or in a later message, though the session went on:
    somebody has said something since, and was not still calling.
    """
    waiting: list[tuple[str, PartPlace]] = []
    for place, record in every_message(folder):
        if waiting and _goes_on(record):
            for _, part_place in waiting:
                yield part_place
            waiting = []
        for index, part in _tool_parts(record):
            # A later part of the same call says how it stands now.
            call = str(part.get("tool_id"))
            waiting = [one for one in waiting if one[0] != call]
            if _is_open(part):
                waiting.append((call, (place, record, index)))


def lost_results(folder: SessionFolder) -> Iterator[PartPlace]:
    """Parts that refer to an output of this session that is not there."""
    for place, record in every_message(folder):
        for index, part in _tool_parts(record):
            ref = part.get("tool_output_ref")
            if not isinstance(ref, str) or not ref or not _is_own(ref, folder):
                continue
            name = ref.rstrip("/").removesuffix("/output.txt").rpartition("/")[2]
            if f"tool-results/{name}/output.txt" not in folder.outputs:
                yield place, record, index


def is_tool(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool"


def _is_open(part: dict[str, Any]) -> bool:
    return part.get("tool_status") in OPEN


def _tool_parts(record: MessageLine) -> Iterator[tuple[int, dict[str, Any]]]:
    if record.may_hold_tools:
        for index, part in enumerate(record.parts):
            if is_tool(part):
                yield index, part


def _goes_on(record: MessageLine) -> bool:
    says_something = False
    for part in record.parts:
        if not is_tool(part):
            says_something = True
        elif _is_open(part):
            return False
    return says_something


def _is_own(ref: str, folder: SessionFolder) -> bool:
    # An id is a path below the root of the store; a reference has its last part or a name of its
    # own for the session.
    names = (
        folder.id,
        folder.id.rpartition("/")[2],
        folder.meta.data.get("session_id"),
    )
    session = _SESSION.search(ref)
    return session is None or session[1] in names
