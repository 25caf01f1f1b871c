"""Kafka's ZooKeeper layout: where things are and the JSON that they hold.

| path | holds |
|---|---|
| `/cluster/id` | `{"version":"1","id":...}` |
| `/brokers/ids/<id>` | ephemeral; version 5: host, port, endpoints, rack, features |
| `/brokers/seqid` | its znode version is the last broker id given |
| `/brokers/topics/<t>` | version 3: topic_id, partitions, adding_replicas, removing_replicas |
| `/brokers/topics/<t>/partitions/<p>/state` | version 1: leader, leader_epoch, isr, controller_epoch |
| `/controller` | ephemeral; version 1: brokerid |
| `/controller_epoch` | decimal |
| `/config/{topics,brokers,clients,users,ips}/<name>` | `{"version":1,"config":{...}}` |
| `/config/users/<user>/clients/<client>` | the same, for a client id of one user |
| `/config/changes/config_change_<seq>` | `{"version":2,"entity_path":"topics/<t>"}` |
| `/isr_change_notification/isr_change_<seq>` | topics whose partitions or leaders changed |
| `/log_dir_event_notification` | brokers whose log directories failed |
| `/admin/delete_topics/<t>` | empty |
| `/kafka-acl/<Type>/<name>` | `{"version":1,"acls":[...]}`, see `acls` |
| `/kafka-acl-extended/prefixed/<Type>/<prefix>` | the same, for all names that begin so |
| `/kafka-acl-changes/acl_changes_<seq>`, `/kafka-acl-extended-changes/...` | what rules changed |
| `/delegation_token/tokens/<id>` | version 3: owner, renewers, times; see `tokens` |
| `/latest_producer_id_block` | the last block of producer ids given |
| `/consumers/<g>/ids/<member>` | ephemeral; version 1: subscription |
| `/consumers/<g>/owners/<t>/<p>` | ephemeral; the owner's member name |
| `/consumers/<g>/offsets/<t>/<p>` | decimal offset, then perhaps a newline and `{epoch, metadata, ts, expires}` |
| `/consumers/<g>/generation` | ours: what the group's coordinator knows of it, see `groups.kept` |
| `/consumers/<g>/plan/<number>` | ours: the sticky assignment that the members agreed on |

What is ours alone in the others stands under the key `headwater`, which Kafka's readers pass over. Source: Kafka's
`ZkData.scala`, and Kafka 0.8's `ZkUtils` for members and owners.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from headwater_broker.coordination.errors import CorruptState
from headwater_broker.coordination.model import (
    BrokerInfo,
    Committed,
    ConfigKind,
    Endpoint,
    PartitionState,
    TopicPartition,
    desanitize,
    sanitize,
)
from headwater_broker.coordination.zookeeper.naming import escape, unescape
from headwater_broker.coordination.zookeeper.process import ProcessIdentity

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"

_SANITIZED = {ConfigKind.CLIENT, ConfigKind.USER, ConfigKind.IP}
"""Whose names Kafka stores sanitised; the others' are written as they are."""

PERSISTENT = (
    "/cluster",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    CONFIG_CHANGES,
    *(f"/config/{kind.value}" for kind in ConfigKind if kind is not ConfigKind.USER_CLIENT),
    DELETE_TOPICS,
    ISR_CHANGES,
    "/log_dir_event_notification",
    CONSUMERS,
)
"""Directories that are there before anything is stored (Kafka's `ZkData.PersistentZkPaths`)."""


def broker(broker_id: int) -> str:
    """Where a broker registers."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{escape(name)}"


def partition(name: str, number: int) -> str:
    """The directory of one partition."""
    return f"{topic(name)}/partitions/{number}"


def partition_state(name: str, number: int) -> str:
    """Leader and ISR of one partition."""
    return f"{partition(name, number)}/state"


def config(kind: ConfigKind, name: str) -> str:
    """Dynamic configuration of one entity."""
    if kind is ConfigKind.USER_CLIENT:
        return f"/config/users/{name}"
    return f"/config/{kind.value}/{sanitize(name) if kind in _SANITIZED else escape(name)}"


def config_name(kind: ConfigKind, path: str) -> str:
    """The name of the entity whose configuration is there."""
    if kind is ConfigKind.USER_CLIENT:
        return path.removeprefix("/config/users/")
    component = path.rpartition("/")[2]
    return desanitize(component) if kind in _SANITIZED else unescape(component)


def topic_deletion(name: str) -> str:
    """The mark that a topic is to be deleted."""
    return f"{DELETE_TOPICS}/{escape(name)}"


def group(name: str) -> str:
    """Everything about a group."""
    return f"{CONSUMERS}/{escape(name)}"


def member_ids(group_name: str) -> str:
    """Live members of a group."""
    return f"{group(group_name)}/ids"


def member_id(group_name: str, member: str) -> str:
    """Where a member registers."""
    return f"{member_ids(group_name)}/{escape(member)}"


def plans(group_name: str) -> str:
    """The directory of the group's plan; its only child's name is the plan's number."""
    return f"{group(group_name)}/plan"


def generation(group_name: str) -> str:
    """What the group's coordinator keeps of it."""
    return f"{group(group_name)}/generation"


def owners(group_name: str) -> str:
    """Owners of a group's partitions."""
    return f"{group(group_name)}/owners"


def owner(group_name: str, topic_partition: TopicPartition) -> str:
    """The owner of one partition."""
    return f"{owners(group_name)}/{escape(topic_partition[0])}/{topic_partition[1]}"


def offsets(group_name: str) -> str:
    """Committed offsets of a group."""
    return f"{group(group_name)}/offsets"


def offset(group_name: str, topic_partition: TopicPartition) -> str:
    """The committed offset of one partition."""
    return f"{offsets(group_name)}/{escape(topic_partition[0])}/{topic_partition[1]}"


def encode(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(path: str, data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CorruptState: the bytes are something else; the message names the path.
    """
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CorruptState(f"{path} in ZooKeeper holds {data[:200]!r}, which is no JSON object")
    return value


def encode_cluster_id(cluster_id: str) -> bytes:
    """Kafka writes this version, and only this one, as a string."""
    return encode({"version": "1", "id": cluster_id})


def encode_broker(info: BrokerInfo, process: ProcessIdentity, timestamp_ms: int) -> bytes:
    """Version 5 of a broker's registration."""
    plaintext = next((e for e in info.endpoints if e.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "version": 5,
        "host": plaintext.host if plaintext else None,
        "port": plaintext.port if plaintext else -1,
        "endpoints": [str(endpoint) for endpoint in info.endpoints],
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in info.endpoints},
        "jmx_port": -1,
        "features": {
            name: {"min_version": low, "max_version": high} for name, (low, high) in info.features.items()
        },
        "timestamp": str(timestamp_ms),
        "headwater": {"identity": info.identity, "process": process.to_json()},
    }
    if info.rack is not None:
        value["rack"] = info.rack
    return encode(value)


def decode_broker(broker_id: int, data: bytes) -> BrokerInfo:
    """A broker's registration, Kafka's own too."""
    path = broker(broker_id)
    value = decode(path, data)
    try:
        protocols = value.get("listener_security_protocol_map") or {}
        endpoints = tuple(_decode_endpoint(text, protocols) for text in value["endpoints"])
        features = {
            name: (int(levels["min_version"]), int(levels["max_version"]))
            for name, levels in (value.get("features") or {}).items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{path} in ZooKeeper is no broker's registration: {data[:200]!r}") from error
    identity = str((value.get("headwater") or {}).get("identity", ""))
    return BrokerInfo(broker_id, endpoints, value.get("rack"), identity, features)


def _decode_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(host.strip("[]"), int(port), listener, protocols.get(listener, listener))


def encode_topic(topic_id: UUID, partitions: Mapping[int, PartitionState]) -> bytes:
    """Version 3 of a topic's assignment."""
    return encode(
        {
            "version": 3,
            "topic_id": urlsafe_b64encode(topic_id.bytes).decode().rstrip("="),
            "partitions": {str(p): state.replicas for p, state in partitions.items()},
            "adding_replicas": {str(p): state.adding for p, state in partitions.items() if state.adding},
            "removing_replicas": {
                str(p): state.removing for p, state in partitions.items() if state.removing
            },
        }
    )


def decode_topic(path: str, data: bytes) -> tuple[UUID, dict[int, PartitionState]]:
    """Topic id, and partitions that nobody leads yet."""
    value = decode(path, data)
    try:
        topic_id = UUID(bytes=urlsafe_b64decode(value["topic_id"] + "=="))
        partitions = {
            int(number): PartitionState(
                replicas=tuple(replicas),
                adding=tuple((value.get("adding_replicas") or {}).get(number, ())),
                removing=tuple((value.get("removing_replicas") or {}).get(number, ())),
            )
            for number, replicas in sorted(value["partitions"].items(), key=lambda item: int(item[0]))
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{path} in ZooKeeper is no topic's assignment: {data[:200]!r}") from error
    return topic_id, partitions


def encode_partition_state(state: PartitionState) -> bytes:
    """Version 1 of a partition's state."""
    return encode(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
        }
    )


def decode_partition_state(path: str, data: bytes, version: int, assigned: PartitionState) -> PartitionState:
    """The state of a partition whose replicas are known from its topic."""
    value = decode(path, data)
    try:
        return PartitionState(
            replicas=assigned.replicas,
            leader=int(value["leader"]),
            leader_epoch=int(value["leader_epoch"]),
            isr=tuple(value["isr"]),
            controller_epoch=int(value["controller_epoch"]),
            version=version,
            adding=assigned.adding,
            removing=assigned.removing,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{path} in ZooKeeper is no partition's state: {data[:200]!r}") from error


def encode_config(values: Mapping[str, str]) -> bytes:
    """Dynamic configuration of one entity."""
    return encode({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Dynamic configuration of one entity; an empty znode is an entity without any."""
    if not data:
        return {}
    values = decode(path, data).get("config") or {}
    return {str(key): str(value) for key, value in values.items()}


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """A report that leaders or ISR of partitions changed."""
    return encode({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def encode_producer_id_block(broker_id: int, start: int, length: int) -> bytes:
    """The last block of producer ids given; Kafka writes the bounds, the end included, as strings."""
    end = start + length - 1
    return encode({"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end)})


def encode_member(
    subscription: Mapping[str, int], process: ProcessIdentity, timestamp_ms: int, about: Mapping[str, str]
) -> bytes:
    """Kafka 0.8's registration of a consumer."""
    return encode(
        {
            "version": 1,
            "subscription": dict(subscription),
            "pattern": "static",
            "timestamp": str(timestamp_ms),
            "headwater": {**about, "process": process.to_json()},
        }
    )


def encode_offset(committed: Committed) -> bytes:
    """The decimal offset on a line of its own, which is all that older tools read of it."""
    extra: dict[str, Any] = {}
    if committed.leader_epoch >= 0:
        extra["epoch"] = committed.leader_epoch
    if committed.metadata:
        extra["metadata"] = committed.metadata
    if committed.timestamp_ms is not None:
        extra["ts"] = committed.timestamp_ms
    if committed.expires_ms is not None:
        extra["expires"] = committed.expires_ms
    return str(committed.offset).encode() + (b"\n" + encode(extra) if extra else b"")


def decode_offset(path: str, data: bytes) -> Committed:
    """What `encode_offset` wrote, or a plain number."""
    first, _, rest = data.partition(b"\n")
    try:
        extra = json.loads(rest) if rest.strip() else {}
        epoch, metadata = extra.get("epoch", -1), extra.get("metadata", "")
        return Committed(int(first), epoch, metadata, extra.get("ts"), extra.get("expires"))
    except (ValueError, AttributeError) as error:
        raise CorruptState(f"{path} in ZooKeeper holds {data[:200]!r}, which is no offset") from error
