"""Healing one Hermes session: remedies are applied until nothing is left that they could heal.

One remedy can uncover what another is for: a question cut from the row that it was glued to has no answer. So a pass
applies the remedies of one detector and the next pass looks again.
"""

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import Case, look
from holdfast.doctor.hermes.edits import Edits
from holdfast.doctor.hermes.remedies import REMEDIES
from holdfast.doctor.hermes.signs import DETECTORS
from holdfast.doctor.patient import Accepts

PASSES_MAX = 1000


def heal(case: Case, accepts: Accepts) -> tuple[Case, list[Change]]:
    """The case with the accepted remedies applied, and what they changed."""
    changes: list[Change] = []
    for _ in range(PASSES_MAX):
        edits = _pass(case, accepts)
        if not edits.changes:
            break
        changes += edits.changes
        case = edits.case()
    return case, changes


def _pass(case: Case, accepts: Accepts) -> Edits:
    view = look(case)
    edits = Edits(view)
    for detector in DETECTORS:
        for finding in detector(view):
            remedy = REMEDIES.get(finding.rule.name)
            if remedy is not None and accepts(finding.rule) and not edits.touches(finding.rows):
                remedy(edits, finding)
        if edits.changes:
            break
    return edits
