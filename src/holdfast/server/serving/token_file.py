"""The file of tokens: a line for each, with its digest, its tenant, its scope and, if one likes, a
name for people.

Whoever reads the file can't use the tokens: it has their digests alone. Whoever can write it can
let anybody in, so it is its owner's. It is read again when it has changed, and what it says then is
all that counts: who is not in it is not let in, whatever else is wrong with it.
"""

import logging
import os
import stat
import threading

from holdfast.domain.arguments import name
from holdfast.errors import BadArgument
from holdfast.runtime.border import RULES
from holdfast.runtime.clock import RealWorld, World
from holdfast.server.auth import SCOPES, Identity, Tokens, digest_of, identity

AWAY_S = 1.0
"""For so long, those who were let in still are when the file is not there or can't be read: some
editors take a file away for a moment when they save it.
"""
_NAME = name("a word for people")
_log = logging.getLogger("holdfast.server")


def token_line(token: str, *, tenant: str, scope: str, name: str) -> str:
    """The line that lets this token in, which is read as exactly what is given here."""
    _word("tenant", RULES["tenant"]("tenant", tenant))
    if name:
        _word("name", _NAME("name", name))
    return " ".join(filter(None, (digest_of(token), tenant, scope, name))) + "\n"


def _word(parameter: str, word: str) -> None:
    """Raises unless this is one word of a line: white space of any script divides words."""
    # Compared, not counted: around a word, white space would be lost, and this be another one.
    if word.split() != [word]:
        takes = "one word, without white space"
        raise BadArgument(parameter=parameter, takes=takes, given=repr(word))


class TokenFile(Tokens):
    """Tokens in a file, which is read again when it has changed: one that is taken out is refused
    from then on.

    A server does not start with a file that lets nobody in, or has a line that can't be read. Once
    it runs, such a line lets nobody in, and all others count; it is told in the log.
    """

    def __init__(self, path: str, *, world: World | None = None) -> None:
        self._path = path
        self._tick = (world or RealWorld()).tick
        self._lock = threading.Lock()
        self._is_away = False
        self._fine_at = self._tick()
        """When the file was last looked at and could be read."""
        self._version = 0
        self._seen: tuple[int, ...] | None = _mark(path)
        found, unread = _read(path)
        if unread:
            raise _bad_line(path, unread[0])
        if not found:
            raise BadArgument(parameter="tokens", takes="some tokens", given="none")
        super().__init__(found)

    def identity(self, token: str) -> Identity | None:
        with self._lock:
            self._look()
        return super().identity(token)

    def version(self) -> int:
        with self._lock:
            self._look()
            return self._version

    def _look(self) -> None:
        try:
            mark = _mark(self._path)
            if mark == self._seen:
                self._fine_at = self._tick()
                return
            known, unread = _read(self._path)
        except (OSError, BadArgument) as error:
            self._away(error)
            return
        self._let_in(known)
        self._seen, self._is_away = mark, False
        self._fine_at = self._tick()
        if unread:
            # Not the lines themselves: somebody may have put a token there.
            lines = ", ".join(map(str, unread))
            _log.warning(
                "%s: line %s can't be read and lets nobody in", self._path, lines
            )

    def _away(self, error: Exception) -> None:
        """The file can't be read: after a moment, nobody is let in."""
        if not self._is_away:
            self._is_away = True
            # It is read again when it is back, even if it looks as it did.
            self._seen = None
            _log.warning("%s can't be read and lets nobody in: %s", self._path, error)
        # Since it was fine, not since it was missed: nobody may have looked for hours.
        if self._tick() - self._fine_at >= AWAY_S:
            self._let_in({})

    def _let_in(self, known: dict[str, Identity]) -> None:
        """These, and nobody else."""
        if known != self._known:
            self._known = known
            self._version += 1


def _mark(path: str) -> tuple[int, ...]:
    told = os.stat(path)
    # The time of the last change too: others may have been allowed to write to it.
    return told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino


def _read(path: str) -> tuple[dict[str, Identity], list[int]]:
    """Whom the file lets in, by digests, and the numbers of lines that can't be read. Lines that
    begin with # are left out.
    """
    if stat.S_IMODE(os.stat(path).st_mode) & 0o022:
        takes = "a file that only its owner can write (chmod go-w)"
        raise BadArgument(parameter="tokens", takes=takes, given=path)
    found: dict[str, Identity] = {}
    unread = []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            words = line.split(maxsplit=3)
            if not words or words[0].startswith("#"):
                continue
            who = _who(words)
            if who is None:
                unread.append(number)
            else:
                found[words[0]] = who
    return found, unread


def _who(words: list[str]) -> Identity | None:
    """Whom a line lets in, if it can be read."""
    digest, *owner = words
    is_digest = digest.startswith("sha256:") and len(digest) == 71
    if not is_digest or len(owner) < 2 or owner[1] not in SCOPES:
        return None
    try:
        tenant = RULES["tenant"]("tenant", owner[0])
    except BadArgument:  # no store has such a tenant
        return None
    return identity(tenant, owner[1], "".join(owner[2:]).strip())


def _bad_line(path: str, number: int) -> BadArgument:
    # Not the line itself: somebody may have put a token there instead of its digest.
    takes = "lines of `sha256:…`, a tenant, and a scope (read, write or admin)"
    given = f"line {number} of {path}"
    return BadArgument(parameter="tokens", takes=takes, given=given)
