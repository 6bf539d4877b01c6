"""Remedies for what goose hides from the model: hidden again, or shown again."""

from collections.abc import Iterable
from itertools import chain

from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.detect.hiding import (
    bereft_pairs,
    hidden_history,
    shown_pairs,
)
from holdfast.doctor.goose.synthetic_rows import Edits, RowEdit, edits_rows, shown

SEEN = "shown to the model"
UNSEEN = "hidden from the model"


@edits_rows
def metadata_clobbered(case: GooseCase) -> Edits:
    # Where all is hidden, pairs are told as part of that.
    if not hidden_history(case.rows):
        for call, result, _ in shown_pairs(case.rows):
            for place in (call, result):
                hidden = shown(case.rows[place], for_model=False)
                yield RowEdit(place, [hidden], SEEN, UNSEEN)


@edits_rows
def summary_deleted(case: GooseCase) -> Edits:
    if not hidden_history(case.rows):
        yield from _shown(case, chain.from_iterable(bereft_pairs(case.rows)))


@edits_rows
def compacted_without_summary(case: GooseCase) -> Edits:
    yield from _shown(case, hidden_history(case.rows))


def _shown(case: GooseCase, places: Iterable[int]) -> Edits:
    for place in dict.fromkeys(places):
        row = shown(case.rows[place], for_model=True)
        yield RowEdit(place, [row], UNSEEN, SEEN)
