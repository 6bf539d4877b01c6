"""What is wrong with a session of goose: every family of detectors, asked in turn."""

from msgspec.structs import replace

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.detect.hiding import hiding_signs
from holdfast.doctor.goose.detect.records import record_signs
from holdfast.doctor.goose.detect.tools import tool_signs
from holdfast.doctor.goose.detect.turns import repeat_signs, turn_signs
from holdfast.doctor.goose.repeats import without_repeats


def findings_of(case: GooseCase) -> tuple[Finding, ...]:
    """All findings of a session, those of its records first. A row that only repeats another is
    told as that alone.
    """
    once = replace(case, rows=without_repeats(case.rows))
    return (
        *record_signs(case),
        *repeat_signs(case),
        *tool_signs(once),
        *turn_signs(once),
        *hiding_signs(once),
    )
