"""What stands in a field: what exists in the broker sometimes, what was learned from its answers, and what hurts."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from typing import Any
from uuid import UUID

from headwater_broker.groups.subscription import encode_subscription

TOPICS = ("clicks", "orders", "compacted", "wide")
USER, PASSWORD = "alice", "secret"
_GROUPS = ("readers", "readers", "writers", "g-3")
_TRANSACTIONAL = ("tx-1", "tx-1", "tx-1", "tx-2")
_CONFIGS = (
    "retention.ms",
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "segment.bytes",
    "leader.replication.throttled.replicas",
    "no.such",
    "log.retention.ms",
    "log.cleaner.threads",
    "message.max.bytes",
)
_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate")

_TEXTS: dict[str, tuple[str | None, ...]] = {
    "group_id": _GROUPS,
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "coordinator_keys": _GROUPS + _TRANSACTIONAL,
    "key": _GROUPS + _TRANSACTIONAL,
    "transactional_id": (*_TRANSACTIONAL, *_TRANSACTIONAL, None),
    "transactional_ids": _TRANSACTIONAL,
    "v3_and_below_transactional_id": _TRANSACTIONAL,
    "member_id": ("", "nobody"),
    "group_instance_id": (None, "static-1", "static-2"),
    "protocol_type": ("consumer", "consumer", "connect"),
    "protocol_name": ("range", "range", "sticky"),
    "topic": TOPICS,
    "topic_names": TOPICS,
    "resource_name": (*TOPICS, "1", "1", "", "kafka-cluster", "7"),
    "resource_name_filter": (None, *TOPICS, "*"),
    "configuration_keys": _CONFIGS,
    "value": ("1000", "1048576", "delete", "compact", "zstd", "-1", "true", ""),
    "principal": ("User:alice", "User:*", "User:bob"),
    "principal_filter": (None, "User:alice"),
    "principal_type": ("User", "Group"),
    "principal_name": ("alice", "bob"),
    "owner_principal_type": (None, "User"),
    "owner_principal_name": (None, "bob"),
    "host": ("*", "127.0.0.1"),
    "host_filter": (None, "*"),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("bob", "c-1", None, "127.0.0.9"),
    "match": ("bob", "c-1", None),
    "path": ("/nowhere", ""),
    "feature": ("metadata.version", "x"),
    "states_filter": ("Stable", "Empty", "dead"),
    "state_filters": ("Ongoing", "Empty", "x"),
    "types_filter": ("classic", "consumer"),
    "reason": (None, "because"),
    "rack_id": ("", "rack"),
}
_NAMES_BY_OWNER = {
    "OpData": _QUOTAS,
    "Config": _CONFIGS,
    "Scram": ("bob", "carol"),
    "UserName": ("bob", "carol", "nobody"),
    "Protocol": ("range", "roundrobin", "sticky"),
}
"""`name` is a topic's, but for structures with such a word in their name; theirs may be called `key`, too."""

_BYTES: dict[str, tuple[bytes, ...]] = {
    "auth_bytes": (
        f"\0{USER}\0{PASSWORD}".encode(),
        b"\0bob\0x",
        b"n,,n=bob,r=abc",
        b"c=biws,r=abc,p=eA==",
        b"",
    ),
    "metadata": (
        encode_subscription(["clicks"]),
        encode_subscription(["orders", "wide"]),
        b"",
        b"\0\1\0\0\0\x01",
    ),
    "assignment": (b"", b"\0\1\0\0\0\0\xff\xff\xff\xff"),
}
_PARTITIONS = (0, 0, 0, 0, 0, 1, 2, -1, 7)
_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (1, 1, -1, -1, 0, 2, -3),
    "timeout": (0, 1, 50, 500),
    "max_wait": (0, 0, 1, 5),
    "min_bytes": (0, 0, 1),
    "max_bytes": (1 << 20, 1, 0, 5000),
    "partition_max_bytes": (1 << 20, 1, 0, 5000),
    "mechanism": (1, 2, 1, 2, 3),
    "config_operation": (0, 0, 0, 1, 2, 3, 4),
    "partition": _PARTITIONS,
    "partitions": _PARTITIONS,
    "partition_index": _PARTITIONS,
    "partition_indexes": _PARTITIONS,
    "index": _PARTITIONS,
    "fetch_offset": (0, 0, 1, 2, 5, -1, 10**6),
    "session_epoch": (0, 0, 1, 2, 3, -1, -1),
    "match_type": (0, 1, 2, 2),
    "transaction_version": (0, 1, 2),
    "session_timeout": (1000, 6000, 6000, 6000, 10),
    "rebalance_timeout": (20, 100, 1000),
    "transaction_timeout": (1000, 60_000, 60_000, 60_000, 100, 0, -1),
    "replica_id": (-1, -1, -1, -1, -1, 1, 0, -2),
    "broker_ids": (1, 1, 2),
    "replicas": (1, 1, 2),
    "resource_type": (2, 2, 2, 4, 4, 8, 1, 3, 5, 6),
    "resource_type_filter": (1, 2, 3, 4, 5, 6, 7),
    "pattern_type_filter": (1, 2, 3, 4),
    "resource_pattern_type": (3, 4, 2),
    "operation": (1, 2, 3, 4, 12),
    "permission_type": (3, 3, 1, 2),
    "num_partitions": (1, 1, 2, -1, 0),
    "replication_factor": (1, 1, -1, 2),
    "count": (1, 2, 3),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_790_000_000_000),
    "iterations": (4096, 4096, 1, 20_000),
    "key_type": (0, 1, 0, 1, 2),
    "isolation_level": (0, 1),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, -1, 0, 1),
    "current_leader_epoch": (-1, -1, 0, 1, 9),
    "max_lifetime": (-1, 0, 1000),
    "upgrade_type": (1, 2, 3),
}
_LONGEST_TEXT = 2**15 - 1
_LEARNED = {
    "member_id": "member_id",
    "leader": "member_id",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "generation_id": "generation_id",
    "session_id": "session_id",
    "topic_id": "topic_id",
    "hmac": "hmac",
    "log_dir": "path",
}
"""Fields of answers, and the field of requests in which their values are used."""

_SAME = {
    "generation_id_or_member_epoch": "generation_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "producer_id_filters": "producer_id",
}
FORGED = "n\r\n2026-01-01 00:00:00,000 ERROR forged: \x1b[31m\x9b31m\x07\x00\u2028\u2029\u0085\u202e"
HOSTILE_TEXTS: tuple[bytes, ...] = (
    b"",
    FORGED.encode(),
    b"\xff\xfe\xc0\x80",
    b"ok\xed\xa0\x80surrogate",
    b"\xf4\x90\x80\x80",
    b"../../x",
    b"a/b",
    b".",
    b"..",
    b"\0",
    b"%s%n{0}{x}",
    b"*",
    b"<default>",
    b"__consumer_offsets",
    b"__transaction_state",
    b"__cluster_metadata",
    "٣𝟛".encode(),
    b"-0",
    b"1e400",
    b"nan",
    b"9" * 5000,
    b"x" * 249,
    b"x" * 250,
    b"x" * 32_767,
    "\u202e".encode() * 9000,
    b"x" * 70_000,
)
SMALL = (-1, 0, 1, 2, 3, 5, 17)


class World:
    """What the fuzzer knows of the broker that it talks to."""

    def __init__(self) -> None:
        self._known: dict[str, deque[Any]] = {name: deque(maxlen=6) for name in _LEARNED.values()}

    def learn(self, answer: Any) -> None:
        """Remembers the ids in an answer."""
        for each in dataclasses.fields(answer):
            value = getattr(answer, each.name)
            known = self._known.get(_LEARNED.get(each.name, ""))
            if isinstance(value, tuple):
                for one in value:
                    if dataclasses.is_dataclass(one):
                        self.learn(one)
            elif dataclasses.is_dataclass(value):
                self.learn(value)
            elif isinstance(value, str) and len(value.encode()) > _LONGEST_TEXT:
                continue  # a version before the compact texts cannot say it: what it asks would be malformed
            elif known is not None and value not in (None, "", -1, 0, b"") and value not in known:
                known.append(value)
            elif known is not None and value in known:
                known.remove(value)  # the newest is the last
                known.append(value)

    def value(self, rng: random.Random, name: str, owner: str, kind: str) -> Any:
        """An ordinary value of a request's field of Kafka's type `kind`, in a structure of that class."""
        known = self._known.get(_SAME.get(name, name), ())
        if known and rng.random() < 0.8:
            return known[-1] if rng.random() < 0.6 else rng.choice(known)
        if kind == "string":
            words = next((pool for word, pool in _NAMES_BY_OWNER.items() if word in owner), TOPICS)
            if name in ("name", "topics") or (name == "key" and words is not TOPICS):
                return rng.choice(words) if rng.random() < 0.95 else f"made-{rng.randrange(20)}"
            return rng.choice(_TEXTS.get(name, ("x", "y", "")))
        if kind == "bytes":
            return rng.choice(_BYTES.get(name, (b"", b"salt", b"x" * 32)))
        if kind == "uuid":
            return rng.choice((None, UUID(int=1)))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice((1e9, 1e12, 5e8, 0.0, 1.5))
        return rng.choice(_NUMBERS.get(name, SMALL))
