"""Addresses of stores: which engine one is for, and what of it may be shown.

A place is a path, `sqlite:///…`, `postgresql://…` or the keywords that PostgreSQL's own tools take (`host=… dbname=…`).
An address can hold a password, however badly it is written: whatever tells somebody of a place tells `shown(place)`.
"""

import os
import re

from holdfast.errors import StoreUnavailable

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//?/?)(.*)", re.DOTALL)
_POSTGRES = ("postgresql", "postgres")
_KEYWORD = re.compile(r"\s*([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'?|\S*)", re.DOTALL)
_KEYWORDS = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "connect_timeout", "options"}
    | {"application_name", "sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "target_session_attrs"}
)
_SECRET = re.compile(r"(?<!\w)(\w*pass(?:word)?)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)", re.IGNORECASE | re.DOTALL)
_CREDENTIALS = re.compile(r"([^/.:\s][^/:\s]*):.*@(.*)", re.DOTALL)


def is_postgres(where: str | os.PathLike[str]) -> bool:
    """Whether a place is an address of PostgreSQL; `StoreUnavailable` when it is one of something else."""
    name = os.fsdecode(where)
    if name.startswith(tuple(f"{scheme}://" for scheme in _POSTGRES)):
        return True
    found = _SCHEME.fullmatch(name)
    is_ours = found is None or found[1].lower() == "sqlite" or (found[2] != "//" and found[1].lower() not in _POSTGRES)
    if not is_ours:
        remedy = "Give a path, or postgresql://user@host/database"
        raise StoreUnavailable(where=shown(name), problem="this kind of address is not known", remedy=remedy)
    return _has_keywords(name)


def shown(where: str | os.PathLike[str]) -> str:
    """A place without the password in it, if there is one."""
    name = _SECRET.sub(r"\1\2***", os.fsdecode(where))
    found = _SCHEME.fullmatch(name)
    if found is not None:
        scheme, slashes, rest = found.groups()
        who, at, host = rest.rpartition("@")
        return f"{scheme}:{slashes}{who.partition(':')[0]}{at}{host}"
    bare = _CREDENTIALS.fullmatch(name)
    return f"{bare[1]}@{bare[2]}" if bare is not None else name


def damage_remedy(where: str | os.PathLike[str]) -> str:
    """What to do about a damaged store at this place: the doctor reads files, a database is checked where it is."""
    if is_postgres(where):
        return "keep a backup of the database, then run `holdfast store check`"
    return "keep a copy, then run `holdfast doctor`"


def _has_keywords(name: str) -> bool:
    found = _KEYWORD.match(name)
    return found is not None and found[1] in _KEYWORDS
