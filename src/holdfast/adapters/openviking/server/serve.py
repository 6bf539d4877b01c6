"""Serving: the address, the tokens, and the server's life from its start to its end."""

import base64
import os
import re
import socket
import stat
from collections.abc import Callable

import uvicorn

from holdfast.adapters.openviking.server.app import Tokens, app
from holdfast.adapters.openviking.server.extraction import Extraction
from holdfast.adapters.openviking.server.extractor import LIMIT_S, Extractor
from holdfast.adapters.openviking.server.service import Service
from holdfast.adapters.openviking.server.sessions.directory import Directory, Requester
from holdfast.errors import BadArgument
from holdfast.runtime.clock import World
from holdfast.runtime.open_store import open_at
from holdfast.server.serving.listening import (
    address_of,
    insist_on_loopback,
    listening,
)

HOST, PORT = "127.0.0.1", 1933
"""Where OpenViking's own server listens, and its clients look, unless told otherwise."""
GRACE_S = 5
"""For so long, requests that are under way when the process is told to end may go on."""
TOKEN_BYTES = 24
TOKEN_MIN = 16
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,128}")


def serve(
    where: str,
    *,
    tenant: str = "default",
    host: str = HOST,
    port: int = PORT,
    tokens: Tokens | None = None,
    extractor: Extractor | None = None,
    extract_s: float = LIMIT_S,
    tell: Callable[[str, str | None], None],
) -> None:
    """Serves the store at `where` until the process is told to end. `tell` is called with the
    address once it is served, and with the token if it was made here. An extractor has `extract_s`
    seconds for an archive.

    Without `tokens`, a fresh one is made; an address that other machines can reach needs some.
    """
    insist_on_loopback(host, tokens)
    store = open_at(where, tenant=tenant)
    # Closed however this ends: others may be waiting for its locks.
    try:
        made = None
        if tokens is None:
            made = fresh_token(store.world)
            tokens = {made: Requester()}
        with listening(host, port) as listener:
            address = address_of(listener, host)
            directory, extraction = Directory(store), None
            if extractor is not None:
                extraction = Extraction(
                    directory, extractor, store.world, limit_s=extract_s
                )
            service = Service(directory, extraction, store.world)
            _run(
                service,
                extraction,
                tokens,
                listener,
                lambda: tell(address, made),
            )
    finally:
        store.close()


def _run(
    service: Service,
    extraction: Extraction | None,
    tokens: Tokens,
    listener: socket.socket,
    ready: Callable[[], None],
) -> None:
    if extraction is not None:
        extraction.start(tokens.values())
    # Nothing below a warning, and no line for a request: addresses name sessions.
    config = uvicorn.Config(
        app(service, tokens),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_S,
    )
    # The socket listens already: whoever is told now is answered, if a moment later.
    ready()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        if extraction is not None:
            extraction.stop()


def fresh_token(world: World) -> str:
    """A token that nobody can guess."""
    return base64.urlsafe_b64encode(world.chance(TOKEN_BYTES)).decode()


def tokens_in(path: str) -> Tokens:
    """The tokens in a file, one to a line, each with the account and the user that it is for; a
    token alone is for the default user. Lines that begin with # are left out.
    """
    # A key that others can read is no secret, whoever made the file so.
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        takes = "a file that only its owner can read (chmod 600)"
        raise BadArgument(
            parameter="token-file",
            takes=takes,
            given=path,
        )
    found: dict[str, Requester] = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            token, *owner = words
            # Twice the same key would be two people's.
            if len(token) < TOKEN_MIN or len(owner) not in (0, 2) or token in found:
                raise _bad_line(path, number)
            if not all(_NAME.fullmatch(name) for name in owner):
                raise _bad_line(path, number)
            found[token] = Requester(*owner)
    if not found:
        raise BadArgument(
            parameter="token-file",
            takes="some tokens",
            given="none",
        )
    return found


def _bad_line(path: str, number: int) -> BadArgument:
    # Not the line itself: it has a token in it.
    takes = f"lines of a token ({TOKEN_MIN} letters or more), or a token, an account and a user"
    given = f"line {number} of {path}"
    return BadArgument(
        parameter="token-file",
        takes=takes,
        given=given,
    )
