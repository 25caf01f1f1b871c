"""What a registry's schemas come to as a topic's format, without a registry and without Spark."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import avro.schema
import pytest
from avro.name import Names

from headwater_streams.api import topic
from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.loader import load_jobs
from headwater_streams.sources.avro_references import inlined
from headwater_streams.sources.avro_value import Avro
from headwater_streams.sources.brought_protos import brought_files
from headwater_streams.sources.json_schema import JsonSchema
from headwater_streams.sources.registered import Registered, changed_fields
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError, RegistryClient
from headwater_streams.sources.registry_memory import RememberedRegistry

MONEY = {"type": "record", "name": "m.Money", "fields": [{"name": "cents", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "price", "type": "m.Money"}, {"name": "paid", "type": ["null", "m.Money"]}],
}
ANSWERS: Mapping[tuple[str, ...], Any] = {
    ("subjects", "orders-value", "versions", "latest"): {
        "version": 2,
        "id": 7,
        "schema": json.dumps(ORDER),
        "references": [{"name": "m.Money", "subject": "money", "version": 1}],
    },
    ("subjects", "money", "versions", "1"): {"version": 1, "id": 3, "schema": json.dumps(MONEY)},
    ("schemas", "ids", "3"): {"schema": json.dumps(MONEY)},
    ("subjects", "json-value", "versions", "latest"): {
        "version": 1,
        "schemaType": "JSON",
        "schema": '{"properties": {"price": {"$ref": "money.json"}}}',
        "references": [{"name": "money.json", "subject": "money-json", "version": 1}],
    },
    ("subjects", "money-json", "versions", "1"): {"version": 1, "schema": '{"type": "integer"}'},
    ("subjects", "thrift-value", "versions", "latest"): {"version": 1, "schemaType": "THRIFT", "schema": "x"},
}


def ask(_method: str, *path: str, **_query: object) -> Any:
    if path not in ANSWERS:
        raise RefusedByRegistryError(f"Subject '{path[1]}' not found.")
    return ANSWERS[path]


def test_the_newest_version_is_the_format_with_what_it_uses(caplog: pytest.LogCaptureFixture) -> None:
    form = Registered("orders-value", ask=ask).resolved
    assert isinstance(form, Avro)
    price, paid = json.loads(form.schema)["fields"]
    assert price["type"] == {"namespace": "", **MONEY}
    assert paid["type"] == ["null", "m.Money"]
    assert form.lookup is not None
    with caplog.at_level("WARNING"):
        assert json.loads(form.lookup(3)) == MONEY
    assert "cents is new, price is gone, paid is gone" in caplog.text
    with pytest.raises(LookupError):
        form.lookup(4)


def test_a_subject_that_is_missing_is_told_with_what_to_do() -> None:
    with pytest.raises(JobDefinitionError, match=r"subject visits-value: .* headwater registry register"):
        _ = Registered("visits-value", ask=ask).resolved


def test_a_json_schema_is_the_format_with_what_it_uses() -> None:
    form = Registered("json-value", ask=ask).resolved
    assert isinstance(form, JsonSchema)
    assert form.columns().simpleString() == "struct<price:bigint>"


def test_a_format_that_jobs_do_not_read_is_told() -> None:
    with pytest.raises(
        JobDefinitionError, match="schemas of type THRIFT, and jobs read AVRO, JSON and PROTOBUF"
    ):
        _ = Registered("thrift-value", ask=ask).resolved


def test_jobs_that_read_by_other_versions_are_other_jobs() -> None:
    def newer(method: str, *path: str, **query: object) -> Any:
        return {**ask(method, *path, **query), "schema": json.dumps({**ORDER, "fields": ORDER["fields"][:1]})}

    forms = [Registered("orders-value", ask=each) for each in (ask, ask, newer)]
    assert forms[0].digest == forms[1].digest != forms[2].digest
    assert forms[0].digest != Registered("json-value", ask=ask).digest


def test_a_registry_that_is_away_is_waited_for() -> None:
    def away(*_path: str, **_query: object) -> Any:
        raise NoRegistryError("no registry answers at http://x (refused)")

    with pytest.raises(UnavailableError, match="no registry answers"):
        _ = Registered("orders-value", ask=away).resolved


def test_while_a_registry_is_away_what_it_said_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = False

    def sometimes(method: str, *path: str, **query: object) -> Any:
        if is_away:
            raise NoRegistryError("no registry answers at http://r:8081 (refused)")
        return ask(method, *path, **query)

    def start() -> Registered:
        return Registered("orders-value", ask=RememberedRegistry(sometimes, "http://r:8081", tmp_path).ask)

    before = start().resolved
    assert isinstance(before, Avro)
    assert before.lookup is not None
    before.lookup(3)
    is_away = True
    with caplog.at_level("WARNING"):
        again = start().resolved
    assert again == before
    assert re.search(
        r"no registry answers at http://r:8081 \(refused\): the answer of 20.*\+00:00 to "
        "subjects/orders-value/versions/latest is used",
        caplog.text,
    )
    assert isinstance(again, Avro)
    assert again.lookup is not None
    assert json.loads(again.lookup(3)) == MONEY
    with pytest.raises(NoRegistryError):  # a schema that nobody has asked for
        again.lookup(4)
    for file in tmp_path.iterdir():
        file.write_text("{", encoding="utf-8")
    with pytest.raises(UnavailableError):
        _ = start().resolved
    is_away = False
    assert start().resolved == before


def test_an_answer_is_written_when_it_changes_and_what_changes_a_registry_is_not_kept(tmp_path: Path) -> None:
    answers = iter([[1], [1], [1, 2], [1, 2, 3]])
    registry = RememberedRegistry(lambda *_path, **_query: next(answers), "http://r", tmp_path)
    registry.ask("GET", "subjects", "s", "versions")
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    registry.ask("GET", "subjects", "s", "versions")
    assert file.stat().st_mtime_ns == written
    registry.ask("GET", "subjects", "s", "versions")
    assert file.stat().st_mtime_ns != written
    registry.ask("POST", "subjects", "s", "versions", body={"schema": "x"})
    assert [*tmp_path.iterdir()] == [file]


def test_a_declaration_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_REGISTRY_URL", raising=False)
    declared = topic("orders", registry=True)
    assert declared.format == Registered("orders-value")
    assert topic("orders", registry="http://r:8081", subject="o").format == Registered("o", "http://r:8081")
    with pytest.raises(JobDefinitionError, match="headwater up --registry"):
        _ = declared.value_format


def test_sql_says_it_in_its_own_words(tmp_path: Path) -> None:
    file = tmp_path / "orders.sql"
    text = "CREATE STREAMING TABLE silver.orders AS SELECT id FROM topic('orders', registry => true{})"
    file.write_text(text.format(""), encoding="utf-8")
    (job,) = load_jobs([str(file)])
    assert job.inputs == {"orders": topic("orders", registry=True)}
    file.write_text(text.format(", schema => 'n INT'"), encoding="utf-8")
    with pytest.raises(JobDefinitionError, match=r"leave schema => \.\.\. and format => \.\.\. out"):
        load_jobs([str(file)])


@pytest.mark.parametrize(
    "arguments", [{"schema": "a INT"}, {"format": "csv"}, {"registry": False, "subject": "s"}]
)
def test_what_the_registry_says_is_not_said_twice(arguments: dict[str, Any]) -> None:
    with pytest.raises(JobDefinitionError, match=r"leave schema=|subject= is for"):
        topic("orders", **{"registry": True, **arguments})


def test_a_used_schema_stands_where_it_is_used_first() -> None:
    nested = {"type": "array", "items": "m.Money"}
    assert inlined(nested, [MONEY]) == {"type": "array", "items": {"namespace": "", **MONEY}}
    assert inlined("string", [MONEY]) == "string"


def test_what_is_defined_inside_a_used_schema_is_used_too() -> None:
    currency = {"type": "enum", "name": "Currency", "symbols": ["EUR"]}
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "m",
        "fields": [{"name": "in", "type": currency}],
    }
    fields = [
        {"name": "currency", "type": "m.Currency"},
        {"name": "price", "type": ["null", "m.Money"]},
        {"name": "tax", "type": {"type": "map", "values": "m.Money"}},
    ]
    order = {"type": "record", "name": "Order", "namespace": "o", "fields": fields}
    first, price, tax = inlined(order, [money])["fields"]
    assert first["type"] == {**currency, "namespace": "m"}
    assert price["type"][1] == {**money, "fields": [{"name": "in", "type": "m.Currency"}]}
    assert tax["type"] == {"type": "map", "values": "m.Money"}
    # Avro's own library, which reads them one after the other, takes it for the same.
    names = Names()
    avro.schema.make_avsc_object(money, names)
    assert avro.schema.make_avsc_object(inlined(order, [money])).to_canonical_json() == (
        avro.schema.make_avsc_object(order, names).to_canonical_json()
    )


def test_a_subject_of_a_context_has_its_schemas_and_ids_there() -> None:
    asked: list[str] = []
    order = {**ANSWERS["subjects", "orders-value", "versions", "latest"], "id": 3}

    def web(method: str, *path: str, **query: object) -> Any:
        asked.append(" ".join((*path, *(str(each) for each in query.values() if each is not True))))
        return (
            ask(method, *path, **query)
            if path[1] == "ids"
            else {**order, "references": order["references"]}
            if path[1] == ":.web:orders-value"
            else ANSWERS["subjects", "money", "versions", "1"]
        )

    form = Registered(":.web:orders-value", ask=web).resolved
    assert isinstance(form, Avro)
    assert form.lookup is not None
    form.lookup(3)
    assert asked == [
        "subjects :.web:orders-value versions latest",
        "subjects :.web:money versions 1",
        "schemas ids 3 :.web:orders-value",
    ]


def test_an_id_of_another_format_or_of_no_schema_is_none_that_a_job_reads() -> None:
    form = Registered("orders-value", ask=ask).resolved
    assert isinstance(form, Avro)
    for answer in (
        {"schemaType": "PROTOBUF", "schema": "message A {}"},
        {"schema": "{no json"},
        {"schema": "[" * 100_000},
        {"schema": '{"type": "record", "name": "R", "fields": 5}'},
    ):
        other = Registered("orders-value", ask=lambda *_path, _answer=answer, **_query: _answer)
        with pytest.raises(JobDefinitionError, match="schema 9 is"):
            other._writer(ANSWERS["subjects", "orders-value", "versions", "latest"], 9)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("google/protobuf/timestamp.proto", 1),
        ("google/type/money.proto", 1),
        ("confluent/type/decimal.proto", 1),
        ("confluent/meta.proto", 2),
        ("confluent/none.proto", 0),
        ("google/protobuf/../x.proto", 0),
        ("orders.proto", 0),
    ],
)
def test_files_that_libraries_bring_need_no_reference(name: str, files: int) -> None:
    found = brought_files(name)
    assert len(found) == files
    assert name in found or not files


def test_what_a_version_changes_is_said_by_column() -> None:
    def version(**fields: str) -> dict[str, str]:
        each = [{"name": name, "type": kind} for name, kind in fields.items()]
        return {"schema": json.dumps({"type": "record", "name": "R", "fields": each})}

    assert changed_fields(version(a="int", b="int"), version(a="long", c="int")) == (
        "c is new, b is gone, a has another type"
    )
    assert changed_fields(version(a="int"), version(a="int")) == ""


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://x", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="give one as"):
        RegistryClient(url)
