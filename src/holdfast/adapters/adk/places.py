"""Which session is meant, where it lies in the store, and how far a session object has seen it."""

from typing import Any, NamedTuple

from holdfast.adapters.framework import key_of, names_of
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument

SESSION, STATE, USER, APP = "adk", "adk.state", "adk.user", "adk.app"
"""The first names of keys: sessions, and beside them the states of sessions, users and apps."""


class AdkPlace(NamedTuple):
    """A session of the kit, by its three names."""

    app: str
    user: str
    session: str

    @classmethod
    def of(cls, app_name: Any, user_id: Any, session_id: Any) -> "AdkPlace":
        """The place of these names; around an id, blanks mean nothing, as in the kit."""
        id = name_of(session_id, "session_id").strip()
        return cls(name_of(app_name, "app_name"), name_of(user_id, "user_id"), id)

    @classmethod
    def of_key(cls, key: str) -> "AdkPlace":
        """The place whose session has this key."""
        return cls(*names_of(key)[1:])

    @property
    def key(self) -> str:
        return key_of(SESSION, *self)

    @property
    def state_key(self) -> str:
        return key_of(STATE, *self)

    @property
    def user_key(self) -> str:
        return key_of(USER, self.app, self.user)

    @property
    def app_key(self) -> str:
        return key_of(APP, self.app)


def name_of(value: Any, parameter: str) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise BadArgument(parameter=parameter, takes="a text", given=kind_of(value))
    return value


class Seen(NamedTuple):
    """Which session of the store a session object is of, and up to which entry it has seen it."""

    id: str
    head: int

    @classmethod
    def of(cls, session: Any) -> "Seen | None":
        """What a session object carries along; None when it was not made here, or was rebuilt from
        its fields.
        """
        # A private attribute, which pydantic leaves out of what is dumped: a session
        # object that was sent elsewhere and back has none.
        mark = session._storage_update_marker
        id, _, head = str(mark or "").rpartition(":")
        return cls(id, int(head)) if id and head.isdecimal() else None

    def put(self, session: Any) -> None:
        """Notes it in the session object, unless that has seen more by now."""
        known = Seen.of(session)
        if known is None or known.id != self.id or known.head < self.head:
            session._storage_update_marker = f"{self.id}:{self.head}"
