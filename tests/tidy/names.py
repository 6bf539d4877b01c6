"""What may not be a name: words that say nothing, synonyms for the words of the glossary, words
with too many jobs, and pictures that the glossary does not explain.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import Module, library, modules, within

HOLLOW = {"util", "common", "helper", "base", "manager", "core", "type"}

# Words that had too many jobs or were pictures of our own. None comes back as the name of a module
# or a class.
BUSY = {
    *(
        "told",
        "telling",
        "story",
        "stories",
        "ledger",
        "room",
        "shelf",
        "patient",
        "ward",
        "chart",
        "scribe",
        "lanes",
    ),
    *(
        "swift",
        "siding",
        "duty",
        "patience",
        "laying",
        "judging",
        "bringing",
        "landing",
        "carrying",
        "knowing",
    ),
    *(
        "posting",
        "branching",
        "summing",
        "seeking",
        "wording",
        "routing",
        "mortals",
        "twins",
        "stage",
        "keeper",
    ),
}

# Words that mean something else outside a program. A module or a class may have one in its name if
# the glossary of ARCHITECTURE.md says what it means here.
PICTURES = {
    *(
        "border",
        "cursor",
        "doctor",
        "fence",
        "fold",
        "heal",
        "inbox",
        "journal",
        "lease",
        "oracle",
        "outbox",
    ),
    *("recovery",),
    *(
        "repair",
        "rewind",
        "soak",
        "subject",
        "view",
        "watcher",
        "writer",
        "plan",
        "reconcile",
        "seize",
    ),
    *("bridge", "bucket", "butler", "door", "engineer", "garden", "guardian", "harbour", "island"),
    *(
        "judge",
        "kitchen",
        "ladder",
        "lane",
        "library",
        "lighthouse",
        "market",
        "mirror",
        "nurse",
        "pilot",
        "post",
    ),
    *(
        "queen",
        "rail",
        "river",
        "sailor",
        "scout",
        "ship",
        "shop",
        "stable",
        "theatre",
        "tower",
        "train",
        "tree",
    ),
}

# Other people's shapes keep other people's words.
ABROAD = ("formats", "importers", "adapters")

# (what a name may not have, what the glossary says instead, where it may all the same)
SYNONYMS = [
    (re.compile(r"conversation", re.I), "`session`, `transcript` or `context`", ABROAD),
    (
        re.compile(r"checkpoint", re.I),
        "`entry`, `view` or `compaction`",
        (*ABROAD, "engine/sqlite"),
    ),
    (re.compile(r"^_*chat_", re.I), "`session`, `key` or `message`", ABROAD),
]


def hollow_names(root: Path) -> list[str]:
    """No file or folder is called utils, common, helpers, base, manager, core or types."""
    found = set()
    for module in modules(root, "src", "tests", "bench", "torture"):
        for part in Path(module.shown).with_suffix("").parts:
            if part.strip("_").lower().removesuffix("s") in HOLLOW:
                found.add(
                    f"{module.shown}: `{part}` says nothing; name the idea, or put each piece "
                    "beside its user."
                )
    return sorted(found)


def busy_words(root: Path) -> list[str]:
    """No module or class is called a word that had too many jobs."""
    found = []
    for module in library(root):
        named = [(1, module.name.rpartition(".")[2]), *_definitions(module)]
        for line, name in named:
            if name.strip("_").lower() in BUSY:
                found.append(
                    f"{module.shown}:{line} `{name}` had too many jobs; call it what it does."
                )
    return found


def pictures(root: Path) -> list[str]:
    """A module or a class that is named with a picture finds it in the glossary of
    ARCHITECTURE.md.
    """
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, glossary = page.partition("## Glossary")
    explained = set(
        re.findall(r"\w+", " ".join(re.findall(r"^\| ([^|]+) \|", glossary, re.M)).lower())
    )
    found = []
    for module in library(root):
        for line, name in [(1, module.name.rpartition(".")[2]), *_definitions(module)]:
            words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+", name)}
            for word in sorted(words & PICTURES - explained):
                found.append(
                    f"{module.shown}:{line} `{name}`: the glossary does not say what a {word} is "
                    "here."
                )
    return found


def doubled_classes(root: Path) -> list[str]:
    """No two classes of the library have one name."""
    places: dict[str, list[str]] = {}
    for module in library(root):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{module.shown}:{node.lineno}")
    return [
        f"{' and '.join(where)} are both called `{name}`; say in the name what sets them apart."
        for name, where in sorted(places.items())
        if len(where) > 1
    ]


def _definitions(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes(ast.ClassDef):
        yield node.lineno, node.name


def synonyms(root: Path) -> list[str]:
    """Modules, classes, functions, arguments, fields and tables use the words of the glossary."""
    found = []
    for module in library(root):
        for line, name in [(1, module.name.rpartition(".")[2]), *_defined(module)]:
            for pattern, instead, places in SYNONYMS:
                if pattern.search(name) and not within(module, *places):
                    found.append(
                        f"{module.shown}:{line} `{name}` is not a word of the glossary; say "
                        f"{instead}."
                    )
    return found + list(_in_sql(root))


def _defined(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        yield node.lineno, node.name
    for argument in module.nodes(ast.arg):
        yield argument.lineno, argument.arg
    for name in module.nodes(ast.Name):
        if isinstance(name.ctx, ast.Store):
            yield name.lineno, name.id
    for attribute in module.nodes(ast.Attribute):
        if isinstance(attribute.ctx, ast.Store):
            yield attribute.lineno, attribute.attr


def _in_sql(root: Path) -> Iterator[str]:
    for path in sorted((root / "src").rglob("*.sql")):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        for word in re.findall(r"\w*conversation\w*|\bchat_\w+", code, re.I):
            yield (
                f"{path.relative_to(root).as_posix()}: `{word}` is not a word of the glossary; "
                "say `session`."
            )
