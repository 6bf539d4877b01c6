"""Whom a client believes to be the server that it means: what its certificate is held against."""

import os
import ssl
from urllib.parse import SplitResult

from holdfast.engine.address import Place, shown
from holdfast.errors import BadArgument


def trusted(parts: SplitResult, ca: Place | None) -> ssl.SSLContext | None:
    """The authorities that are believed: those of the file `ca` and no others, or without one those
    of this machine; None for an address without encryption.
    """
    if parts.scheme != "https":
        if ca is not None:
            takes = "nothing for a store that is not at https://…"
            raise BadArgument(parameter="ca", takes=takes, given=shown(ca))
        return None
    try:
        # One for all connections: it takes longer to load than a request takes.
        return ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
    # One that is not there, or holds something else.
    except OSError as error:
        takes = "a file of certificates in PEM"
        given = f"{shown(ca or '')} ({error.strerror or type(error).__name__})"
        raise BadArgument(parameter="ca", takes=takes, given=given) from None
