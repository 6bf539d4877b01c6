"""The list of faults that `./dev mutants` puts into the source is kept true; no fault is put in
here.
"""

import shlex
from pathlib import Path

import pytest

from torture.mutants.book import layers, mutants
from torture.mutants.copies import PrivateCopy

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("layer", layers())
def test_every_fault_can_be_put_in_at_exactly_one_place(layer: str) -> None:
    stale = [
        f"{mutant.id}: {problem}" for mutant in mutants(layer) if (problem := mutant.problem())
    ]
    assert not stale, "\n".join(stale)


@pytest.mark.parametrize("layer", layers())
def test_every_fault_names_tests_that_are_there_or_says_why_none_can_notice(layer: str) -> None:
    wrong = []
    for mutant in mutants(layer):
        named = [
            word.partition("::")[0]
            for word in shlex.split(mutant.tests)
            if word.startswith("tests/")
        ]
        if bool(named) == bool(mutant.equivalent) or not all(
            (ROOT / path).is_file() for path in named
        ):
            wrong.append(f"{mutant.id}: {mutant.tests or 'no tests, and no reason'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_faults_have_names_of_their_own_and_change_something_that_can_be_compiled() -> None:
    known = mutants()
    assert len({mutant.id for mutant in known}) == len(known)
    for mutant in known:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert mutant.applied(text) != text, mutant.id
        if mutant.file.endswith(".py"):
            compile(mutant.applied(text), mutant.file, "exec")


@pytest.mark.slow
def test_a_fault_is_put_into_a_copy_and_taken_out_again(tmp_path: Path) -> None:
    [mutant] = [mutant for mutant in mutants("domain") if mutant.id == "idle-strict"]
    path = tmp_path / mutant.file
    copy = PrivateCopy(tmp_path, limit_s=120.0)
    sound = path.read_text(encoding="utf-8")
    verdict = copy.try_out(mutant)
    assert verdict.fate == "noticed"
    assert verdict.by.startswith("tests/domain/test_routing.py::")
    assert path.read_text(encoding="utf-8") == sound
    assert copy.run("tests/domain/test_routing.py") == ("missed", "")
    assert copy.run("tests/domain/test_routing.py -k nothing_of_this_name")[0] == "no tests"
    path.write_text(sound.replace("active_at >= idle_ms", "active_at == idle_ms"), encoding="utf-8")
    assert copy.try_out(mutant).fate == "stale"
