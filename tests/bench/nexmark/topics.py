"""The three topics: their values' columns, and how they are filled."""

from __future__ import annotations

import json
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from nexmark.generator import Generator, Kind, text_of

PARTITIONS = 2
SCHEMAS: dict[Kind, str] = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime TIMESTAMP, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, "
    "extra STRING",
}
"""The columns, in words that Spark's and Flink's SQL share."""
TIME = "dateTime"
WATERMARK_S = 4
SIDE_ROWS = 10_000
"""The rows of q13's side input: a number, and the same as text."""


def topic_of(kind: Kind) -> str:
    """The topic of a kind of event."""
    return f"nexmark-{kind}"


@dataclass(frozen=True)
class Filled:
    """What the topics hold.

    Attributes:
        rows: How many events there are of each kind.
        value_bytes: The sum of the values' lengths.
        last_ms: The newest event of each kind.
    """

    rows: dict[Kind, int]
    value_bytes: int
    last_ms: dict[Kind, int]


def make_topics(address: str, names: list[str]) -> None:
    """Makes empty topics."""
    admin = AdminClient({"bootstrap.servers": address})
    wanted = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    for made in admin.create_topics(wanted).values():
        made.result(30)


def fill(address: str, count: int, seed: int) -> Filled:
    """Makes the topics and produces all events; those of a kind take turns over its partitions."""
    make_topics(address, [topic_of(kind) for kind in SCHEMAS])
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "compression.type": "lz4"})
    rows: dict[Kind, int] = dict.fromkeys(SCHEMAS, 0)
    last_ms: dict[Kind, int] = dict.fromkeys(SCHEMAS, 0)
    value_bytes = 0
    for kind, at_ms, fields in Generator(seed).events(count):
        value = json.dumps(fields | {TIME: text_of(at_ms)}, separators=(",", ":")).encode()
        while True:
            try:
                producer.produce(topic_of(kind), value, partition=rows[kind] % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        rows[kind] += 1
        last_ms[kind] = at_ms
        value_bytes += len(value)
    if producer.flush(120):
        raise TimeoutError("the broker did not take all events in two minutes")
    return Filled(rows, value_bytes, last_ms)
