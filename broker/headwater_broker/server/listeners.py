"""Where a broker listens and how clients come in there: Kafka's `listeners` and the properties beside it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater_broker.server.errors import UsageError

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - what Kafka means by an empty host

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(r"([A-Za-z][\w.-]*)://(\[[0-9A-Fa-f:.]+\]|[^:/]*):([0-9]+)")


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One listener.

    Attributes:
        name: Its name, by which clients that came through it are told the brokers' addresses.
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        host: Address to listen on.
        port: Port to listen on, 0 for a free one.
        advertised: Host and port that clients are told; None: where it listens.
        is_advertised: Whether it is told to clients at all.
    """

    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0
    advertised: tuple[str, int] | None = None
    is_advertised: bool = field(default=True)

    @property
    def has_sasl(self) -> bool:
        """Whether clients say who they are by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def has_tls(self) -> bool:
        """Whether the bytes are encrypted."""
        return self.protocol.endswith("SSL")


def parse_listeners(properties: Mapping[str, str]) -> tuple[ListenerSpec, ...]:
    """Reads the listeners, those that clients are told first in the order in which they are told.

    Args:
        properties: `listeners`, and perhaps `advertised.listeners`, `listener.security.protocol.map` and
            `inter.broker.listener.name`; others are passed over.

    Raises:
        UsageError: They make no sense; the message says why.
    """
    protocols = _protocol_map(properties.get("listener.security.protocol.map", ""))
    listening = _addresses(properties, "listeners")
    advertised = _addresses(properties, "advertised.listeners")
    for name in advertised:
        if name not in listening:
            raise UsageError(f"advertised.listeners names {name}, which is not one of listeners")
    between = properties.get("inter.broker.listener.name")
    if between is not None and between.upper() not in (advertised or listening):
        raise UsageError(
            f"inter.broker.listener.name={between} is not one of the listeners that are advertised"
        )
    ports = [(host, port) for host, port in listening.values() if port]
    for address in ports:
        if ports.count(address) > 1:
            raise UsageError(
                f"listeners: port {address[1]} is named twice; each listener has a port of its own"
            )
    specs = []
    for name in [*advertised, *(name for name in listening if name not in advertised)]:
        if name not in protocols:
            raise UsageError(
                f"listener {name}: say its protocol, such as listener.security.protocol.map={name}:SASL_SSL"
            )
        host, port = listening[name]
        public = advertised.get(name)
        if public is not None and (public[0] == ALL_ADDRESSES or not public[1]):
            raise UsageError(
                f"advertised.listeners: {name} needs an address and a port that clients can reach"
            )
        specs.append(
            ListenerSpec(
                name, protocols[name], host, port, public, is_advertised=not advertised or name in advertised
            )
        )
    return tuple(specs)


def _protocol_map(text: str) -> dict[str, str]:
    protocols = {name: name for name in _PROTOCOLS}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = entry.partition(":")
        if protocol.upper() not in _PROTOCOLS:
            raise UsageError(
                f"listener.security.protocol.map: {entry}: write NAME:PROTOCOL with {', '.join(_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def _addresses(properties: Mapping[str, str], name: str) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for entry in filter(None, (part.strip() for part in properties.get(name, "").split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match[3]) > 65535:
            raise UsageError(f"{name}={entry}: write NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
        listener = match[1].upper()
        if listener in addresses:
            raise UsageError(f"{name}: {listener} is named twice")
        addresses[listener] = (match[2].strip("[]") or ALL_ADDRESSES, int(match[3]))
    return addresses
