"""Which kinds of stores the doctor knows, and who looks at them."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.doctor.subject import Subject
from holdfast.importers import detect as foreign

OWN, UNKNOWN = "holdfast", foreign.UNKNOWN
# Each kind, with its package, and its class there in `subject`.
SUBJECTS = {
    OWN: ("holdfast", "HoldfastSubject"),
    "hermes": ("hermes", "HermesSubject"),
    "goose": ("goose", "GooseSubject"),
    "openviking": ("openviking", "OpenVikingSubject"),
    "claude": ("items", "ClaudeSubject"),
    "codex": ("items", "CodexSubject"),
    "agents": ("items", "AgentsSubject"),
}


def stores_at(path: str) -> list[tuple[str, str]]:
    """The stores that a path means, each with its kind."""
    return foreign.stores_at(path, kind_of) or [(UNKNOWN, path)]


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a path is; None when nobody knows."""
    # Ours first: its first page tells, where readers of others may need a copy.
    if module_of(OWN, "subject").recognises(Path(path)):
        return OWN
    return foreign.kind_of(path)


def open_subject(kind: str, path: str) -> Subject:
    """The store at this path, in the doctor's hands."""
    subject_type = getattr(module_of(kind, "subject"), SUBJECTS[kind][1])
    subject: Subject = subject_type(Path(path))
    return subject


def module_of(kind: str, part: str) -> Any:
    """A module of a kind: loaded when somebody has such a store."""
    return import_module(f"holdfast.doctor.{SUBJECTS[kind][0]}.{part}")
