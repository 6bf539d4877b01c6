"""All that can be wrong with a session, in the order in which it is looked for."""

from holdfast.doctor.finding import Findings
from holdfast.doctor.hermes.case import Detector, HermesCase, look
from holdfast.doctor.hermes.detect import session, tools, turns

# Healing goes by this order as well: a pass ends with the first detector whose findings
# were healed, and the next pass begins at the top.
DETECTORS: tuple[Detector, ...] = (
    session.stored_twice,
    session.repeated_tail,
    turns.harness,
    turns.cut,
    tools.doubled,
    tools.unparsed,
    session.replaced,
    turns.unanswered,
    turns.partial,
    tools.unpaired,
    turns.without_history,
    session.written_after_end,
    session.without_child,
    session.without_source,
    session.lost_turn,
    session.stale_lock,
    session.count_drift,
)


def findings_of(case: HermesCase) -> Findings:
    """What is wrong with a session."""
    view = look(case)
    for detector in DETECTORS:
        yield from detector(view)
