"""Figures of the mirror, as one JSON object: `python tests/bench/mirror.py [--records N]`.

N records of 200 bytes go by one producer into a topic of four partitions, and `headwater mirror --once` copies them to
another cluster, over the loopback. Clients and brokers, one process each, share the machine's cores. The producer is
librdkafka, driven from Python, with idempotence and all acknowledgements, as the mirror's batches are. Nothing is
asserted: compare runs on the same machine only.

- `direct`: from the producer's first record to the last acknowledgement.
- `mirror`: from the start of the process to its end.
- `behind`: the mirror follows while the producer sends; from the first record to the last one at the target.
- `share`: the mirror's rate by the producer's own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.processes import running

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


def count(bootstrap: str, topic: str) -> int:
    """How many offsets a topic has."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "allow.auto.create.topics": False}
    )
    if topic not in consumer.list_topics(timeout=10).topics:
        return 0
    places = [TopicPartition(topic, each) for each in range(_PARTITIONS)]
    ends = [consumer.get_watermark_offsets(each, timeout=10)[1] for each in places]
    consumer.close()
    return sum(ends)


def command(source: str, target: str, topic: str, home: Path) -> list[str]:
    """A mirror of one topic."""
    ends = ["--from", source, "--to", target, "--topics", topic, "--groups", "", "--home", str(home)]
    return [sys.executable, "-m", "headwater.cli", "mirror", *ends]


def figures(source: str, target: str, home: Path, records: int, compression: str) -> dict[str, Any]:
    """The figures of one compression."""
    topic = f"bench-{compression}"
    make(source, topic)
    direct_s = send(source, topic, records, compression)
    started = time.monotonic()
    subprocess.run([*command(source, target, topic, home), "--once"], check=True, stdout=subprocess.DEVNULL)
    mirror_s = time.monotonic() - started
    assert count(target, topic) == records
    following = f"{topic}-following"
    make(source, following)
    with subprocess.Popen(command(source, target, following, home), stderr=subprocess.DEVNULL) as mirror:
        while not count(target, following) and mirror.poll() is None:
            send(source, following, 1, compression)
            time.sleep(1)
        already = count(source, following)
        started = time.monotonic()
        send(source, following, records, compression)
        while count(target, following) < already + records:
            time.sleep(0.05)
        behind_s = time.monotonic() - started
        mirror.terminate()
    rates = {
        name: round(records / seconds)
        for name, seconds in (("direct", direct_s), ("mirror", mirror_s), ("behind", behind_s))
    }
    return {**rates, "share": round(direct_s / mirror_s, 2), "share_behind": round(direct_s / behind_s, 2)}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--compression", nargs="*", default=["none", "lz4"])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder, "west"), "--coordinator", "memory") as (_, west, _),
        running(Path(folder, "east"), "--coordinator", "memory") as (_, east, _),
    ):
        found = {
            each: figures(west, east, Path(folder, "home"), options.records, each)
            for each in options.compression
        }
    print(json.dumps({"records": options.records, "records_per_s": found}))


if __name__ == "__main__":
    main()
