"""What every engine must do, as a suite to run against it.

`CASES` maps each law, a sentence, to its case. An engine's own tests run every case on a fresh, empty engine, each as
a test, or all at once with `exercise`; it is opened with a `words_of`, or nothing could be found in it. A case needs
nothing but the protocol: it never looks at a clock, never sleeps, and knows no other way to write than a commit. Where
the protocol leaves room, the docstring of a case says to which reading it holds an engine. What no case speaks of is
free: which of two failing guards is named, what a refusal tells beyond an event's acceptance, a start over a running
turn, two writes to one session in one commit.
"""

from collections.abc import Callable

from holdfast.engine.protocol import Engine
from holdfast.testing import (
    laws_of_commits,
    laws_of_keeping,
    laws_of_laying,
    laws_of_owing,
    laws_of_retaining,
    laws_of_searching,
    laws_of_sessions,
    laws_of_turns,
    laws_of_upkeep,
    laws_of_waiting,
)
from holdfast.testing.telling import Case

FAMILIES = (
    laws_of_commits.LAWS,
    laws_of_sessions.LAWS,
    laws_of_turns.LAWS,
    laws_of_waiting.LAWS,
    laws_of_keeping.LAWS,
    laws_of_laying.LAWS,
    laws_of_owing.LAWS,
    laws_of_retaining.LAWS,
    laws_of_searching.LAWS,
    laws_of_upkeep.LAWS,
)

CASES: dict[str, Case] = {sentence: case for family in FAMILIES for sentence, case in family.items()}
"""Every law and the case that shows it."""


def exercise(make_engine: Callable[[], Engine]) -> None:
    """Runs every case, each on a fresh engine; a broken law raises, its sentence in the notes of the error."""
    for sentence, case in CASES.items():
        engine = make_engine()
        try:
            case(engine)
        except Exception as broken:
            broken.add_note(f"the law that is broken: {sentence}")
            raise
        finally:
            engine.close()
