"""`holdfast serve`: a store over HTTP."""

from argparse import ArgumentTypeError
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, whole_number
from holdfast.cli.serving import (
    add_log,
    add_otel,
    add_place,
    otel_form,
    telling,
)
from holdfast.cli.targets import insist_on_store_itself
from holdfast.engine.address import shown

MEGABYTE = 1 << 20


def options(parser: Parser) -> None:
    add_place(parser, tenant="the token that is made", port=8642)
    tokens = "a file of tokens, as `holdfast token` writes it; without it, one is made and printed"
    parser.add_value("--tokens", "FILE", tokens)
    most = "how large a request may be, in megabytes (default: 16)"
    parser.add_value("--body-max", "MB", most, default=16, type=whole_number)
    rate = "requests a second from one sender (default: as many as come)"
    parser.add_value("--rate", "N", rate, default=0.0, type=_rate)
    parser.add_switch("--read-only", "serve nothing that writes")
    add_log(parser)
    add_otel(parser)
    parser.add_json()


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 < number < 1e9:
        raise ArgumentTypeError(f"`{text}` is not a number of requests")
    return number


def run(options: Any, out: Output) -> int:
    """Serve a store over HTTP, to agents in any language, and show its sessions on a page.

    Sessions, turns, inbox, outbox, transcripts, contexts and search, as docs/PROTOCOL.md says. It listens on 127.0.0.1
    and prints a token, which may do everything in one tenant. An address that other machines can reach needs --tokens:
    a file with one line for each token, its digest, tenant and scope. `holdfast token FILE` adds one; a line that is
    taken out counts no more, at once.

    The page shows what the user saw, what the model will be sent and what is stored, side by side. Its address is
    printed, with the token in the part that browsers send to nobody.

    With --json, one object as soon as it serves: `address`, and `token` if one was made.
    """
    insist_on_store_itself(options.store)
    # Loaded here: what it is built on takes longer to load than most commands take in all.
    from holdfast.server.serving.serve import ServedPlace, serve
    from holdfast.server.serving.token_file import TokenFile

    tokens = None if options.tokens is None else TokenFile(options.tokens)
    place = ServedPlace(
        store=options.store,
        tenant=options.tenant,
        read_only=options.read_only,
        host=options.host,
        port=options.port,
        tokens=tokens,
        bytes_max=options.body_max * MEGABYTE,
        rate=options.rate,
        log=options.log,
        otel=otel_form(options),
    )
    serve(place, telling(out, shown(options.store), "Token", has_page=True))
    return DONE
