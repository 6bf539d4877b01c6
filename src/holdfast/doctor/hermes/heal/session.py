"""Healing one Hermes session: remedies are applied until nothing is left that they could heal.

One remedy can uncover what another is for: a question cut from the row that it was glued to has no
answer. So a pass applies the remedies of one detector and the next pass looks again.
"""

from holdfast.doctor.finding import Change
from holdfast.doctor.hermes.case import HermesCase, look
from holdfast.doctor.hermes.detect.all import DETECTORS
from holdfast.doctor.hermes.heal.edits import Edits
from holdfast.doctor.hermes.heal.remedies import REMEDIES
from holdfast.doctor.subject import Accepts

# Every pass changes something; remedies that undid each other would go on for ever.
PASSES_MAX = 1000


def heal(case: HermesCase, accepts: Accepts) -> tuple[HermesCase, list[Change]]:
    """The case with the accepted remedies applied, and what they changed."""
    changes: list[Change] = []
    for _ in range(PASSES_MAX):
        edits = _pass(case, accepts)
        if not edits.changes:
            break
        changes += edits.changes
        case = edits.case()
    return case, changes


def _pass(case: HermesCase, accepts: Accepts) -> Edits:
    view = look(case)
    edits = Edits(view)
    for detector in DETECTORS:
        for finding in detector(view):
            remedy = REMEDIES.get(finding.rule.name)
            if (
                remedy is not None
                and accepts(finding.rule)
                and not edits.touches(finding.rows)
            ):
                remedy(edits, finding)
        # What other detectors saw was seen before these changes: they look again.
        if edits.changes:
            break
    return edits
