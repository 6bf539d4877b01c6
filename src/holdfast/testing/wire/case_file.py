"""What a case says: its steps, and what each must be answered. `cases/*.toml` has them.

do          method and address; ${name} stands for what a step before has saved
sender      whose token: "one" (unless said otherwise), "other" (another tenant's) or "nobody"
status      what it must be answered, with the `code` of the problem, if it is one
expect      values in the answer, by path: "items.0.text"
absent      paths at which there is nothing, or null
count       how many items the list at a path has
headers_of  headers of the answer
            An answer of lines is compared as one: the `text` of all of them, the last `index`, and the `problem`.
save        what is kept for later steps, by path
until_s     asked again until the answer is as expected, so long at most: for what takes a lease
at_once     sent so many times at the same time; `same` names what must be equal in all answers
take        for a stream: so many events are read, as the list `events` with `event`, `id` and `data`, and then
            its reader goes
fault       "lose_answer": the connection is closed when the answer begins
            "cut_body": the connection is closed in the middle of the body
            "leave": the client goes away while nothing was answered yet
            "cut_often": a stream is read by a client that is cut off again and again, and comes back with the
            last `id` that it took; what it took must be what one that is not cut off takes
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

CASES = Path(__file__).parent / "cases"
Fault = Literal["lose_answer", "cut_body", "leave", "cut_often"]


class CaseStep(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One request and what it must be answered."""

    do: str
    sender: Literal["one", "other", "nobody"] = "one"
    headers: dict[str, str] = {}
    body: Any = None
    raw: str | None = None
    status: int = 200
    code: str | None = None
    expect: dict[str, Any] = {}
    absent: list[str] = []
    count: dict[str, int] = {}
    headers_of: dict[str, str] = {}
    save: dict[str, str] = {}
    until_s: float = 0
    take: int = 0
    at_once: int = 1
    same: list[str] = []
    fault: Fault | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A story: its name is the law that it shows."""

    name: str
    step: list[CaseStep]


class CaseFile(msgspec.Struct, forbid_unknown_fields=True):
    """The cases of one section of the protocol."""

    case: list[Case]


def all_cases() -> list[Case]:
    """Every case, in the order of the files."""
    found: list[Case] = []
    for path in sorted(CASES.glob("*.toml")):
        found += msgspec.toml.decode(path.read_bytes(), type=CaseFile).case
    return found
