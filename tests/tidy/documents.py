"""What people read: links lead somewhere, examples run, and nothing is left over from the desk it
was written on.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tidy.tree import texts, tracked

LEFTOVER = re.compile(r"\b(?:FIX" r"ME|XX" r"X|HA" r"CK)\b")
DESK = re.compile(
    r"(?<![\w.:/-])/(?:work|root|home/[a-z][\w-]*|Users/[A-Za-z][\w-]*)/|\.\./shared\b|\b[A-Z]:\\Users\\"
)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)^ *(?P=fence) *$",
    re.M | re.S,
)
RUNS = re.compile(r"<!--\s*runs\s*-->\s*\Z")
PRINTS = re.compile(r"\A\s*<!--\s*prints\s*-->\s*```\n(?P<output>.*?)^```$", re.M | re.S)
LINK = re.compile(
    r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ *\[[^\]]+\]:\s*(\S+)", re.M
)

MODULE = re.compile(r"`([a-z_]+/[\w/]*(?:\.\w+)?)`")


def leftovers(root: Path) -> list[str]:
    """No note to oneself."""
    return [
        f"{place} has {word}; do it now, or open an issue and take the mark out."
        for place, word in _hits(root, LEFTOVER)
    ]


def machine_paths(root: Path) -> list[str]:
    """No path that exists on one machine only."""
    return [
        f"{place} has {word}, a path of one machine; make it relative to the project."
        for place, word in _hits(root, DESK)
    ]


def _hits(root: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for shown, text in texts(root):
        if not pattern.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for hit in pattern.finditer(line):
                yield f"{shown}:{number}", hit.group()


def links(root: Path) -> list[str]:
    """A link inside the project leads to a file that is there, and to a heading that is there."""
    found = []
    for page in _pages(root):
        for target in _links(page):
            path, _, heading = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            place = f"{page.relative_to(root).as_posix()} links to {target}"
            if not goal.is_relative_to(root.resolve()) or not goal.exists():
                found.append(f"{place}, which is not there; fix the link.")
            elif heading and goal.suffix == ".md" and heading not in _headings(goal):
                found.append(f"{place}, a heading that is not there; fix the link.")
    return found


def module_paths(root: Path) -> list[str]:
    """A path of a module or folder that the map names, in backticks, is there: `engine/guards`,
    `domain/message.freeze` (a name in a module), `docs/api.md`.
    """
    page = root / "ARCHITECTURE.md"
    named = set(MODULE.findall(page.read_text("utf-8")))
    return [
        f"ARCHITECTURE.md names `{path}`, which is not there; name the file as it is called now."
        for path in sorted(named)
        if not _leads_to_a_file(root, path)
    ]


def _leads_to_a_file(root: Path, path: str) -> bool:
    module = root / "src/holdfast" / path
    return any(
        place.exists()
        for place in (
            root / path,
            module,
            module.parent / f"{module.name}.py",
            module.parent / f"{module.name.partition('.')[0]}.py",
        )
    )


def _pages(root: Path) -> list[Path]:
    return [path.resolve() for path in tracked(root.resolve()) if path.suffix == ".md"]


def _links(page: Path) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for inline, reference in LINK.findall(prose):
        target = inline or reference
        if not re.match(r"[a-z][a-z0-9+.-]*:", target, re.I):
            yield target


def _headings(page: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    anchors: set[str] = set()
    for title in re.findall(
        r"^#{1,6}\s+(.+?)\s*#*$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M
    ):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = next(
            n for n in range(len(anchors) + 1) if (f"{anchor}-{n}" if n else anchor) not in anchors
        )
        anchors.add(f"{anchor}-{again}" if again else anchor)
    return anchors


@dataclass(frozen=True)
class Example:
    """A fenced Python block; `runs` when the page says so just above it, and `prints` what the page
    says just below.
    """

    place: str
    code: str
    runs: bool
    prints: str | None


def examples(root: Path) -> list[Example]:
    """The Python examples of all pages."""
    found = []
    for page in _pages(root):
        text = page.read_text(encoding="utf-8")
        for block in FENCE.finditer(text):
            if block["language"].lower() in {"python", "py"}:
                line = text.count("\n", 0, block.start("code")) + 1
                code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.M)
                place = f"{page.relative_to(root.resolve()).as_posix()}:{line}"
                runs, prints = RUNS.search(text[: block.start()]), PRINTS.match(text[block.end() :])
                found.append(Example(place, code, runs is not None, prints and prints["output"]))
    return found


def examples_compile(root: Path) -> list[str]:
    """Every Python example is Python; `await` may stand at its top."""
    found = []
    for example in examples(root):
        try:
            compile(example.code, example.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            found.append(
                f"{example.place} is not Python: {error.msg} in its line {error.lineno}; fix the "
                "example."
            )
    return found


def examples_run(root: Path, *, every: int = 1) -> list[str]:
    """An example marked `<!-- runs -->` runs by itself, in a new process and an empty folder; what
    it prints is what a block marked `<!-- prints -->` below it says. Of each page it may be each
    so-manieth from the first: all of a page also run in order.
    """
    found = []
    for _, page in groupby(examples(root), key=lambda example: example.place.partition(":")[0]):
        for example in [example for example in page if example.runs][::every]:
            with tempfile.TemporaryDirectory() as folder:
                found += _problems(root, example, folder)
    return found


def examples_run_in_order(root: Path) -> list[str]:
    """The examples of a page also run one after the other in one folder, as a reader may
    try them; one that is alone on its page runs by itself.
    """
    found = []
    for _, page in groupby(examples(root), key=lambda example: example.place.partition(":")[0]):
        running = [example for example in page if example.runs]
        with tempfile.TemporaryDirectory() as folder:
            for example in running if len(running) > 1 else []:
                found += _problems(root, example, folder)
    return found


def _problems(root: Path, example: Example, folder: str) -> list[str]:
    done = _run(root, example, folder)
    if done.returncode != 0:
        return [
            f"{example.place} does not run; fix it, or the library:\n{done.stdout}{done.stderr}"
        ]
    if example.prints is not None and _lines(done.stdout) != _lines(example.prints):
        return [
            f"{example.place} prints something else than the page says; it printed:\n{done.stdout}"
        ]
    return []


def _lines(text: str) -> list[str]:
    """Lines without blanks at their ends, which editors remove."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _run(root: Path, example: Example, folder: str) -> subprocess.CompletedProcess[str]:
    script = Path(folder, "example.py")
    script.write_text(example.code, encoding="utf-8")
    path = os.pathsep.join(
        part for part in (str(root / "src"), os.environ.get("PYTHONPATH")) if part
    )
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
