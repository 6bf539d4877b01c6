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
    from holdfast.errors import BadArgument
    from holdfast.server.auth import fresh_token, token_line

    for option in ("tenant", "name"):
        given = getattr(options, option)
        if len(given.split()) != 1 and (given or option == "tenant"):
            raise BadArgument(parameter=option, takes="one word", given=repr(given))
    token = fresh_token(RealWorld())
    line = token_line(
        token, tenant=options.tenant, scope=options.scope, name=options.name
    )
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    # Its owner's alone: whoever could write to it could let anybody in.
    with open(os.open(options.file, flags, 0o600), "a", encoding="utf-8") as file:
        file.write(line)
    if out.is_json:
        out.json({"token": token, "tenant": options.tenant, "scope": options.scope})
    else:
        out.line(token)
    return DONE
