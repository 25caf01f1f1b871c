"""The registry over a broker, asked by confluent-kafka's own client and serializers, unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from headwater.errors import UserError
from headwater.registry.guard import Guard
from headwater.registry.serving import running_registry
from headwater_broker.server.schema_ids import RegistryIds
from headwater_broker.testing import RunningBroker, broker
from secured import certificates
from support.processes import free_port

RECORD = '{"type":"record","name":"R","fields":[{"name":"x","type":"string"}]}'
BROKEN = '{"type":"record","name":"R","fields":[{"name":"x","type":"string"},{"name":"y","type":"int"}]}'


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def properties(running: RunningBroker) -> dict[str, Any]:
    return {"bootstrap.servers": running.bootstrap, "log_level": 0}


_CLIENTS: list[SchemaRegistryClient] = []


def connect(url: str, **more: Any) -> SchemaRegistryClient:
    """A client that is closed when the test ends, as its connections would be told of otherwise."""
    _CLIENTS.append(SchemaRegistryClient({"url": url, **more}))
    return _CLIENTS[-1]


def close() -> None:
    """Closes all clients; of TLS before the registry ends, which would wait for them."""
    while _CLIENTS:
        _CLIENTS.pop().close()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close()


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def url(shared: RunningBroker) -> Iterator[str]:
    with running_registry(properties(shared)) as address:
        yield address


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    """A client without a cache of earlier tests; a test keeps to subjects of its own."""
    return connect(url)


def test_avro_goes_through_the_clients_serializers(url: str, client: SchemaRegistryClient) -> None:
    value = AvroSerializer(client, RECORD)({"x": "a"}, value_of("avro"))
    reader = AvroDeserializer(connect(url))
    assert reader(value, value_of("avro")) == {"x": "a"}


def test_json_goes_through_the_clients_serializers(url: str, client: SchemaRegistryClient) -> None:
    address = '{"$id":"http://x/address.json","type":"object","properties":{"street":{"type":"string"}}}'
    client.register_schema("address", Schema(address, "JSON"))
    schema = Schema(
        '{"type":"object","title":"P","properties":{"a":{"$ref":"http://x/address.json"}}}',
        "JSON",
        [SchemaReference("http://x/address.json", "address", 1)],
    )
    value = JSONSerializer(schema, client)({"a": {"street": "q"}}, value_of("json"))
    again = connect(url)
    reader = JSONDeserializer(None, schema_registry_client=again)
    assert reader(value, value_of("json")) == {"a": {"street": "q"}}


def test_protobuf_with_an_import_goes_through_the_clients_serializers(
    url: str, client: SchemaRegistryClient
) -> None:
    message = _message_class()
    value = ProtobufSerializer(message, client, {"use.deprecated.format": False})(
        message(x="a", d={"i": 3}), value_of("protobuf")
    )
    reader = ProtobufDeserializer(message, {"use.deprecated.format": False}, connect(url))
    assert reader(value, value_of("protobuf")) == message(x="a", d={"i": 3})
    assert "message M {" in client.get_latest_version("protobuf-value").schema.schema_str


def _message_class() -> Any:
    inner = descriptor_pb2.FileDescriptorProto(name="d.proto", package="q", syntax="proto3")
    inner.message_type.add(name="D").field.add(name="i", number=1, type=5, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="m.proto",
        package="p",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "d.proto"],
    )
    fields = file.message_type.add(name="M").field
    fields.add(name="x", number=1, type=9, label=1)
    fields.add(name="t", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    fields.add(name="d", number=3, type=11, label=1, type_name=".q.D")
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp, inner, file):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


def test_an_incompatible_schema_is_refused_with_the_reason(client: SchemaRegistryClient) -> None:
    client.register_schema("incompatible", Schema(RECORD, "AVRO"))
    assert client.test_compatibility("incompatible", Schema(BROKEN, "AVRO")) is False
    with pytest.raises(SchemaRegistryError, match="y; compatibility is BACKWARD") as refusal:
        client.register_schema("incompatible", Schema(BROKEN, "AVRO"))
    assert refusal.value.http_status_code == 409
    client.set_compatibility("incompatible", "NONE")
    assert client.get_compatibility("incompatible") == "NONE"
    client.register_schema("incompatible", Schema(BROKEN, "AVRO"))
    assert client.get_versions("incompatible") == [1, 2]


def test_deletion_as_the_client_knows_it(client: SchemaRegistryClient) -> None:
    number = client.register_schema("deleted", Schema('{"type":"fixed","name":"D","size":1}', "AVRO"))
    assert client.delete_subject("deleted") == [1]
    assert "deleted" not in client.get_subjects()
    assert "deleted" in client.get_subjects(deleted=True)
    assert client.get_schema(number).schema_str.startswith('{"type":"fixed"')
    assert client.delete_subject("deleted", permanent=True) == [1]
    client.clear_caches()
    with pytest.raises(SchemaRegistryError) as unknown:
        client.get_schema(number)
    assert unknown.value.error_code == 40403


def test_a_probe_may_ask_for_the_head_alone(url: str) -> None:
    with urlopen(Request(f"{url}/subjects", method="HEAD"), timeout=10) as response:
        assert (response.status, response.read()) == (200, b"")


def test_an_id_of_another_cluster_is_unknown(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as unknown:
        client.get_schema(123_456)
    assert (unknown.value.http_status_code, unknown.value.error_code) == (404, 40403)


def test_a_schema_of_a_megabyte_is_taken_and_one_that_the_topic_does_not_take_is_refused(
    client: SchemaRegistryClient,
) -> None:
    fields = ",".join(f'{{"name":"f{i}","type":"string","doc":"{"d" * 80}"}}' for i in range(9000))
    before = client.register_schema(
        "large", Schema(f'{{"type":"record","name":"L","fields":[{fields}]}}', "AVRO")
    )
    symbols = ",".join(f'"s{os.urandom(40).hex()}"' for _ in range(30_000))
    with pytest.raises(SchemaRegistryError, match=r"raise its max\.message\.bytes") as refusal:
        client.register_schema(
            "larger", Schema(f'{{"type":"enum","name":"E","symbols":[{symbols}]}}', "AVRO")
        )
    assert refusal.value.error_code == 42209
    # Nothing of it is left, and its id is free.
    assert (
        client.register_schema("after", Schema('{"type":"fixed","name":"A","size":9}', "AVRO")) == before + 1
    )


def test_a_subject_may_have_any_name_that_is_text(client: SchemaRegistryClient) -> None:
    for name in ("a/b-value", "a b", "ä%2F?&#"):
        client.register_schema(name, Schema(RECORD, "AVRO"))
        assert client.get_versions(name) == [1]


def test_a_context_is_a_registry_of_its_own(url: str) -> None:
    one, other = connect(f"{url}/contexts/.one"), connect(f"{url}/contexts/.other")
    texts = ['{"type":"fixed","name":"C","size":1}', '{"type":"fixed","name":"C","size":2}']
    assert [c.register_schema("c", Schema(t, "AVRO")) for c, t in zip((one, other), texts, strict=True)] == [
        1,
        1,
    ]
    assert [c.get_schema(1, "c").schema_str for c in (one, other)] == texts
    assert (one.get_subjects(), other.get_versions("c")) == ([":.one:c"], [1])
    one.set_compatibility(level="NONE")
    assert one.get_compatibility() == "NONE"
    assert {".", ".one", ".other"} <= set(one.get_contexts())


def test_a_version_is_found_by_all_of_its_properties(client: SchemaRegistryClient) -> None:
    for major, stage in (("1", "live"), ("2", "live"), ("1", "test")):
        metadata = Metadata(None, MetadataProperties({"major": major, "stage": stage}), None)
        client.register_schema("properties", Schema('"int"', "AVRO", metadata=metadata))
    for wanted, number in (({"major": "1", "stage": "live"}, 1), ({"stage": "live"}, 2), ({"major": "1"}, 3)):
        assert client.get_latest_with_metadata("properties", wanted).version == number


def test_a_producer_that_knows_the_text_alone_writes_by_the_rules(
    url: str, client: SchemaRegistryClient
) -> None:
    rule = Rule("r", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "true", None, None, True)
    rules = RuleSet(None, [rule], None)
    number = client.register_schema("rules-value", Schema(RECORD, "AVRO", rule_set=rules))
    AvroSerializer(connect(url), RECORD)({"x": "a"}, value_of("rules"))
    AvroSerializer(connect(url), RECORD, conf={"auto.register.schemas": False})({"x": "a"}, value_of("rules"))
    newest = connect(url).get_latest_version("rules-value")
    assert (newest.schema_id, newest.version) == (number, 1)
    wider = BROKEN.replace('"int"', '"int","default":0')
    connect(url).register_schema("rules-value", Schema(wider, "AVRO"))
    kept = connect(url).get_latest_version("rules-value")
    assert kept.version == 2
    assert kept.schema.rule_set.domain_rules[0].name == "r"


def test_clients_log_in_over_tls(shared: RunningBroker, tmp_path: Path) -> None:
    files = certificates(tmp_path)
    guard = Guard(username="jobs", password="a:ü", certificate=files / "broker.crt", key=files / "broker.key")
    trusted = {"ssl.ca.location": str(files / "ca.pem")}
    with running_registry(properties(shared), topic="guarded", guard=guard) as url:
        assert url.startswith("https://")
        client = connect(url, **trusted, **{"basic.auth.user.info": "jobs:a:ü"})
        assert client.register_schema("s-value", Schema(RECORD, "AVRO")) == 1
        assert RegistryIds(url, user_info="jobs:a:ü", ca_location=trusted["ssl.ca.location"])._ask(1) == [
            "s-value"
        ]
        for wrong in ({}, {"basic.auth.user.info": "jobs:a"}):
            with pytest.raises(SchemaRegistryError) as refusal:
                connect(url, **trusted, **wrong).get_subjects()
            assert (refusal.value.http_status_code, refusal.value.error_code) == (401, 401)
        close()


def test_two_registries_of_one_topic_give_no_id_twice() -> None:
    with (
        broker() as running,
        running_registry(properties(running)) as one,
        running_registry(properties(running)) as other,
    ):
        clients = [connect(each) for each in (one, other)]
        ids: list[int] = []

        def register(number: int) -> None:
            for i in range(10):
                text = f'{{"type":"fixed","name":"F{number}x{i}","size":1}}'
                ids.append(clients[number].register_schema(f"s{number}-{i}", Schema(text, "AVRO")))

        threads = [threading.Thread(target=register, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(ids) == list(range(1, 21))
        # What another registry has written is found where it is asked for, and listed when it has come.
        for client in clients:
            assert [client.get_versions(f"s{number}-9") for number in range(2)] == [[1], [1]]
        assert clients[0].get_subjects() == clients[1].get_subjects()


def test_all_is_there_after_a_restart_and_while_the_broker_is_away(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        port = running.port
        with running_registry(properties(running)) as url:
            connect(url).register_schema("s-value", Schema(RECORD, "AVRO"))
    with broker(tmp_path, port=port) as running, running_registry(properties(running)) as url:
        again = connect(url)
        assert again.get_latest_version("s-value").schema_id == 1
        address = properties(running)
    with broker(tmp_path, port=port) as running:
        registry = running_registry(address, timeout_s=3)
        url = registry.__enter__()
    try:
        # What is known is answered; what must be written is not.
        away = connect(url, **{"max.retries": 0})
        assert away.get_schema(1).schema_str == RECORD
        with pytest.raises(SchemaRegistryError, match="cannot reach its topic _schemas") as failure:
            away.register_schema("t-value", Schema('"string"', "AVRO"))
        assert failure.value.http_status_code == 500
    finally:
        registry.__exit__(None, None, None)


def test_what_confluents_registry_wrote_is_read(shared: RunningBroker) -> None:
    # As a registry of theirs leaves its topic: a mark, a schema with its md5, a level, a soft deletion, a tombstone.
    records = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
            json.dumps({"subject": "orders-value", "version": 1, "id": 41, "md5": "AA==", "schema": RECORD}),
        ),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        (
            '{"keytype":"SCHEMA","subject":"old-value","version":1,"magic":1}',
            '{"subject":"old-value","version":1,"id":40,"schema":"\\"int\\"","deleted":false}',
        ),
        ('{"keytype":"DELETE_SUBJECT","subject":"old-value","magic":0}', '{"subject":"old-value","version":1}'),
        ('{"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}', None),
    ]  # fmt: skip
    topic = "theirs"
    with running_registry(properties(shared), topic=topic):
        pass  # makes the topic
    producer = Producer(properties(shared))
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    producer.produce(topic, key="not of a registry", value="x")
    assert producer.flush(10) == 0
    with running_registry(properties(shared), topic=topic) as url:
        client = connect(url)
        assert client.get_subjects() == ["orders-value"]
        assert client.get_subjects(deleted=True) == ["old-value", "orders-value"]
        assert client.get_schema(41).schema_str == RECORD
        assert client.get_compatibility() == "FULL"
        assert client.register_schema("orders-value", Schema(RECORD, "AVRO")) == 41
        assert client.register_schema("new-value", Schema('"int"', "AVRO")) == 40
        assert client.register_schema("new-value2", Schema('"long"', "AVRO")) == 42


def test_a_schema_under_a_key_of_an_older_registry_does_not_come_back(shared: RunningBroker) -> None:
    topic = "older"
    with running_registry(properties(shared), topic=topic):
        pass  # makes the topic
    key = '{"magic":0,"subject":"s-value","version":1,"keytype":"SCHEMA"}'
    producer = Producer(properties(shared))
    producer.produce(
        topic, key=key, value=json.dumps({"subject": "s-value", "version": 1, "id": 7, "schema": RECORD})
    )
    assert producer.flush(10) == 0
    with running_registry(properties(shared), topic=topic) as url:
        client = connect(url)
        assert client.get_latest_version("s-value").schema_id == 7
        client.delete_subject("s-value")
        client.delete_subject("s-value", permanent=True)
    consumer = Consumer({**properties(shared), "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    kept: dict[bytes, bytes | None] = {}  # what compaction leaves, in time
    while (message := consumer.poll(10)) is not None and message.error() is None:
        kept[message.key()] = message.value()
    consumer.close()
    assert key.encode() in kept
    assert not any(kept.values())


def test_the_topic_has_what_confluents_registry_reads(shared: RunningBroker) -> None:
    topic = "ours"
    with running_registry(properties(shared), topic=topic) as url:
        connect(url).register_schema("s-value", Schema(RECORD, "AVRO"))
    consumer = Consumer({**properties(shared), "group.id": "reader", "isolation.level": "read_uncommitted"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(10)
    consumer.close()
    assert message.key() == b'{"keytype":"SCHEMA","subject":"s-value","version":1,"magic":1}'
    assert json.loads(message.value()) == {
        "subject": "s-value",
        "version": 1,
        "id": 1,
        "schema": RECORD,
        "deleted": False,
    }


def test_a_topic_that_is_none_of_a_registry_is_refused(shared: RunningBroker) -> None:
    admin = AdminClient(properties(shared))
    for topic in (NewTopic("clicks", 2, 1), NewTopic("visits", 1, 1)):
        admin.create_topics([topic])[topic.topic].result(10)
    with (
        pytest.raises(UserError, match="has 2 partitions"),
        running_registry(properties(shared), topic="clicks"),
    ):
        pass
    with (
        pytest.raises(UserError, match="by which schemas would be lost"),
        running_registry(properties(shared), topic="visits"),
    ):
        pass


@contextmanager
def validating(data_dir: Path) -> Iterator[tuple[RunningBroker, SchemaRegistryClient]]:
    """A broker that asks a registry of its own about the values of the topic `orders`, and the registry's client."""
    port = free_port()
    given = {"confluent.schema.registry.url": f"http://127.0.0.1:{port}"}
    with (
        broker(data_dir, properties=given) as running,
        running_registry(properties(running), port=port) as url,
    ):
        config = {"confluent.value.schema.validation": "true"}
        admin = AdminClient(properties(running))
        admin.create_topics([NewTopic("orders", 1, 1, config=config)])["orders"].result(10)
        yield running, connect(url)


def test_the_broker_refuses_an_id_that_the_subject_does_not_have(tmp_path: Path) -> None:
    with validating(tmp_path) as (running, client):
        other = client.register_schema("visits-value", Schema('{"type":"fixed","name":"V","size":1}', "AVRO"))
        serializer = AvroSerializer(client, RECORD)
        results: list[str] = []

        def send(value: bytes | None) -> str:
            producer = Producer({**properties(running), "enable.idempotence": True})
            producer.produce("orders", value=value, on_delivery=lambda error, _: results.append(str(error)))
            producer.flush(20)
            return results[-1]

        assert send(serializer({"x": "a"}, value_of("orders"))) == "None"
        assert send(None) == "None"
        assert "INVALID_RECORD" in send(b'{"x": "a"}') or "rejected" in results[-1]
        assert send(b"\0" + other.to_bytes(4, "big") + b"a") != "None"
        assert send(b"\0" + (12_345).to_bytes(4, "big")) != "None"


def test_the_broker_takes_a_value_whose_schema_a_header_names(tmp_path: Path) -> None:
    """As newer serializers can write it: the GUID in a header, and nothing of it in the value."""
    with validating(tmp_path) as (running, client):
        results: list[str] = []

        def send(topic: str) -> str:
            in_header = {"schema.id.serializer": header_schema_id_serializer}
            headers: list[tuple[str, bytes]] = []
            context = SerializationContext(topic, MessageField.VALUE, headers=headers)
            schema = RECORD if topic == "orders" else BROKEN
            record = {"x": "a"} if topic == "orders" else {"x": "a", "y": 1}
            value = AvroSerializer(client, schema, conf=in_header)(record, context)
            assert (value, [name for name, _ in headers]) == (
                b"\2a" if topic == "orders" else b"\2a\2",
                ["__value_schema_id"],
            )
            producer = Producer(properties(running))
            producer.produce(
                "orders",
                value=value,
                headers=headers,
                on_delivery=lambda error, _: results.append(str(error)),
            )
            producer.flush(20)
            return results[-1]

        assert send("orders") == "None"
        assert "INVALID_RECORD" in send("visits") or "rejected" in results[-1]


def test_of_an_idempotent_producer_with_many_in_flight_only_what_is_wrong_is_refused(tmp_path: Path) -> None:
    with validating(tmp_path) as (running, client):
        serializer = AvroSerializer(client, RECORD)
        good = [serializer({"x": str(i)}, value_of("orders")) for i in range(200)]
        sent = [b"{}" if i % 40 == 39 else value for i, value in enumerate(good)]
        refused: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                refused.append(sent.index(message.value()) if message.value() != b"{}" else -1)

        one_each = {"enable.idempotence": True, "batch.num.messages": 1, "linger.ms": 0}
        producer = Producer({**properties(running), **one_each})
        for value in sent:
            producer.produce("orders", value=value, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert refused == [-1] * 5
        consumer = Consumer({**properties(running), "group.id": "reader"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        read = [message.value() for message in consumer.consume(195, 10)]
        consumer.close()
        assert read == [value for value in sent if value != b"{}"]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)")
def test_kcat_shows_the_id_of_a_json_value(
    url: str, client: SchemaRegistryClient, shared: RunningBroker
) -> None:
    """Debian's kcat has no Avro, and takes a header apart all the same."""
    schema = '{"type":"object","title":"P","properties":{"a":{"type":"integer"}}}'
    value = JSONSerializer(schema, client)({"a": 1}, value_of("kcat"))
    producer = Producer(properties(shared))
    producer.produce("kcat", value=value)
    assert producer.flush(10) == 0
    read = [
        "kcat",
        "-b",
        shared.bootstrap,
        "-C",
        "-t",
        "kcat",
        "-o",
        "beginning",
        "-e",
        "-q",
        "-s",
        "value=>bIs",
    ]
    shown = subprocess.run(read, capture_output=True, text=True, timeout=30, check=True).stdout
    number = client.get_latest_version("kcat-value").schema_id
    assert shown.strip() == f'0{number}{{"a":1}}'
