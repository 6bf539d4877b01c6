"""What the commands share that serve a store: where, and the lines that tell it."""

from collections.abc import Callable
from typing import Any, Literal

from holdfast.cli.output import Output
from holdfast.cli.parser import STORE, STORE_VARIABLE, Parser, default_store
from holdfast.cli.parser import port as port_number


def add_place(parser: Parser, *, tenant: str, port: int) -> None:
    """The store to serve, its tenant, and where to listen."""
    parser.usage = f"{parser.prog} [STORE] [options]"
    place = f"the store, created if there is none (default: ${STORE_VARIABLE}, else {STORE})"
    parser.add_value("store", "STORE", place, nargs="?", default=default_store())
    whose = f"the tenant of {tenant} (default: default)"
    parser.add_value("--tenant", "NAME", whose, default="default")
    parser.add_value(
        "--host", "ADDRESS", "where to listen (default: 127.0.0.1)", default="127.0.0.1"
    )
    where = f"the port; 0 takes a free one (default: {port})"
    parser.add_value("--port", "PORT", where, default=port, type=port_number)


def add_log(parser: Parser) -> None:
    """How it logs."""
    how = "text, or json: an object a line, on stderr (default: text)"
    parser.add_value("--log", "FORM", how, choices=("text", "json"), default="text")


def add_otel(parser: Parser) -> None:
    """Whether it is traced."""
    what = "tell OpenTelemetry of requests and turns; start it with opentelemetry-instrument"
    parser.add_switch("--otel", what)
    parser.add_switch("--otel-content", "the same, with what was said")


def otel_form(options: Any) -> Literal["off", "spans", "content"]:
    """As it was asked for."""
    if options.otel_content:
        return "content"
    return "spans" if options.otel else "off"


def telling(
    out: Output, what: str, token_is: str, *, has_page: bool = False
) -> Callable[[str, str | None], None]:
    """Tells, as soon as it serves, the address and the token if one was made; and where its page is,
    if it has one.
    """

    def tell(address: str, token: str | None) -> None:
        if out.is_json:
            out.json({"address": address, "token": token})
            return
        out.line(f"Serving {what} at {address}")
        if token is not None:
            out.line(f"{token_is}: {token}")
        if has_page:
            # Behind `#`: that part of an address is sent to nobody, and so is in no log.
            out.line(f"Page: {address}/" + (f"#token={token}" if token else ""))
        # Whoever started this may be waiting for these lines on a pipe.
        out.flush()

    return tell
