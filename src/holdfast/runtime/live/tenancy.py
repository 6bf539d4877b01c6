"""Whose session it is: an id alone opens nothing.

Ids of sessions reach us from outside too: in an export, in a store that is copied, in the note of a
fork. Wherever a session is looked up by an id that this process did not get from the tenant's own
lists, it is looked up here. Another tenant's session is as good as none.
"""

from holdfast.engine.protocol import Engine, SessionState


def owned(engine: Engine, tenant: str, session: str | None) -> SessionState | None:
    """How the session with this id stands, if there is one and it is this tenant's."""
    # No id has other characters, and not every engine could be asked about them.
    if not session or not session.isascii() or not session.isprintable():
        return None
    state = engine.state(session)
    if state is None or state.tenant != tenant:
        return None
    return state
