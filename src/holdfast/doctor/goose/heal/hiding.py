"""Remedies for what goose hides from the model: hidden again, or shown again."""

from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.detect.hiding import (
    bereft_pairs,
    hidden_history,
    shown_pairs,
)
from holdfast.doctor.goose.synthetic_rows import Mended, change, shown, with_rows


def metadata_clobbered(case: GooseCase) -> Mended:
    if hidden_history(case.rows):
        return case, []
    places = [
        place for call, result, _ in shown_pairs(case.rows) for place in (call, result)
    ]
    return _shown(case, "metadata-clobbered", places, for_model=False)


def summary_deleted(case: GooseCase) -> Mended:
    if hidden_history(case.rows):
        return case, []
    places = [place for pair in bereft_pairs(case.rows) for place in pair]
    return _shown(case, "summary-deleted", places, for_model=True)


def compacted_without_summary(case: GooseCase) -> Mended:
    return _shown(
        case, "compacted-without-summary", hidden_history(case.rows), for_model=True
    )


def _shown(case: GooseCase, rule: str, places: list[int], *, for_model: bool) -> Mended:
    rows = list(case.rows)
    changes = []
    before, after = ("shown to the model", "hidden from the model")[
        :: -1 if for_model else 1
    ]
    for place in dict.fromkeys(places):
        changes.append(change(case, rule, rows[place], before, after))
        rows[place] = shown(rows[place], for_model=for_model)
    return with_rows(case, rows), changes
