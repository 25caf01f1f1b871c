"""Records of partitions that somebody else assigned: a thin layer over librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import confluent_kafka

from headwater_broker.consumer.assignment import TopicPartition
from headwater_broker.consumer.record import Record
from headwater_broker.shown import MESSAGE_CHARS, shown

_log = logging.getLogger(__name__)

_ANSWER_TIMEOUT_S = 5.0


class FetchError(Exception):
    """The client cannot go on: wrong credentials, an unsupported broker, no reset policy for a lost
    offset, no answer where one is needed.
    """


class Fetcher(Protocol):
    """What a consumer needs of a Kafka client."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Fetches these partitions from now on, each from its offset; None: as the reset policy says."""

    def poll(self, timeout_s: float) -> Record | None:
        """The next record of any of them, None if there is none in time."""

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one that its next record will get."""

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with that timestamp or a later one; None where there is none."""

    def close(self) -> None:
        """Ends all connections."""


class KafkaFetcher:
    """`Fetcher` over confluent-kafka's consumer, which takes part in no group."""

    def __init__(self, bootstrap: str, group: str, reset: str, settings: Mapping[str, Any]) -> None:
        self._reset = {
            "earliest": confluent_kafka.OFFSET_BEGINNING,
            "latest": confluent_kafka.OFFSET_END,
        }[reset]
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,  # librdkafka asks for one even where it joins none
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": reset,
                **settings,
            },
            logger=_log,
        )

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `Fetcher.assign`."""
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, partition, self._reset if offset is None else offset)
                for (topic, partition), offset in positions.items()
            ]
        )

    def poll(self, timeout_s: float) -> Record | None:
        """See `Fetcher.poll`.

        Raises:
            FetchError: the client cannot go on.
        """
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                raise FetchError(error.str())
            _log.warning("%s", shown(error.str(), MESSAGE_CHARS))  # librdkafka tries again by itself
            return None
        kind, timestamp_ms = message.timestamp()
        return Record(
            message.topic(),
            message.partition(),
            message.offset(),
            None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """See `Fetcher.bounds`.

        Raises:
            FetchError: the partition's leader does not answer.
        """
        requested = confluent_kafka.TopicPartition(*partition)
        try:
            watermarks = self._consumer.get_watermark_offsets(requested, timeout=_ANSWER_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise _no_answer([partition], error) from error
        if watermarks is None:
            raise _no_answer([partition], None)
        low, high = watermarks
        return low, high

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See `Fetcher.offsets_at`.

        Raises:
            FetchError: a leader does not answer.
        """
        requested = [confluent_kafka.TopicPartition(*tp, time_ms) for tp, time_ms in times_ms.items()]
        try:
            answers = self._consumer.offsets_for_times(requested, timeout=_ANSWER_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise _no_answer(times_ms, error) from error
        if failed := [(each.topic, each.partition) for each in answers if each.error is not None]:
            raise _no_answer(failed, None)
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in answers}

    def close(self) -> None:
        """See `Fetcher.close`."""
        self._consumer.close()


def _no_answer(partitions: Collection[TopicPartition], error: Exception | None) -> FetchError:
    names = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
    reason = f": {error.args[0]}" if error is not None else ""
    return FetchError(f"the leaders of {names} do not tell their offsets{reason}; try again once they are up")
