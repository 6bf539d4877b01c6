"""PostgreSQL's errors told as Holdfast's: every class that the driver knows is translated at one
place.
"""

import psycopg
import pytest
from psycopg import errors

from holdfast.engine.postgres.server.driver_errors import translate, verdict
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable
from thorough import few_cases

CLASSES = sorted(
    {
        kind
        for module in (errors, psycopg)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, psycopg.Error)
    },
    key=lambda kind: (kind.sqlstate or "", kind.__name__),
)

OURS = {
    "0A",
    "0B",
    "0F",
    "0L",
    "0P",
    "0Z",
    "20",
    "21",
    "22",
    "24",
    "26",
    "27",
    "2B",
    "2D",
    "2F",
    "34",
    "38",
    "39",
    "3B",
    "44",
    "F0",
    "HV",
    "P0",
    "XX",
    "10",
    "72",
    "03",
    "02",
    "09",
    "01",
    "0N",
}
"""Classes of conditions that only a mistake of ours can cause: told as such, with PostgreSQL's own
words.
"""


def _named(kind: type[psycopg.Error]) -> str:
    return f"{kind.sqlstate} {kind.__name__}"


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize("kind", CLASSES, ids=_named)
def test_every_error_of_the_driver_is_told_with_its_place_and_a_remedy(
    kind: type[psycopg.Error],
) -> None:
    told = translate(kind("what PostgreSQL said"), "postgresql://here")
    assert isinstance(told, HoldfastError)
    assert "postgresql://here" in str(told)
    assert "what PostgreSQL said" in str(told)
    assert verdict(kind("x")) in ("again", "unknown", "senseless")
    if isinstance(told, StoreUnavailable):
        assert told.remedy


def test_every_error_that_the_world_can_cause_has_words_of_its_own() -> None:
    """A class that a new driver brings must be looked at: is it the world's, or a mistake
    of ours?
    """
    defects = {
        (kind.sqlstate or "")[:2] or kind.__name__
        for kind in CLASSES
        if "is a defect" in str(translate(kind("x"), "p"))
    }
    assert defects <= OURS | {
        "Error",
        "DatabaseError",
        "DataError",
        "IntegrityError",
        "InternalError",
        "NotSupportedError",
        "ProgrammingError",
    }, "give these words in trouble.py, or name them here as mistakes of ours"


@pytest.mark.parametrize("kind", [errors.DataCorrupted, errors.IndexCorrupted])
def test_damage_is_told_as_damage(kind: type[psycopg.Error]) -> None:
    assert isinstance(translate(kind("malformed"), "p"), Damaged)


@pytest.mark.parametrize(
    "kind",
    [
        errors.StatementCompletionUnknown,
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.ConnectionFailure,
        errors.ConnectionException,
        errors.TransactionResolutionUnknown,
        errors.IdleInTransactionSessionTimeout,
        errors.ReadOnlySqlTransaction,
        psycopg.OperationalError,
        psycopg.InterfaceError,
    ],
    ids=_named,
)
def test_what_leaves_a_commit_in_doubt_is_never_taken_for_its_failure(
    kind: type[psycopg.Error],
) -> None:
    assert verdict(kind("x")) == "unknown"


@pytest.mark.parametrize(
    "kind",
    [errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation],
    ids=_named,
)
def test_what_was_only_overtaken_is_tried_again(kind: type[psycopg.Error]) -> None:
    assert verdict(kind("x")) == "again"
