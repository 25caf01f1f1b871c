"""`hw.load` in a program with a Spark session of its own, over a real broker and a real registry."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.registry.serving import running_registry
from headwater_broker.testing import RunningBroker, broker
from headwater_streams.sources import registered
from headwater_streams.sources.registered import KnownRegistry
from headwater_streams.storage.home import Home

orders = hw.topic("orders", registry=True)
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


@hw.job(target=hw.delta("silver.orders"))
def taken(orders: DataFrame) -> DataFrame:
    return orders


def send_order(running: RunningBroker, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as client:
        context = SerializationContext("orders", MessageField.VALUE)
        value = AvroSerializer(client, ORDER)({"id": 7}, context)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("orders", value)
    assert producer.flush(30) == 0


def test_schemas_are_asked_of_the_registry_of_the_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_REGISTRY_URL", raising=False)
    monkeypatch.setattr(registered, "_known", KnownRegistry())
    home = tmp_path / "home"
    with (
        broker(tmp_path / "broker") as running,
        running_registry({"bootstrap.servers": running.bootstrap}) as url,
    ):
        settings = tmp_path / "settings.toml"
        settings.write_text(f'[registry]\nurl = "{url}"\n', encoding="utf-8")
        monkeypatch.setenv("HEADWATER_CONFIG", str(settings))
        send_order(running, url)
        done = hw.load("orders", job=taken, into="history.orders", home=home, bootstrap=running.bootstrap)
    assert done.accounting == {"read": 1, "written": 1}
    rows = spark.read.format("delta").load(str(Home(home).table("history.orders"))).collect()
    assert [row.id for row in rows] == [7]
