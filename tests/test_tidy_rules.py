"""Each house rule finds what it looks for: a small tree that breaks it, and one that does not."""

from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from tidy import chance, documents, faces, imports, laws, names, shape, sql


@pytest.fixture
def project(tmp_path):
    """Writes files below a new root, `holdfast/…` ones below `src`, and gives the root."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / ("src/" + name if name.startswith("holdfast/") else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


# Layers

MAP = {
    "holdfast/__init__.py": "from holdfast.runtime.store import Store\n",
    "holdfast/errors.py": "",
    "holdfast/domain/__init__.py": "",
    "holdfast/domain/message.py": "from holdfast.errors import X\nfrom . import entry\n",
    "holdfast/domain/entry.py": "import msgspec\n",
    "holdfast/engine/sqlite/engine.py": "from ..protocol import Engine\n",
    "holdfast/engine/postgres/engine.py": "",
    "holdfast/engine/protocol.py": "",
    "holdfast/formats/anthropic/messages.py": "import anthropic\n",
    "holdfast/runtime/store.py": "from holdfast.domain import message\nfrom "
    "holdfast.engine.sqlite import engine\n",
    "holdfast/doctor/exam.py": "",
    "holdfast/testing/faults/disk.py": "import holdfast\n",
    "holdfast/cli/main.py": "from holdfast import open\nfrom holdfast.testing import faults\n",
}


def test_a_tree_as_on_the_map_is_in_order(project):
    root = project(MAP)
    assert imports.layers(root) == []
    assert imports.cycles(root) == []


@pytest.mark.parametrize(
    "place, line, says",
    [
        ("domain/message.py", "import holdfast.runtime.store", "above"),
        ("domain/message.py", "from holdfast import runtime", "above"),
        ("domain/message.py", "from ..engine import protocol", "above"),
        ("runtime/store.py", "from holdfast import Store", "above"),
        ("runtime/store.py", "from holdfast.doctor.exam import Exam", "sibling"),
        ("formats/anthropic/messages.py", "from holdfast.engine import protocol", "sibling"),
        (
            "engine/sqlite/engine.py",
            "from ..postgres.engine import Engine",
            "do not know each other",
        ),
        ("errors.py", "if TYPE_CHECKING:\n    from holdfast.domain.entry import Entry", "above"),
        ("errors.py", "def late():\n    from holdfast.domain.entry import Entry", "above"),
        ("errors.py", "module = importlib.import_module('holdfast.domain.entry')", "above"),
        ("elsewhere/thing.py", "from holdfast.errors import X", "not on the map"),
    ],
)
def test_an_import_that_points_up_or_aside_is_found(project, place, line, says):
    root = project({**MAP, f"holdfast/{place}": line + "\n"})
    assert any(place in problem and says in problem for problem in imports.layers(root))


@pytest.mark.parametrize(
    "late", ["from holdfast.domain.message import M", "def f():\n    from . import message"]
)
def test_a_ring_of_imports_is_found(project, late):
    root = project({**MAP, "holdfast/domain/entry.py": late + "\n"})
    (problem,) = imports.cycles(root)
    assert "holdfast.domain.entry imports holdfast.domain.message" in problem


# Shape


def test_a_long_module_is_found(project):
    root = project(
        {
            "holdfast/long.py": "x = 1\n" * 601,
            "tests/test_long.py": "x = 1\n" * 801,
            "holdfast/fit.py": "x = 1\n" * 600,
        }
    )
    assert [problem.split()[0] for problem in shape.module_sizes(root)] == [
        "src/holdfast/long.py",
        "tests/test_long.py",
    ]


def _function(name: str, lines: int) -> str:
    return f"def {name}():\n" + "    x = 1\n" * (lines - 1)


def test_a_long_function_and_too_many_longish_ones_are_found(project):
    nine = "".join(_function(f"short_{number}", 30) for number in range(9))
    assert shape.function_sizes(project({"holdfast/a.py": nine + _function("longish", 60)})) == []
    assert (
        "`long` has 61 lines"
        in shape.function_sizes(project({"holdfast/a.py": nine + _function("long", 61)}))[0]
    )
    (problem,) = shape.function_sizes(
        project({"holdfast/a.py": nine + _function("one", 31) + _function("two", 31)})
    )
    assert "2 of 11 functions" in problem


def test_a_function_that_decides_too_much_is_found(project):
    many = "def many(x):\n" + "    if x and x:\n        pass\n" * 7
    assert shape.decisions(project({"holdfast/a.py": many})) == []
    (problem,) = shape.decisions(
        project({"holdfast/a.py": many + "    return [y for y in x if y]\n"})
    )
    assert "`many` makes 17 decisions" in problem


def test_a_line_of_code_that_is_too_wide_is_found(project):
    long = "y" * 101
    prose = f'"""An idea.\n\n{long}\n"""\n# {long}\nx = 1\n"""{long}"""\n'
    assert shape.widths(project({"holdfast/a.py": prose})) == []
    root = project({"holdfast/a.py": prose + f"{long} = 1\nz = 1  # {'w' * 99}\n"})
    assert [problem.split()[-1] for problem in shape.widths(root)] == ["8.", "9."]


def test_a_module_without_a_docstring_is_found(project):
    root = project(
        {
            "holdfast/a.py": '"""An idea."""\n',
            "holdfast/b.py": "x = 1\n",
            "holdfast/__init__.py": "",
        }
    )
    assert [problem.split()[0] for problem in shape.docstrings(root)] == [
        "src/holdfast/__init__.py",
        "src/holdfast/b.py",
    ]


# Names


def test_a_folder_that_is_too_full_is_found(project):
    files = {f"holdfast/engine/part_{number}.py": "" for number in range(16)}
    assert len(shape.folder_sizes(project({"holdfast/engine/__init__.py": "", **files}))) == 1
    (project({}) / "src/holdfast/engine/part_0.py").unlink()
    assert shape.folder_sizes(project({})) == []


@pytest.mark.parametrize("code", ["class Told: ...", "class _Ledger: ..."])
def test_a_word_with_too_many_jobs_is_found(project, code):
    assert len(names.busy_words(project({"holdfast/engine/writer.py": code}))) == 1


def test_a_module_named_with_a_word_with_too_many_jobs_is_found(project):
    assert len(names.busy_words(project({"holdfast/engine/room.py": ""}))) == 1


def test_a_picture_that_the_glossary_does_not_explain_is_found(project):
    page = "## Glossary\n\n| word | means |\n|---|---|\n| fence | a number |\n"
    root = project({"ARCHITECTURE.md": page, "holdfast/engine/fence.py": "class Lighthouse: ..."})
    assert [problem.split("`")[1] for problem in names.pictures(root)] == ["Lighthouse"]


def test_two_classes_of_one_name_are_found(project):
    root = project(
        {
            "holdfast/engine/a.py": "class One: ...",
            "holdfast/domain/b.py": "class One: ...\nclass Two: ...",
        }
    )
    assert len(names.doubled_classes(root)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "utils.py",
        "_util.py",
        "common/a.py",
        "Helpers.py",
        "base.py",
        "manager.py",
        "core.py",
        "types.py",
    ],
)
def test_a_hollow_name_is_found(project, name):
    root = project({f"holdfast/domain/{name}": "", "holdfast/domain/database.py": ""})
    assert len(names.hollow_names(root)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "class Conversation: ...",
        "def load_conversation(): ...",
        "def load(conversation_id): ...",
        "checkpoint_id = 1",
        "class A:\n    chat_id: str",
        "class A:\n    def __init__(self):\n        self.chat_id = 1",
    ],
)
def test_a_synonym_of_a_word_of_the_glossary_is_found(project, code):
    assert len(names.synonyms(project({"holdfast/runtime/a.py": code}))) == 1


def test_other_peoples_words_are_left_to_their_shapes(project):
    allowed = {
        "holdfast/formats/openai.py": "def chat_delta(): ...",
        "holdfast/engine/sqlite/writer.py": "def checkpoint(): ...",
        "holdfast/adapters/langgraph.py": "class Checkpointer: ...",
        "holdfast/runtime/a.py": "reply = client.chat.completions.create()",
    }
    assert names.synonyms(project(allowed)) == []


def test_a_synonym_in_sql_is_found(project):
    root = project(
        {"holdfast/engine/sqlite/schema.sql": "-- a conversation\nCREATE TABLE conversation (id);"}
    )
    assert len(names.synonyms(root)) == 1


# Clock and chance


@pytest.mark.parametrize(
    "code",
    [
        "import time\nx = time.time()",
        "import time as t\nx = t.monotonic",
        "from time import time_ns",
        "import datetime\nx = datetime.datetime.now()",
        "from datetime import datetime as dt\nx = dt.now()",
        "import random",
        "def f():\n    from secrets import token_hex",
        "import uuid",
        "import os\nx = os.urandom(8)",
    ],
)
def test_a_clock_or_dice_out_of_place_are_found(project, code):
    root = project(
        {"holdfast/domain/a.py": code, "holdfast/runtime/clock.py": code, "tests/test_a.py": code}
    )
    problems = chance.clock_and_chance(root)
    assert len(problems) == 1 and problems[0].startswith("src/holdfast/domain/a.py")


def test_waiting_is_not_reading_a_clock(project):
    code = (
        "import time, os\nfrom datetime import "
        "datetime\ntime.sleep(1)\ndatetime.fromtimestamp(0)\nself.clock.now()\n"
    )
    assert chance.clock_and_chance(project({"holdfast/domain/a.py": code})) == []


def test_a_clock_in_sql_is_found(project):
    good = "SELECT datetime(at / 1000, 'unixepoch') FROM entry; -- not 'now'"
    assert chance.clock_and_chance(project({"holdfast/engine/sqlite/queries.sql": good})) == []
    bad = "INSERT INTO a VALUES (CURRENT_TIMESTAMP, randomblob(16));"
    assert len(chance.clock_and_chance(project({"holdfast/engine/sqlite/queries.sql": bad}))) == 2


# SQL


def test_a_query_that_one_engine_lacks_is_found(project):
    both = {"holdfast/engine/sqlite/__init__.py": "", "holdfast/engine/postgres/__init__.py": ""}
    sqlite = "-- name: head\nSELECT 1;\n-- name: entries\nSELECT 2;\n"
    root = project({**both, "holdfast/engine/sqlite/queries.sql": sqlite})
    assert ["postgres has no queries.sql" in problem for problem in sql.query_names(root)] == [True]
    root = project(
        {"holdfast/engine/postgres/queries.sql": "-- name: head\nSELECT 1;\n-- name: head\n"}
    )
    twice, missing = sql.query_names(root)
    assert "`head` 2 times" in twice and "no `entries`" in missing
    assert sql.query_names(project({"holdfast/engine/postgres/queries.sql": sqlite})) == []


def test_a_schema_that_the_migrations_do_not_make_is_found(project):
    place = "holdfast/engine/sqlite"
    schema = "CREATE TABLE a (x INTEGER,\n  y TEXT); -- all of it\nCREATE INDEX i ON a (x);"
    assert sql.schema_and_migrations(project({f"{place}/schema.sql": schema})) == []
    first, second = (
        "CREATE TABLE a (x INTEGER);",
        "ALTER TABLE a ADD COLUMN y TEXT; CREATE INDEX i ON a(x);",
    )
    root = project({f"{place}/migrations/0001.sql": first, f"{place}/migrations/0002.sql": second})
    assert sql.schema_and_migrations(root) == []
    root = project(
        {
            f"{place}/migrations/0003.sql": "DROP INDEX i; ALTER TABLE a ADD COLUMN z; CREATE "
            "VIEW v AS SELECT 1;"
        }
    )
    index, table, view = sql.schema_and_migrations(root)
    assert "by no migration" in index and "not the same" in table and "not in the schema" in view


# Faces


def _package(**values) -> ModuleType:
    package = ModuleType("pack")
    vars(package).update(values)
    return package


def test_exports_that_are_unsorted_absent_many_or_from_elsewhere_are_found():
    kept = type("Kept", (), {"__module__": "pack"})
    assert faces.exports(_package(__all__=["Kept", "open"], Kept=kept, open=open)) == []
    assert "no __all__" in faces.exports(_package())[0]
    assert "not sorted" in faces.exports(_package(__all__=["b", "a"], a=1, b=1))[0]
    assert "not there" in faces.exports(_package(__all__=["gone"]))[0]
    assert "says it is from" in faces.exports(_package(__all__=["Path"], Path=Path))[0]
    many = {f"name_{number:02}": 1 for number in range(faces.EXPORTS_MAX + 1)}
    assert f"exports {len(many)} names" in faces.exports(_package(__all__=sorted(many), **many))[0]


class Sound(Exception):
    """Everything is as it should be."""

    code: ClassVar[str] = "sound"

    def __init__(self, **fields):
        vars(self).update(fields)
        self.fields = fields
        super().__init__(" ".join((type(self).__doc__ or "").split()).format(**fields))

    def __reduce__(self):
        return _revive, (type(self), self.fields)


def _revive(kind, fields):
    return kind(**fields)


class Named(Sound):
    """Session `{session_id}` is in
    order; go on."""

    code = "named"
    session_id: str


class Twice(Sound):
    """This one has another's code."""

    code = "named"


class Undeclared(Sound):
    """There is no {field}."""

    code = "undeclared"


class Unsaid(Sound):
    code = "unsaid"


class Coarse(Sound):
    """Pickles badly."""

    def __init__(self, must, **fields):
        super().__init__(**fields)


def test_errors_without_a_code_of_their_own_are_found():
    assert faces.error_codes([Sound, Named]) == []
    assert "`named`" in faces.error_codes([Sound, Named, Twice])[0]
    assert faces.error_codes([Sound, Coarse])[0].startswith("Coarse has no `code`")


def test_errors_that_do_not_say_their_sentence_or_pickle_are_found():
    assert faces.error_sentences([Sound, Named]) == []
    assert "does not declare" in faces.error_sentences([Undeclared])[0]
    assert "no sentence" in faces.error_sentences([Unsaid])[0]
    assert "can't be made" in faces.error_sentences([Coarse])[0]


def test_the_error_tree_is_the_whole_family():
    assert set(faces.error_classes(Sound)) == {Sound, Named, Twice, Undeclared, Unsaid, Coarse}
    module = _package(__doc__="Sound\n  └── Named", Sound=Sound, Named=Named)
    assert faces.error_tree(module, [Sound, Named]) == []
    undrawn, outside = faces.error_tree(module, [Sound, Named, Twice])
    assert "draw it" in undrawn and "move it there" in outside


def test_a_code_without_a_status_and_a_status_without_a_code_are_found():
    assert faces.error_statuses([Sound, Named], {"sound": 500, "named": 404}) == []
    missing, spare = faces.error_statuses([Sound, Named], {"sound": 500, "other": 400})
    assert "`named` has no HTTP status" in missing and "`other`" in spare


class Face:
    id: str

    def turn(self, message=None, *, lease_s=30): ...
    def stop(self): ...
    def say(self, text): ...


class Twin:
    id: str

    async def turn(self, message=None, *, lease_s=30): ...
    async def say(self, words): ...
    async def pause(self): ...


def test_faces_that_differ_are_found():
    assert faces.twins(Face, Face) == []
    say, stop, pause = faces.twins(Face, Twin)
    assert "Face.say(text) and Twin.say(words) differ" in say
    assert "Face.stop has no twin" in stop and "Twin.pause has no twin" in pause


# Invariants


def test_a_missing_invariant_is_found():
    whole = {number: "A sentence." for number in laws.NUMBERS}
    assert laws.all_stated(whole) == []
    assert len(laws.all_stated({number: "A sentence." for number in laws.NUMBERS[1:]})) == 1
    assert "I-3 is not a sentence" in laws.all_stated({**whole, "I-3": "no sentence"})[0]


def test_an_invariant_that_nobody_cites_is_found_and_the_list_of_those_to_come_shrinks(project):
    root = project(
        {
            "tests/test_a.py": '"""I-1, I-10"""',
            "tests/tidy/a.py": '"""I-2"""',
            "holdfast/doctor/a.py": "# I-3",
        }
    )
    assert set(laws.cited_in(root)) == {"I-1", "I-3", "I-10"}
    rest = set(laws.NUMBERS) - {"I-1", "I-3", "I-10"}
    assert laws.all_cited(root, not_yet=rest) == []
    assert laws.all_cited(root, not_yet=rest - {"I-7"})[0].startswith("I-7 is cited by no test")
    assert "take it out of NOT_YET" in laws.all_cited(root, not_yet=rest | {"I-3"})[0]


# Documents


def test_notes_to_oneself_are_found(project):
    root = project(
        {
            "holdfast/a.py": "x = 1  # FIX" + "ME later\n",
            "README.md": "fine\n",
            "holdfast/b.py": "# XX" + "X\n",
        }
    )
    assert [problem.split()[0] for problem in documents.leftovers(root)] == [
        "src/holdfast/a.py:1",
        "src/holdfast/b.py:1",
    ]


@pytest.mark.parametrize(
    "path", ["/" + "work/main", "/" + "home/ann/x", "/" + "root/.cache", ".." + "/shared/DESIGN.md"]
)
def test_paths_of_one_machine_are_found(project, path):
    root = project(
        {"README.md": f"See {path} here.\nhttps://example.org/home/x and src/home/x are fine.\n"}
    )
    assert [problem.split()[0] for problem in documents.machine_paths(root)] == ["README.md:1"]


def test_links_that_lead_nowhere_are_found(project):
    page = (
        "# A Title, `here`\n[a](docs/a.md) [b](docs/a.md#one-two) [c](#a-title-here) "
        "[d](https://example.org/x)\n"
        "```\n[e](gone.md)\n```\n`[f](gone.md)`\n"
    )
    root = project({"README.md": page, "docs/a.md": "## One *two*\n[up](../README.md)\n"})
    assert documents.links(root) == []
    root = project(
        {
            "README.md": page
            + "[g](gone.md) [h](docs/a.md#three) [i](../outside.md)\n\n[j]: gone.md\n"
        }
    )
    assert len(documents.links(root)) == 4


def test_paths_on_the_map_that_are_not_there_are_found(project):
    page = "`engine/guards`, `engine/guards.judge`, `engine/`, `docs/a.md`, `a / b`, `I/O`\n"
    files = {"holdfast/engine/guards.py": "", "docs/a.md": ""}
    assert documents.module_paths(project({"ARCHITECTURE.md": page, **files})) == []
    (problem,) = documents.module_paths(project({"ARCHITECTURE.md": page + "`engine/judging`"}))
    assert "`engine/judging`" in problem


def test_examples_that_are_not_python_are_found(project):
    good = (
        "```python\nawait a\n```\n```text\nnot ( python\n```\n1. In a list:\n\n   ```python\n  "
        " x = 1\n   ```\n"
    )
    assert documents.examples_compile(project({"README.md": good})) == []
    (problem,) = documents.examples_compile(
        project({"docs/a.md": "# A\n\n```python\nx = (\n```\n"})
    )
    assert problem.startswith("docs/a.md:4 is not Python")


def test_marked_examples_run_with_the_library_in_an_empty_folder(project):
    marked = (
        "<!-- runs -->\n```python\nimport os, holdfast\nassert os.listdir() == "
        "['example.py'], os.listdir()\n```\n"
    )
    root = project(
        {
            "holdfast/__init__.py": "",
            "README.md": marked + "```python\nraise SystemExit('unmarked')\n```\n",
        }
    )
    assert documents.examples_run(root) == []
    broken = "\n<!-- runs -->\n\n```python\nraise KeyError('x')\n```\n"
    (problem,) = documents.examples_run(project({"README.md": marked + broken}))
    assert problem.startswith("README.md:") and "KeyError" in problem


def test_an_example_that_prints_something_else_than_its_page_says_is_found(project):
    block = (
        "<!-- runs -->\n```python\nprint('one ')\nprint('two')\n```\n\n<!-- prints "
        "-->\n```\n{}\n```\n"
    )
    assert documents.examples_run(project({"README.md": block.format("one\ntwo")})) == []
    (problem,) = documents.examples_run(project({"README.md": block.format("one\nthree")}))
    assert problem.startswith("README.md:3 prints something else")


@pytest.mark.slow
def test_examples_that_fail_only_after_those_before_them_are_found(project):
    block = "<!-- runs -->\n```python\nopen('made', 'x')\n```\n"
    root = project({"README.md": block, "docs/a.md": block})
    assert documents.examples_run_in_order(root) == []
    root = project({"README.md": block + block, "docs/a.md": block})
    assert documents.examples_run(root) == []
    (problem,) = documents.examples_run_in_order(root)
    assert problem.startswith("README.md:7 does not run") and "FileExistsError" in problem
