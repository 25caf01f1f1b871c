"""Which values are one Avro record and nothing behind it, with and without the header of Confluent's wire format."""

import io
import json
import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal

import fastavro
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from amount import drawn_seed
from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.sources.decode import value_schema

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]

AT = datetime(2026, 1, 1, 12, 30, 0, 5000, tzinfo=UTC)
CUT_OFF = "the value is cut off, or not of the schema"
LEFT_OVER = "bytes are left over behind the record"


def record(*fields: tuple[str, object], **more: object) -> str:
    return json.dumps(
        {"type": "record", "name": "Flight", "fields": [{"name": n, "type": t} for n, t in fields], **more}
    )


FLIGHT = record(("carrier", "string"), ("delay", ["null", "int"]))
FIRST = record(("carrier", "string"))
READER = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "long"], "default": None},
        ],
    }
)


def zigzag(number: int) -> bytes:
    """An Avro int or long (Avro specification, "Primitive types")."""
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


def flight(carrier: str, delay: int | None) -> bytes:
    text = carrier.encode()
    union = zigzag(0) if delay is None else zigzag(1) + zigzag(delay)
    return zigzag(len(text)) + text + union


FLIGHTS = {
    b"\x04UA\x02\x05": ("UA", -3),
    flight("", None): ("", None),
    flight("Ü" * 300, 2**31 - 1): ("Ü" * 300, 2**31 - 1),
}
_WHOLE = flight("United Airlines", 123_456)
CUT = [_WHOLE[:end] for end in range(1, len(_WHOLE))]
_CARRIER = zigzag(2) + b"\xff\xfe" + zigzag(0)
NOT_UTF8 = {_CARRIER: "carrier is not UTF-8", _CARRIER[:-1]: CUT_OFF}
NO_RECORDS = {
    None: "the value is null",
    b"": "the value is empty",
    flight("UA", 4) + b"\x00": LEFT_OVER,
    flight("UA", 4) * 2: LEFT_OVER,
    flight("UA", 4) + b"\x01\x02HW\xfe\xff\x00": LEFT_OVER,
    b"\x04UA\x04\x05": CUT_OFF,  # the union has two branches, and this is the third
    b'{"carrier": "UA"}': CUT_OFF,
    zigzag(2**31 - 9) + b"UA\x00": CUT_OFF,  # a length that no memory holds
    zigzag(2**40) + b"UA\x00": CUT_OFF,
    zigzag(-5) + b"UA\x00": CUT_OFF,
}


@pytest.fixture(scope="module")
def flights(decode: Decode) -> dict[bytes | None, Decoded]:
    """What each value of a topic of flights gives; one Spark job reads them all."""
    values = [*FLIGHTS, *CUT, *NOT_UTF8, *NO_RECORDS]
    return dict(zip(values, decode(hw.topic("t", format=hw.avro(FLIGHT)), values), strict=True))


def test_avro_golden_bytes_are_read(flights: dict[bytes | None, Decoded]) -> None:
    assert flight("UA", -3) == b"\x04UA\x02\x05"
    for value, columns in FLIGHTS.items():
        assert flights[value] == (columns, None), value


def test_avro_record_cut_at_any_byte_is_refused(flights: dict[bytes | None, Decoded]) -> None:
    assert len(CUT) == len(_WHOLE) - 1
    for value in CUT:
        assert flights[value] == (None, CUT_OFF), value


def test_avro_texts_that_are_not_utf8_are_refused_wherever_they_are(
    decode: Decode, flights: dict[bytes | None, Decoded]
) -> None:
    deep = record(
        ("names", {"type": "array", "items": ["null", "string"]}),
        (
            "by",
            {
                "type": "map",
                "values": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "string"}]},
            },
        ),
        ("n", "int"),
    )

    def value(name: bytes, key: bytes, inner: bytes) -> bytes:
        text = lambda given: zigzag(len(given)) + given  # noqa: E731
        names = zigzag(2) + zigzag(0) + zigzag(1) + text(name) + zigzag(0)
        return names + zigzag(1) + text(key) + text(inner) + zigzag(0) + zigzag(7)

    good, bad = "Ü".encode(), b"\xff\xfe"
    found = decode(
        hw.topic("t", format=hw.avro(deep)),
        [value(good, good, good), value(bad, good, good), value(good, bad, good), value(good, good, bad)],
    )
    assert [why for _, why in found] == [None, "names is not UTF-8", "by is not UTF-8", "by is not UTF-8"]
    for flown, reason in NOT_UTF8.items():
        assert flights[flown] == (None, reason), flown


def test_avro_what_is_no_record_is_refused_with_its_reason(flights: dict[bytes | None, Decoded]) -> None:
    for value, reason in NO_RECORDS.items():
        assert flights[value] == (None, reason), value


def test_avro_broken_bytes_never_stop_a_batch(decode: Decode) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    schema = record(
        ("id", "long"),
        ("names", {"type": "array", "items": "string"}),
        ("more", {"type": "map", "values": "double"}),
        ("raw", "bytes"),
    )
    whole = zigzag(7) + zigzag(2) + zigzag(1) + b"a" + zigzag(1) + b"b" + zigzag(0)
    whole += zigzag(1) + zigzag(1) + b"k" + struct.pack("<d", 0.5) + zigzag(0) + zigzag(2) + b"xy"
    broken = [whole]
    for _ in range(500):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        broken.append(bytes(changed))
    first, *others = decode(hw.topic("t", format=hw.avro(schema)), broken)
    assert first == ((7, ["a", "b"], {"k": 0.5}, bytearray(b"xy")), None)
    no_text = {"names is not UTF-8", "more is not UTF-8"}
    assert {why for _, why in others if why} <= {CUT_OFF, LEFT_OVER, *no_text}


def test_avro_types_are_those_of_spark(spark: SparkSession) -> None:
    schema = record(
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("day", {"type": "int", "logicalType": "date"}),
    )
    declared = hw.topic("t", format=hw.avro(schema), event_time="at")
    assert (
        value_schema(declared).simpleString()
        == "struct<at:timestamp,kind:string,price:decimal(9,2),day:date>"
    )


def wire(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


NEW = flight("DL", 9)
NO_HEADER = "the value does not begin with the header of Confluent's wire format"


def test_avro_confluent_values_are_read_by_the_schema_that_wrote_them(decode: Decode) -> None:
    form = hw.avro(READER, writers={17: FIRST, 70_000: FLIGHT})
    values = [
        wire(17, b"\x04UA"),
        wire(70_000, NEW),
        wire(18, NEW),
        NEW,
        b"\x00\x00",
        wire(17, NEW),
        None,
        b"",
    ]
    assert decode(hw.topic("t", format=form), values) == [
        (("UA", None), None),
        (("DL", 9), None),
        (None, "the schema 18 is not known"),
        (None, NO_HEADER),
        (None, NO_HEADER),
        (None, LEFT_OVER),
        (None, "the value is null"),
        (None, "the value is empty"),
    ]


def test_avro_values_are_read_by_the_unit_that_they_were_written_in(decode: Decode) -> None:
    def version(cents: int, unit: str, day: object) -> str:
        amount = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": cents}
        return record(
            ("price", amount),
            (
                "all",
                {
                    "type": "array",
                    "items": [
                        "null",
                        {"type": "record", "name": "P", "fields": [{"name": "p", "type": amount}]},
                    ],
                },
            ),
            ("at", ["null", {"type": "long", "logicalType": f"timestamp-{unit}"}]),
            ("day", day),
            ("noon", {"type": "long", "logicalType": "time-micros"}),
        )

    def written(schema: str, day: object) -> bytes:
        out = io.BytesIO()
        price = Decimal("-12.50")
        row = {"price": price, "all": [{"p": price}, None], "at": AT, "day": day, "noon": time(12, 0, 0, 1)}
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), row)
        return out.getvalue()

    day = {"type": "int", "logicalType": "date"}
    older, newest = version(2, "millis", "int"), version(3, "micros", day)
    nanos = newest.replace("timestamp-micros", "timestamp-nanos")
    declared = hw.topic(
        "t", format=hw.avro(newest, writers=lambda number: {1: older, 2: newest, 3: nanos}[number])
    )
    values = [
        wire(1, written(older, 20_000)),
        wire(2, written(newest, date(2024, 10, 4))),
        wire(3, written(newest, date(2024, 10, 4))),
    ]
    row = (
        Decimal("-12.500"),
        [(Decimal("-12.500"),), None],
        AT.replace(tzinfo=None),
        date(2024, 10, 4),
        43_200_000_001,
    )
    assert decode(declared, values) == [(row, None), (row, None), (None, UNKNOWN)]


UNKNOWN = "the schema 3 is not known, or not to be read as the job's"


def test_avro_registry_is_asked_once_for_each_new_schema(decode: Decode) -> None:
    asked: list[int] = []

    def registry(number: int) -> str:
        asked.append(number)
        return {1: FIRST, 2: FLIGHT}[number]

    declared = hw.topic("t", format=hw.avro(READER, writers=registry))
    first, second = [wire(1, b"\x04UA"), wire(3, NEW)], [wire(2, NEW), wire(1, b"\x04AA"), wire(3, NEW)]
    assert decode(declared, [NEW], first, second) == [
        (None, NO_HEADER),
        (("UA", None), None),
        (None, UNKNOWN),
        (("DL", 9), None),
        (("AA", None), None),
        (None, UNKNOWN),
    ]
    assert asked == [1, 3, 2]


def test_avro_of_hundreds_of_writers_is_read(decode: Decode) -> None:
    def writer(number: int) -> str:
        return record(("carrier", "string"), (f"f{number}", "int"), ("delay", ["null", "int"]))

    declared = hw.topic("t", format=hw.avro(READER, writers=writer))
    values = [wire(number, b"\x04DL" + zigzag(number) + b"\x02\x12") for number in range(300)]
    assert decode(declared, values) == [(("DL", 9), None)] * 300


def test_avro_bytes_that_look_like_ids_are_not_all_asked_for(
    decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater_streams.sources.avro_value._MOST_ASKED", 5)
    asked: list[int] = []

    def registry(number: int) -> str:
        asked.append(number)
        return {1: FLIGHT}[number]

    declared = hw.topic("t", format=hw.avro(READER, writers=registry))
    values = [wire(1, NEW)] * 3 + [wire(1_000_000 + number, NEW) for number in range(50)] + [wire(1, NEW)]
    found = decode(declared, values, values[:1])
    assert [place for place, (row, _) in enumerate(found) if row] == [0, 1, 2, 53, 54]
    assert len(asked) == 5


def test_avro_schema_that_comes_behind_its_values_is_asked_for_again(
    decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def registry(number: int) -> str:
        asked.append(number)
        if len(asked) == 1:
            raise LookupError(number)
        return READER

    monkeypatch.setattr("headwater_streams.sources.avro_value._MISSING_S", 0.0)
    declared = hw.topic("t", format=hw.avro(READER, writers=registry))
    assert decode(declared, [wire(3, NEW)], [wire(3, NEW)], [wire(3, NEW)]) == [
        (None, UNKNOWN),
        (("DL", 9), None),
        (("DL", 9), None),
    ]
    assert asked == [3, 3]


@pytest.mark.story
def test_avro_registry_that_does_not_answer_is_a_fault_that_passes(decode: Decode) -> None:
    def registry(number: int) -> str:
        raise ConnectionError("no route")

    declared = hw.topic("t", format=hw.avro(READER, writers=registry))
    with pytest.raises(UnavailableError, match=r"could not say the one of id 1: no route"):
        decode(declared, [wire(1, b"\x04UA")])


@pytest.mark.story
def test_avro_schema_of_a_registry_that_cannot_be_read_is_a_reason_for_quarantine(
    decode: Decode, caplog: pytest.LogCaptureFixture
) -> None:
    deep: object = "int"
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    poison = {
        0: record(("carrier", "string"), ("more", deep)),
        1: '{"type": "string"}',
        2: "{no json",
        3: record(("carrier", "int"), ("delay", "int")),
        4: record(("other", "string")),
        5: record(("carrier", "strnig")),
        6: "flight.avsc",
    }
    declared = hw.topic("t", format=hw.avro(READER, writers=lambda number: poison.get(number, FLIGHT)))
    values = [wire(number, NEW) for number in (*poison, 7)]
    told = "the schema {} is not known, or not to be read as the job's"
    assert decode(declared, values) == [*[(None, told.format(n)) for n in poison], (("DL", 9), None)]
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == len(poison)
    assert "nested too deeply" in warned[0]
    assert warned[1] == (
        "values with the schema 1 go to quarantine: hw.avro: the schema is not a record's with fields, so it has no "
        "columns"
    )


@pytest.mark.story
@pytest.mark.parametrize(
    ("schema", "writers", "told"),
    [
        (record(("a", "strnig")), None, "Undefined schema: strnig"),
        (record(("a b", "string")), None, "a b"),
        (FLIGHT, {5: FIRST}, "what writer 5 wrote cannot be read as the schema"),
        (FLIGHT, {5: record(("carrier", "int"), ("delay", "int"))}, "what writer 5 wrote cannot be read"),
    ],
)
def test_avro_schema_that_cannot_be_read_is_refused_when_planned(
    spark: SparkSession, schema: str, writers: dict[int, str] | None, told: str
) -> None:
    with pytest.raises(JobDefinitionError, match=r"^topic 't': hw\.avro: ") as refused:
        value_schema(hw.topic("t", format=hw.avro(schema, writers=writers)))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
