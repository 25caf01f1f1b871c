"""Reads a topic's records by partition and offset, as they stand in the log."""

import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.errors import UserError

_POLL_S = 0.1
_TIMEOUT_S = 30.0


class TopicLog:
    """A reader that belongs to no group; use it as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        """Prepare to read from the brokers at `bootstrap`, host:port."""
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "headwater-demo",  # librdkafka wants one; nothing is committed under it
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "error_cb": _ignore_transient,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
        if isinstance(error, KafkaException):
            reason = error.args[0].str()
            raise UserError(f"cannot read the demo's topics at {self._bootstrap}: {reason}") from None

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none if there is no such topic."""
        metadata = self._consumer.list_topics(topic, timeout=_TIMEOUT_S)
        return sorted(metadata.topics[topic].partitions)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The partition's log start and log end offset."""
        place = TopicPartition(topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)
        return low, high

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Message]:
        """The records with offsets from `start` up to, not including, `end`.

        Raises:
            UserError: They did not come in time.
        """
        messages: list[Message] = []
        if start < end:
            self._consumer.assign([TopicPartition(topic, partition, start)])
        deadline_s = time.monotonic() + _TIMEOUT_S
        while len(messages) < end - start:
            if time.monotonic() > deadline_s:
                raise UserError(
                    f"{topic}-{partition} gave {len(messages)} of the records from {start} to {end} "
                    f"in {_TIMEOUT_S:.0f} s"
                )
            for message in self._consumer.consume(end - start - len(messages), _POLL_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                messages.append(message)
        return messages


def _ignore_transient(error: KafkaError) -> None:
    """librdkafka reconnects by itself; what matters comes with a record or as an exception."""
