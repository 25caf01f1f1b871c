"""What a value of Avro means where its writer's schema and the reader's say it in two ways."""

import json
from typing import Any

import pytest

from headwater_streams.sources.avro_logical import by_writers_units, without_times


def record(kind: Any, name: str = "c", **more: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": name, "type": kind, **more}]}
    )


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=10, scale=scale)


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


MILLIS, MICROS = (logical("long", f"timestamp-{unit}") for unit in ("millis", "micros"))
MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": decimal(3)}]}
OLD_MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": decimal(2)}]}


@pytest.mark.parametrize(
    ("reader", "writer", "read", "written"),
    [
        (decimal(3), decimal(2), decimal(2), decimal(2)),
        (MICROS, MILLIS, MILLIS, MILLIS),
        (MICROS, "long", MICROS, MICROS),
        ("long", MILLIS, {"type": "long"}, MILLIS),
        (logical("int", "date"), "int", logical("int", "date"), logical("int", "date")),
        (["null", MICROS], ["null", MILLIS], [{"type": "null"}, MILLIS], [{"type": "null"}, MILLIS]),
        (["null", MICROS], MILLIS, [{"type": "null"}, MILLIS], MILLIS),
        (array(MICROS), array(MILLIS), array(MILLIS), array(MILLIS)),
        (array(MONEY), array(OLD_MONEY), array(OLD_MONEY), array(OLD_MONEY)),
        (logical("string", "uuid"), "string", *[logical("string", "uuid")] * 2),
    ],
)  # fmt: skip
def test_a_value_is_read_by_the_unit_that_it_was_written_in(
    reader: Any, writer: Any, read: Any, written: Any
) -> None:
    pair = [
        json.loads(each)["fields"][0]["type"] for each in by_writers_units(record(reader), record(writer))
    ]
    assert pair == [read, written]


def test_fields_are_matched_by_their_aliases_and_types_by_their_names() -> None:
    read, _ = by_writers_units(record(MICROS, aliases=["old"]), record(MILLIS, "old"))
    assert json.loads(read)["fields"][0]["type"] == MILLIS
    # A type that is used twice, and one that contains itself.
    both = [{"name": "a", "type": MONEY}, {"name": "b", "type": ["null", "n.Money", "R"]}]
    old = [{"name": "a", "type": OLD_MONEY}, {"name": "b", "type": ["null", "Money", "n.R"]}]
    schemas = [json.dumps({"type": "record", "name": "n.R", "fields": each}) for each in (both, old)]
    read, written = (json.loads(each) for each in by_writers_units(*schemas))
    assert read["fields"][0]["type"]["fields"] == written["fields"][0]["type"]["fields"]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (MICROS, logical("long", "timestamp-nanos")),
        (logical("long", "time-micros"), logical("int", "time-millis")),
        (logical("int", "date"), logical("int", "time-millis")),
        (MICROS, logical("long", "local-timestamp-micros")),
    ],
)
def test_a_value_of_another_meaning_is_refused_by_its_field(reader: Any, writer: Any) -> None:
    with pytest.raises(ValueError, match=f"^c was written as {writer['logicalType']}, and is read as "):
        by_writers_units(record(reader), record(writer))


def test_what_could_not_be_read_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="c was written with more digits before the point than are read"):
        by_writers_units(record({**decimal(20), "precision": 30}), record({**decimal(2), "precision": 38}))
    fixed = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal"}  # nine digits
    with pytest.raises(ValueError, match="more digits"):
        by_writers_units(*(record({**fixed, "precision": 9, "scale": scale}) for scale in (5, 2)))
    uses = [{"name": "a", "type": MONEY}, {"name": "b", "type": "Money"}]
    other = [{"name": "a", "type": OLD_MONEY}, {"name": "b", "type": {**MONEY, "name": "x.Money"}}]
    schemas = [json.dumps({"type": "record", "name": "R", "fields": each}) for each in (uses, other)]
    with pytest.raises(ValueError, match="was written in another unit than a field of the same type"):
        by_writers_units(*schemas)


def test_times_of_day_are_numbers() -> None:
    schema = json.loads(record(["null", {"type": "array", "items": logical("long", "time-micros")}]))
    assert without_times(schema)["fields"][0]["type"] == [
        "null",
        {"type": "array", "items": {"type": "long"}},
    ]
