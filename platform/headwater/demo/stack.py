"""The demo's own stack and topics."""

import os
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.config import load_settings
from headwater.demo.events import TOPICS
from headwater.errors import UserError
from headwater.stack.local import data_dir
from headwater.stack.spec import StackSpec, stack_spec

PARTITIONS = 3
_TIMEOUT_S = 30


def demo_stack(home: Path) -> StackSpec:
    """One broker and an embedded ZooKeeper on free ports of the loopback, over the home's stack folder."""
    flags = {
        "stack.host": "127.0.0.1",
        "stack.port": 0,
        "stack.brokers": 1,
        "stack.coordinator": "zookeeper",
        "stack.zookeeper": "",
    }
    return stack_spec(load_settings(os.environ, flags).settings, data_dir(home).absolute())


def create_topics(bootstrap: str) -> list[str]:
    """Create the demo's topics where they do not exist: three partitions, kept for ever.

    Returns:
        Those that were created.

    Raises:
        UserError: The broker refused one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new_topics = [
        NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"})
        for topic in TOPICS
    ]
    created = []
    for topic, future in admin.create_topics(new_topics, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result(_TIMEOUT_S)
            created.append(topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                reason = error.args[0].str()
                raise UserError(f"the broker did not create the topic {topic}: {reason}") from None
    _await_leaders(admin)
    return created


def _await_leaders(admin: AdminClient) -> None:
    """Wait until every partition has a leader, so that no first request has to be tried again."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        partitions = [p for topic in TOPICS if topic in topics for p in topics[topic].partitions.values()]
        if len(partitions) == PARTITIONS * len(TOPICS) and all(p.leader >= 0 for p in partitions):
            return
        if time.monotonic() > deadline_s:
            raise UserError("the demo's topics have no leader: see the broker's log in the stack folder")
        time.sleep(0.05)
