"""`headwater groups` over Apache Kafka's newest that has just started: its topic of offsets is still to be made.

A group's coordinator is not there yet then, and librdkafka's admin client ends the process at such an answer to the
request for a group's offsets (confluentinc/librdkafka#5040).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support import apache_kafka


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    apache_kafka.require_jars(apache_kafka.NEWEST)
    with apache_kafka.running_kafka(tmp_path, {}, heap="512m", version=apache_kafka.NEWEST) as (_, address):
        yield address


def groups(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.cli", "groups", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout + done.stderr


def test_groups_of_a_kafka_that_has_just_started_are_told_and_reset(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    for _ in range(3):
        status, text = groups("describe", "nobody", "--bootstrap", bootstrap)
        assert (status, "there is no group nobody" in text) == (2, True), text
    status, text = groups(
        "reset", "gold", "--new", "--topic", "orders", "--to-latest", "--bootstrap", bootstrap
    )
    assert (status, "reset 2 partitions" in text) == (0, True), text
    status, text = groups("describe", "gold", "--bootstrap", bootstrap)
    assert (status, "orders" in text) == (0, True), text
