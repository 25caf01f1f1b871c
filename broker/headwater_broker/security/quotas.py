"""Client quotas: which limit holds for whom, and how fast somebody has been of late.

Kafka's rules: the most specific entry counts (`ClientQuotaManager`), a rate is measured over `samples` windows of
which the last one is not over yet, and whoever is too fast waits until the rate is down again (`QuotaUtils`).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType

from headwater_broker.numbers import parse_decimal


class Quota(Enum):
    """A limit; the value is the name of its setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


QUOTAS: Mapping[str, bool] = MappingProxyType(
    {
        Quota.PRODUCE.value: True,
        Quota.FETCH.value: True,
        Quota.REQUEST.value: False,
        Quota.MUTATION.value: False,
    }
)
"""Settings of users and clients; True for those that are whole numbers."""

LONGEST_WAIT_S = (2**31 - 1) / 1000
"""What an answer can say at most: its milliseconds are an int32."""

CONNECTION_RATE = "connection_creation_rate"
"""The setting of how many connections a second an address may make."""

IP_QUOTAS: Mapping[str, bool] = MappingProxyType({CONNECTION_RATE: True})
"""Settings of addresses."""

DEFAULT = "<default>"
"""Stands for whoever has no quotas of their own."""

Name = tuple[str | None, str | None]
"""User and client id, None where an entry is not about one."""


def limits_of(values: Mapping[str, str], quotas: Mapping[str, bool]) -> Iterator[tuple[str, float]]:
    """The limits among the settings of an entity, as they are kept; what is no number is passed over."""
    for key in sorted(quotas.keys() & values.keys()):
        try:
            yield key, parse_decimal(values[key])
        except ValueError:
            continue


class QuotaTable:
    """Limits by user and client id.

    Attributes:
        is_empty: Whether nobody is limited.
    """

    def __init__(self, entries: Mapping[Name, Mapping[str, str]]) -> None:
        """Takes the entries as they are kept; what is no number is passed over."""
        self._limits: dict[Quota, dict[Name, float]] = {}
        for name, values in entries.items():
            for key, limit in limits_of(values, QUOTAS):
                self._limits.setdefault(Quota(key), {})[name] = limit
        self.is_empty = not self._limits

    def limits(self, quota: Quota) -> bool:
        """Whether there is any limit of a kind."""
        return quota in self._limits

    def find(self, quota: Quota, user: str, client_id: str) -> tuple[float, Name] | None:
        """The limit that holds, and who shares it; None for no limit."""
        limits = self._limits.get(quota)
        if not limits:
            return None
        for name, shared_by in (
            ((user, client_id), (user, client_id)),
            ((user, DEFAULT), (user, client_id)),
            ((user, None), (user, None)),
            ((DEFAULT, client_id), (user, client_id)),
            ((DEFAULT, DEFAULT), (user, client_id)),
            ((DEFAULT, None), (user, None)),
            ((None, client_id), (None, client_id)),
            ((None, DEFAULT), (None, client_id)),
        ):
            if name in limits:
                return limits[name], shared_by
        return None


class Rate:
    """How much somebody used of late, in windows of time."""

    def __init__(self, samples: int, window_s: float) -> None:
        self._samples = samples
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()  # start, sum

    def record(self, amount: float, now_s: float) -> None:
        """Adds what was used now; a negative amount takes it back."""
        if not self._windows or now_s - self._windows[-1][0] >= self._window_s:
            self._windows.append([now_s, 0.0])
        self._windows[-1][1] += amount

    def wait_s(self, limit: float, now_s: float) -> float:
        """How long to wait until the rate is down to the limit; 0 where it is not above.

        As Kafka's `Rate` counts it, the time that the rate is over is at least all windows but one, so that a
        first burst may be as large as a full quota.
        """
        oldest_s = now_s - self._samples * self._window_s
        while self._windows and self._windows[0][0] <= oldest_s:
            self._windows.popleft()
        if not self._windows:
            return 0.0
        total = sum(amount for _, amount in self._windows)
        elapsed_s = now_s - self._windows[0][0]
        full_windows = int(elapsed_s / self._window_s)
        least = self._samples - 1
        if full_windows < least:
            elapsed_s += (least - full_windows) * self._window_s
        elapsed_s = max(elapsed_s, self._window_s)
        over = total / elapsed_s - limit
        return _wait_s(over * elapsed_s, limit) if over > 0 else 0.0


class TokenBucket:
    """Credit that grows with time up to a full quota, for changes to topics (KIP-599)."""

    def __init__(self, samples: int, window_s: float) -> None:
        self._burst_s = samples * window_s
        self._tokens: float | None = None
        self._last_s = 0.0

    def wait_s(self, limit: float, now_s: float) -> float:
        """How long to wait until there is credit again; 0 where there is some."""
        burst = self._burst_s * limit
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + (now_s - self._last_s) * limit)
        self._last_s = now_s
        return _wait_s(-self._tokens, limit) if self._tokens < 0 else 0.0

    def take(self, amount: float) -> None:
        """Uses credit; it may go below nothing."""
        assert self._tokens is not None, "ask how long to wait first"
        self._tokens -= amount


def _wait_s(amount: float, limit: float) -> float:
    """How long it takes until an amount is made up for; a limit may be next to nothing."""
    return amount / limit if amount < limit * LONGEST_WAIT_S else LONGEST_WAIT_S
