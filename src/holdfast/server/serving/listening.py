"""An address to listen at, and whether others than this machine can reach it."""

import errno
import ipaddress
import socket

from holdfast.errors import BadArgument


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; 0 is a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its name: asyncio sends small pieces at once only where it sees that it is TCP, and else
    # every answer waits for the client's next acknowledgement, 40 ms.
    listener = socket.socket(family, proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Before anybody is told of it: whoever hears of the address can connect.
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            takes, given = f"a port that is free on {host}", f"{port}, which is in use"
            raise BadArgument(parameter="port", takes=takes, given=given) from None
        given = f"{host} and {port} ({error.strerror})"
        takes = "an address and a port that can be listened on"
        raise BadArgument(parameter="host", takes=takes, given=given) from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """The address as clients write it."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def insist_on_loopback(host: str, tokens: object | None) -> None:
    """`BadArgument` for an address that others can reach, unless tokens say who may."""
    if tokens is None and not is_loopback(host):
        takes = "a loopback address, unless there is a file of tokens"
        raise BadArgument(parameter="host", takes=takes, given=host)
