"""The house rules: one law each, each failure a sentence with its remedy. The rules themselves are
in `tidy/`.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from thorough import SWEEP
from tidy import api_page, chance, documents, faces, imports, laws, names, shape, sql, tree

ROOT = Path(__file__).resolve().parent.parent

# The failure sentences that are put up with, each by its beginning, with the reason. This list only
# shrinks.
EXCEPTIONS: dict[str, str] = {}

# Invariants whose proof is still to come. This list only shrinks: a number that is cited must leave
# it.
NOT_YET: set[str] = set()


@pytest.fixture(autouse=True, scope="module")
def parsed_for_these_rules_alone():
    yield
    tree.forget()


def hold(problems: list[str]) -> None:
    """Fails with these sentences, one to a line, but for those that are put up with."""
    left = [problem for problem in problems if not problem.startswith(tuple(EXCEPTIONS))]
    if left:
        pytest.fail("\n".join(left), pytrace=False)


def need(module: str, name: str | None = None):
    """A module of the library, or a name in it; its absence is a sentence, not a traceback."""
    if find_spec(module) is None:
        pytest.fail(f"There is no {module}; the map says that there is. Write it.", pytrace=False)
    found = import_module(module)
    if name is not None and not hasattr(found, name):
        pytest.fail(f"{module} has no `{name}`; the map says that it has. Write it.", pytrace=False)
    return found if name is None else getattr(found, name)


def errors():
    module = need("holdfast.errors")
    return module, faces.error_classes(module.HoldfastError)


@pytest.mark.slow
def test_an_import_never_points_up_and_siblings_do_not_know_each_other():
    hold(imports.layers(ROOT))


@pytest.mark.slow
def test_no_import_comes_back_to_where_it_started():
    hold(imports.cycles(ROOT))


def test_a_module_is_not_too_long():
    hold(shape.module_sizes(ROOT))


@pytest.mark.slow
def test_nine_functions_in_ten_are_short_and_none_is_long():
    hold(shape.function_sizes(ROOT))


@pytest.mark.slow
def test_no_function_decides_too_much():
    hold(shape.decisions(ROOT))


def test_no_line_of_code_is_too_wide():
    hold(shape.widths(ROOT))


@pytest.mark.slow
def test_every_module_opens_with_its_idea():
    hold(shape.docstrings(ROOT))


def test_no_file_has_a_hollow_name():
    hold(names.hollow_names(ROOT))


def test_no_folder_is_too_full():
    hold(shape.folder_sizes(ROOT))


def test_words_with_too_many_jobs_do_not_come_back():
    hold(names.busy_words(ROOT))


def test_every_picture_in_a_name_is_in_the_glossary():
    hold(names.pictures(ROOT))


def test_no_two_classes_have_one_name():
    hold(names.doubled_classes(ROOT))


@pytest.mark.slow
def test_names_use_the_words_of_the_glossary():
    hold(names.synonyms(ROOT))


def test_the_exported_names_are_sorted_few_and_there():
    hold(faces.exports(need("holdfast")))


@pytest.mark.slow
def test_clock_and_chance_come_from_one_file():
    hold(chance.clock_and_chance(ROOT))


def test_the_engines_have_the_same_query_names():
    hold(sql.query_names(ROOT))


def test_the_schema_is_what_the_migrations_make():
    hold(sql.schema_and_migrations(ROOT))


def test_every_error_has_a_code_of_its_own():
    hold(faces.error_codes(errors()[1]))


def test_every_error_code_has_an_http_status():
    """As soon as there is a server."""
    if (ROOT / "src/holdfast/server/problems.py").exists():
        hold(faces.error_statuses(errors()[1], need("holdfast.server.problems", "STATUS")))


def test_all_errors_stand_in_one_tree_that_is_drawn():
    hold(faces.error_tree(*errors()))


def test_an_error_says_its_docstring_and_pickles():
    hold(faces.error_sentences(errors()[1]))


def test_every_invariant_is_stated():
    hold(laws.all_stated(need("holdfast.domain.invariants", "INVARIANTS")))


def test_every_invariant_is_cited_where_it_is_proved():
    hold(laws.all_cited(ROOT, not_yet=NOT_YET))


@pytest.mark.parametrize(
    "face, module", [("Store", "store"), ("Session", "session"), ("Turn", "turn")]
)
def test_the_sync_and_the_async_face_are_the_same(face, module):
    hold(faces.twins(need(f"holdfast.runtime.{module}", face), need("holdfast", f"Async{face}")))


def test_a_store_is_opened_the_same_way_on_both_faces():
    if faces.parameters(need("holdfast", "open")) != faces.parameters(
        need("holdfast", "open_async")
    ):
        hold(
            ["holdfast.open and holdfast.open_async take different parameters; make them the same."]
        )


def test_every_type_of_a_public_signature_is_exported():
    hold(faces.unexported(need("holdfast")))


def test_every_public_parameter_is_explained():
    said = [
        (call, each.name)
        for call, function in api_page.functions()
        for each in api_page.parameters(function)
    ]
    hold(
        [
            f"`{name}` of {call} is not explained; do it in tests/tidy/api_words.py."
            for call, name in said
            if not api_page.words(call, name)
        ]
    )
    used = {api_page.key(call, name) for call, name in said}
    hold(
        [
            f"`{each}` in tests/tidy/api_words.py is a parameter of nothing; take it out."
            for each in api_page.PARAMETERS
            if each not in used
        ]
    )


def test_every_public_class_and_method_says_what_it_is():
    hold([f"{each} has no docstring; write one." for each in api_page.undocumented()])


def test_the_api_reference_is_what_the_code_says():
    if (ROOT / "docs/api.md").read_text("utf-8") != api_page.page():
        hold(["docs/api.md is not what the signatures and docstrings say; run `./dev api`."])


def test_no_note_to_oneself_is_left():
    hold(documents.leftovers(ROOT))


@pytest.mark.slow
def test_no_file_names_a_path_of_one_machine():
    hold(documents.machine_paths(ROOT))


def test_every_link_in_the_documents_leads_somewhere():
    hold(documents.links(ROOT))


def test_every_path_on_the_map_is_there():
    hold(documents.module_paths(ROOT))


def test_every_python_example_is_python():
    hold(documents.examples_compile(ROOT))


@pytest.mark.slow
def test_every_example_that_is_marked_runs():
    hold(documents.examples_run(ROOT, every=1 if SWEEP else 4))


@pytest.mark.slow
def test_the_examples_of_a_page_run_in_order():
    hold(documents.examples_run_in_order(ROOT))


def test_every_test_file_that_a_document_names_is_there():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(r"\btests/[\w/]+\.py", page.read_text("utf-8"))
    }
    assert named
    gone = [(page, path) for page, path in sorted(named) if not (ROOT / path).is_file()]
    hold(
        [
            f"{page} names {path}, which is not there; name the file that shows it."
            for page, path in gone
        ]
    )
