"""Which bucket of time each record of a range of offsets is of, as a client of its own reads them from the brokers."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater_client.events import bucket_of
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.topic_metadata import forbidden, new_client

_SILENCE_S = 15.0
_WAIT_S = 0.1
_AT_ONCE = 10_000

Bounds = Mapping[int, tuple[int, int]]
"""Half-open offset ranges by partition."""


def read_runs(
    cluster: KafkaCluster,
    topic: str,
    bounds: Bounds,
    bucket_ms: int,
    reading: Mapping[str, str] | None = None,
) -> tuple[dict[int, list[BucketRun]], dict[int, int]]:
    """The runs of a topic's records, by partition, and up to which offset each partition was read.

    The records are those that a reader of committed ones sees: a partition is read up to the first transaction that is
    open.

    Args:
        cluster: The cluster.
        topic: The topic.
        bounds: Which offsets.
        bucket_ms: How wide a bucket is.
        reading: Further settings of the consumer.

    Raises:
        RefusedError: The brokers and this client do not come together, or it may not read the topic.
        UnavailableError: The brokers do not answer.
    """
    runs: dict[int, list[BucketRun]] = {partition: [] for partition in bounds}
    ends = {partition: end for partition, (_, end) in bounds.items()}
    for message in records_of(cluster, topic, bounds, reading, ends):
        offset, bucket = message.offset(), bucket_of(message.timestamp()[1], bucket_ms)
        of_partition = runs[message.partition()]
        last = of_partition[-1] if of_partition else None
        if last is not None and last.end == offset and last.bucket_start_ms == bucket:
            of_partition[-1] = replace(last, end=offset + 1)
        else:
            of_partition.append(BucketRun(offset, offset + 1, bucket))
    return runs, ends


def read_repeats(
    cluster: KafkaCluster,
    topic: str,
    bounds: Bounds,
    reading: Mapping[str, str] | None = None,
) -> dict[int, list[tuple[int, int]]]:
    """The offsets of records that equal another one of the ranges in key, value and timestamp, by partition.

    Args:
        cluster: The cluster.
        topic: The topic.
        bounds: Which offsets.
        reading: Further settings of the consumer.

    Raises:
        RefusedError: As for `read_runs`.
        UnavailableError: As for `read_runs`.
    """
    places: dict[bytes, list[tuple[int, int]]] = {}
    for message in records_of(cluster, topic, bounds, reading):
        places.setdefault(_digest(message), []).append((message.partition(), message.offset()))
    repeats: dict[int, list[tuple[int, int]]] = {}
    for alike in places.values():
        if len(alike) > 1:
            for partition, offset in alike:
                repeats.setdefault(partition, []).append((offset, offset + 1))
    return {partition: sorted(pairs) for partition, pairs in repeats.items()}


def _digest(message: Message) -> bytes:
    parts = (message.key(), message.value(), str(message.timestamp()[1]).encode())
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.digest()


def records_of(
    cluster: KafkaCluster,
    topic: str,
    bounds: Bounds,
    reading: Mapping[str, str] | None = None,
    ends: dict[int, int] | None = None,
) -> Iterator[Message]:
    """The records of some ranges of a topic, those of a partition in order.

    Args:
        cluster: The cluster.
        topic: The topic.
        bounds: Which offsets.
        reading: Further settings of the consumer.
        ends: Gets where a partition ended that ended before its range.

    Raises:
        RefusedError: As for `read_runs`.
        UnavailableError: As for `read_runs`.
    """
    left = {partition: end for partition, (start, end) in bounds.items() if start < end}
    if not left:
        return
    with _consumer(cluster, reading or {}) as (consumer, complaints):
        bare = cluster.bare(topic)
        consumer.assign([TopicPartition(bare, partition, bounds[partition][0]) for partition in sorted(left)])
        heard_s = time.monotonic()
        while left:
            # It waits until it has so many, or its time is up: not for long, as most topics end before.
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S:
                fault = cluster.fault(complaints)
                if fault is not None:
                    raise fault
                raise UnavailableError(f"the broker at {cluster.bootstrap} does not answer; is it up?")
            for message in messages:
                partition = message.partition()
                if message.error() is not None:
                    if _is_end(cluster, topic, message) and partition in left:
                        end = left.pop(partition)
                        if ends is not None:
                            ends[partition] = min(end, max(message.offset(), bounds[partition][0]))
                elif partition in left:
                    if message.offset() < left[partition]:
                        yield message
                    if message.offset() + 1 >= left[partition]:
                        del left[partition]


def _is_end(cluster: KafkaCluster, topic: str, message: Message) -> bool:
    """Whether an error says that a partition has ended; others that matter are raised."""
    error = message.error()
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False  # see `record_count`: the records come all the same
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise RefusedError(forbidden(cluster, topic), topic)
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give the records of {topic} ({error.str()})"
        )
    return True


@contextmanager
def _consumer(cluster: KafkaCluster, reading: Mapping[str, str]) -> Iterator[tuple[Any, list[Complaint]]]:
    complaints: list[Complaint] = []
    settings = {
        "group.id": "headwater-metadata",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        **cluster.rdkafka(complaints),
        **reading,
    }
    consumer = new_client(Consumer, settings, cluster)
    try:
        yield consumer, complaints
    except KafkaException as error:
        raise UnavailableError(
            f"the broker at {cluster.bootstrap} does not give records ({error.args[0].str()})"
        ) from error
    finally:
        consumer.close()
