"""Jobs over topics of a registry, from a client's serializers to the tables, with the registry away in between."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from headwater.registry.serving import running_registry
from headwater_broker.testing import RunningBroker, broker

Run = Callable[..., subprocess.CompletedProcess[str]]
JOBS = """
import headwater as hw

orders = hw.topic("orders", registry=True)
visits = hw.topic("visits", registry=True)
times = hw.topic("times", registry=True)


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
def clean(orders):
    return orders


@hw.job(target=hw.delta("silver.visits"))
def visited(visits):
    return visits


@hw.job(target=hw.delta("silver.times"))
def timed(times):
    return times
"""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
VISIT = {
    "type": "object",
    "title": "Visit",
    "properties": {"page": {"type": "string"}, "n": {"type": "integer"}},
}


def order(*more: object) -> str:
    return json.dumps({**ORDER, "fields": [*ORDER["fields"], *more]})


def send(running: RunningBroker, topic: str, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce(topic, value=value)
    assert producer.flush(30) == 0


def test_from_serializers_to_tables_with_the_registry_away_in_between(
    headwater: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(JOBS, encoding="utf-8")
    (tmp_path / "order2.avsc").write_text(order(CURRENCY), encoding="utf-8")
    (tmp_path / "wrong.avsc").write_text(order({"name": "vat", "type": "int"}), encoding="utf-8")

    def context(topic: str) -> SerializationContext:
        return SerializationContext(topic, MessageField.VALUE)

    def query(sql: str) -> list[list[object]]:
        shown = headwater("sql", sql, "--json")
        assert shown.returncode == 0, shown.stderr
        return [[*row.values()] for row in json.loads(shown.stdout)]

    with broker(tmp_path / "broker") as running:
        jobs = ("shop.py", "--bootstrap", running.bootstrap)
        with running_registry({"bootstrap.servers": running.bootstrap}) as url:
            monkeypatch.setenv("HEADWATER_REGISTRY_URL", url)
            with SchemaRegistryClient({"url": url}) as client:
                one = AvroSerializer(client, order())({"id": 1}, context("orders"))
                visit = JSONSerializer(json.dumps(VISIT), client)({"page": "/", "n": 3}, context("visits"))
                options = {"use.deprecated.format": False}
                time = ProtobufSerializer(Timestamp, client, options)(Timestamp(seconds=5), context("times"))
                for topic, value in (("orders", one), ("visits", visit), ("times", time), ("orders", b"{}")):
                    send(running, topic, value)
                ran = headwater("jobs", "run", *jobs, "--once")
                assert ran.returncode == 0, ran.stderr
                assert query("SELECT id FROM silver.orders") == [[1]]
                assert query("SELECT page, n FROM silver.visits") == [["/", 3]]
                assert query("SELECT seconds, nanos FROM silver.times") == [[5, 0]]
                (reason,) = query("SELECT _reason FROM silver.orders__quarantine")
                assert reason == ["the value does not begin with the header of Confluent's wire format"]

                checked = headwater("jobs", "check", *jobs, "--schema", "orders-value=order2.avsc", "--json")
                assert checked.returncode == 0, checked.stderr
                (found,) = [each for each in json.loads(checked.stdout) if each["job"] == "clean"]
                changed = {each["what"]: each["now"] for each in found["differences"]}
                assert changed["schema orders-value"] == "currency string"
                refused = headwater("jobs", "check", *jobs, "--schema", "orders-value=wrong.avsc")
                assert refused.returncode == 2
                assert (
                    "--schema orders-value: the registry would refuse it: the new schema cannot"
                    in refused.stderr
                )
                assert client.get_versions("orders-value") == [1]
        send(running, "orders", one)
        away = headwater("jobs", "run", *jobs, "--once")
        assert away.returncode == 0, away.stderr
        assert f"no registry answers at {url}" in away.stderr
        assert query("SELECT id FROM silver.orders") == [[1], [1]]
        with running_registry({"bootstrap.servers": running.bootstrap}, port=int(url.rpartition(":")[2])):
            assert headwater("registry", "register", "orders-value", "order2.avsc").returncode == 0
            with SchemaRegistryClient({"url": url}) as client:
                two = AvroSerializer(client, order(CURRENCY))({"id": 2, "currency": "USD"}, context("orders"))
            send(running, "orders", two)
            send(running, "orders", one)
            assert headwater("jobs", "run", *jobs, "--once").returncode == 0
        assert query("SELECT id, currency FROM silver.orders ORDER BY _offset") == [
            [1, None],
            [1, None],
            [2, "USD"],
            [1, "EUR"],
        ]
