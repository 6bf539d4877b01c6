"""Whether what is acknowledged is on more than one server: what a cluster says of itself.

A cluster that should wait for a standby and has none stops writing, and one whose settings were lost in a fail-over
writes on alone: nobody notices until it matters. So it is looked at when a store is opened.
"""

import msgspec


class Replication(msgspec.Struct, frozen=True):
    """How many standbys stream from the primary, and for how many of them a commit waits."""

    names: str
    """`synchronous_standby_names`, which says how many must know of a commit; empty when none."""
    commit: str
    """`synchronous_commit`, as this connection has it."""
    streaming: int
    synchronous: int

    @property
    def problem(self) -> str:
        """What an operator should know; nothing when all is as it was meant."""
        if self.names and not self.synchronous:
            return "its commits wait for standbys (synchronous_standby_names), and none is there to answer"
        if self.streaming and not self.names:
            return (
                f"{self.streaming} standbys follow it, but no commit waits for them: an acknowledged one is lost with "
                "its server. Set synchronous_standby_names on every server"
            )
        if self.names and self.commit in ("off", "local"):
            return f"its commits don't wait for standbys: synchronous_commit is {self.commit}"
        return ""
