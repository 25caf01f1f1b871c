"""What jobs ask brokers for beside Spark, over TLS and SASL: topics, offsets, counts, group offsets; and refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from headwater.running.group_offsets import GroupOffsetsOfClusters
from headwater_broker.testing import broker
from headwater_streams.base.errors import JobDefinitionError, RefusedError, UnavailableError
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.listener_probe import Listener, probe
from headwater_streams.sources.record_count import count_records
from headwater_streams.sources.record_sizes import mean_bytes
from headwater_streams.sources.topic_metadata import TopicIds, first_since, partitions
from secured import PASSWORD, WAIT_S, Secured, certificates, secured_broker
from support.processes import free_port


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


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap


@pytest.mark.parametrize("time_ms", [-1, -2, -3, -5, -1_230_768_000_000])
def test_first_since_a_time_before_1970_is_the_beginning(plain: str, time_ms: int) -> None:
    topic = f"before{time_ms}"
    producer = Producer({"bootstrap.servers": plain})
    for _ in range(3):
        producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    assert first_since(KafkaCluster(plain), topic, time_ms) == {0: 0}


# -- what is allowed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "pay"])
def test_metadata_offsets_and_records_come_with_no_more_than_read(secured: Secured, name: str) -> None:
    cluster = secured.cluster(name=name)
    topic = cluster.named("orders")
    assert partitions(cluster, topic) == {0: (0, 2)}
    assert first_since(cluster, topic, 0) == {0: 0}
    # Nobody lets alice read as a group, and librdkafka complains of that.
    assert count_records(cluster, {"isolation.level": "read_committed"}, topic, 0, 0, 2) == 2
    assert mean_bytes(cluster, topic, {0: (0, 2)}) == {0: 3}
    topic_id = TopicIds(cluster).of(topic)
    assert topic_id is not None
    assert topic_id == TopicIds(secured.cluster("admin")).of("orders")


def test_group_offsets_are_committed_in_the_cluster_of_each_topic(secured: Secured, plain: str) -> None:
    secured.allow("alice", AclOperation.READ, "the job", ResourceType.GROUP)
    admin = AdminClient({"bootstrap.servers": plain})
    admin.create_topics([NewTopic("clicks", 1)])["clicks"].result(WAIT_S)
    clusters = {"": KafkaCluster(plain), "pay": secured.cluster(name="pay")}
    offsets = GroupOffsetsOfClusters(clusters.__getitem__, "the job")
    offsets.commit({("clicks", 0): 5, ("pay:orders", 0): 2})
    for cluster, topic, offset in ((clusters[""], "clicks", 5), (clusters["pay"], "orders", 2)):
        assert _committed(cluster, topic) == offset


def _committed(cluster: KafkaCluster, topic: str) -> int:
    deadline_s = time.monotonic() + WAIT_S
    consumer = Consumer({**cluster.rdkafka(), "group.id": "the job"})
    try:
        while True:
            (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
            if found.offset >= 0:
                return int(found.offset)
            assert time.monotonic() < deadline_s
    finally:
        consumer.close()


def test_client_with_a_certificate_is_let_in_by_it(folder: Path) -> None:
    with _broker_of_certificates(folder) as bootstrap:
        login = ClientLogin(
            protocol="SSL",
            ca=(folder / "ca.pem").read_text(),
            certificate=(folder / "alice.crt").read_text(),
            key=(folder / "alice.key").read_text(),
        )
        with pytest.raises(JobDefinitionError, match="there is no topic 'none'"):
            partitions(KafkaCluster(bootstrap, login), "none")
        without = ClientLogin(protocol="SSL", ca=login.ca)
        with pytest.raises(
            RefusedError, match=r"takes clients with a certificate alone: client\.ssl_certificate"
        ):
            partitions(KafkaCluster(bootstrap, without), "none")


@contextmanager
def _broker_of_certificates(folder: Path) -> Iterator[str]:
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "auto.create.topics.enable": "false",
    }
    with broker(properties=properties) as running:
        yield running.bootstrap


# -- what is refused -------------------------------------------------------------------------------------


def _refused(cluster: KafkaCluster, topic: str = "orders") -> str:
    with pytest.raises(RefusedError) as refused:
        partitions(cluster, topic)
    said = str(refused.value)
    assert PASSWORD not in said
    assert cluster.bootstrap in said
    return said.replace(cluster.bootstrap, "B")


def test_wrong_password_is_told_as_such_by_each_request(secured: Secured) -> None:
    cluster = secured.cluster(password="another")
    sentence = (
        "the broker at B refuses 'alice' with this password (SCRAM-SHA-512): client.sasl_username and "
        "client.sasl_password say who this client is"
    )
    assert _refused(cluster) == sentence
    with pytest.raises(RefusedError, match="refuses 'alice' with this password"):
        count_records(cluster, {}, "orders", 0, 0, 1)
    ids = TopicIds(cluster)
    assert ids.of("orders") is None
    assert ids._admin is None, "it would go on trying to log in"
    assert "cluster.pay.sasl_password" in _refused(
        secured.cluster(name="pay", password="another"), "pay:orders"
    )


def test_no_login_and_plain_text_to_a_port_of_tls_are_told(secured: Secured, plain: str) -> None:
    ca = secured.ca.read_text()
    assert _refused(KafkaCluster(secured.bootstrap)) == (
        "the broker at B speaks TLS, and client.security_protocol is PLAINTEXT: set SSL, or SASL_SSL with a user"
    )
    assert _refused(KafkaCluster(secured.bootstrap, ClientLogin(protocol="SSL", ca=ca))) == (
        "the broker at B asks who its clients are, and client.security_protocol is SSL: set SASL_SSL, "
        "client.sasl_mechanism, client.sasl_username and client.sasl_password"
    )
    assert "does not speak TLS" in _refused(KafkaCluster(plain, secured.login()))
    login = secured.login(protocol="SASL_PLAINTEXT")
    assert "does not ask who its clients are" in _refused(KafkaCluster(plain, login))


def test_unknown_authority_is_told_and_one_of_several_will_do(secured: Secured, folder: Path) -> None:
    other = (folder / "other-ca.pem").read_text()
    assert _refused(secured.cluster(ca=other)).startswith(
        "the broker at B shows a certificate of an authority that is not trusted here ("
    )
    assert "client.ssl_ca_location is to name the PEM file of its authority" in _refused(
        secured.cluster(ca="")
    )
    assert partitions(secured.cluster(ca=other + secured.ca.read_text()), "orders") == {0: (0, 2)}


def test_certificate_of_another_host_is_told_and_can_be_taken(folder: Path) -> None:
    properties = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(folder / "elsewhere.pem")}
    with broker(properties=properties) as running:
        login = ClientLogin(protocol="SSL", ca=(folder / "ca.pem").read_text())
        assert _refused(KafkaCluster(running.bootstrap, login)).startswith(
            "the broker at B shows the certificate of another host ("
        )
        unchecked = ClientLogin(protocol="SSL", ca=login.ca, checks_hostname=False)
        with pytest.raises(JobDefinitionError, match="there is no topic"):
            partitions(KafkaCluster(running.bootstrap, unchecked), "none")


def test_mechanism_that_is_not_taken_is_told_with_those_that_are(secured: Secured) -> None:
    assert _refused(secured.cluster(mechanism="SCRAM-SHA-256")) == (
        "the broker at B does not take SCRAM-SHA-256 (client.sasl_mechanism): it takes PLAIN, SCRAM-SHA-512"
    )


def test_topic_that_one_may_not_see_is_told_from_one_that_is_not_there(secured: Secured) -> None:
    assert _refused(secured.cluster(), "secret") == (
        "the broker at B does not let 'alice' read the topic 'secret': it needs the operation Read on it"
    )
    with pytest.raises(JobDefinitionError, match=r"headwater topics create none --bootstrap pay\)"):
        partitions(secured.cluster("admin", name="pay"), "pay:none")
    admin = secured.admin()
    assert "none" not in admin.list_topics(timeout=WAIT_S).topics


def test_broker_that_is_away_is_no_refusal() -> None:
    login = ClientLogin(protocol="SASL_SSL", mechanism="PLAIN", username="alice", password="x")
    with pytest.raises(UnavailableError, match="does not answer"):
        partitions(KafkaCluster("127.0.0.1:1", login), "orders")


def test_broker_whose_advertised_address_does_not_answer_is_told_from_one_that_is_away() -> None:
    cluster = KafkaCluster(f"127.0.0.1:{free_port()}")
    properties = {
        "listeners": f"PLAINTEXT://{cluster.bootstrap}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:1",
    }
    with broker(properties=properties):
        admin = AdminClient(cluster.rdkafka())
        assert admin.list_topics("clicks", timeout=WAIT_S).topics  # asked for, it is made
        with pytest.raises(
            UnavailableError,
            match=r"answers, and names 127\.0\.0\.1:1 for the records \(its advertised\.listeners\)",
        ):
            partitions(cluster, "clicks")


def test_group_offsets_that_are_refused_stop_nothing(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = GroupOffsetsOfClusters(lambda _: secured.cluster(key="no key", certificate="none"), "another")
    offsets.commit({("orders", 0): 1})
    assert "its progress is not shown as a group's offsets" in caplog.text


# -- the port --------------------------------------------------------------------------------------------


def test_probe_says_what_a_port_speaks(secured: Secured, plain: str) -> None:
    mechanisms = ("PLAIN", "SCRAM-SHA-512")
    assert probe(plain, ClientLogin()) == Listener(has_tls=False, mechanisms=())
    assert probe(plain, secured.login()) == Listener(has_tls=False, mechanisms=())
    assert probe(secured.bootstrap, secured.login()) == Listener(has_tls=True, mechanisms=mechanisms)
    found = probe(secured.bootstrap, ClientLogin())
    assert found is not None
    assert found.has_tls
    assert probe(f"127.0.0.1:1,{plain}", ClientLogin()) == Listener(has_tls=False, mechanisms=())
    assert probe(f"PLAINTEXT://{plain}", ClientLogin()) == Listener(has_tls=False, mechanisms=())
    assert probe("127.0.0.1:1", ClientLogin()) is None


def test_secrets_are_not_printed(secured: Secured) -> None:
    cluster = secured.cluster()
    assert PASSWORD not in repr(cluster)
    assert PASSWORD not in str(cluster.spark_options())
    with pytest.raises(KafkaException) as wrong:
        AdminClient({**cluster.rdkafka(), "sasl.mechanism": "NONE"})
    assert PASSWORD not in str(wrong.value)
