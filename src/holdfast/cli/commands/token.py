"""`holdfast token`: a new token for `holdfast serve`."""

import os
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.runtime.clock import RealWorld


def options(parser: Parser) -> None:
    parser.add_value("file", "FILE", "the file of tokens; made if there is none")
    parser.add_value(
        "--tenant",
        "NAME",
        "whose sessions it is for (default: default)",
        default="default",
    )
    scope = "what may be done with it: read, write or admin (default: write)"
    parser.add_value(
        "--scope", "SCOPE", scope, default="write", choices=("read", "write", "admin")
    )
    parser.add_value(
        "--name", "NAME", "a word for people, kept in the file", default=""
    )
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Make a token for `holdfast serve --tokens FILE`, and add it to that file.

    The token is printed, once: the file has only its digest. A server that uses the file knows the token from its next
    request on. To take a token back, delete its line.
    """
    from holdfast.server.auth import fresh_token
    from holdfast.server.serving.token_file import token_line

    token = fresh_token(RealWorld())
    line = token_line(
        token, tenant=options.tenant, scope=options.scope, name=options.name
    )
    _add(options.file, line)
    if out.is_json:
        out.json({"token": token, "tenant": options.tenant, "scope": options.scope})
    else:
        out.line(token)
    return DONE


def _add(path: str, line: str) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    # Its owner's alone: whoever could write to it could let anybody in.
    with open(os.open(path, flags, 0o600), "a+b") as file:
        # An editor may have left the last line without its end.
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        begun = b"" if file.read() in (b"", b"\n") else b"\n"
        file.write(begun + line.encode())
