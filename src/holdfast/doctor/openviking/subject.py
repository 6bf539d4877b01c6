"""OpenViking's sessions in the doctor's hands."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.finding import Change
from holdfast.doctor.openviking.detect import findings_of
from holdfast.doctor.openviking.heal import heal
from holdfast.doctor.openviking.rules import RULES
from holdfast.doctor.openviking.write import write_folder
from holdfast.doctor.subject import Accepts, Examined
from holdfast.errors import StoreUnavailable
from holdfast.importers.foreign_session import ForeignSession
from holdfast.importers.openviking.convert import foreign_session
from holdfast.importers.openviking.files import SessionFolder, messages
from holdfast.importers.openviking.reader import OpenVikingReader, session_folders
from holdfast.importers.private_copy import is_live

UNDER_WAY = frozenset(
    f"openviking/{name}"
    for name in (
        "append-crash-meta-behind",
        "prepared-only",
        "pending-forever",
        "stale-locks",
        "torn-lock",
    )
)
"""What a crash leaves behind, and what a store in use shows while a message is appended or an
archive worked on.
"""


class OpenVikingSubject:
    """A session's directory, or a tree of them. Of a store in use, nothing is said that may just be
    under way.
    """

    kind = "openviking"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._ignored = (
            UNDER_WAY if is_live(*session_folders(Path(path))) else frozenset()
        )
        self._shelf = OpenVikingReader(path)

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        for folder in self.folders(session):
            every = [*(archive.records for archive in folder.archives), folder.records]
            ids = {record.id for records in every for record in messages(records)}
            found = tuple(
                one for one in findings_of(folder) if one.rule.name not in self._ignored
            )
            yield Examined(folder.id, len(ids), found)

    def folders(self, session: str | None = None) -> Iterator[SessionFolder]:
        """The sessions as they lie there, one at a time."""
        return self._shelf.folders(session)

    def healed(self, accepts: Accepts) -> "HealedOpenViking":
        accepted = frozenset(rule.name for rule in RULES if accepts(rule))
        return HealedOpenViking(self, accepted - self._ignored)

    def not_examined(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._shelf.close()


class HealedOpenViking:
    """The sessions with remedies applied, each when it is asked for."""

    def __init__(self, subject: OpenVikingSubject, accepted: frozenset[str]) -> None:
        self._subject = subject
        self._accepted = accepted
        self._changes: dict[str, list[Change]] = {}

    def sessions(self) -> Iterator[ForeignSession]:
        for folder in self._folders():
            yield foreign_session(folder)

    def changes(self) -> list[Change]:
        return [change for changes in self._changes.values() for change in changes]

    def write(self, out: str) -> None:
        if Path(out).exists():
            problem, remedy = (
                "there is something at this path already",
                "Name a path where there is nothing yet",
            )
            raise StoreUnavailable(where=out, problem=problem, remedy=remedy)
        root = Path(self._subject.path).resolve()
        for folder in self._folders():
            write_folder(
                folder, Path(out) / Path(folder.place).resolve().relative_to(root)
            )

    def _folders(self) -> Iterator[SessionFolder]:
        for folder in self._subject.folders():
            healed, changes = heal(folder, self._accepted)
            self._changes[folder.id] = changes
            yield healed
