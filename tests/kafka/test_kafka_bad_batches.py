"""Apache Kafka's answers to batches with something wrong inside, which tests/support/bad_batches.py states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode

from bad_batches import (
    ACCEPTED,
    ACCEPTED_BY_KAFKA,
    ACCEPTED_BY_KAFKA_COMPRESSED,
    ACCEPTED_BY_KAFKA_PLAIN,
    GZIP,
    NONE,
    ZSTD,
    cases,
)
from headwater_broker.testing import WireClient
from headwater_broker.wire.apis import PRODUCE
from support import apache_kafka

_READS_NO_FURTHER = {GZIP: {"compressed and more behind"}}
"""What follows a compressed stream is not looked at."""


def test_kafka_takes_and_refuses_what_the_table_says(tmp_path: Path) -> None:
    settings = {"log.message.timestamp.after.max.ms": str(2**63 - 1), "log.retention.ms": "-1"}
    apache_kafka.require_jars()
    with apache_kafka.running_kafka(tmp_path, settings, heap="512m") as (_, bootstrap):
        wrong = _compared(bootstrap)
    assert not wrong


def _compared(bootstrap: str) -> dict[str, str]:
    """What Kafka answered otherwise, by codec and case."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("bad", 1, 1)])["bad"].result(30)
    wrong = {}
    with WireClient(bootstrap) as client:
        for codec in (NONE, GZIP, ZSTD):
            taken = ACCEPTED | ACCEPTED_BY_KAFKA | _READS_NO_FURTHER.get(codec, set())
            taken |= ACCEPTED_BY_KAFKA_PLAIN if codec == NONE else ACCEPTED_BY_KAFKA_COMPRESSED
            for name, batch in cases(codec).items():
                code = _produced(client, bytes(batch))
                if (code is ErrorCode.none) != (name in taken):
                    wrong[f"{codec} {name}"] = code.name
    return wrong


def _produced(client: WireClient, batch: bytes) -> ErrorCode:
    topics: list[dict[str, Any]] = [{"name": "bad", "partition_data": [{"index": 0, "records": batch}]}]
    while True:
        answer = client.ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=topics)
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        if code is not ErrorCode.not_leader_or_follower and code is not ErrorCode.unknown_topic_or_partition:
            return code
