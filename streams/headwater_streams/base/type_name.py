"""The name of a type of Spark's, as messages have it."""

from pyspark.sql import types as T


def type_name(kind: T.DataType) -> str:
    """A type as one writes it in DDL: in upper case, but for the names of fields, which are as they were declared."""
    if isinstance(kind, T.StructType):
        return f"STRUCT<{', '.join(f'{field.name}: {type_name(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{type_name(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{type_name(kind.keyType)}, {type_name(kind.valueType)}>"
    return kind.simpleString().upper()
