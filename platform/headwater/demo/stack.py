"""The demo's own stacks and topics."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.config import load_settings
from headwater.demo.events import TOPICS
from headwater.errors import UserError
from headwater.stack.local import data_dir
from headwater.stack.spec import StackSpec, stack_spec

HOST = "127.0.0.1"
PARTITIONS = 3
_TIMEOUT_S = 30


def demo_stack(home: Path, registry_port: int | None = None) -> StackSpec:
    """One broker and an embedded ZooKeeper on free ports of the loopback, over the home's stack folder.

    Args:
        home: The home.
        registry_port: Where a schema registry is to listen, whom the broker asks, too; None for none.
    """
    flags: dict[str, object] = {"stack.coordinator": "zookeeper", "stack.registry": registry_port is not None}
    if registry_port is not None:
        flags["stack.registry_port"] = registry_port
    return _stack(flags, data_dir(home), registry_port)


def front_stack(folder: Path, registry_port: int) -> StackSpec:
    """One broker by itself on a free port, which asks the registry at a port of the loopback."""
    return _stack({"stack.coordinator": "memory", "stack.registry": False}, folder, registry_port)


def _stack(flags: Mapping[str, object], folder: Path, registry_port: int | None) -> StackSpec:
    given = {"stack.host": HOST, "stack.port": 0, "stack.brokers": 1, "stack.zookeeper": "", **flags}
    asked = [] if registry_port is None else [f"confluent.schema.registry.url={registry_url(registry_port)}"]
    return stack_spec(load_settings(os.environ, given).settings, folder.absolute(), asked)


def registry_url(port: int) -> str:
    """The address of a registry of the demo."""
    return f"http://{HOST}:{port}"


def create_topics(
    bootstrap: str, settings: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> list[str]:
    """Create the demo's topics where they do not exist: three partitions, kept for ever.

    Args:
        bootstrap: The brokers, host:port.
        settings: More settings of a topic.

    Returns:
        Those that were created.

    Raises:
        UserError: The broker refused one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new_topics = [
        NewTopic(
            topic,
            num_partitions=PARTITIONS,
            replication_factor=1,
            config={"retention.ms": "-1", **settings.get(topic, {})},
        )
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
    await_leaders(bootstrap)
    return created


def await_leaders(bootstrap: str) -> None:
    """Wait until every partition of the demo's topics has a leader, so that no first request has to be tried again.

    Raises:
        UserError: One has none in time.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        partitions = [p for topic in TOPICS if topic in topics for p in topics[topic].partitions.values()]
        if len(partitions) == PARTITIONS * len(TOPICS) and all(p.leader >= 0 for p in partitions):
            return
        if time.monotonic() > deadline_s:
            raise UserError("the demo's topics have no leader: see the broker's log in the stack folder")
        time.sleep(0.05)
