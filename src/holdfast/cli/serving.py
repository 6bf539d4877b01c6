"""What the commands share that serve a store: where, and the lines that tell it."""

from collections.abc import Callable

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


def telling(out: Output, what: str, token_is: str) -> Callable[[str, str | None], None]:
    """Tells, as soon as it serves, the address and the token if one was made."""

    def tell(address: str, token: str | None) -> None:
        if out.is_json:
            out.json({"address": address, "token": token})
            return
        out.line(f"Serving {what} at {address}")
        if token is not None:
            out.line(f"{token_is}: {token}")
        # Whoever started this may be waiting for these lines on a pipe.
        out.flush()

    return tell
