"""Sends records to a topic, and remembers where they went and what went wrong first."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from headwater.errors import UserError
from headwater.running.cluster import Cluster
from headwater_streams.base.plural import quantity

_LARGEST_BYTES = 100_000_000
"""A broker takes no larger request by default (`socket.request.max.bytes`), and closes the connection."""


class Sender:
    """A producer that remembers where its records went and what went wrong first."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int | None = None, compression: str = "none"
    ) -> None:
        self.sent = 0
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._chosen = {} if partition is None else {"partition": partition}
        self._spans: dict[int, tuple[int, int]] = {}
        self._failure: Any = None
        properties = {
            **cluster.client_properties(),
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 20,
            # The topic decides what is too large, not the client.
            "message.max.bytes": _LARGEST_BYTES,
            "message.timeout.ms": round(cluster.timeout_s * 1000),
        }
        self._producer = Producer(properties)

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Hand over a record; waits where too many are under way.

        Args:
            key: Its key.
            value: Its value.
            headers: Its headers.
            timestamp_ms: Its timestamp; by default the time at which it is sent.

        Raises:
            UserError: One of those before was not taken.
        """
        timed = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    headers=[*headers],
                    on_delivery=self._delivered,
                    **self._chosen,
                    **timed,
                )
            except BufferError:
                self._producer.poll(0.1)
                self._stop_at_failure()
                continue
            except KafkaException as error:
                raise self._cluster.explain(error.args[0], f"topic {self._topic}") from error
            break
        self._producer.poll(0)
        self._stop_at_failure()

    def poll(self, seconds: float) -> None:
        """Wait so long, and see to acknowledgements meanwhile."""
        self._producer.poll(seconds)
        self._stop_at_failure()

    def settle(self) -> None:
        """Wait until each record is acknowledged, or was not in time."""
        self._producer.flush()

    def finish(self) -> None:
        """Wait for every acknowledgement.

        Raises:
            UserError: A record was not taken.
        """
        self.settle()
        self._stop_at_failure()

    def ranges(self) -> list[dict[str, int]]:
        """The offsets that the records took, by partition."""
        return [
            {"partition": partition, "first": first, "last": last}
            for partition, (first, last) in sorted(self._spans.items())
        ]

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        self.sent += 1
        partition, offset = message.partition(), message.offset()
        first, last = self._spans.get(partition, (offset, offset))
        self._spans[partition] = min(first, offset), max(last, offset)

    def _stop_at_failure(self) -> None:
        if self._failure is not None:
            name = self._failure.name()
            sent = f"{quantity(self.sent, 'record was', 'records were')} sent"
            if name in ("_MSG_TIMED_OUT", "_UNKNOWN_PARTITION"):  # which do not say why
                self._cluster.require_leaders(self._topic, self._partition)
            if name == "_MSG_TIMED_OUT":
                raise UserError(
                    f"topic {self._topic} ({sent}): the broker answers, but took no record in "
                    f"{self._cluster.timeout_s:g} s: its disk may be full, or a file of its log gone: headwater status "
                    "and its broker.log say more"
                )
            raise self._cluster.explain(self._failure, f"topic {self._topic} ({sent})")
