"""How many connections there may be, and how fast they may come (KIP-402, KIP-612)."""

import socket
from collections import Counter
from collections.abc import Mapping

from headwater_broker.log import Clock
from headwater_broker.security.quotas import Rate
from headwater_broker.server.errors import UsageError
from headwater_broker.server.settings import BrokerSettings

_OVERRIDES = "max.connections.per.ip.overrides"
_ALL = ""  # in place of a listener's name


class ConnectionLimits:
    """Counts the connections of a broker's listeners and addresses, and says which has room for one more.

    As in Kafka, who comes while the broker or its listener is full, or too soon, waits; who has too many
    connections itself is refused.

    Raises:
        UsageError: `max.connections.per.ip.overrides` is malformed.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._clock = clock
        self._per_listener: Counter[str] = Counter()
        self._per_host: Counter[str] = Counter()
        self._rates: dict[str, Rate] = {}
        self.configure(settings)

    def configure(self, settings: BrokerSettings) -> None:
        """Takes new limits from now on."""
        self._settings = settings
        self._overrides = parse_overrides(settings.max_connections_per_ip_overrides)

    @property
    def excess(self) -> int:
        """How many more connections there are than the broker may have."""
        return max(0, self._per_listener.total() - self._settings.max_connections)

    def has_room(self, listener: str) -> bool:
        """Whether there is room for one more connection."""
        limit = int(self._settings.of_listener(listener, "max.connections") or 0)
        is_full = self._per_listener.total() >= self._settings.max_connections
        return not is_full and self._per_listener[listener] < limit

    def wait_s(self, listener: str) -> float:
        """Counts a connection that comes; returns how long it has to wait, a window at most."""
        return max(self._count(name, limit, 1) for name, limit in self._rate_limits(listener))

    def turned_away(self, listener: str) -> None:
        """Takes a connection back that was counted by `wait_s` and not let in."""
        for name, limit in self._rate_limits(listener):
            self._count(name, limit, -1)

    def refusal(self, host: str) -> str | None:
        """Why there is no room for a connection from an address."""
        limit = self._overrides.get(host, self._settings.max_connections_per_ip)
        if self._per_host[host] >= limit:
            return f"max.connections.per.ip={limit} is reached for it"
        return None

    def opened(self, listener: str, host: str) -> None:
        """Counts a connection that was let in."""
        self._per_listener[listener] += 1
        self._per_host[host] += 1

    def closed(self, listener: str, host: str) -> None:
        """Takes one away that has ended."""
        self._per_listener[listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _rate_limits(self, listener: str) -> tuple[tuple[str, int], tuple[str, int]]:
        own = int(self._settings.of_listener(listener, "max.connection.creation.rate") or 0)
        return (_ALL, self._settings.max_connection_creation_rate), (listener, own)

    def _count(self, name: str, limit: int, connections: int) -> float:
        settings = self._settings
        window_s = float(settings.quota_window_size_seconds)
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(settings.quota_window_num, window_s)
        now_s = self._clock.monotonic()
        rate.record(connections, now_s)
        return min(rate.wait_s(limit, now_s), window_s) if limit else window_s


def parse_overrides(text: str) -> Mapping[str, int]:
    """Limits by address, from `host:number,...`; a name stands for all of its addresses.

    Raises:
        UsageError: It is not written like that, or a name has no address.
    """
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, number = entry.rpartition(":")
        if not colon or not number.isascii() or not number.isdigit():
            raise UsageError(f"broker property {_OVERRIDES}: {entry}: write host:number")
        try:
            infos = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UsageError(f"broker property {_OVERRIDES}: {host}: {error.strerror or error}") from error
        for info in infos:
            limits[str(info[4][0])] = int(number)
    return limits
