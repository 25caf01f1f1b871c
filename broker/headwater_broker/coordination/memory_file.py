"""The file that keeps a memory coordinator's state over restarts of its broker."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater_broker.coordination.errors import CoordinatorUnavailable, CorruptState
from headwater_broker.coordination.model import (
    Committed,
    PartitionState,
    TopicPartition,
    TopicState,
    new_cluster_id,
)
from headwater_broker.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_NAME = "coordinator.json"
_VERSION = 1
_DIGEST = re.compile(rb',"digest":"([0-9a-f]{32})"}\Z')
_KEYS = frozenset(
    {
        *("version", "cluster_id", "broker_epoch", "broker_sequence", "controller_epoch", "next_producer_id"),
        *("topics", "deletions", "acls", "tokens", "configs", "offsets", "groups"),
    }
)
_STATE_FIELDS = tuple(each.name for each in fields(PartitionState))


@dataclass
class Durable:
    """What outlives the process."""

    cluster_id: str = field(default_factory=new_cluster_id)
    broker_epoch: int = 0
    broker_sequence: int = 0
    controller_epoch: int = 0
    next_producer_id: int = 0
    topics: dict[str, TopicState] = field(default_factory=dict)
    deletions: set[str] = field(default_factory=set)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    groups: dict[str, bytes] = field(default_factory=dict)
    acls: dict[ResourcePattern, frozenset[AclEntry]] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)

    def go_back_to(self, earlier: Durable) -> None:
        """Takes an earlier state; numbers that may have been given out since are not given out again."""
        for each in fields(self):
            value = getattr(earlier, each.name)
            setattr(
                self, each.name, max(getattr(self, each.name), value) if isinstance(value, int) else value
            )


class MemoryFile:
    """`coordinator.json` in a directory: a whole new file, synced, takes the place of the old one.

    Attributes:
        path: Where it is.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / _NAME

    @property
    def exists(self) -> bool:
        """Whether something was written before."""
        return self.path.exists()

    def read(self) -> Durable:
        """What was written last, or nothing yet.

        Raises:
            CorruptState: the file is there and cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Durable()
        try:
            return _from_json(json.loads(_checked(data)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptState(
                f"{self.path} cannot be read ({error!r}): restore it from a backup; a broker without it knows no "
                "topic"
            ) from error

    def write(self, data: bytes) -> None:
        """Replaces the file.

        Raises:
            CoordinatorUnavailable: the disk refuses.
        """
        new = self.path.with_suffix(".json.tmp")
        try:
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise CoordinatorUnavailable(f"{self.path} cannot be written: {error.strerror}") from error


def encode_durable(durable: Durable) -> bytes:
    """The file's content, with a digest: if a bit of a topic's id changed, the topic's records would be set aside."""
    data = json.dumps(_to_json(durable), separators=(",", ":"), ensure_ascii=False).encode()
    return data[:-1] + b',"digest":"%s"}' % _digest(data)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).hexdigest().encode()


def _checked(data: bytes) -> bytes:
    """The content without its digest, which older versions did not write.

    Raises:
        ValueError: It does not match.
    """
    match = _DIGEST.search(data)
    if match is None:
        return data
    content = data[: match.start()] + b"}"
    if _digest(content) != match[1]:
        raise ValueError("its digest does not match")
    return content


def _to_json(durable: Durable) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "cluster_id": durable.cluster_id,
        "broker_epoch": durable.broker_epoch,
        "broker_sequence": durable.broker_sequence,
        "controller_epoch": durable.controller_epoch,
        "next_producer_id": durable.next_producer_id,
        "topics": [
            {
                "name": topic.name,
                "topic_id": str(topic.topic_id),
                "partitions": {
                    str(number): {name: getattr(state, name) for name in _STATE_FIELDS}
                    for number, state in topic.partitions.items()
                },
            }
            for topic in durable.topics.values()
        ],
        "deletions": sorted(durable.deletions),
        "acls": [
            [
                *(pattern.resource_type, pattern.name, pattern.pattern_type),
                *(entry.principal, entry.host, entry.operation, entry.permission),
            ]
            for pattern, entries in durable.acls.items()
            for entry in sorted(entries)
        ],
        "tokens": durable.tokens,
        "configs": [[kind, name, values] for (kind, name), values in durable.configs.items()],
        "offsets": [
            [group, topic, partition, c.offset, c.leader_epoch, c.metadata, c.timestamp_ms, c.expires_ms]
            for group, offsets in durable.offsets.items()
            for (topic, partition), c in offsets.items()
        ],
        "groups": {group: b64encode(data).decode() for group, data in durable.groups.items()},
    }


def _from_json(value: dict[str, Any]) -> Durable:
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r}; this program reads version {_VERSION}")
    if not value.keys() <= _KEYS:
        raise ValueError(f"unknown keys: {', '.join(sorted(value.keys() - _KEYS))}")
    durable = Durable(
        cluster_id=value["cluster_id"],
        broker_epoch=value["broker_epoch"],
        broker_sequence=value["broker_sequence"],
        controller_epoch=value["controller_epoch"],
        next_producer_id=value["next_producer_id"],
        deletions=set(value["deletions"]),
        configs={(kind, name): values for kind, name, values in value["configs"]},
    )
    durable.tokens = value.get("tokens", {})
    durable.groups = {group: b64decode(data) for group, data in value.get("groups", {}).items()}
    for resource_type, name, pattern_type, principal, host, operation, permission in value.get("acls", ()):
        pattern = ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type))
        entry = AclEntry(principal, host, Operation(operation), Permission(permission))
        durable.acls[pattern] = durable.acls.get(pattern, frozenset()) | {entry}
    for topic in value["topics"]:
        partitions = {int(number): _partition(state) for number, state in topic["partitions"].items()}
        durable.topics[topic["name"]] = TopicState(topic["name"], UUID(topic["topic_id"]), partitions)
    for group, topic, partition, *committed in value["offsets"]:
        durable.offsets.setdefault(group, {})[topic, partition] = Committed(*committed)
    return durable


def _partition(state: dict[str, Any]) -> PartitionState:
    lists = {name: tuple(state[name]) for name in ("replicas", "isr", "adding", "removing")}
    return PartitionState(**{**state, **lists})
