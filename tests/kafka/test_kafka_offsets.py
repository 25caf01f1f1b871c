"""Apache Kafka's own tool reads the files of `__consumer_offsets`, with its decoder of what is in it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import RunningBroker, broker

NAME = "__consumer_offsets"
DEADLINE_S = 60


def read_group(running: RunningBroker) -> None:
    """A member joins, commits and leaves."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic("flights", 1, 1)])["flights"].result(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "tools"})
    consumer.subscribe(["flights"])
    deadline = time.monotonic() + DEADLINE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("flights", 0, 42, "noted")], asynchronous=False)
    consumer.close()


def test_dump_log_decodes_offsets_and_generations_of_groups(
    dump_log: Callable[..., str], tmp_path: Path
) -> None:
    with broker(tmp_path / "data", properties={"offsets.topic.num.partitions": "1"}) as running:
        read_group(running)
    files = sorted((tmp_path / "data" / f"{NAME}-0").glob("*.log"))
    text = dump_log(*files, deep=True, decoder="offsets-decoder")
    committed = re.search(r'"group":"tools","topic":"flights","partition":0}} payload: (.*)', text)
    assert committed is not None, text
    assert '"offset":42,"leaderEpoch":-1,"metadata":"noted' in committed[1]
    generation = re.search(r'key: {"type":"2","data":{"group":"tools"}} payload: (.*)', text)
    assert generation is not None, text
    assert '"version":"3","data":{"protocolType":"consumer","generation":' in generation[1]
