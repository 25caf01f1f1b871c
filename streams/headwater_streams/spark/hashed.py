"""Values of any type as columns whose hashes differ when the values do.

Spark's hashes skip a NULL, also one within a list or a struct, and the ends of inner lists: [1, NULL] is hashed as [1]
is, and [[1], [2]] as [[1, 2]]. All NaNs are one value, and so are the two zeros, as in its groupings.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of JSON: Spark's own texts of times are of milliseconds."""
EXACT_JSON = {"ignoreNullFields": "false", **EXACT_TIMES}
"""With these options equal rows have the same text, and others another."""


def hash_parts(kind: T.DataType, value: Column) -> list[Column]:
    """The columns to hash in place of a value of a type; a map or a VARIANT, which Spark does not hash, by its text."""
    if isinstance(kind, T.StructType):
        inner = [
            part for field in kind.fields for part in hash_parts(field.dataType, value.getField(field.name))
        ]
        return [value.isNull(), *inner]
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        parts = F.transform(value, lambda each: F.struct(*hash_parts(element, each)))
        return [value.isNull(), F.size(value), parts]
    if isinstance(kind, T.MapType | T.VariantType):
        value = F.to_json(F.struct(value.alias("v")), EXACT_JSON)
    return [value.isNull(), value]
