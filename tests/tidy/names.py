"""What may not be a name: words that say nothing, and synonyms for the words of the glossary."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidy.tree import Module, library, modules, within

HOLLOW = {"util", "common", "helper", "base", "manager", "core", "type"}

# Other people's shapes keep other people's words.
ABROAD = ("formats", "foreign", "adapters")

# (what a name may not have, what the glossary says instead, where it may all the same)
SYNONYMS = [
    (re.compile(r"conversation", re.I), "`session`, `transcript` or `context`", ABROAD),
    (re.compile(r"checkpoint", re.I), "`entry`, `view` or `compaction`", (*ABROAD, "engine/sqlite")),
    (re.compile(r"^_*chat_", re.I), "`session`, `key` or `message`", ABROAD),
]


def hollow_names(root: Path) -> list[str]:
    """No file or folder is called utils, common, helpers, base, manager, core or types."""
    found = set()
    for module in modules(root, "src", "tests", "bench", "torture"):
        for part in Path(module.shown).with_suffix("").parts:
            if part.strip("_").lower().removesuffix("s") in HOLLOW:
                found.add(f"{module.shown}: `{part}` says nothing; name the idea, or put each piece beside its user.")
    return sorted(found)


def synonyms(root: Path) -> list[str]:
    """Modules, classes, functions, arguments, fields and tables use the words of the glossary."""
    found = []
    for module in library(root):
        for line, name in [(1, module.name.rpartition(".")[2]), *_defined(module)]:
            for pattern, instead, places in SYNONYMS:
                if pattern.search(name) and not within(module, *places):
                    found.append(f"{module.shown}:{line} `{name}` is not a word of the glossary; say {instead}.")
    return found + list(_in_sql(root))


def _defined(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _in_sql(root: Path) -> Iterator[str]:
    for path in sorted((root / "src").rglob("*.sql")):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        for word in re.findall(r"\w*conversation\w*|\bchat_\w+", code, re.I):
            yield f"{path.relative_to(root).as_posix()}: `{word}` is not a word of the glossary; say `session`."
