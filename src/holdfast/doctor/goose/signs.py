"""What is wrong with a session of goose: every family of detectors, asked in turn."""

import msgspec

from holdfast.doctor.finding import Finding
from holdfast.doctor.goose.chart import Chart
from holdfast.doctor.goose.repeats import without_repeats
from holdfast.doctor.goose.signs_hiding import hiding_signs
from holdfast.doctor.goose.signs_records import record_signs
from holdfast.doctor.goose.signs_tools import tool_signs
from holdfast.doctor.goose.signs_turns import repeat_signs, turn_signs


def findings_of(chart: Chart) -> tuple[Finding, ...]:
    """All findings of a session, those of its records first. A row that only repeats another is told as that alone."""
    once = msgspec.structs.replace(chart, rows=without_repeats(chart.rows))
    return (*record_signs(chart), *repeat_signs(chart), *tool_signs(once), *turn_signs(once), *hiding_signs(once))
