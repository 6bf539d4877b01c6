"""Which kinds of stores the doctor knows, and who looks at them."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.doctor.patient import Patient
from holdfast.foreign import kinds as foreign

OWN, UNKNOWN = "holdfast", foreign.UNKNOWN
PATIENTS = {
    OWN: ("holdfast", "HoldfastPatient"),
    "hermes": ("hermes", "HermesPatient"),
    "goose": ("goose", "GoosePatient"),
    "openviking": ("openviking", "OpenVikingPatient"),
    "claude": ("items", "ClaudePatient"),
    "codex": ("items", "CodexPatient"),
    "agents": ("items", "AgentsPatient"),
}
"""Each kind, with its package, and its class there in `patient`."""


def stores_at(path: str) -> list[tuple[str, str]]:
    """The stores that a path means, each with its kind."""
    return foreign.stores_at(path, kind_of) or [(UNKNOWN, path)]


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a path is; None when nobody knows."""
    return OWN if module_of(OWN, "patient").recognises(Path(path)) else foreign.kind_of(path)


def open_patient(kind: str, path: str) -> Patient:
    """The store at this path, in the doctor's hands."""
    patient: Patient = getattr(module_of(kind, "patient"), PATIENTS[kind][1])(Path(path))
    return patient


def module_of(kind: str, part: str) -> Any:
    """A module of a kind: loaded when somebody has such a store."""
    return import_module(f"holdfast.doctor.{PATIENTS[kind][0]}.{part}")
