"""What a slowly changing dimension's declaration must say, and which columns its tables have. No Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.streaming_sql import load_sql

RESULT = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("op", T.StringType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("city", T.StringType()),
        T.StructField("tags", T.MapType(T.StringType(), T.StringType())),
        T.StructField("weight", T.DoubleType()),
    ]
)


def target(**changed: Any) -> hw.ScdTarget:
    given = {"keys": ["id"], "sequence_by": "at", "except_columns": ["op", "tags"]}
    return hw.scd2("dim.customers", **{**given, **changed})


def own(schema: T.StructType) -> list[str]:
    return [name for name in schema.fieldNames() if not name.startswith("_")]


def test_scd_tables_have_the_columns_of_their_type() -> None:
    type_1 = hw.scd1("dim.customers", keys=["id"], sequence_by="at", except_columns=["op"])
    assert own(type_1.table_schema(RESULT)) == ["id", "at", "city", "tags", "weight"]
    assert own(target().table_schema(RESULT)) == [
        "id",
        "city",
        "weight",
        "valid_from",
        "valid_to",
        "is_current",
    ]
    assert target().table_schema(RESULT)["valid_to"].dataType == T.TimestampType()
    assert own(target().changes_schema(RESULT)) == ["id", "at", "city", "weight"]
    assert list(target().problems(RESULT)) == list(type_1.problems(RESULT)) == []
    known = {name: name.upper() for name in RESULT.fieldNames()}
    kept = {"id": "ID", "city": "CITY", "weight": "WEIGHT"}
    assert target().of_columns(known) == {**kept, "valid_from": "AT", "valid_to": "AT"}
    assert type_1.of_columns(known) == {**kept, "at": "AT", "tags": "TAGS"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"sequence_by": "when"},
            "sequence_by names 'when', which is not a column; the result has id, op, at, city",
        ),
        ({"except_columns": ["tags", "id"]}, "except_columns names 'id', which the table cannot do without"),
        ({"sequence_by": "id"}, "sequence_by is the key 'id'; it orders the changes of a key, so it is none"),
        ({"track_history_columns": ["town"]}, "track_history_columns names 'town', which is not a column"),
        (
            {"track_history_columns": ["op"]},
            "track_history_columns names 'op', which is a key, the sequence or left",
        ),
        ({"keys": ["weight"]}, "the key 'weight' is double, which cannot name a row"),
        (
            {"sequence_by": "tags", "except_columns": ["op"]},
            "the sequence 'tags' is map<string,string>, which has no",
        ),
        ({"except_columns": ["op"]}, "the column 'tags' has a map, and maps cannot be compared"),
    ],
)
def test_scd_target_that_does_not_fit_is_told_in_a_sentence(changed: dict[str, Any], told: str) -> None:
    assert told in next(target(**changed).problems(RESULT))


def test_scd_column_that_the_table_adds_itself_is_refused() -> None:
    (told,) = target().problems(T.StructType([*RESULT.fields, T.StructField("valid_to", T.StringType())]))
    assert told == "the result has a column 'valid_to', which the table adds itself; give it another name"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"keys": []}, "needs keys=[...]"),
        ({"keys": "id"}, "keys='id' is not a list; write ['id']"),
        ({"sequence_by": ""}, "sequence_by= is empty"),
        ({"track_history_columns": []}, "track_history_columns is empty"),
    ],
)
def test_scd_declaration_that_is_wrong_is_refused_at_once(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        target(**changed)
    assert told in str(refused.value)


def test_delta_mode_of_a_dimension_names_the_function() -> None:
    with pytest.raises(JobDefinitionError, match=r"hw\.scd1\(\.\.\.\) and hw\.scd2\(\.\.\.\)"):
        hw.delta("dim.customers", keys=["id"], mode="scd2")  # type: ignore[arg-type]


def test_scd_in_sql_is_what_a_module_would_declare(tmp_path: Path) -> None:
    path = tmp_path / "dimensions.sql"
    head = "CREATE STREAMING TABLE dim.customers WITH (keys = 'id', "
    tail = ") AS SELECT * FROM topic('customers', schema => 'id INT, op STRING, at BIGINT, city STRING');"
    scd1 = "mode = 'scd1', sequence_by = 'at', apply_as_deletes = 'op = \"d\"', except_columns = 'op'"
    scd2 = "mode = 'scd2', sequence_by = 'at', except_columns = 'op', track_history_columns = 'city'"
    path.write_text(f"{head}{scd1}{tail}\n{head}name = 'second', {scd2}{tail}")
    first, second = load_sql(path)
    shared: dict[str, Any] = {"keys": ["id"], "sequence_by": "at", "except_columns": ["op"]}
    assert first.target == hw.scd1("dim.customers", **shared, apply_as_deletes='op = "d"')
    assert second.target == hw.scd2("dim.customers", **shared, track_history_columns=["city"])
    for wrong, told in (
        ("sequence_by = 'at'", "sequence_by wants WITH (mode = 'scd1') or 'scd2'"),
        ("mode = 'scd1'", "sequence_by is empty; write WITH (sequence_by = ...)"),
        (f"{scd1}, track_history_columns = 'city'", "track_history_columns wants WITH (mode = 'scd2')"),
    ):
        path.write_text(f"\n{head}{wrong}{tail}")
        with pytest.raises(JobDefinitionError) as refused:
            load_sql(path)
        assert told in str(refused.value)
        assert "dimensions.sql, line 2" in str(refused.value)
