"""Questions about TCP ports and addresses of this machine and others."""

import socket
from contextlib import closing

from headwater_broker.numbers import is_natural


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    return refusal(host, port) is None


def refusal(host: str, port: int) -> OSError | None:
    """Why a server could not listen there now; None if it could.

    SO_REUSEADDR as servers set it: connections of an earlier server that are still in TIME_WAIT do not count.
    """
    with closing(socket.socket(_family(host), socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
        return None


def free_port(host: str) -> int:
    """A port that was free a moment ago."""
    with closing(socket.socket(_family(host), socket.SOCK_STREAM)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`.

    Raises:
        ValueError: If it is not of that form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not is_natural(port) or int(port) > 65535:
        raise ValueError(address)
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def accepts_connections(host: str, port: int, timeout_s: float) -> bool:
    """Whether something accepts a TCP connection there."""
    try:
        with closing(socket.create_connection((host, port), timeout_s)):
            return True
    except OSError:
        return False


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
