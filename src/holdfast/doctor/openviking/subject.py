"""OpenViking's sessions in the doctor's hands."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.openviking.case import all_files, ids_of
from holdfast.doctor.openviking.detect import findings_of
from holdfast.doctor.openviking.heal import heal
from holdfast.doctor.openviking.rules import RULES
from holdfast.doctor.openviking.write import write_folder
from holdfast.doctor.subject import Accepts, Examined, HealedSessions, Subject
from holdfast.errors import StoreUnavailable
from holdfast.importers.foreign_session import ForeignSession
from holdfast.importers.openviking.convert import foreign_session
from holdfast.importers.openviking.files import SessionFolder
from holdfast.importers.openviking.reader import OpenVikingReader, session_folders
from holdfast.importers.private_copy import is_live

# What a crash leaves behind, and what a store in use shows while a message is appended
# or an archive worked on.
UNDER_WAY = frozenset(
    {
        "openviking/append-crash-meta-behind",
        "openviking/prepared-only",
        "openviking/pending-forever",
        "openviking/stale-locks",
        "openviking/torn-lock",
    }
)


class OpenVikingSubject(Subject):
    """A session's directory, or a tree of them. Of a store in use, nothing is said that may just be
    under way.
    """

    kind = "openviking"
    rules = RULES

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._ignored: frozenset[str] = frozenset()
        if is_live(*session_folders(Path(path))):
            self._ignored = UNDER_WAY
        self._reader = OpenVikingReader(path)
        self.folders = self._reader.folders

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        for folder in self.folders(session):
            # By id: what a commit retained is in its archive, and live as well.
            ids = set().union(*map(ids_of, all_files(folder)))
            found = [
                one for one in findings_of(folder) if one.rule.name not in self._ignored
            ]
            yield Examined(folder.id, len(ids), tuple(found))

    def healed(self, accepts: Accepts) -> "HealedOpenViking":
        accepted = {rule.name for rule in RULES if accepts(rule)}
        return HealedOpenViking(self, accepted - self._ignored)

    def close(self) -> None:
        self._reader.close()


class HealedOpenViking(HealedSessions):
    """The sessions with remedies applied, each when it is asked for."""

    def __init__(self, subject: OpenVikingSubject, accepted: set[str]) -> None:
        super().__init__()
        self._subject = subject
        self._accepted = accepted

    def sessions(self) -> Iterator[ForeignSession]:
        return map(foreign_session, self._folders())

    def write(self, out: str) -> None:
        if Path(out).exists():
            problem = "there is something at this path already"
            remedy = "Name a path where there is nothing yet"
            raise StoreUnavailable(where=out, problem=problem, remedy=remedy)
        # A tree of sessions stays a tree: each is written where it lay below the root.
        root = Path(self._subject.path).resolve()
        for folder in self._folders():
            name = Path(folder.place).resolve().relative_to(root)
            write_folder(folder, Path(out) / name)

    def _folders(self) -> Iterator[SessionFolder]:
        for folder in self._subject.folders():
            healed, changes = heal(folder, self._accepted)
            self.changed[folder.id] = changes
            yield healed
