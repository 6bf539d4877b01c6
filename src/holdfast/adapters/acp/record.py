"""`record`: runs an agent, and records what it and its client say to each other."""

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath

from holdfast import Store
from holdfast.adapters.acp.pump import Pump
from holdfast.adapters.acp.recorder import Recorder
from holdfast.adapters.acp.recording import Recording
from holdfast.adapters.acp.session_key import place_of, session_key
from holdfast.adapters.acp.storage import SessionStorage
from holdfast.formats.reading import text


def record(
    store: Store,
    command: Sequence[str],
    *,
    name: str | None = None,
    serves_load: bool = False,
    say: Callable[[str], None],
    client: tuple[int, int] = (0, 1),
) -> int:
    """Runs the agent and passes on what it and the client at these descriptors say, until the
    agent has ended: its exit code, or minus the number of a signal. `say` is told what could not be
    stored. With `serves_load`, loaded sessions are replayed from the store.
    """
    recording = Recording(serves_load=serves_load)
    # A name that the user gives is meant for every place.
    # An empty one is none: sessions of two homes would be one.
    place = None if name else place_of(os.environ)

    def key_of(session: str) -> str:
        # Asked when the first session comes up: by then the agent has said who it is.
        said = text(recording.agent.get("name"))
        agent = name or said or PurePath(command[0]).name
        return session_key(agent, session, place=place)

    recorder = Recorder(
        recording,
        SessionStorage(store, key_of),
        say,
    )
    return Pump(command, recorder, client=client).run()
