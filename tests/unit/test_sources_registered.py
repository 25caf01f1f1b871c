"""What a registry's schemas come to as a topic's format, without a registry and without Spark."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater_streams.api import topic
from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.loader import load_jobs
from headwater_streams.sources.avro_value import Avro
from headwater_streams.sources.registered import Registered, changed_fields, inlined
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError, RegistryClient

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
    ("subjects", "json-value", "versions", "latest"): {"version": 1, "schemaType": "JSON", "schema": "{}"},
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


def test_a_format_without_columns_is_told() -> None:
    with pytest.raises(JobDefinitionError, match="schemas of type JSON"):
        _ = Registered("json-value", ask=ask).resolved


def test_a_registry_that_is_away_is_waited_for() -> None:
    def away(*_path: str, **_query: object) -> Any:
        raise NoRegistryError("no registry answers at http://x (refused)")

    with pytest.raises(UnavailableError, match="no registry answers"):
        _ = Registered("orders-value", ask=away).resolved


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
    assert inlined(nested, {"m.Money": MONEY}) == {"type": "array", "items": {"namespace": "", **MONEY}}
    assert inlined("string", {"m.Money": MONEY}) == "string"


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
