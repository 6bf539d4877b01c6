"""Whether what is acknowledged is on more than one server: what a cluster says of itself.

A cluster that should wait for a standby and has none stops writing, and one whose settings were
lost in a fail-over writes on alone: nobody notices until it matters. So it is looked at when a
store is opened.
"""

from typing import NamedTuple

import msgspec


class Weakness(NamedTuple):
    """Why an acknowledged commit may be lost with its server, or none acknowledged; and
    what to do.
    """

    problem: str
    remedy: str


class Replication(msgspec.Struct, frozen=True):
    """How many standbys stream from the primary, and for how many of them a commit waits."""

    names: str
    """`synchronous_standby_names`, which says how many must know of a commit; empty when none."""
    commit: str
    """`synchronous_commit`, as this connection has it."""
    streaming: int
    synchronous: int
    hidden: int
    """Standbys of which this role may not know more than that they are there."""

    @property
    def weakness(self) -> Weakness | None:
        """What an operator should know; None when all is as it was meant, or can't be seen."""
        if self.commit == "off" or (
            self.names and self.commit in ("local", "remote_write")
        ):
            return Weakness(
                f"synchronous_commit is {self.commit}, so a commit is acknowledged before it is "
                "where it should be",
                "Set synchronous_commit to on, for the server, the database or the role",
            )
        if self.names and not self.synchronous and not self.hidden:
            return Weakness(
                "its commits wait for standbys (synchronous_standby_names), and none is there to "
                "answer",
                "Bring a standby back; until then nothing can be written",
            )
        if self.streaming + self.hidden and not self.names:
            return Weakness(
                f"{self.streaming + self.hidden} standbys follow it, but no commit waits for "
                "them: an acknowledged one "
                "is lost with its server",
                "Set synchronous_standby_names on every server",
            )
        return None

    def __str__(self) -> str:
        followers = self.streaming + self.hidden
        if not self.names:
            return (
                f"commits wait for none of {followers} standbys"
                if followers
                else "to nobody: there are no standbys"
            )
        if self.hidden:
            return f"commits wait for {self.names}; there are {followers} standbys"
        return (
            f"commits wait for {self.names}; {self.synchronous} of {followers} standbys "
            "can answer"
        )
