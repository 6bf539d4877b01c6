"""Whatever the tests build of other people's stores, healthy or damaged: brought over, it breaks no
invariant here.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goose_stores
import hermes_stores
import holdfast
import openviking_stores
from holdfast.doctor import exam
from holdfast.doctor.detect import open_subject
from holdfast.importers.detect import open_reader
from holdfast.runtime.transfer.import_store import bring
from holdfast.testing.oracle import judge
from thorough import few_cases

Case = tuple[str, Callable[..., Any]]


def _cases(kind: str, module: Any, argument: str) -> list[Case]:
    made = [each for each in vars(module).values() if inspect.isfunction(each)]
    return [(kind, each) for each in made if list(inspect.signature(each).parameters) == [argument]]


CASES: list[Case] = [
    *(("goose", case) for case in (*goose_stores.HEALTHY, *goose_stores.DAMAGED)),
    *_cases("hermes", hermes_stores, "book"),
    *_cases("openviking", openviking_stores, "root"),
]


def _built(kind: str, case: Callable[..., Any], folder: Path) -> Path:
    if kind == "goose":
        return goose_stores.built(folder / "sessions.db", case)
    if kind == "hermes":
        book = hermes_stores.Book(folder / "state.db")
        case(book)
        return book.close()
    (folder / "sessions").mkdir()
    case(folder / "sessions")
    return folder / "sessions"


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize(
    "kind, case", CASES, ids=[f"{kind} {case.__name__}" for kind, case in CASES]
)
def test_what_is_brought_over_as_it_is_or_healed_breaks_no_invariant(
    tmp_path: Path, kind: str, case: Callable[..., Any]
) -> None:
    path = _built(kind, case, tmp_path)
    with holdfast.open(tmp_path / "as_it_is.db", durability="process") as store:
        for _ in range(2):
            shelf = open_reader(kind, path)
            brought = bring(store, shelf.sessions())
            shelf.close()
        assert (brought.new, brought.messages, brought.labels, brought.summaries) == (0, 0, 0, 0)
        found = judge(store)
    patient = open_subject(kind, str(path))
    with holdfast.open(tmp_path / "healed.db", durability="process") as store:
        bring(store, patient.healed(exam.accepting(["*"])).sessions())
        found += judge(store)
    patient.close()
    assert not found, "\n".join(found)
