"""Java's Admin client sees the same of Apache Kafka's broker and of ours, call by call.

`AdminCompared.java` makes the calls, right ones and wrong ones; what they found is compared, of an error its class.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater_broker.testing import broker
from support.processes import free_port

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";'
OF_SASL = "listener.name.sasl_plaintext"
GIVEN = {
    f"{OF_SASL}.plain.sasl.jaas.config": PLAIN,
    f"{OF_SASL}.scram-sha-256.sasl.jaas.config": SCRAM,
    f"{OF_SASL}.scram-sha-512.sasl.jaas.config": SCRAM,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "the brokers' secret",
}
PARTS = ["topics", "partitions", "records", "configs", "groups", "transactions", "quotas", "users", "tokens"]
PARTS += ["replicas", "cluster", "deletions", "acls"]

_ZERO = "a limit of nothing, or of NaN, is refused as Kafka's KRaft controller refuses it"
DIFFERENT = {
    "configs of topic": "acks.fsync, counts.bucket.ms, expose and confluent.* are not Apache Kafka's",
    "alter broker unknown": "an unknown setting is refused",
    "alter broker unknown validated": "an unknown setting is refused",
    "transaction open": "offsets of groups are kept in shared state, not in __consumer_offsets",
    "transaction fenced": "Kafka tells when the transaction before began",
    "group's offsets committed": "Kafka has dropped what the open transaction holds with the group that was deleted",
    "abort of old epoch": "Kafka fails on an epoch of -1",
    **dict.fromkeys(("quota zero", "quota not a number", "quotas"), _ZERO),
    **dict.fromkeys(("quotas by 1", "quotas by 9", "quotas by 1 only"), _ZERO),
    "offsets after all greatest": "the epoch of a log without records is not known",
    "offsets moved": "a move to another disk begins no leader epoch",
    "reassign cancel far": "as Kafka's KRaft controller has it",
    "features": "there is no feature that could have been finalized",
    "acl bad principal": "Kafka fails on it",
    "acl no principal": "Kafka fails on it",
}
"""What may differ, and why."""


@pytest.fixture(scope="module")
def class_path(kafka_jars: Path, java_classes: Callable[[str, Path], str]) -> str:
    """The calls, compiled, and Kafka's jars."""
    return java_classes("AdminCompared", kafka_jars)


Found = dict[str, dict[str, str]]


def calls(class_path: str, plain: str, guarded: str) -> Found:
    """What each call found, by part and name."""
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", class_path, "AdminCompared"]
    ended = subprocess.run(
        [*command, plain, guarded, *PARTS], capture_output=True, text=True, encoding="utf-8", timeout=280
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: Found = {}
    part = name = ""
    for line in ended.stdout.splitlines():
        if line.startswith("== "):
            part = line[3:]
            found[part] = {}
        elif line.startswith("    "):
            found[part][name] += f"\n{line}"
        else:
            name, _, value = line.partition(": ")
            found[part][name] = _without_what_differs_each_time(value)
    return found


def _without_what_differs_each_time(value: str) -> str:
    """Leaves of an error its class: what Kafka says with it is no contract."""
    return re.sub(r"(!\w+)\t[^\x1f]*\x1f", r"\1", value)


Ask = Callable[[], tuple[Found, Found]]


@pytest.fixture(scope="module")
def ask(
    zookeeper: Any, kafka_broker_class: Any, class_path: str, kafka_jars: Path, tmp_path_factory: Any
) -> Ask:
    """Starts Apache Kafka and ours, and gives what each was found to answer."""

    def run() -> tuple[Found, Found]:
        return _asked(zookeeper, kafka_broker_class, class_path, kafka_jars, tmp_path_factory.mktemp("admin"))

    return run


@pytest.fixture(scope="module")
def both(ask: Ask) -> list[tuple[Found, Found]]:
    """What was found at first, and, once somebody asked again, what was found then."""
    return [ask()]


def _asked(
    zookeeper: Any, kafka_broker_class: Any, class_path: str, kafka_jars: Path, directory: Path
) -> tuple[Found, Found]:
    plain, guarded = (f"127.0.0.1:{free_port()}" for _ in range(2))
    kafka = kafka_broker_class(
        kafka_jars, directory, f"{zookeeper.hosts}/{directory.name}", directory / "kafka-1"
    )
    dirs = [directory / name for name in ("kafka-1", "kafka-2", "ours-1", "ours-2")]
    own = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{guarded}",
        "log.dirs": f"{dirs[0]},{dirs[1]}",
    }
    kafka.start(GIVEN | own)
    try:
        theirs = calls(class_path, plain, guarded)
    finally:
        kafka.kill()
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with broker(dirs[2], more_dirs=[dirs[3]], properties=GIVEN | listeners) as running:
        ours = calls(
            class_path,
            *("{}:{}".format(*running.addresses[name]) for name in ("PLAINTEXT", "SASL_PLAINTEXT")),
        )
    return theirs, ours


def _differences(found: tuple[Found, Found], part: str) -> dict[str, object]:
    """The calls that ours answers in another way than Kafka, with both answers."""
    theirs, ours = (each[part] for each in found)
    differences: dict[str, object] = {
        name: (ours[name], theirs[name])
        for name in theirs.keys() & ours.keys()
        if ours[name] != theirs[name] and name not in DIFFERENT
    }
    if list(ours) != list(theirs) or any("broke off" in name for name in theirs):
        differences["calls"] = (list(ours), list(theirs))
    return differences


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_java_admin_finds_what_it_finds_of_kafka(
    ask: Ask, both: list[tuple[Found, Found]], part: str
) -> None:
    first = _differences(both[0], part)
    if not first:
        return
    # On a busy machine either of them may let a call time out. What is different shows again.
    if len(both) == 1:
        both.append(ask())
    again = _differences(both[1], part)
    assert {name: again[name] for name in first.keys() & again.keys()} == {}
