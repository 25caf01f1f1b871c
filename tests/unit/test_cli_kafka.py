"""What the Kafka verbs say of librdkafka's errors."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headwater.errors import UsageError
from headwater.running.cluster import Cluster


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.", "topic orders is there already"),
        (KafkaError.INVALID_PARTITIONS, "topic orders is full", "topic orders is full"),
        (KafkaError.INVALID_PARTITIONS, "Too few.", "topic orders: too few"),
    ],
)
def test_error_names_its_subject_once(code: int, said: str, told: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "127.0.0.1:9092")
    assert str(cluster.explain(KafkaError(code, said), "topic orders")) == told


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.NON_EMPTY_GROUP, "group silver has running members: stop them first"),
        (KafkaError.GROUP_ID_NOT_FOUND, "there is no group silver: headwater groups list shows them"),
    ],
)
def test_error_of_a_group_says_what_to_do(code: int, told: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "127.0.0.1:9092")
    assert str(cluster.explain(KafkaError(code, "Broker: said so"), "group silver")) == told


def test_topic_with_its_cluster_is_no_topic_of_a_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"take the cluster apart, --bootstrap pay and the topic orders$"):
        Cluster(tmp_path, "127.0.0.1:9092").describe_topic("pay:orders")


def test_error_of_an_acl_names_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SECURITY_PROTOCOL", "SASL_PLAINTEXT"), ("SASL_MECHANISM", "PLAIN")):
        monkeypatch.setenv(f"HEADWATER_CLIENT_{name}", value)
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_USERNAME", "alice")
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", "secret")
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed")
    assert str(Cluster(tmp_path, "127.0.0.1:9092").explain(error, "topic orders")) == (
        "topic orders: the broker at 127.0.0.1:9092 does not let 'alice' do that (broker: topic authorization failed): "
        "an ACL is to allow it"
    )


def test_sasl_without_what_it_needs_is_refused_before_a_client_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_USERNAME", "alice")
    with pytest.raises(UsageError) as refused:
        Cluster(tmp_path, "127.0.0.1:9092")
    assert str(refused.value) == (
        "client.security_protocol is SASL_PLAINTEXT, which needs client.sasl_mechanism "
        "(HEADWATER_CLIENT_SASL_MECHANISM) and client.sasl_password (HEADWATER_CLIENT_SASL_PASSWORD), too"
    )
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", "secret")
    Cluster(tmp_path, "127.0.0.1:9092")
