"""Figures of the mirror, as one JSON object: `python tests/bench/mirror.py [--records N]`.

N records of 200 bytes go by one producer into a topic of four partitions, and `headwater mirror` copies them to another
cluster, over the loopback. Clients and brokers, one process each, share the machine's cores. The producer is
librdkafka, driven from Python, with idempotence and all acknowledgements, as the mirror's batches are. Nothing is
asserted: compare runs on the same machine only.

- `direct`: from the producer's first record to the last acknowledgement.
- `mirror`: a mirror that runs already and was held up while the producer sent; from the moment that it goes on to the
  last record at the target.
- `behind`: the mirror follows while the producer sends; from the first record to the last one at the target. Producer,
  mirror and both brokers then share the cores.
- `share`: the mirror's rate by the producer's own.
- `cpu_ms_per_mb`: of the producer and its broker as it sends, and of the mirror and both brokers as it copies.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.processes import cpu_s, running

_PARTITIONS = 4


def send(bootstrap: str, topic: str, records: int, compression: str) -> float:
    """Seconds for all records; their text repeats itself as that of logs does."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    values = [
        (b"%08d GET /shop/item/%d?ref=mail " % (each, each * 7919)).ljust(200, b".") for each in range(1000)
    ]
    started = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % 1000], partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return time.monotonic() - started


def make(bootstrap: str, topic: str) -> None:
    """Creates a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result()


class Topic:
    """A topic, as often as its end is asked for."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "allow.auto.create.topics": False}
        )
        self._topic = topic

    def count(self) -> int:
        """How many offsets it has; none before it is there."""
        if self._topic not in self._consumer.list_topics(timeout=10).topics:
            return 0
        places = [TopicPartition(self._topic, each) for each in range(_PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)

    def seconds_until(self, count: int) -> float:
        """How long it takes until it has so many."""
        started = time.monotonic()
        while self.count() < count:
            time.sleep(0.02)
        return time.monotonic() - started


def figures(
    brokers: Mapping[str, int], ends: tuple[str, str], home: Path, records: int, compression: str
) -> Any:
    """The figures of one compression."""
    source, target = ends
    topic = f"bench-{compression}"
    make(source, topic)
    mirrored, original = Topic(target, topic), Topic(source, topic)
    command = [sys.executable, "-m", "headwater.cli", "mirror", "--from", source, "--to", target]
    command += ["--topics", topic, "--groups", "", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mirror:
        while not mirrored.count() and mirror.poll() is None:
            send(source, topic, 1, compression)
            time.sleep(1)
        mirrored.seconds_until(original.count())

        # Held up while the producer has the machine to itself, and then with the machine to itself.
        mirror.send_signal(signal.SIGSTOP)
        idle = [cpu_s(pid) for pid in brokers.values()]
        producer_s = time.process_time()
        direct_s = send(source, topic, records, compression)
        producer_s = time.process_time() - producer_s
        sent = [cpu_s(pid) for pid in brokers.values()]
        before_s = cpu_s(mirror.pid)
        mirror.send_signal(signal.SIGCONT)
        mirror_s = mirrored.seconds_until(original.count())
        copied, mirror_cpu_s = [cpu_s(pid) for pid in brokers.values()], cpu_s(mirror.pid) - before_s

        started = time.monotonic()
        send(source, topic, records, compression)
        mirrored.seconds_until(original.count())
        behind_s = time.monotonic() - started
        mirror.terminate()
    by_mb = 1000 / (records * 200 / 1e6)
    spent = {
        "producer": producer_s,
        "producer_broker": sent[0] - idle[0],
        "mirror": mirror_cpu_s,
        "source_broker": copied[0] - sent[0],
        "target_broker": copied[1] - sent[1],
    }
    rates = {
        name: round(records / seconds)
        for name, seconds in (("direct", direct_s), ("mirror", mirror_s), ("behind", behind_s))
    }
    return {
        "records_per_s": rates,
        "share": round(direct_s / mirror_s, 2),
        "share_behind": round(direct_s / behind_s, 2),
        "cpu_ms_per_mb": {name: round(seconds * by_mb, 2) for name, seconds in spent.items()},
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--compression", nargs="*", default=["none", "lz4"])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder, "west"), "--coordinator", "memory") as (of_west, west, _),
        running(Path(folder, "east"), "--coordinator", "memory") as (of_east, east, _),
    ):
        brokers = {"west": of_west.pid, "east": of_east.pid}
        found = {
            each: figures(brokers, (west, east), Path(folder, "home"), options.records, each)
            for each in options.compression
        }
    print(json.dumps({"records": options.records, **found}))


if __name__ == "__main__":
    main()
