"""Addresses of stores: which engine one is for, and what of it may be shown.

A place is a path, `sqlite:///…`, `postgresql://…`, the keywords that PostgreSQL's own tools take
(`host=… dbname=…`), or `http://…` of a server that has the store. An address can hold a password,
however badly it is written: whatever tells somebody of a place tells `shown(place)`.
"""

import os
import re
from typing import TYPE_CHECKING

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:  # for those who ask a server: a path needs nothing of it
    from urllib.parse import SplitResult

Place = str | os.PathLike[str]

# Patterns are text here, and compiled when they are first needed: a path needs none of
# them.
_SCHEME = r"(?s)([A-Za-z][A-Za-z0-9+.-]*):(//?/?)(.*)"
_POSTGRES = ("postgresql", "postgres")
_KEYWORD = r"(?s)\s*([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'?|\S*)"
_KEYWORDS = frozenset(
    {
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "service",
        "connect_timeout",
        "options",
    }
    | {
        "application_name",
        "sslmode",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslrootcert",
        "target_session_attrs",
    }
)
_SECRET = r"(?is)(?<!\w)(\w*pass(?:word)?)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)"
_CREDENTIALS = r"(?s)([^/.:\s][^/:\s]*):.*@(.*)"


def is_postgres(where: Place) -> bool:
    """Whether a place is an address of PostgreSQL; `StoreUnavailable` when it is one of something
    else.
    """
    name = os.fsdecode(where)
    # the usual ways to write an address, without a pattern
    if name.startswith(tuple(f"{scheme}://" for scheme in _POSTGRES)):
        return True
    if ":" not in name and "=" not in name:
        return False
    found = re.fullmatch(_SCHEME, name)
    is_ours = (
        found is None
        or found[1].lower() == "sqlite"
        or (found[2] != "//" and found[1].lower() not in _POSTGRES)
    )
    if not is_ours:
        remedy = "Give a path, or postgresql://user@host/database"
        raise StoreUnavailable(
            where=shown(name),
            problem="this kind of address is not known",
            remedy=remedy,
        )
    return _has_keywords(name)


def is_remote(where: Place) -> bool:
    """Whether a place is the address of a server that has the store."""
    name = os.fsdecode(where)
    return name[:8].lower().startswith(("http://", "https://"))


def remote_parts(where: Place) -> "SplitResult":
    """The parts of a server's address; `StoreUnavailable` when no request can be sent there."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(os.fsdecode(where))
        # Looked at here: a port that is none is noticed when it is asked for.
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        problem = "this is no address that can be asked"
    elif "@" in parts.netloc or parts.query or parts.fragment:
        # A secret in an address is written into logs; this one would not be used at all.
        problem = (
            "an address of a server has a host, a port and a path, and nothing else"
        )
    else:
        return parts
    remedy = "Give http://host:port, and the token as `token`"
    raise StoreUnavailable(where=shown(where), problem=problem, remedy=remedy)


def shown(where: Place) -> str:
    """A place without the password in it, if there is one."""
    name = os.fsdecode(where)
    if ":" not in name and "=" not in name:
        return name
    # first: a password may stand in a query or in keywords, too, where the parts below
    # do not look
    name = re.sub(_SECRET, r"\1\2***", name)
    found = re.fullmatch(_SCHEME, name)
    if found is not None:
        scheme, slashes, rest = found.groups()
        who, at, host = rest.rpartition("@")
        return f"{scheme}:{slashes}{who.partition(':')[0]}{at}{host}"
    bare = re.fullmatch(_CREDENTIALS, name)
    return f"{bare[1]}@{bare[2]}" if bare is not None else name


def damage_remedy(where: Place) -> str:
    """What to do about a damaged store at this place: the doctor reads files, a database is checked
    where it is.
    """
    if is_remote(where):
        return "ask whoever runs the server to run `holdfast store check`"
    if is_postgres(where):
        return "keep a backup of the database, then run `holdfast store check`"
    return "keep a copy, then run `holdfast doctor`"


def _has_keywords(name: str) -> bool:
    found = re.match(_KEYWORD, name)
    return found is not None and found[1] in _KEYWORDS
