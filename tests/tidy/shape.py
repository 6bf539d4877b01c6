"""How long things are, and whether a module says what it is for."""

import ast
from collections import Counter
from pathlib import Path

from tidy.tree import Module, library, modules

MODULE_MAX = 600
TEST_MODULE_MAX = 800
FUNCTION_MAX = 60
FOLDER_MAX = 15
FUNCTION_USUAL = 30
WIDTH_MAX = 100
DECISIONS_MAX = 15

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp)


def module_sizes(root: Path) -> list[str]:
    """A module of the library has at most 600 lines, one of the tests 800."""
    found = []
    for files, limit in ((library(root), MODULE_MAX), (modules(root, "tests"), TEST_MODULE_MAX)):
        for module in files:
            lines = len(module.text.splitlines())
            if lines > limit:
                found.append(
                    f"{module.shown} has {lines} lines, the limit is {limit}; it holds two ideas: "
                    "split it."
                )
    return found


def folder_sizes(root: Path) -> list[str]:
    """A folder of the library has at most 15 files that say anything."""
    sizes: Counter[str] = Counter()
    for module in library(root):
        if not module.is_package or len(module.text.splitlines()) > 1:
            sizes[str(Path(module.shown).parent)] += 1
    return [
        f"{folder} has {count} files, the limit is {FOLDER_MAX}; put those that belong together "
        "into a folder."
        for folder, count in sorted(sizes.items())
        if count > FOLDER_MAX
    ]


def function_sizes(root: Path) -> list[str]:
    """No function over 60 lines, nine in ten within 30."""
    sizes = [(*function, module) for module in library(root) for function in _functions(module)]
    found = [
        f"{module.shown}:{line} `{name}` has {size} lines, the limit is {FUNCTION_MAX}; name its "
        "steps and call them."
        for size, line, name, module in sizes
        if size > FUNCTION_MAX
    ]
    long = sorted(
        (size, name, module.shown) for size, _, name, module in sizes if size > FUNCTION_USUAL
    )
    if 10 * len(long) > len(sizes):
        longest = ", ".join(
            f"`{name}` in {shown} ({size})" for size, name, shown in reversed(long[-10:])
        )
        found.append(
            f"{len(long)} of {len(sizes)} functions have more than {FUNCTION_USUAL} lines, more "
            "than one in ten; "
            f"shorten some of these: {longest}."
        )
    return found


def decisions(root: Path) -> list[str]:
    """No function with more than 15 decisions."""
    return [
        f"{module.shown}:{node.lineno} `{node.name}` makes {count} decisions, the limit is "
        f"{DECISIONS_MAX}; name some of them."
        for module in library(root)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (count := _decisions(node)) > DECISIONS_MAX
    ]


def _decisions(function: ast.AST) -> int:
    count = 1
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        else:
            count += isinstance(node, _BRANCHES)
    return count


def widths(root: Path) -> list[str]:
    """No line of code is wider than 100 characters; docstrings and lines that are comments are
    prose.
    """
    found = []
    for module in library(root):
        prose = _prose(module)
        for number, line in enumerate(module.text.splitlines(), 1):
            if len(line) > WIDTH_MAX and number not in prose and not line.lstrip().startswith("#"):
                found.append(
                    f"A line of {module.shown} is {len(line)} characters wide, the limit is "
                    f"{WIDTH_MAX}: break line {number}."
                )
    return found


def _prose(module: Module) -> set[int]:
    """The lines of its docstrings, those of attributes too."""
    lines: set[int] = set()
    for node in module.nodes(ast.Expr):
        if isinstance(node.value, ast.Constant):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _functions(module: Module) -> list[tuple[int, int, str]]:
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, node.lineno, node.name)
        for node in module.nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    ]


def docstrings(root: Path) -> list[str]:
    """Every module of the library opens with its idea."""
    return [
        f"{module.shown} has no docstring; say in its first line what it is for."
        for module in library(root)
        if not (ast.get_docstring(module.tree) or "").strip()
    ]
