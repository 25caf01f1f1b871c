"""Jobs as if a schema in a file were the newest of its subject, without a registry and without Spark."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from headwater.errors import UsageError
from headwater.running.candidates import read_candidates, refusals, with_candidates
from headwater_streams.plan.job import Job, bind
from headwater_streams.sources.avro_value import Avro
from headwater_streams.sources.protobuf_value import Protobuf
from headwater_streams.sources.registered import Registered
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}


class Registry:
    """Answers as a registry that has one version, and says of the next one what it is told to."""

    compatible: Any = True

    def ask(self, _method: str, *path: str, **_query: object) -> Any:
        if path[0] == "compatibility":
            if isinstance(self.compatible, Exception):
                raise self.compatible
            return {"is_compatible": self.compatible, "messages": [] if self.compatible else ["id is gone"]}
        if path == ("schemas", "ids", "1"):
            return {"schema": json.dumps(ORDER)}
        if path == ("subjects", "money", "versions", "1"):
            return {"version": 1, "schema": 'syntax = "proto3"; message Money { int64 cents = 1; }'}
        return {"version": 1, "id": 1, "schema": json.dumps(ORDER)}


orders = hw.topic("orders", registry=True)


@hw.job(target=hw.delta("silver.orders"))
def clean(orders: DataFrame) -> DataFrame:
    return orders


def job_of(registry: Registry) -> Job:
    asked = replace(orders, format=Registered("orders-value", ask=registry.ask))
    return replace(bind(clean), inputs={"orders": asked})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(NEWER), encoding="utf-8")
    return path


def test_a_candidate_is_the_newest_version_and_others_are_the_registrys(file: Path) -> None:
    job = job_of(Registry())
    schemas = read_candidates([f"orders-value={file}"], [job])
    (planned,) = with_candidates([job], schemas)
    form = planned.topics[0].value_format
    assert isinstance(form, Avro)
    assert [each["name"] for each in json.loads(form.schema)["fields"]] == ["id", "currency"]
    assert form.lookup is not None
    assert json.loads(form.lookup(1)) == ORDER
    assert planned.fingerprint != job.fingerprint
    assert with_candidates([job], {}) == [job]


def test_a_candidate_of_protobuf_is_compiled_here(tmp_path: Path) -> None:
    path = tmp_path / "order.proto"
    path.write_text('syntax = "proto3"; package shop; message Order { int64 id = 1; string currency = 2; }')
    job = job_of(Registry())
    (planned,) = with_candidates([job], read_candidates([f"orders-value={path}"], [job]))
    form = planned.topics[0].value_format
    assert isinstance(form, Protobuf)
    assert (form.message, form.columns().fieldNames()) == ("shop.Order", ["id", "currency"])


@pytest.mark.parametrize(
    ("compatible", "sentences"),
    [
        (True, []),
        (False, ["--schema orders-value: the registry would refuse it: id is gone"]),
        (RefusedByRegistryError("Invalid schema"), ["--schema orders-value: Invalid schema"]),
        (NoRegistryError("no registry answers"), ["--schema orders-value: no registry answers"]),
    ],
)
def test_what_the_registry_would_say_is_said(compatible: Any, sentences: list[str], file: Path) -> None:
    registry = Registry()
    registry.compatible = compatible
    job = job_of(registry)
    assert refusals([job], read_candidates([f"orders-value={file}"], [job])) == sentences


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders-value", "is not of the form SUBJECT=FILE"),
        ("visits-value=order.avsc", "no job reads that subject; they read orders-value"),
        ("orders-value=none.avsc", r"cannot read none\.avsc"),
        ("orders-value=order.txt", "does not say its format by its ending"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_candidates([text], [job_of(Registry())])
