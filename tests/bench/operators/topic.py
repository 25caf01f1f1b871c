"""The topic: readings of devices, some 200 bytes each, with origin headers; it grows."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
SCHEMA = "id BIGINT, device STRING, at TIMESTAMP, kind STRING, value DOUBLE, unit STRING, note STRING"
TIME = "at"
_KINDS = (("temperature", "C", -20, 40), ("humidity", "%", 0, 100), ("pressure", "hPa", 950, 1050))
_NOTE = "measured in the ordinary way, nothing to add"
_POOL = 1000


class Topic:
    """A topic that is filled bit by bit; event times are those of the wall clock."""

    def __init__(self, address: str, name: str, seed: int, partitions: int = PARTITIONS) -> None:
        """Makes it, empty."""
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([wanted])[name].result(30)
        self.name, self.rows, self.value_bytes = name, 0, 0
        self._partitions = partitions
        self._fill = Producer({"bootstrap.servers": address, "linger.ms": 50, "compression.type": "lz4"})
        self._now = Producer({"bootstrap.servers": address, "linger.ms": 0})
        self._bodies = list(_bodies(random.Random(seed)))

    def grow(self, rows: int) -> None:
        """Produces until it has so many rows."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for number in range(self.rows, rows):
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
        self._produce(self._now, self.rows, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if self._now.flush(30):
            raise TimeoutError("the broker did not take a row in half a minute")
        self.rows += 1

    def _produce(self, producer: Producer, number: int, at: str) -> None:
        offset, partition = divmod(number, self._partitions)
        value = f'{{"id":{number},"at":"{at}",{self._bodies[number % _POOL]}'.encode()
        headers = [
            ("headwater-origin-cluster", b"bench"),
            ("headwater-origin-topic", self.name.encode()),
            ("headwater-origin-partition", b"%d" % partition),
            ("headwater-origin-offset", b"%d" % offset),
        ]
        producer.produce(self.name, value, partition=partition, headers=headers)
        self.value_bytes += len(value)


def _bodies(rng: random.Random) -> list[str]:
    found = []
    for _ in range(_POOL):
        kind, unit, low, high = rng.choice(_KINDS)
        device, value = f"dev-{rng.randrange(10_000):04}", round(rng.uniform(low, high), 3)
        found.append(
            f'"device":"{device}","kind":"{kind}","value":{value},"unit":"{unit}","note":"{_NOTE}"}}'
        )
    return found
