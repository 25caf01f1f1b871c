"""The schema registry over Apache Kafka, and asked by Confluent's own Java client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

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
            assert RegistryClient(url, 60).ask("GET", "subjects") == ["o-value", "p-value", "q-value"]
        assert (first["id"], again["id"], second["id"]) == (1, 1, 2)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas")
        admin = AdminClient(properties(bootstrap))
        assert admin.describe_configs([resource])[resource].result(60)["cleanup.policy"].value == "compact"


def test_confluents_java_client_uses_it_unchanged(java_classes: Callable[[str, Path], str]) -> None:
    pom = Path(apache_kafka.__file__).with_name("registry-client-jars.xml")
    try:
        jars = cached_jars(
            "registry-client-2.0.0", "HEADWATER_REGISTRY_CLIENT_JARS", pom, "the registry's client"
        )
    except NoJarsError as error:
        pytest.skip(str(error))
    class_path = java_classes("RegistryClient", jars)
    with broker() as running, running_registry(properties(running.bootstrap)) as url:
        done = subprocess.run(
            ["java", "-cp", class_path, "RegistryClient", url], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
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
