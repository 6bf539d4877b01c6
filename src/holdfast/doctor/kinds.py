"""Which kinds of stores the doctor knows, and who looks at them."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from holdfast.doctor.patient import Patient
from holdfast.foreign import kinds as foreign

OWN, UNKNOWN = "holdfast", "unknown"
PATIENTS = {
    OWN: "HoldfastPatient",
    "hermes": "HermesPatient",
    "goose": "GoosePatient",
    "openviking": "OpenVikingPatient",
    "claude": "ClaudePatient",
    "codex": "CodexPatient",
    "agents": "AgentsPatient",
}


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
    patient = import_module(f"holdfast.doctor.{OWN}_patient")
    return OWN if patient.recognises(Path(path)) else foreign.kind_of(path)


def open_patient(kind: str, path: str) -> Patient:
    """The store at this path, in the doctor's hands."""
    patient: Patient = getattr(import_module(f"holdfast.doctor.{kind}_patient"), PATIENTS[kind])(Path(path))
    return patient
