"""A text as a String of Java, whose search is vectorised; Spark's own functions go from byte to byte.

The String is made once for a row, however often it is used.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headwater_streams.spark.expressions import column_of, expression_of
from headwater_streams.spark.gateway import jvm_class, to_seq

_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class JavaText:
    """Properties of a text; NULL where the text is NULL.

    Attributes:
        text: The text, as STRING.
    """

    text: Column

    @property
    def length(self) -> Column:
        """How many UTF-16 units it has; a byte that is not UTF-8 is one, alone or with others."""
        return column_of(_invoke(self._string, "length", _type("IntegerType")))

    @property
    def is_ascii(self) -> Column:
        """Whether it has only ASCII characters, and so is valid UTF-8."""
        # Every other character has more bytes than units, except the replacement of a single byte that is not UTF-8.
        return (self.length == F.octet_length(self.text)) & (self.place(_REPLACEMENT) == -1)

    def place(self, character: str) -> Column:
        """How many units come before a character's first place; -1 if the text does not have it."""
        code = expression_of(F.lit(ord(character)))
        return column_of(_invoke(self._string, "indexOf", _type("IntegerType"), code))

    def has(self, part: str) -> Column:
        """Whether a part is in it."""
        literal = jvm_class(SparkSession.active(), "org.apache.spark.sql.catalyst.expressions.Literal")
        return column_of(
            _invoke(self._string, "contains", _type("BooleanType"), literal(part, _string_type()))
        )

    @cached_property
    def _string(self) -> Any:
        return _invoke(expression_of(self.text), "toString", _string_type())


def _invoke(of: Any, method: str, kind: Any, *arguments: Any) -> Any:
    """The expression that calls a method of Java; NULL of NULL."""
    spark = SparkSession.active()
    invoke = jvm_class(spark, "org.apache.spark.sql.catalyst.expressions.objects.Invoke")
    return invoke(of, method, kind, to_seq(spark, list(arguments)), to_seq(spark, []), True, True, True)


def _type(name: str) -> Any:
    return getattr(jvm_class(SparkSession.active(), "org.apache.spark.sql.types.DataTypes"), name)


def _string_type() -> Any:
    spark = SparkSession.active()
    java_class = jvm_class(spark, "java.lang.Class").forName("java.lang.String")
    return jvm_class(spark, "org.apache.spark.sql.types.ObjectType")(java_class)
