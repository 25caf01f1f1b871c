"""The mirror's own connections to brokers that ask who it is: TLS, certificates, PLAIN, SCRAM; and refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, NewPartitions, ResourceType

from headwater.mirror import Mirror, MirrorError, MirrorOptions
from headwater.mirror.connection import METADATA, Connection
from headwater.mirror.end import End
from headwater.mirror.kept import load
from headwater.mirror.topics import Choice
from headwater_broker.testing import RunningBroker, broker
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.kafka_cluster import KafkaCluster
from kafka_clients import admin_of
from mirrored_topics import make_topic, rows, send
from secured import PASSWORD, Secured, certificates, files_with, secured_broker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[Secured]:
    with secured_broker(folder) as running:
        running.create("orders", "secret")
        running.send("orders", "one", "two")
        running.allow("alice", AclOperation.READ, "orders")
        yield running


@pytest.fixture
def plain() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


def mirrored(
    source: KafkaCluster, target: KafkaCluster, topics: str = ".*"
) -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    options = MirrorOptions(Choice((re.compile(topics),)), once=True)
    return Mirror(source, target, options, stop=threading.Event(), tell=told.append).run(), told


@pytest.mark.parametrize("user", ["alice", "admin"])
def test_mirror_reads_from_a_broker_with_tls_by_scram_and_plain(
    secured: Secured, plain: RunningBroker, user: str
) -> None:
    status, _ = mirrored(secured.cluster(user, name="west"), KafkaCluster(plain.bootstrap), "orders")

    assert [row[3] for row in rows(plain.bootstrap, "orders")] == [b"one", b"two"]
    assert status["topics"][0]["lag"] == 0


def test_mirror_writes_to_a_broker_with_tls_and_acls(secured: Secured, plain: RunningBroker) -> None:
    make_topic(plain.bootstrap, "clicks", 2)
    send(plain.bootstrap, "clicks", range(200))

    mirrored(KafkaCluster(plain.bootstrap), secured.cluster("admin"), "clicks")
    status, _ = mirrored(KafkaCluster(plain.bootstrap), secured.cluster("admin"), "clicks")

    assert (status["topics"][0]["lag"], status["topics"][0]["records"]) == (0, 0)


def test_mirror_of_a_broker_with_just_the_acls_of_the_documentation(
    folder: Path, plain: RunningBroker
) -> None:
    with secured_broker(folder) as source:
        source.create("clicks")
        source.send("clicks", "one")
        for operation in (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS):
            source.allow("alice", operation, "clicks")
        source.allow("alice", AclOperation.DESCRIBE, "*", ResourceType.GROUP)
        end = End(KafkaCluster(plain.bootstrap))
        target_id = end.refresh().cluster_id
        end.drop_connections()
        source.allow("alice", AclOperation.READ, f"headwater-mirror-{target_id}", ResourceType.GROUP)

        _, told = mirrored(source.cluster("alice"), KafkaCluster(plain.bootstrap))

    assert ([row[3] for row in rows(plain.bootstrap, "clicks")], told) == ([b"one"], [])


def test_mirror_into_a_broker_with_just_the_acls_of_the_documentation(
    folder: Path, plain: RunningBroker
) -> None:
    make_topic(plain.bootstrap, "clicks", retention_ms="86400000")
    send(plain.bootstrap, "clicks", range(10))
    with secured_broker(folder) as target:
        for topic in ("clicks", "__headwater_mirror"):
            for operation in (
                AclOperation.CREATE,
                AclOperation.ALTER,
                AclOperation.ALTER_CONFIGS,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.READ,
                AclOperation.WRITE,
            ):
                target.allow("alice", operation, topic)
        first = mirrored(KafkaCluster(plain.bootstrap), target.cluster("alice"))
        admin = admin_of(plain.bootstrap)
        admin.create_partitions([NewPartitions("clicks", 2)])["clicks"].result()
        send(plain.bootstrap, "clicks", range(10))
        second = mirrored(KafkaCluster(plain.bootstrap), target.cluster("alice"))

    assert ([first[1], second[1]], second[0]["topics"][0]["lag"]) == ([[], []], 0)
    assert len(second[0]["topics"][0]["partitions"]) == 2


def test_mirror_by_a_client_certificate(folder: Path, plain: RunningBroker) -> None:
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    make_topic(plain.bootstrap, "clicks")
    send(plain.bootstrap, "clicks", range(20))
    texts = {
        name: (folder / file).read_text() for name, file in (("ca", "ca.pem"), ("certificate", "alice.crt"))
    }
    with broker(properties=properties) as running:
        login = ClientLogin(protocol="SSL", key=(folder / "alice.key").read_text(), **texts)
        for _ in range(2):
            status, told = mirrored(KafkaCluster(plain.bootstrap), KafkaCluster(running.bootstrap, login))

    assert (status["topics"][0]["lag"], told) == (0, [])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"password": "another"}, r"refuses 'alice': .* \(client\.sasl_mechanism is SCRAM-SHA-512\)"),
        ({"mechanism": "SCRAM-SHA-256"}, r"refuses 'alice': it does not take SCRAM-SHA-256"),
        ({"ca": ""}, r"its certificate is not trusted: .*certificate"),
        ({"protocol": "PLAINTEXT"}, r"speaks TLS, and client\.security_protocol is PLAINTEXT"),
    ],
)
def test_mirror_that_is_refused_ends_in_a_sentence(
    secured: Secured, plain: RunningBroker, changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(MirrorError, match=sentence):
        mirrored(secured.cluster("alice", **changes), KafkaCluster(plain.bootstrap))


def test_mirror_halts_a_topic_that_it_may_not_write_and_names_the_acl(
    secured: Secured, plain: RunningBroker
) -> None:
    make_topic(plain.bootstrap, "orders")
    send(plain.bootstrap, "orders", range(3))
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE):
        secured.allow("alice", operation, "__headwater_mirror")

    with pytest.raises(MirrorError, match=r"orders"):
        mirrored(KafkaCluster(plain.bootstrap), secured.cluster("alice"), "orders")


def test_mirror_command_takes_a_cluster_of_the_settings_and_names_origins_by_it(
    secured: Secured, plain: RunningBroker, tmp_path: Path
) -> None:
    environ = {"HEADWATER_CLUSTER_WEST_BOOTSTRAP": secured.bootstrap, **secured.environ("CLUSTER_WEST")}
    command = [sys.executable, "-m", "headwater.cli", "mirror", "--from", "west", "--to", plain.bootstrap]
    command += ["--topics", "orders", "--once", "--home", str(tmp_path)]

    done = subprocess.run(
        command, env={**os.environ, **environ}, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.stdout == f"mirrored 2 records of 1 topic into {plain.bootstrap}\n", done.stderr
    assert PASSWORD not in done.stderr
    assert files_with("correct horse", tmp_path) == []
    kept = load(End(KafkaCluster(plain.bootstrap)))
    assert [each.name for each in kept.mirrors.values()] == ["west"]


def test_mirror_begins_a_session_of_sasl_anew_before_the_broker_ends_it(folder: Path) -> None:
    with secured_broker(folder, connections__max__reauth__ms="1000") as short:
        connection = Connection(short.cluster("admin"), *short.running.addresses["SASL_SSL"])
        logins, log_in = [], connection._log_in
        connection._log_in = lambda: (logins.append(1), log_in())  # type: ignore[method-assign,assignment,return-value]
        stop = threading.Event()
        for _ in range(25):
            stop.wait(0.1)
            answer = connection.ask(
                METADATA,
                topics=None,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            assert answer.brokers
        connection.close()

    assert len(logins) >= 2
