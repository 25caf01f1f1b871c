"""Types of columns in SQL and in Arrow."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW: dict[type[T.DataType], str] = {
    T.BooleanType: "bool",
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.FloatType: "float32",
    T.DoubleType: "float64",
    T.StringType: "string",
    T.BinaryType: "binary",
    T.DateType: "date32",
}


def sql_of(spark: SparkSession, kind: T.DataType) -> str:
    """A type's text in SQL, with the names of its fields quoted."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - PySpark's own text of a type quotes no field of a struct
    return str(session.parseDataType(kind.json()).sql())


def arrow_of(kind: T.DataType) -> "pa.DataType":
    """The type of Arrow that Spark takes for one of its own.

    PySpark's own function for it is private, and its arguments are others since Spark 4.2.

    Raises:
        TypeError: No format here has the type.
    """
    import pyarrow as pa

    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(each.name, arrow_of(each.dataType), each.nullable) for each in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", arrow_of(kind.elementType), kind.containsNull))
    if isinstance(kind, T.MapType):
        value = pa.field("value", arrow_of(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_of(kind.keyType), nullable=False), value)
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.TimestampType):
        return pa.timestamp("us", tz="UTC")
    name = _ARROW.get(type(kind))
    if name is None:
        raise TypeError(f"{kind.simpleString()} has no type of Arrow here")
    return pa.type_for_alias(name)
