"""The schema registry over Apache Kafka, and asked by Confluent's own Java client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headwater.registry.client import RegistryClient
from headwater.registry.serving import running_registry
from headwater_broker.testing import broker
from support import apache_kafka
from support.maven import NoJarsError, cached_jars

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def properties(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def test_a_registry_keeps_its_schemas_in_apache_kafka(kafka_jars: Path, tmp_path: Path) -> None:
    settings = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.replication.factor": "1",
    }
    with apache_kafka.running_kafka(tmp_path, settings, heap="256m") as (_, bootstrap):
        body = {"schema": json.dumps(ORDER)}
        with running_registry(properties(bootstrap), timeout_s=60) as url:
            first = RegistryClient(url, 60).ask("POST", "subjects", "o-value", "versions", body=body)
        with (
            running_registry(properties(bootstrap), timeout_s=60) as url,
            running_registry(properties(bootstrap), timeout_s=60) as other,
        ):
            again = RegistryClient(url, 60).ask("POST", "subjects", "p-value", "versions", body=body)
            wider = {"schema": json.dumps({**ORDER, "name": "Other"})}
            second = RegistryClient(other, 60).ask("POST", "subjects", "q-value", "versions", body=wider)
            # What another registry has written is found where it is asked for, and listed when it has come.
            assert RegistryClient(url, 60).ask("GET", "subjects", "q-value", "versions") == [1]
            assert RegistryClient(url, 60).ask("GET", "subjects") == ["o-value", "p-value", "q-value"]
        assert (first["id"], again["id"], second["id"]) == (1, 1, 2)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas")
        admin = AdminClient(properties(bootstrap))
        assert admin.describe_configs([resource])[resource].result(60)["cleanup.policy"].value == "compact"


@pytest.fixture(scope="module")
def client_jars() -> Path:
    pom = Path(apache_kafka.__file__).with_name("registry-client-jars.xml")
    try:
        return cached_jars(
            "registry-client-2.0.0", "HEADWATER_REGISTRY_CLIENT_JARS", pom, "the registry's client"
        )
    except NoJarsError as error:
        pytest.skip(str(error))


def java(class_path: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["java", "-cp", class_path, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_values_of_a_java_serializer_and_of_confluent_kafkas_are_read_by_the_other(
    java_classes: Callable[[str, Path], str], client_jars: Path
) -> None:
    class_path = java_classes("RegistrySerializer", client_jars)
    note = {"name": "note", "type": "string", "default": ""}
    schema = json.dumps({**ORDER, "fields": [*ORDER["fields"], note]})
    context = SerializationContext("orders", MessageField.VALUE)
    with (
        broker() as running,
        running_registry(properties(running.bootstrap)) as url,
        SchemaRegistryClient({"url": url}) as client,
    ):
        # Python's writer has an older version, which Java's reader takes from the registry.
        older = AvroSerializer(client, json.dumps(ORDER))({"id": 3}, context)
        written, read = java(class_path, "RegistrySerializer", url, "orders-value", schema, older.hex())
        assert json.loads(read) == {"id": 3, "note": ""}
        assert AvroDeserializer(client)(bytes.fromhex(written), context) == {"id": 7, "note": "of Java"}
        assert client.get_versions("orders-value") == [1, 2]


def test_confluents_java_client_uses_it_unchanged(
    java_classes: Callable[[str, Path], str], client_jars: Path
) -> None:
    class_path = java_classes("RegistryClient", client_jars)
    with broker() as running, running_registry(properties(running.bootstrap)) as url:
        assert java(class_path, "RegistryClient", url) == [
            "id 1",
            "version 1",
            'latest {"type":"record","name":"R","namespace":"a.b","fields":[{"name":"x","type":"string"}]}',
            "compatible false",
            "refused 409 409",
            "set NONE",
            "second 2",
            "same true",
            "unknown 404 40403",
            "subjects [java-value]",
            "mode READWRITE",
            "deleted [1, 2][1, 2]",
        ]
