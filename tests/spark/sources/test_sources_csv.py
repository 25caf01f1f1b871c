"""Which values are a line of CSV, each refused one with its reason."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.csv_value import Csv
from headwater_streams.sources.decode import value_schema

Decoded = tuple[tuple[object, ...] | None, str | None]
Decode = Callable[..., list[Decoded]]


PLAIN = {
    "UA,4": ("UA", 4),
    "UA,4\n": ("UA", 4),
    "UA,4\r\n": ("UA", 4),
    "UA,": ("UA", None),
    ",4": (None, 4),
    '"U,A",4': ("U,A", 4),
    '"U""A",4': ('U"A', 4),
    '"U\nA",4': ("U\nA", 4),
    '"U\r\nA""",4': ('U\r\nA"', 4),
    '"",4': ("", 4),
    "#UA,4": ("#UA", 4),
    "Ü\x00A,-4": ("Ü\x00A", -4),
}
REFUSED = {
    "UA": "the value has 1 columns, not 2",
    "UA,4,5": "the value has 3 columns, not 2",
    '"U,A"': "the value has 1 columns, not 2",
    "UA,four": "delay is not INT: four",
    "UA,4.0": "delay is not INT: 4.0",
    "UA,4000000000": "delay is not INT: 4000000000",
    "UA,4\nDL,5": "the value is more than one line",
    "UA,4\r\nDL,5\r\n": "the value is more than one line",
    '"UA,4': "a quote is not closed",
    'UA,"4': "a quote is not closed",
    '"U""A,4': "a quote is not closed",
    "": "the value is empty",
    " \r\n": "the value is empty",
    ",".join("a" * 25_000): "the value has 25000 columns, not 2",
    '{"carrier": "UA", "delay": 4}': 'delay is not INT:  "delay": 4}',
}


@pytest.fixture(scope="module")
def plain(decode: Decode) -> dict[str, Decoded]:
    declared = hw.topic("t", schema="carrier STRING, delay INT", format="csv")
    values = [*PLAIN, *REFUSED]
    return dict(zip(values, decode(declared, [v.encode() for v in values]), strict=True))


@pytest.mark.parametrize("value", PLAIN)
def test_csv_line_is_a_record(plain: dict[str, Decoded], value: str) -> None:
    assert plain[value] == (PLAIN[value], None)


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: value[:20])
def test_csv_anything_else_is_refused_with_its_reason(plain: dict[str, Decoded], value: str) -> None:
    assert plain[value] == (None, REFUSED[value])


def test_csv_null_and_what_is_not_utf8_are_refused(decode: Decode) -> None:
    found = decode(hw.topic("t", schema="a STRING", format="csv"), [None, b"\xff\xfe", b"x", b"x\ny"])
    assert found == [
        (None, "the value is null"),
        (None, "the value is not UTF-8"),
        (("x",), None),
        (None, "the value is more than one line"),
    ]


@pytest.mark.story
def test_csv_options_and_header_say_how_lines_are_written(decode: Decode) -> None:
    form = hw.csv(sep=";", quote="'", escape="\\", null="NA", header="carrier;tail;delay")
    declared = hw.topic("t", schema="delay INT, carrier STRING", format=form)
    lines = [
        b"UA;N1;4",
        b"'U\\';A';N1;NA",
        b"carrier;tail;delay",
        b"UA;4",
        b"UA;N1;x",
        b'U"A;;4',
        b"UA;N1;4\r\n",
    ]
    assert decode(declared, lines) == [
        ((4, "UA"), None),
        ((None, "U';A"), None),
        (None, "the value is the header line"),
        (None, "the value has 2 columns, not 3"),
        (None, "delay is not INT: x"),
        ((4, 'U"A'), None),
        ((4, "UA"), None),
    ]


def test_csv_without_quotes_takes_them_as_text(decode: Decode) -> None:
    declared = hw.topic("t", schema="a STRING, b STRING", format=hw.csv(sep="\t", quote=""))
    assert decode(declared, [b'"x\t5" pipe', b"x\ty\nz"]) == [
        (('"x', '5" pipe'), None),
        (None, "the value is more than one line"),
    ]


@pytest.mark.story
@pytest.mark.parametrize(
    ("schema", "form", "told"),
    [
        ("a STRING, b ARRAY<INT>", Csv(), "topic 't': a column of CSV cannot be ARRAY<INT>, as 'b' is"),
        (
            "a STRING, b INT",
            hw.csv(header=["a", "c"]),
            "topic 't': the column 'b' is not in header=, which has a, c",
        ),
    ],
)
def test_csv_columns_that_a_line_cannot_have_are_named_when_planned(
    spark: SparkSession, schema: str, form: Csv, told: str
) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        value_schema(hw.topic("t", schema=schema, format=form))
    assert told in str(refused.value)
