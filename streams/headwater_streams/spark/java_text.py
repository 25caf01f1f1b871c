"""A text as a String of Java: it is searched in long strides, where Spark's own functions go from byte to byte.

Made once for a row, however many questions are asked of it.
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
    """Questions to a text; NULL where it is NULL.

    Attributes:
        text: The text, as STRING.
    """

    text: Column

    @property
    def length(self) -> Column:
        """How many UTF-16 units it has; a byte that is not UTF-8 is one, alone or with others."""
        return column_of(_asked(self._string, "length", _type("IntegerType")))

    @property
    def is_ascii(self) -> Column:
        """Whether it has ASCII alone, and is UTF-8 then."""
        # Each other character has more bytes than units, but for what stands for one byte that is not UTF-8.
        return (self.length == F.octet_length(self.text)) & (self.place(_REPLACEMENT) == -1)

    def place(self, character: str) -> Column:
        """Before how many units a character stands first; -1 if it does not."""
        code = expression_of(F.lit(ord(character)))
        return column_of(_asked(self._string, "indexOf", _type("IntegerType"), code))

    def has(self, part: str) -> Column:
        """Whether a part is in it."""
        literal = jvm_class(SparkSession.active(), "org.apache.spark.sql.catalyst.expressions.Literal")
        return column_of(
            _asked(self._string, "contains", _type("BooleanType"), literal(part, _string_type()))
        )

    @cached_property
    def _string(self) -> Any:
        return _asked(expression_of(self.text), "toString", _string_type())


def _asked(of: Any, method: str, kind: Any, *arguments: Any) -> Any:
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
