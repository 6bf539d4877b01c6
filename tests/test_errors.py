"""The error tree: drawn in its docstring, one sentence each, stable codes, whole after pickling."""

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.errors import HoldfastError

DRAWN = re.findall(r"^    [│├└─ ]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HoldfastError)
]
LEAVES = [kind for kind in KINDS if not kind.__subclasses__()]


def made(kind: type[HoldfastError]) -> HoldfastError:
    names = [name for name in kind.__annotations__ if name != "code"]
    values: dict[str, Any] = {name: f"<{name}>" for name in names}
    return kind(**values)


def test_the_tree_is_drawn_as_it_is() -> None:
    assert set(DRAWN) == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", LEAVES)
def test_the_sentence_of_an_error_holds_its_fields_and_says_what_to_do(
    kind: type[HoldfastError],
) -> None:
    error = made(kind)
    sentence = str(error)
    for name in error.fields:
        assert f"<{name}>" in sentence
        assert getattr(error, name) == f"<{name}>"
    assert "{" not in sentence
    assert sentence.endswith((".", ".`"))
    assert "failed to" not in sentence.lower()
    assert "please" not in sentence.lower()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_back_whole_from_another_process(kind: type[HoldfastError]) -> None:
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.fields) == (type(error), str(error), error.fields)


def test_codes_are_stable_and_their_own() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)
    assert {kind.__name__: kind.code for kind in LEAVES} == {
        "BadArgument": "bad_argument",
        "NotApproved": "not_approved",
        "ReadOnlyStore": "read_only_store",
        "InvalidMessage": "invalid_message",
        "NotFound": "not_found",
        "AlreadyAccepted": "already_accepted",
        "SessionBusy": "session_busy",
        "Conflict": "conflict",
        "TurnInterrupted": "turn_interrupted",
        "SessionEnded": "session_ended",
        "StoreUnavailable": "store_unavailable",
        "SchemaMismatch": "schema_mismatch",
        "Damaged": "damaged",
        "CursorExpired": "cursor_expired",
    }


def test_a_warning_is_told_as_errors_are_and_is_no_error() -> None:
    warning = errors.WeaklyReplicated(where="<where>", problem="<problem>", remedy="<remedy>")
    again = pickle.loads(pickle.dumps(warning))
    assert str(again) == str(warning) and all(
        field in str(warning) for field in warning.fields.values()
    )
    assert (warning.code, again.fields) == ("weakly_replicated", warning.fields)
    assert isinstance(warning, UserWarning) and not isinstance(warning, HoldfastError)


def test_a_store_that_everybody_may_use_is_told_of_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    holdfast.open(path).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.chmod(0o660)
        holdfast.open(path).close()
    path.chmod(0o666)
    with pytest.warns(errors.OpenToOthers, match="666"):
        holdfast.open(path).close()


def test_a_field_that_looks_like_another_is_not_filled_in_again() -> None:
    """A caller's text must not reach into the sentence: `{name}` in a value stays as it is."""
    error = errors.NotFound(what="session for the key", name="{hint}", hint="secret")
    assert "`{hint}`" in str(error)
