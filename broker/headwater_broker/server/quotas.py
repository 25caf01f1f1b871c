"""Client quotas at work: what each request used is counted, and whoever is too fast is answered so and made to wait.

While no quota is set, the core has no meter.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ConfigKind
from headwater_broker.coordination.model import split_user_client
from headwater_broker.log import Clock
from headwater_broker.security.quotas import (
    DEFAULT,
    IP_QUOTAS,
    Name,
    Quota,
    QuotaTable,
    Rate,
    TokenBucket,
    limits_of,
)
from headwater_broker.server.connection import Connection, Deferred, Part
from headwater_broker.server.errors import ApiError
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.wire import APIS, RequestHeader
from headwater_broker.wire.apis import FETCH, PRODUCE
from headwater_broker.wire.fetch import encode_fetch_response

_INT = Struct(">i")
_FRAME_START_BYTES = 8  # length prefix, correlation id
_MOST_ENTRIES = 10_000
_LONGEST_NAME_CHARS = 256
"""A longer client id is replaced by its digest: one may have 32 kB, which would be held for each client."""

Configs = Mapping[ConfigKind, Mapping[str, Mapping[str, str]]]


class Timers(Protocol):
    """What is needed of the loop."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        """Calls back after `delay` seconds."""


class Quotas:
    """The limits, and how fast everybody has been of late."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.table = QuotaTable({})
        self._clock = clock
        self._samples = settings.quota_window_num
        self._window_s = float(settings.quota_window_size_seconds)
        self._mutation_samples = settings.controller_quota_window_num
        self._mutation_window_s = float(settings.controller_quota_window_size_seconds)
        self._rates: dict[tuple[Quota, Name], Rate] = {}
        self._buckets: dict[Name, TokenBucket] = {}
        self._connection_limits: dict[str, float] = {}
        self._connection_rates: dict[str, Rate] = {}

    def replace(self, configs: Configs) -> None:
        """Takes the limits that hold from now on; what was used of late still counts."""
        entries: dict[Name, Mapping[str, str]] = {}
        for user, values in configs[ConfigKind.USER].items():
            entries[user, None] = values
        for client_id, values in configs[ConfigKind.CLIENT].items():
            entries[None, client_id] = values
        for name, values in configs[ConfigKind.USER_CLIENT].items():
            entries[split_user_client(name)] = values
        self.table = QuotaTable(entries)
        self._connection_limits = {
            host: limit
            for host, values in configs[ConfigKind.IP].items()
            for _, limit in limits_of(values, IP_QUOTAS)
        }

    def connected(self, host: str) -> float:
        """Counts a connection from an address; returns how many seconds too early it came.

        One that came too early does not count: it is not let in.
        """
        limits = self._connection_limits
        if not limits:
            return 0.0
        limit = limits.get(host, limits.get(DEFAULT))
        if limit is None:
            return 0.0
        rate = self._connection_rates.get(host)
        if rate is None:
            if len(self._connection_rates) >= _MOST_ENTRIES:
                self._connection_rates.clear()
            rate = self._connection_rates[host] = Rate(self._samples, self._window_s)
        now_s = self._clock.monotonic()
        rate.record(1, now_s)
        wait_s = rate.wait_s(limit, now_s)
        if wait_s > 0:
            rate.record(-1, now_s)
        return wait_s

    def record(self, quota: Quota, user: str, client_id: str, amount: float) -> float:
        """Counts what somebody used; returns how many seconds to wait for that."""
        match = self.table.find(quota, user, client_id)
        if match is None:
            return 0.0
        limit, name = match[0], _brief(match[1])
        rate = self._rates.get((quota, name))
        if rate is None:
            if len(self._rates) >= _MOST_ENTRIES:
                self._rates.clear()
            rate = self._rates[quota, name] = Rate(self._samples, self._window_s)
        now_s = self._clock.monotonic()
        rate.record(amount, now_s)
        wait_s = rate.wait_s(limit, now_s)
        # KIP-124: nobody waits longer than a window for the time that requests took.
        return min(wait_s, self._window_s) if quota is Quota.REQUEST else wait_s

    def take_back(self, quota: Quota, user: str, client_id: str, amount: float) -> None:
        """Counts less, where what was counted was not given after all."""
        self.record(quota, user, client_id, -amount)

    def mutation(self, connection: Connection, client_id: str, *, is_strict: bool) -> "MutationQuota":
        """The account of one request that changes topics."""
        user = connection.principal.name
        match = self.table.find(Quota.MUTATION, user, client_id)
        if match is None:
            return MutationQuota(None, 0.0, self._clock, is_strict=is_strict)
        limit, name = match[0], _brief(match[1])
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _MOST_ENTRIES:
                self._buckets.clear()
            bucket = self._buckets[name] = TokenBucket(self._mutation_samples, self._mutation_window_s)
        return MutationQuota(bucket, limit, self._clock, is_strict=is_strict)


class MutationQuota:
    """Pays for partitions that a request creates or deletes (KIP-599)."""

    def __init__(self, bucket: TokenBucket | None, limit: float, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._clock = clock
        self._is_strict = is_strict

    @property
    def throttle_ms(self) -> int:
        """How long the client is to wait now."""
        if self._bucket is None:
            return 0
        return round(self._bucket.wait_s(self._limit, self._clock.monotonic()) * 1000)

    def pay(self, partitions: int) -> None:
        """Counts partitions.

        Raises:
            ApiError: There is no credit left, and the client is new enough to understand that.
        """
        if self._bucket is None:
            return
        if self.throttle_ms > 0 and self._is_strict:
            message = "The throttling quota has been exceeded."
            raise ApiError(ErrorCode.throttling_quota_exceeded, message)
        self._bucket.take(partitions)


class Meter:
    """Stands behind the core's handlers while there are quotas."""

    def __init__(self, quotas: Quotas, timers: Timers) -> None:
        self._quotas = quotas
        self._timers = timers

    # -- the hot path ----------------------------------------------------------------------------------

    def after_raw(
        self, connection: Connection, header: RequestHeader, frame_bytes: int, before: int, took_s: float
    ) -> None:
        """Looks at what a handler of the hot path has put into the output behind its first `before` parts."""
        output = connection.output
        if len(output) <= before:
            # Answered with nothing (acks=0), or the answer failed.
            wait_s = self._waits(connection, header, frame_bytes, took_s)
            self._mute(connection, wait_s)
            return
        last = output[-1]
        if isinstance(last, Deferred) and not last.is_done:
            last.finish = lambda parts: self._finish_later(connection, header, frame_bytes, took_s, parts)
            return
        parts: list[Part] = []
        while len(output) > before:
            part = output.pop()
            if isinstance(part, Deferred):
                parts[:0] = part.parts
            else:
                parts.insert(0, part)
        finished, wait_s = self._finish(connection, header, frame_bytes, took_s, parts)
        # The answer goes out at once, and says how long the next request has to wait (KIP-219).
        output.extend(finished)
        self._mute(connection, wait_s)

    def _finish_later(
        self,
        connection: Connection,
        header: RequestHeader,
        frame_bytes: int,
        took_s: float,
        parts: Sequence[Part],
    ) -> Sequence[Part]:
        finished, wait_s = self._finish(connection, header, frame_bytes, took_s, parts)
        self._mute(connection, wait_s)
        return finished

    def _finish(
        self,
        connection: Connection,
        header: RequestHeader,
        frame_bytes: int,
        took_s: float,
        parts: Sequence[Part],
    ) -> tuple[Sequence[Part], float]:
        """The answer with how long to wait, and that in seconds."""
        size = frame_bytes
        if header.api_key == FETCH:
            size = sum(len(part) if isinstance(part, bytes | memoryview) else part.count for part in parts)
        user, client_id = connection.principal.name, _client_id(header)
        quota = Quota.FETCH if header.api_key == FETCH else Quota.PRODUCE
        wait_s = self._quotas.record(quota, user, client_id, size)
        if wait_s > 0 and header.api_key == FETCH:
            # The records come with a later fetch.
            self._quotas.take_back(quota, user, client_id, size)
            parts = list(encode_fetch_response(header.correlation_id, header.api_version, []))
        wait_s = max(wait_s, self._quotas.record(Quota.REQUEST, user, client_id, took_s * 100))
        if wait_s <= 0:
            return parts, 0.0
        return _with_throttle_time(header, parts, round(wait_s * 1000)), wait_s

    def _waits(self, connection: Connection, header: RequestHeader, frame_bytes: int, took_s: float) -> float:
        user, client_id = connection.principal.name, _client_id(header)
        wait_s = 0.0
        if header.api_key == PRODUCE:
            wait_s = self._quotas.record(Quota.PRODUCE, user, client_id, frame_bytes)
        return max(wait_s, self._quotas.record(Quota.REQUEST, user, client_id, took_s * 100))

    # -- the others ------------------------------------------------------------------------------------

    def after_cold(
        self, connection: Connection, header: RequestHeader, answer: Mapping[str, Any], took_s: float
    ) -> Mapping[str, Any]:
        """The answer with how long to wait; to be muted by `mute` once it lies in the output."""
        user, client_id = connection.principal.name, _client_id(header)
        wait_s = self._quotas.record(Quota.REQUEST, user, client_id, took_s * 100)
        throttle_ms = max(round(wait_s * 1000), int(answer.get("throttle_time", 0)))
        return {**answer, "throttle_time": throttle_ms} if throttle_ms else answer

    def mute(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        """Starts none of the connection's requests for as long as its client was told to wait."""
        self._mute(connection, int(answer.get("throttle_time", 0)) / 1000)

    def _mute(self, connection: Connection, wait_s: float) -> None:
        if wait_s > 0 and connection.waiting_for is None and not connection.is_closed:
            deferred = connection.defer(exclusive=True)
            self._timers.call_later(wait_s, lambda: deferred.resolve([]))


def _brief(name: Name) -> Name:
    """The name, or a digest in the place of a long client id."""
    user, client_id = name
    if client_id is None or len(client_id) <= _LONGEST_NAME_CHARS:
        return name
    return user, sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()


def _client_id(header: RequestHeader) -> str:
    return (header.client_id or b"").decode(errors="replace")


def _with_throttle_time(header: RequestHeader, parts: Sequence[Part], throttle_ms: int) -> list[Part]:
    """The answer to a Produce or Fetch with its throttle time filled in, which version 0 does not have."""
    if header.api_version == 0:
        return list(parts)
    is_flexible = APIS[header.api_key].is_flexible(header.api_version)
    if header.api_key == FETCH:
        index, position = 0, _FRAME_START_BYTES + is_flexible
    else:
        last = parts[-1]
        assert not hasattr(last, "fd")
        index, position = len(parts) - 1, len(last) - 4 - is_flexible
    patched = bytearray(parts[index])  # type: ignore[arg-type]
    _INT.pack_into(patched, position, throttle_ms)
    return [*parts[:index], bytes(patched), *parts[index + 1 :]]
