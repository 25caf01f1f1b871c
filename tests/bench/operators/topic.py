"""The topic: readings of devices, some 200 bytes each, with origin headers; it grows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
SCHEMA = "id BIGINT, device STRING, at TIMESTAMP, kind STRING, value DOUBLE, unit STRING, note STRING"
TIME = "at"
_KINDS = (("temperature", "C", -20, 40), ("humidity", "%", 0, 100), ("pressure", "hPa", 950, 1050))
_NOTE = "measured in the ordinary way, nothing to add"
_POOL = 1000
FIRST = datetime(2013, 1, 1, tzinfo=UTC)
"""The first event time of a topic whose times go by the rows' numbers."""


class Topic:
    """A topic that is filled bit by bit; event times are those of the wall clock, or go by the rows' numbers."""

    def __init__(
        self,
        address: str,
        name: str,
        seed: int,
        partitions: int = PARTITIONS,
        *,
        rows_per_s: int | None = None,
        headers: bool = True,
        note: str = _NOTE,
    ) -> None:
        """Makes it, empty.

        Args:
            address: The broker.
            name: The topic's name.
            seed: Of the values.
            partitions: How many partitions it has.
            rows_per_s: How many rows `grow` gives one second of event time, from `FIRST` on; None: the wall clock's.
            headers: Whether a record says where it first stood.
            note: A text in every value.
        """
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([wanted])[name].result(30)
        self.name, self.rows, self.value_bytes = name, 0, 0
        self._partitions, self._rows_per_s, self._headers = partitions, rows_per_s, headers
        self._fill = Producer({"bootstrap.servers": address, "linger.ms": 50, "compression.type": "lz4"})
        self._now = Producer({"bootstrap.servers": address, "linger.ms": 0})
        self._bodies = list(_bodies(random.Random(seed), note))

    def grow(self, rows: int) -> None:
        """Produces until it has so many rows."""
        at, per_s = _text(datetime.now(UTC)), self._rows_per_s
        for number in range(self.rows, rows):
            if per_s is not None and (number == self.rows or not number % per_s):
                at = _text(FIRST + timedelta(seconds=number // per_s))
            while True:
                try:
                    self._produce(self._fill, number, at)
                    break
                except BufferError:
                    self._fill.poll(0.1)
        if self._fill.flush(120):
            raise TimeoutError("the broker did not take all rows in two minutes")
        self.rows = max(self.rows, rows)

    def one_more(self) -> None:
        """Produces one row at once, and waits until the broker has it."""
        self.one_soon()
        self.flush()

    def one_soon(self) -> None:
        """Produces one row at once; its event time is that of the wall clock."""
        self._produce(self._now, self.rows, _text(datetime.now(UTC)))
        self._now.poll(0)
        self.rows += 1

    def flush(self) -> None:
        """Waits until the broker has all rows."""
        if self._now.flush(30):
            raise TimeoutError("the broker did not take a row in half a minute")

    def _produce(self, producer: Producer, number: int, at: str) -> None:
        offset, partition = divmod(number, self._partitions)
        value = f'{{"id":{number},"at":"{at}",{self._bodies[number % _POOL]}'.encode()
        headers = [
            ("headwater-origin-cluster", b"bench"),
            ("headwater-origin-topic", self.name.encode()),
            ("headwater-origin-partition", b"%d" % partition),
            ("headwater-origin-offset", b"%d" % offset),
        ]
        headers = headers if self._headers else []
        producer.produce(self.name, value, partition=partition, headers=headers)
        self.value_bytes += len(value)


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _bodies(rng: random.Random, note: str) -> list[str]:
    found = []
    for _ in range(_POOL):
        kind, unit, low, high = rng.choice(_KINDS)
        device, value = f"dev-{rng.randrange(10_000):04}", round(rng.uniform(low, high), 3)
        found.append(f'"device":"{device}","kind":"{kind}","value":{value},"unit":"{unit}","note":"{note}"}}')
    return found
