"""Spark's types as types of Arrow, for the columns that a reader in Python makes."""

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from headwater_streams.spark.sql_types import arrow_of

_KIND = T.StructType(
    [
        T.StructField("flag", T.BooleanType()),
        T.StructField("number", T.LongType(), nullable=False),
        T.StructField("price", T.DecimalType(20, 2)),
        T.StructField("at", T.TimestampType()),
        T.StructField("texts", T.ArrayType(T.StringType(), containsNull=False)),
        T.StructField(
            "parts", T.MapType(T.IntegerType(), T.StructType([T.StructField("x", T.BinaryType())]))
        ),
    ]
)


def test_arrow_of_a_struct_has_its_fields_and_what_may_be_null() -> None:
    assert arrow_of(_KIND) == pa.struct(
        [
            pa.field("flag", pa.bool_()),
            pa.field("number", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(20, 2)),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("texts", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("parts", pa.map_(pa.int32(), pa.struct([pa.field("x", pa.binary())]))),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (T.ByteType(), pa.int8()),
        (T.ShortType(), pa.int16()),
        (T.FloatType(), pa.float32()),
        (T.DoubleType(), pa.float64()),
        (T.DateType(), pa.date32()),
    ],
    ids=lambda each: str(each),
)
def test_arrow_of_a_single_value_is_of_its_width(kind: T.DataType, arrow: pa.DataType) -> None:
    assert arrow_of(kind) == arrow


def test_arrow_of_a_type_that_no_format_has_is_refused() -> None:
    with pytest.raises(TypeError, match="variant has no type of Arrow here"):
        arrow_of(T.VariantType())
