"""What every engine must do, as a suite to run against it.

`CASES` maps each law, a sentence, to its case. An engine's own tests run every case on a fresh,
empty engine, each as a test, or all at once with `exercise`; it is opened with a `words_of`, or
nothing could be found in it. A case needs nothing but the protocol: it never looks at a clock,
never sleeps, and knows no other way to write than a commit. Where the protocol leaves room, the
docstring of a case says to which reading it holds an engine. What no case speaks of is free: which
of two failing guards is named, what a refusal tells beyond an event's acceptance, a start over a
running turn, two writes to one session in one commit.
"""

from collections.abc import Callable

from holdfast.engine.protocol import Engine
from holdfast.testing.conformance import (
    commits,
    keeping,
    maintenance,
    outbox,
    restoring,
    retention,
    search,
    sessions,
    turns,
    waiting,
)
from holdfast.testing.conformance.laws import Case

FAMILIES = (
    commits.LAWS,
    sessions.LAWS,
    turns.LAWS,
    waiting.LAWS,
    keeping.LAWS,
    restoring.LAWS,
    outbox.LAWS,
    retention.LAWS,
    search.LAWS,
    maintenance.LAWS,
)

CASES: dict[str, Case] = {
    sentence: case for family in FAMILIES for sentence, case in family.items()
}
"""Every law and the case that shows it."""


def exercise(make_engine: Callable[[], Engine]) -> None:
    """Runs every case, each on a fresh engine; a broken law raises, its sentence in the notes of
    the error.
    """
    for sentence, case in CASES.items():
        engine = make_engine()
        try:
            case(engine)
        except Exception as broken:
            broken.add_note(f"the law that is broken: {sentence}")
            raise
        finally:
            engine.close()
