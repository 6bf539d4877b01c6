"""SQLite's errors told as Holdfast's: every class that the driver knows is translated at
one place.
"""

import apsw
import pytest

from holdfast.engine.sqlite.driver_errors import translate
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable

CLASSES = sorted(
    {
        kind
        for kind in vars(apsw).values()
        if isinstance(kind, type) and issubclass(kind, apsw.Error)
    }
    - {apsw.Error},
    key=lambda kind: kind.__name__,
)

OURS = {
    "AbortError",
    "BindingsError",
    "ConnectionClosedError",
    "ConnectionNotClosedError",
    "ConstraintError",
    "CursorClosedError",
    "EmptyError",
    "ExecTraceAbort",
    "ExecutionCompleteError",
    "ExtensionLoadingError",
    "ForkingViolationError",
    "FormatError",
    "IncompleteExecutionError",
    "InternalError",
    "InvalidContextError",
    "MisuseError",
    "MismatchError",
    "NotFoundError",
    "RangeError",
    "SQLError",
    "SchemaChangeError",
    "ThreadingViolationError",
    "VFSFileClosedError",
    "VFSNotImplementedError",
    "NoFTS5Error",
    "JSONBError",
}
"""What only a mistake of ours can cause: told as such, with SQLite's own words."""


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_driver_is_told_with_its_place_and_a_remedy(
    kind: type[apsw.Error],
) -> None:
    told = translate(kind("what SQLite said"), "/data/agent.db")
    assert isinstance(told, HoldfastError)
    assert "/data/agent.db" in str(told)
    assert "what SQLite said" in str(told)
    if isinstance(told, StoreUnavailable):
        assert told.remedy


def test_every_error_that_the_world_can_cause_has_words_of_its_own() -> None:
    """A class that a new driver brings must be looked at: is it the world's, or a mistake
    of ours?
    """
    defects = {kind.__name__ for kind in CLASSES if "is a defect" in str(translate(kind("x"), "p"))}
    assert defects <= OURS, "give these words in trouble.py, or name them here as mistakes of ours"


@pytest.mark.parametrize("kind", [apsw.CorruptError, apsw.NotADBError])
def test_damage_is_told_as_damage(kind: type[apsw.Error]) -> None:
    assert isinstance(translate(kind("malformed"), "p"), Damaged)


def test_damage_is_told_with_its_place_in_the_store() -> None:
    """I-18."""
    told = translate(
        apsw.CorruptError("malformed"), "/data/agent.db", place="entry 3 of session `a`"
    )
    assert "/data/agent.db" in str(told) and "malformed, met in entry 3 of session `a`" in str(told)
