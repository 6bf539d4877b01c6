"""Which kinds of stores the doctor knows, and who looks at them."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.doctor.patient import Patient
from holdfast.foreign import kinds as foreign

OWN, UNKNOWN = "holdfast", "unknown"
PATIENTS = {
    OWN: ("holdfast.", "HoldfastPatient"),
    "hermes": ("hermes.", "HermesPatient"),
    "goose": ("goose.", "GoosePatient"),
    "openviking": ("openviking.", "OpenVikingPatient"),
    "claude": ("items.claude_", "ClaudePatient"),
    "codex": ("items.codex_", "CodexPatient"),
    "agents": ("items.agents_", "AgentsPatient"),
}
"""Each kind, with how the names of its modules begin, and its class."""


def stores_at(path: str) -> Iterator[tuple[str, str]]:
    """The stores that a path means, each with its kind: the one that it is, or those in it when it is a folder that is
    none itself.
    """
    kind = kind_of(path)
    if kind is not None or not os.path.isdir(path):
        yield kind or UNKNOWN, path
        return
    found = False
    for file in foreign.files_in(path):
        kind = kind_of(file)
        if kind is not None:
            found = True
            yield kind, str(file)
    if not found:
        yield UNKNOWN, path


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a path is; None when nobody knows."""
    return OWN if module_of(OWN, "patient").recognises(Path(path)) else foreign.kind_of(path)


def open_patient(kind: str, path: str) -> Patient:
    """The store at this path, in the doctor's hands."""
    patient: Patient = getattr(module_of(kind, "patient"), PATIENTS[kind][1])(Path(path))
    return patient


def module_of(kind: str, part: str) -> Any:
    """A module of a kind: loaded when somebody has such a store."""
    return import_module(f"holdfast.doctor.{PATIENTS[kind][0]}{part}")
