"""Single records of topics by their places, as they were sent."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

from headwater.errors import UserError
from headwater.running.cluster import Cluster
from headwater_streams.base.topics import bare_topic, cluster_of
from headwater_streams.ledger.trace.places import Place

_GAP = 500
"""Records between two wanted ones that are read past rather than sought over."""
_NONE_THERE = "no record is there: it was compacted, its transaction was aborted, or it marks the end of one"


@dataclass(frozen=True)
class RawRecord:
    """A record as it was sent.

    Attributes:
        key: Its key.
        value: Its value; None for a tombstone.
        headers: Its headers, in their order.
        timestamp_ms: Its timestamp; None where it has none.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


def read_records(cluster: Cluster, topic: str, places: Iterable[Place]) -> dict[Place, RawRecord | str]:
    """The records at some places of one topic, each as it was sent, or why it cannot be read as a sentence.

    Args:
        cluster: The cluster of the topic.
        topic: The topic, as its cluster calls it.
        places: The places; their topic may have the cluster's name.

    Raises:
        UserError: There is no such topic any more, or no broker answers.
    """
    by_partition: dict[int, list[Place]] = {}
    for place in sorted(set(places)):
        by_partition.setdefault(place.partition, []).append(place)
    found: dict[Place, RawRecord | str] = {}
    existing = set(cluster.partitions(topic))
    properties = {"enable.partition.eof": True, "auto.offset.reset": "error", "check.crcs": True}
    with cluster.errors(f"topic {topic}"), cluster.consumer(**properties) as consumer:
        for partition, its in by_partition.items():
            if partition not in existing:
                found |= dict.fromkeys(its, f"topic {topic} has no partition {partition}")
                continue
            at = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(at, timeout=cluster.timeout_s)
            found |= {p: f"it is gone: the topic begins at offset {low}" for p in its if p.offset < low}
            found |= {p: f"it is not there: the topic ends at offset {high}" for p in its if p.offset >= high}
            for stretch in _stretches([place for place in its if place not in found]):
                found |= _read(cluster, consumer, topic, stretch)
    return found


def _stretches(places: list[Place]) -> Iterator[list[Place]]:
    """Places that are read in one go."""
    stretch: list[Place] = []
    for place in places:
        if stretch and place.offset - stretch[-1].offset > _GAP:
            yield stretch
            stretch = []
        stretch.append(place)
    if stretch:
        yield stretch


def _read(
    cluster: Cluster, consumer: Any, topic: str, places: list[Place]
) -> Mapping[Place, RawRecord | str]:
    wanted = {place.offset: place for place in places}
    found: dict[Place, RawRecord | str] = dict.fromkeys(places, _NONE_THERE)
    consumer.assign([TopicPartition(topic, places[0].partition, places[0].offset)])
    heard_s = time.monotonic()
    while True:
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() - heard_s > cluster.timeout_s:
                raise UserError(f"topic {topic}: no broker answers at {cluster.bootstrap}: is it running?")
            continue
        heard_s = time.monotonic()
        error = message.error()
        if error is not None and error.name() == "GROUP_AUTHORIZATION_FAILED":
            continue  # librdkafka looks for the coordinator of a group that is not used
        if error is not None and error.name() != "_PARTITION_EOF":
            raise cluster.explain(error, f"topic {topic}")
        if error is None and message.offset() in wanted:
            found[wanted[message.offset()]] = _raw(message)
        if error is not None or message.offset() >= places[-1].offset:
            return found


def _raw(message: Any) -> RawRecord:
    kind, timestamp_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return RawRecord(
        message.key(), message.value(), headers, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
    )


def records_of_places(
    home: Path, bootstrap: str | None, places: Iterable[Place]
) -> tuple[dict[Place, RawRecord | str], list[str]]:
    """The records at places of any topics, and a sentence for each topic that could not be read.

    Args:
        home: The home.
        bootstrap: What --bootstrap names, for the topics of no named cluster.
        places: The places.
    """
    by_topic: dict[str, list[Place]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place)
    found: dict[Place, RawRecord | str] = {}
    problems = []
    for topic, its in by_topic.items():
        try:
            cluster = Cluster(home, cluster_of(topic) or bootstrap)
            found |= read_records(cluster, bare_topic(topic), its)
        except UserError as error:
            problems.append(f"the records of {topic} are not shown: {error}")
    return found, problems
