"""Which store a command works on, and which session and message in it are meant."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import holdfast
from holdfast import Message, Session, Store
from holdfast.cli.codes import NOT_FOUND, USAGE, Stop
from holdfast.engine.address import is_postgres, is_remote, shown
from holdfast.engine.open import is_writable
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.exporters.safe_text import one_line

KEY, LATEST = "key:", "@latest"
TOKEN_VARIABLE, CA_VARIABLE = "HOLDFAST_TOKEN", "HOLDFAST_CA"
SHORT = 8
NEAR = 200


@contextmanager
def opened(options: Any) -> Iterator[Store]:
    """The store that was named. One that is not there is never made by looking for it."""
    insist(options.store)
    with holdfast.open(
        options.store,
        tenant=options.tenant,
        read_only=not is_writable(options.store),
        **access(options.store),
    ) as store:
        yield store


def access(where: str) -> dict[str, Any]:
    """What opens a store that a server has: from the environment, for what stands on a command line
    everybody on the machine can read. Nothing for any other store.
    """
    if not is_remote(where):
        return {}
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        remedy = f"put a token that it knows into {TOKEN_VARIABLE}"
        raise Stop(USAGE, f"`{shown(where)}` is a server; {remedy}.")
    return {"token": token, "ca": os.environ.get(CA_VARIABLE) or None}


def insist_on_store_itself(where: str) -> None:
    """Ends the command if the store is a server's: this is done where the store is."""
    if is_remote(where):
        raise Stop(
            USAGE,
            f"`{shown(where)}` is a server, and this works on the store itself: "
            "run it on the server's machine, with the path or address of the store.",
        )


@contextmanager
def opened_session(options: Any) -> Iterator[Session]:
    """The session that was named, of the store that was named."""
    with opened(options) as store:
        yield session_of(store, options.session)


def is_address(given: str) -> bool:
    """Whether somebody gave the address of a database where a path is wanted."""
    # A file may have a name that looks like an address: what is there is meant.
    if os.path.lexists(given):
        return False
    if is_remote(given):
        return True
    try:
        return is_postgres(given)
    except StoreUnavailable:  # of something that nobody here knows
        return True


def insist(
    where: str, remedy: str = "name it with --store, or set HOLDFAST_STORE"
) -> None:
    """Ends the command unless there is a store at this place."""
    if is_remote(where) or is_postgres(where):
        return
    path = where.removeprefix("sqlite:///")
    if not os.path.exists(path):
        raise Stop(NOT_FOUND, f"There is no store at `{shown(path)}`; {remedy}.")
    # SQLite takes an empty file for a new database: looking would make a store of it.
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise Stop(
            NOT_FOUND,
            f"The file `{shown(path)}` is empty, so there is no store in it; {remedy}.",
        )


def session_of(store: Store, name: str) -> Session:
    """The session that was named: an id, the beginning of one, a key, or `@latest`. `key:KEY` is a
    key, whatever ids begin like it.
    """
    if name == LATEST:
        return _latest(store)
    if name.startswith(KEY):
        key = name.removeprefix(KEY)
        try:
            return store.session(key, create=False)
        except NotFound:
            hint = "`holdfast sessions list` shows the keys there are."
            raise Stop(
                NOT_FOUND, f"The key `{key}` has no session in this store; {hint}"
            ) from None
    # An id is meant before a key: `key:` says that a key is meant, nothing says the other.
    try:
        return store.get(name)
    except NotFound as error:
        candidates = getattr(error, "candidates", ())
    # `create=False`: a key that is misspelt must not become a session.
    with suppress(NotFound):
        return store.session(name, create=False)
    raise _unclear(store, name, candidates)


def _latest(store: Store) -> Session:
    """The session with the newest activity, asked of the log itself (FAULTS C6)."""
    newest = list(store.sessions(limit=1))
    if not newest:
        raise Stop(
            NOT_FOUND, "There is no session in this store yet, so none is the latest."
        )
    return store.get(newest[0].id)


def _unclear(store: Store, name: str, candidates: Any) -> Stop:
    if not candidates:
        hint = "`holdfast sessions list` shows which there are."
        return Stop(
            NOT_FOUND,
            f"No session has the id or the key `{name}` in this store; {hint}",
        )
    lines = []
    for id in candidates:
        # Keys come from outside, and could break the list into lines of their own.
        lines.append(f"  {id}  {one_line(store.get(id).key or '')}".rstrip())
    return _several("sessions", name, lines)


def _several(things: str, name: str, lines: Sequence[str]) -> Stop:
    sentence = f"Several {things} begin with `{name}`; give more of the id:"
    return Stop(NOT_FOUND, sentence, more=tuple(lines))


def message_of(session: Session, name: str) -> Message:
    """The message that was named: by its number, as `sessions show` tells it, its id, or the
    beginning of its id.

    An id begins with a 0 for some centuries to come, a number never does.
    """
    if _is_number(name):
        found = _by_number(session, int(name))
    else:
        found = _by_id(session, name.lower())
    if len(found) == 1:
        return found[0]
    if found:
        lines = [f"  {each.id}  {each.seq} {each.role}" for each in found]
        raise _several("messages", name, lines)
    hint = f"`holdfast sessions show {session.id[:SHORT]}` shows which there are."
    raise Stop(NOT_FOUND, f"There is no message `{name}` in this session; {hint}")


def _is_number(name: str) -> bool:
    # more digits than a seq can have would not fit the database's numbers
    if name.startswith("0") or len(name) >= 19:
        return False
    return name.isascii() and name.isdigit()


def _by_number(session: Session, seq: int) -> list[Message]:
    # The first message from there on: the number may be that of an entry which is no
    # message, and then another one comes.
    near = session.transcript(after=seq - 1, limit=1)
    return [message for message in near if message.seq == seq]


def _by_id(session: Session, beginning: str) -> list[Message]:
    if not beginning:
        return []
    found = []
    for message in session.transcript():
        if message.id.startswith(beginning):
            found.append(message)
    return found[:NEAR]
