"""`holdfast proxy`: between a client of a provider's API and the provider, recording both."""

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
    add_place(parser, tenant="what is stored", port=8643)
    parser.usage = f"{parser.prog} --upstream URL [STORE] [options]"
    where = "the provider, such as https://api.openai.com or https://api.anthropic.com"
    parser.add_value("--upstream", "URL", where, required=True)
    tokens = "a file of tokens, as `holdfast token` writes it; clients give one as Holdfast-Token"
    parser.add_value("--tokens", "FILE", tokens)
    most = "how large a request may be, in megabytes (default: 64)"
    parser.add_value("--body-max", "MB", most, default=64, type=whole_number)
    stop = "read no more of an answer whose client has gone"
    parser.add_switch("--stop-with-client", stop)
    add_log(parser)
    add_otel(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Pass requests on to a provider of models, and record both sides.

    It speaks what the provider speaks: OpenAI's /v1/chat/completions and /v1/responses, Anthropic's /v1/messages,
    streamed or not, byte for byte. Point an agent's base URL at it, and its conversations are in the store: what was
    asked before the provider is asked, what was answered before the client sees it. Everything else under the address
    passes as it is.

    The session is the one that the header Holdfast-Session names, or that the client names itself, or the one whose
    list the request goes on with. The provider's key is passed on and never stored. An answer goes on being stored
    when its client has gone.

    It listens on 127.0.0.1. An address that other machines can reach needs --tokens.

    With --json, one object as soon as it listens: `address`.
    """
    insist_on_store_itself(options.store)
    # Loaded here: what it is built on takes longer to load than most commands take in all.
    from holdfast.server.proxy.app import ProxySettings
    from holdfast.server.proxy.serve import ProxyPlace, serve
    from holdfast.server.serving.token_file import TokenFile

    tokens = None if options.tokens is None else TokenFile(options.tokens)
    settings = ProxySettings(
        upstream=options.upstream,
        tenant=options.tenant,
        tokens=tokens,
        bytes_max=options.body_max * MEGABYTE,
        stop_with_client=options.stop_with_client,
    )
    place = ProxyPlace(
        store=options.store,
        settings=settings,
        host=options.host,
        port=options.port,
        log=options.log,
        otel=otel_form(options),
    )
    serve(
        place, telling(out, f"a proxy that records in {shown(options.store)}", "Token")
    )
    return DONE
