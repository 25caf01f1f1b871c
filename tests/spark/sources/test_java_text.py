"""What is asked of a text as Java's, compiled and not: Python says what is right."""

from collections.abc import Iterator

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from headwater_streams.spark.java_text import JavaText

TEXTS = [
    b"", b"}", b'{"a": 1}', b'{"a": "}"}', b"x" * 300 + b"}", b"\x00}\x7f", b"0000", b"a0000b000", b"\\u00e9",
    "\u00e9}".encode(), "{\u20ac}".encode(), "\U0001f600}".encode(), "a\ufffd}".encode(),
    b"\xff", b"}\xc3", b"\xf0\x9f\x98}", b"\xe2\x82", b"\xed\xa0\x80}", b"\xc0\x80", b"a\xff\xffb",
]  # fmt: skip
PARTS = ["}", "0000", "\\u", "\u00e9"]


def _is_utf8(raw: bytes) -> bool:
    try:
        return bool(raw.decode()) or not raw
    except UnicodeDecodeError:
        return False


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """How Spark works out columns: within a lambda it does not compile them."""
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    conf = interpreted if request.param == "interpreted" else {}
    for name, value in conf.items():
        spark.conf.set(name, value)
    yield str(request.param)
    for name in conf:
        spark.conf.unset(name)


@pytest.mark.usefixtures("way")
def test_java_text_answers_as_python_does(spark: SparkSession) -> None:
    raws = spark.createDataFrame([(raw,) for raw in [*TEXTS, None]], "raw binary")
    java = JavaText(F.col("raw").cast("string"))
    asked = {f"has {part}": java.has(part) for part in PARTS} | {
        f"at {part}": java.place(part) for part in "}0"
    }
    asked |= {"ascii": java.is_ascii, "length": java.length}
    found = raws.select("raw", *[column.alias(name) for name, column in asked.items()]).collect()
    assert sorted(row.raw for row in found if row.raw is not None) == sorted(TEXTS)
    for row in found:
        if row.raw is None:
            assert row == Row(*[None] * len(row))
            continue
        raw = bytes(row.raw)
        assert row["ascii"] == raw.isascii(), raw
        if _is_utf8(raw):
            text = raw.decode()
            assert row["length"] == len(text.encode("utf-16-be")) // 2
            assert [row[f"has {part}"] for part in PARTS] == [part in text for part in PARTS], raw
            before = [text[: text.find(part)] if part in text else None for part in "}0"]
            places = [-1 if each is None else len(each.encode("utf-16-be")) // 2 for each in before]
            assert [row[f"at {part}"] for part in "}0"] == places, raw
