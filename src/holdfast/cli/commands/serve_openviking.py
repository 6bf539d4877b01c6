"""`holdfast serve-openviking`: the session endpoints of OpenViking, from a Holdfast store."""

import argparse
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, count
from holdfast.cli.serving import add_place, telling
from holdfast.cli.targets import insist_on_store_itself
from holdfast.engine.address import shown

DAY_S = 86_400


def options(parser: Parser) -> None:
    add_place(parser, tenant="OpenViking's default user", port=1933)
    tokens = (
        "a file of API keys with their users; without it, a key is made and printed"
    )
    parser.add_value("--token-file", "PATH", tokens)
    extract = "what makes overviews of archives: an address, or a Python function as module:name"
    parser.add_value("--extract", "WHAT", extract)
    limit = "how long it may take over one archive; 300 unless you say otherwise"
    parser.add_value("--extract-timeout", "SECONDS", limit, default=300, type=_seconds)
    parser.add_json()


def _seconds(text: str) -> int:
    seconds = count(text)
    if seconds > DAY_S:
        raise argparse.ArgumentTypeError(f"it is {DAY_S} at most, a day")
    return seconds


def run(options: Any, out: Output) -> int:
    """Serve the session endpoints that OpenViking's clients use, from a Holdfast store.

    Sessions, messages, commits, contexts, archives, tool results and tasks. A commit is one entry of the log. With
    --extract, what is archived stays in the context until an overview was made of it; an extraction that fails, or
    takes longer than --extract-timeout, is tried again. Without it, a commit takes the messages out of the context at
    once, as OpenViking does when its working memory is off; the archive has them.

    A line of --token-file is a key, or a key, an account and a user; the file must be its owner's alone. An address
    that other machines can reach needs that file.

    With --json, one object as soon as it serves: `address`, and `token` if one was made.
    """
    insist_on_store_itself(options.store)
    # Loaded here: what it is built on takes longer to load than most commands take in all.
    from holdfast.adapters.openviking.server.extractor import extractor_at
    from holdfast.adapters.openviking.server.serve import serve, tokens_in

    tokens = None
    if options.token_file is not None:
        tokens = tokens_in(options.token_file)
    extractor = None
    if options.extract is not None:
        extractor = extractor_at(options.extract, limit_s=options.extract_timeout)
    serve(
        options.store,
        tenant=options.tenant,
        host=options.host,
        port=options.port,
        tokens=tokens,
        extractor=extractor,
        extract_s=options.extract_timeout,
        tell=telling(out, f"{shown(options.store)} to OpenViking's clients", "API key"),
    )
    return DONE
